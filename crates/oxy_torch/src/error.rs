//! What can go wrong at the boundary with torch.

/// An error of this crate. A failing torch function carries torch's own message where the ABI tells it (torch 2.13 and
/// newer); a caller that must raise eager's exception, with its type, repeats the operator in Python.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("torch is not loaded in this process ({library} not found); import torch first")]
    NotLoaded { library: &'static str },
    #[error("{library} has no symbol `{symbol}`: this torch is not supported (oxyfuel needs torch 2.11 or newer)")]
    MissingSymbol { library: &'static str, symbol: String },
    #[error("this torch ({version}) encodes {what} differently than oxyfuel expects: it is not supported")]
    Encoding { version: String, what: String },
    #[error("this torch's Python tensors are not laid out as oxyfuel expects ({0}): it is not supported")]
    Layout(String),
    /// The C ABI can't express the call; calling the operator from Python works.
    #[error("{op}: {what} can't be passed through torch's C ABI")]
    Unsupported { op: String, what: String },
    /// The operator failed; the message is torch's.
    #[error("{}", message.as_deref().unwrap_or("the operator failed"))]
    Operator { op: String, message: Option<String> },
    /// A function of the ABI failed.
    #[error("{function}: {}", message.as_deref().unwrap_or("failed"))]
    Failed { function: &'static str, message: Option<String> },
}

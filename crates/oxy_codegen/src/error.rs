//! What can go wrong in code generation. All of these are ours (bugs or unsupported kernels), never the user's.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodegenError {
    /// LLVM refused a module, a pass or an object.
    #[error("llvm: {0}")]
    Llvm(String),
    #[error("not a symbol name: {0:?}")]
    BadName(String),
    #[error("two kernels are named {0:?}")]
    DuplicateName(String),
    /// The kernel uses something that has no code, e.g. a complex dtype.
    #[error("kernel {kernel}: unsupported {what}")]
    Unsupported { kernel: String, what: String },
    /// The kernel breaks a rule of `oxy_loops`.
    #[error("kernel {kernel}: {what}")]
    Invalid { kernel: String, what: String },
    #[error("no instruction set is known for cpu {0:?}")]
    UnknownCpu(String),
    /// Bytes that aren't an object of ours (a damaged cache file).
    #[error("malformed object")]
    MalformedObject,
    #[error("object has no symbol {0:?}")]
    MissingSymbol(String),
}

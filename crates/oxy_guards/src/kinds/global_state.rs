//! torch's global state that a trace depends on.

use crate::PyObj;

/// A device type's autocast setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Autocast {
    /// torch's name of the device type.
    pub device: String,
    pub enabled: bool,
    /// The `torch.dtype` that autocast casts to.
    pub dtype: PyObj,
}

/// torch's global state. The number of threads is no part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalState {
    pub grad_enabled: bool,
    pub inference_mode: bool,
    pub autocast: Vec<Autocast>,
    pub autocast_cache: bool,
    pub default_dtype: PyObj,
    /// `None`: no `torch.set_default_device` and no active device context.
    pub default_device: Option<String>,
    pub deterministic: bool,
    pub deterministic_warn_only: bool,
    /// Active `TorchFunctionMode`s.
    pub function_modes: u32,
    /// Active `TorchDispatchMode`s.
    pub dispatch_modes: u32,
    /// `torch._C.DisableTorchFunction` and the like are not active.
    pub torch_function_enabled: bool,
}

//! Parts of tensors: `TensorGrad`.

use pyo3::{Python, ffi::PyObject, intern};

/// `grad`. The Python object for it may be new, so it is owned. Subclasses may run user code.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn grad(base: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let py = Python::assume_attached();
        super::instances::any_attr(base, intern!(py, "grad").as_ptr(), owned)
    }
}

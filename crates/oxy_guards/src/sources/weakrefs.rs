//! Weak references: `WeakrefTarget`.

use crate::cpython;
use pyo3::ffi::PyObject;
use std::ptr;

/// What it refers to; NULL if that is gone.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn target(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe { if cpython::is_weakref(base) { cpython::weakref_target(base) } else { ptr::null_mut() } }
}

//! Parts of `functools.partial` objects: `PartialFunc`, `PartialArgs`, `PartialKeywords`. They are C-level members.

use crate::cpython;
use pyo3::{Python, ffi::PyObject, intern};

/// `func`
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn func(base: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let py = Python::assume_attached();
        cpython::member(base, intern!(py, "func").as_ptr(), owned)
    }
}

/// `args`
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn args(base: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let py = Python::assume_attached();
        cpython::member(base, intern!(py, "args").as_ptr(), owned)
    }
}

/// `keywords`
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn keywords(base: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let py = Python::assume_attached();
        cpython::member(base, intern!(py, "keywords").as_ptr(), owned)
    }
}

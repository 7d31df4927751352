//! Types: `TypeOf`, `TypeAttr`.

use crate::cpython;
use pyo3::ffi::{self, PyObject};
use std::ptr;

/// The object's type.
///
/// # Safety
/// Attached; `base` is a live object.
#[inline]
pub unsafe fn type_of(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe { cpython::type_of(base).cast() }
}

/// What a type's method resolution order has under a name, unbound.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn attr(base: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        if cpython::has_flag(base, ffi::Py_TPFLAGS_TYPE_SUBCLASS) {
            cpython::type_attr(base.cast(), name)
        } else {
            ptr::null_mut()
        }
    }
}

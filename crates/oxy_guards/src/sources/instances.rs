//! Attributes of objects: `InstanceDict`, `InstanceAttr`, `Member`, `Attr`.

use crate::cpython;
use pyo3::ffi::{self, PyObject};

/// The object's `__dict__`.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn dict(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe { cpython::instance_dict(base) }
}

/// What the object's own `__dict__` has under a name.
///
/// # Safety
/// Attached; `base` is a live object.
#[inline]
pub unsafe fn attr(base: *mut PyObject, name: *mut PyObject, hash: isize) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe { cpython::instance_attr(base, name, hash) }
}

/// A `__slots__` or C-level member.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn member(base: *mut PyObject, name: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe { cpython::member(base, name, owned) }
}

/// `getattr(base, name)`; an exception means that it isn't there. May run user code.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn any_attr(base: *mut PyObject, name: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let value = ffi::PyObject_GetAttr(base, name);
        if value.is_null() {
            ffi::PyErr_Clear();
        } else {
            owned.push(value);
        }
        value
    }
}

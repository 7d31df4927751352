//! `InstanceLacks`: an object's own `__dict__` lacks a name.

use crate::{PyObj, cpython};
use pyo3::ffi::PyObject;

/// # Safety
/// Attached; `value` is a live object; `hash` is the name's.
#[inline]
pub unsafe fn holds(name: &PyObj, hash: isize, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { cpython::instance_attr(value, name.as_ptr(), hash).is_null() }
}

pub fn difference(name: &PyObj) -> String {
    format!("expected no attribute '{}' of its own", name.name())
}

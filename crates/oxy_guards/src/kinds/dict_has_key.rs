//! `DictHasKey`: a dict has a key.

use crate::{PyObj, cpython};
use pyo3::ffi::PyObject;

/// # Safety
/// Attached; `value` is a live object; `hash` is the key's.
#[inline]
pub unsafe fn holds(key: &PyObj, hash: isize, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { cpython::is_dict(value) && !cpython::dict_item(value, key.as_ptr(), hash).is_null() }
}

pub fn difference(key: &PyObj) -> String {
    format!("expected the key {}", key.repr())
}

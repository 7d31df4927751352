//! `DictLength`: the number of items of a dict.

use crate::cpython;
use pyo3::{
    ffi::{self, PyObject},
    prelude::*,
};

/// # Safety
/// Attached; `value` is a live object.
#[inline]
pub unsafe fn holds(length: u32, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise; the flag makes it a dict.
    unsafe { cpython::has_flag(value, ffi::Py_TPFLAGS_DICT_SUBCLASS) && ffi::PyDict_Size(value) == length as isize }
}

pub fn difference(length: u32, value: &Bound<'_, PyAny>) -> String {
    match value.cast::<pyo3::types::PyDict>() {
        Ok(value) => format!("len(): expected {length}, got {}", value.len()),
        Err(_) => "expected a dict".to_owned(),
    }
}

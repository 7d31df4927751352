//! `TupleLength`: the number of items of a tuple.

use crate::cpython;
use pyo3::{
    ffi::{self, PyObject},
    prelude::*,
};

/// # Safety
/// Attached; `value` is a live object.
#[inline]
pub unsafe fn holds(length: u32, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise; the flag makes it a tuple.
    unsafe {
        cpython::has_flag(value, ffi::Py_TPFLAGS_TUPLE_SUBCLASS) && ffi::PyTuple_GET_SIZE(value) == length as isize
    }
}

pub fn difference(length: u32, value: &Bound<'_, PyAny>) -> String {
    match value.cast::<pyo3::types::PyTuple>() {
        Ok(value) => format!("len(): expected {length}, got {}", value.len()),
        Err(_) => "expected a tuple".to_owned(),
    }
}

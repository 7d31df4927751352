//! `Missing`: a slot, cell, member or item is not there.

use crate::object::short_repr;
use pyo3::{ffi::PyObject, prelude::*};

#[inline]
pub fn holds(value: *mut PyObject) -> bool {
    value.is_null()
}

pub fn difference(value: &Bound<'_, PyAny>) -> String {
    format!("expected nothing, got {}", short_repr(value))
}

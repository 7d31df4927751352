//! `IsObject`: exactly an object.

use crate::{PyObj, object::short_repr};
use pyo3::{ffi::PyObject, prelude::*};

#[inline]
pub fn holds(object: &PyObj, value: *mut PyObject) -> bool {
    value == object.as_ptr()
}

pub fn difference(object: &PyObj, value: &Bound<'_, PyAny>) -> String {
    format!("expected the object {}, got {}", object.repr(), short_repr(value))
}

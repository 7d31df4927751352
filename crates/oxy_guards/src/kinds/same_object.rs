//! `SameObject`: two sources lead to one object.

use crate::Source;
use pyo3::ffi::PyObject;

#[inline]
pub fn holds(value: *mut PyObject, other: *mut PyObject) -> bool {
    value == other
}

pub fn difference(other: &Source) -> String {
    format!("expected the same object as {other}")
}

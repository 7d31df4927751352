//! `NotSameObject`: two sources lead to different objects.

use crate::Source;
use pyo3::ffi::PyObject;

#[inline]
pub fn holds(value: *mut PyObject, other: *mut PyObject) -> bool {
    value != other
}

pub fn difference(other: &Source) -> String {
    format!("expected another object than {other}")
}

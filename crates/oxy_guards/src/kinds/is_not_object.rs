//! `IsNotObject`: anything but an object.

use crate::PyObj;
use pyo3::ffi::PyObject;

#[inline]
pub fn holds(object: &PyObj, value: *mut PyObject) -> bool {
    value != object.as_ptr()
}

pub fn difference(object: &PyObj) -> String {
    format!("expected anything but the object {}", object.repr())
}

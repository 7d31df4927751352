//! `TypeIs`: exactly a type.

use crate::{PyObj, cpython, object};
use pyo3::{ffi::PyObject, prelude::*};
use std::ptr;

/// # Safety
/// Attached; `value` is a live object.
#[inline]
pub unsafe fn holds(class: &PyObj, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ptr::addr_eq(cpython::type_of(value), class.as_ptr()) }
}

pub fn difference(class: &PyObj, value: &Bound<'_, PyAny>) -> String {
    let actual = object::type_name(value.get_type().as_any());
    format!("type: expected {}, got {actual}", object::type_name(class.bind(value.py())))
}

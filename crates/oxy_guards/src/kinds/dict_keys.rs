//! `DictKeys`: exactly these keys in this order.

use super::equals;
use crate::{PyObj, cpython, object::short_repr};
use pyo3::{
    ffi::{self, PyObject},
    prelude::*,
};

/// # Safety
/// Attached; `value` is a live object.
pub unsafe fn holds(keys: &[PyObj], value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise; comparing literals changes no dictionary.
    unsafe {
        if !cpython::is_dict(value) || ffi::PyDict_Size(value) != keys.len() as isize {
            return false;
        }
        let mut expected = keys.iter();
        cpython::all_keys(value, |key| expected.next().is_some_and(|expected| equals::holds(expected.as_ptr(), key)))
    }
}

pub fn difference(keys: &[PyObj], value: &Bound<'_, PyAny>) -> String {
    let expected: Vec<String> = keys.iter().map(PyObj::repr).collect();
    let actual = match value.try_iter().map(|keys| keys.flatten().map(|key| short_repr(&key)).collect::<Vec<_>>()) {
        Ok(actual) => actual,
        Err(_) => return "expected a dict".to_owned(),
    };
    format!("keys: expected [{}], got [{}]", expected.join(", "), actual.join(", "))
}

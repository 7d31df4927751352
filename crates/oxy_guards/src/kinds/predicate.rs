//! `Predicate`: a Python callable says whether a value will do.

use crate::{PyObj, object::short_repr};
use pyo3::{
    ffi::{self, PyObject},
    prelude::*,
};

/// An exception means no. Runs the callable.
///
/// # Safety
/// Attached; `value` is a live object that is owned by someone while the callable runs.
pub unsafe fn holds(callable: &PyObj, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let answer = ffi::PyObject_CallOneArg(callable.as_ptr(), value);
        if answer.is_null() {
            ffi::PyErr_Clear();
            return false;
        }
        let truth = ffi::PyObject_IsTrue(answer);
        ffi::Py_DECREF(answer);
        if truth < 0 {
            ffi::PyErr_Clear();
        }
        truth == 1
    }
}

pub fn difference(callable: &PyObj, value: &Bound<'_, PyAny>) -> String {
    format!("{} doesn't accept {}", callable.repr(), short_repr(value))
}

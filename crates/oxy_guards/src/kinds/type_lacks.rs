//! `TypeLacks`: no class of a type's method resolution order has a name.

use crate::{PyObj, cpython};
use pyo3::ffi::{self, PyObject};

/// # Safety
/// Attached; `value` is a live object.
pub unsafe fn holds(name: &PyObj, value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise; the flag makes it a type.
    unsafe {
        cpython::has_flag(value, ffi::Py_TPFLAGS_TYPE_SUBCLASS)
            && cpython::type_attr(value.cast(), name.as_ptr()).is_null()
    }
}

pub fn difference(name: &PyObj) -> String {
    format!("expected no class attribute '{}'", name.name())
}

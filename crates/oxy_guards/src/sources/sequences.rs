//! Items of lists and tuples: `ListItem`, `TupleItem`. Of subclasses the items themselves, never `__getitem__`.

use crate::cpython;
use pyo3::ffi::{self, PyObject};
use std::ptr;

/// The item at an index.
///
/// # Safety
/// Attached; `base` is a live object.
#[inline]
pub unsafe fn list_item(base: *mut PyObject, index: u32) -> *mut PyObject {
    // SAFETY: the caller's promise; the index is checked against the length.
    unsafe {
        if cpython::has_flag(base, ffi::Py_TPFLAGS_LIST_SUBCLASS) && (index as isize) < ffi::PyList_GET_SIZE(base) {
            ffi::PyList_GET_ITEM(base, index as isize)
        } else {
            ptr::null_mut()
        }
    }
}

/// The item at an index.
///
/// # Safety
/// Attached; `base` is a live object.
#[inline]
pub unsafe fn tuple_item(base: *mut PyObject, index: u32) -> *mut PyObject {
    // SAFETY: the caller's promise; the index is checked against the length.
    unsafe {
        if cpython::has_flag(base, ffi::Py_TPFLAGS_TUPLE_SUBCLASS) && (index as isize) < ffi::PyTuple_GET_SIZE(base) {
            ffi::PyTuple_GET_ITEM(base, index as isize)
        } else {
            ptr::null_mut()
        }
    }
}

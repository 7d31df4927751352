//! Cells: `CellContents`.

use pyo3::ffi::{self, PyObject};
use std::ptr;

/// What a cell holds.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn contents(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a cell.
    unsafe {
        match ffi::PyCell_Check(base) {
            0 => ptr::null_mut(),
            _ => (*base.cast::<ffi::PyCellObject>()).ob_ref,
        }
    }
}

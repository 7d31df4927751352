//! Dictionaries: `DictItem`, `DictKeyAt`. Of subclasses the dictionary part is read, never `__getitem__`.

use crate::cpython;
use pyo3::ffi::PyObject;
use std::ptr;

/// What a dictionary holds under a key with this hash.
///
/// # Safety
/// Attached; `base` is a live object.
#[inline]
pub unsafe fn item(base: *mut PyObject, key: *mut PyObject, hash: isize) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe { if cpython::is_dict(base) { cpython::dict_item(base, key, hash) } else { ptr::null_mut() } }
}

/// The key at a position of the dictionary's order.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn key_at(base: *mut PyObject, index: u32) -> *mut PyObject {
    // SAFETY: the caller's promise. The dictionary keeps its keys alive.
    unsafe {
        if !cpython::is_dict(base) {
            return ptr::null_mut();
        }
        let (mut position, mut found) = (0, ptr::null_mut());
        cpython::all_keys(base, |key| {
            if position == index {
                found = key;
            }
            position += 1;
            found.is_null()
        });
        found
    }
}

//! CPython 3.12: one word before an object holds its dictionary, or its values with the lowest bit set.

use super::{MANAGED_DICT, dict_slot, has_flag};
use pyo3::ffi::PyObject;
use std::ffi::c_ulong;

#[path = "watchers.rs"]
mod watchers;
pub use watchers::{DictEvent, add_dict_watcher, unwatch_dict, watch_dict};

/// `tp_flags` bits that say that a type's version tag is valid: `Py_TPFLAGS_VALID_VERSION_TAG`.
pub const VALID_VERSION: c_ulong = 1 << 19;

/// Where an object's own attributes are.
pub enum Storage {
    Nothing,
    Dict(*mut PyObject),
    /// Values in the order of the type's shared keys.
    Values(*const *mut PyObject),
}

/// Makes an object store its attributes in its dictionary alone: it does so once it has one.
///
/// # Safety
/// Attached; the object is live and `dict` is its dictionary.
pub unsafe fn settle_dict(_object: *mut PyObject, _dict: *mut PyObject) {}

/// Whether changes of an object's attributes are changes of its dictionary.
///
/// # Safety
/// As [`settle_dict`].
pub unsafe fn is_settled(_object: *mut PyObject) -> bool {
    true
}

/// # Safety
/// Attached; the object is live.
pub unsafe fn attribute_storage(object: *mut PyObject) -> Storage {
    // SAFETY: the caller's promise; a type with a managed dictionary has four words before its instances.
    unsafe {
        let dict = if has_flag(object, MANAGED_DICT) {
            // _PyObject_DictOrValuesPointer
            let dict_or_values = *object.cast::<*mut u8>().sub(3);
            if dict_or_values as usize & 1 != 0 {
                return Storage::Values(dict_or_values.add(1).cast());
            }
            dict_or_values.cast()
        } else {
            let slot = dict_slot(object);
            if slot.is_null() { std::ptr::null_mut() } else { *slot }
        };
        if dict.is_null() { Storage::Nothing } else { Storage::Dict(dict) }
    }
}

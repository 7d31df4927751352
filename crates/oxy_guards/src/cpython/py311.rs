//! CPython 3.11: values and dictionary of an object are two words before it; dictionaries have no watchers.

use super::{MANAGED_DICT, dict_slot, has_flag};
use pyo3::ffi::PyObject;
use std::ffi::c_ulong;

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
            // _PyObject_ValuesPointer, _PyObject_ManagedDictPointer
            let values = *object.cast::<*const *mut PyObject>().sub(4);
            if !values.is_null() {
                return Storage::Values(values);
            }
            *object.cast::<*mut PyObject>().sub(3)
        } else {
            let slot = dict_slot(object);
            if slot.is_null() { std::ptr::null_mut() } else { *slot }
        };
        if dict.is_null() { Storage::Nothing } else { Storage::Dict(dict) }
    }
}

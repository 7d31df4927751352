//! CPython 3.11: values and dictionary of an object are two words before it; dictionaries have no watchers.

use super::{MANAGED_DICT, dict_slot, has_flag};
use pyo3::ffi::PyObject;

/// Where an object's own attributes are.
pub enum Storage {
    Nothing,
    Dict(*mut PyObject),
    /// Values in the order of the type's shared keys.
    Values(*const *mut PyObject),
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

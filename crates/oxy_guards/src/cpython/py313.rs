//! CPython 3.13: values are inside of the object, and shared with its dictionary once there is one.

use super::{MANAGED_DICT, dict_slot, has_flag, type_of};
use pyo3::ffi::PyObject;
use std::ffi::c_ulong;

#[path = "watchers.rs"]
mod watchers;
pub use watchers::{DictEvent, add_dict_watcher, unwatch_dict, watch_dict};

/// `Py_TPFLAGS_INLINE_VALUES`
const INLINE_VALUES: c_ulong = 1 << 2;

/// `_dictvalues`
#[repr(C)]
struct Values {
    capacity: u8,
    size: u8,
    embedded: u8,
    valid: u8,
    values: [*mut PyObject; 0],
}

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
    // SAFETY: the caller's promise; a type with a managed dictionary has four words before its instances, and inline
    // values follow the basic size.
    unsafe {
        let dict = if has_flag(object, MANAGED_DICT) {
            // _PyObject_ManagedDictPointer, _PyObject_InlineValues
            let dict = *object.cast::<*mut PyObject>().sub(3);
            if dict.is_null() && has_flag(object, INLINE_VALUES) {
                let values = object.byte_offset((*type_of(object)).tp_basicsize).cast::<Values>();
                if (*values).valid != 0 {
                    return Storage::Values((&raw const (*values).values).cast());
                }
            }
            dict
        } else {
            let slot = dict_slot(object);
            if slot.is_null() { std::ptr::null_mut() } else { *slot }
        };
        if dict.is_null() { Storage::Nothing } else { Storage::Dict(dict) }
    }
}

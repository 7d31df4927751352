//! CPython 3.13: values are inside of the object, and shared with its dictionary once there is one.

use super::{MANAGED_DICT, dict_slot, has_flag, type_attr, type_of};
use pyo3::ffi::{self, PyObject};
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

/// `tp_flags` bits that say that a type's version tag is valid: none, a tag that isn't zero is valid.
pub const VALID_VERSION: c_ulong = 0;

/// Where an object's own attributes are.
pub enum Storage {
    Nothing,
    Dict(*mut PyObject),
    /// Values in the order of the type's shared keys.
    Values(*const *mut PyObject),
}

/// Makes an object store its attributes in its dictionary alone. While values are inside of the object, stores through
/// the object are not announced to the dictionary's watchers. Giving the object its own dictionary again takes the
/// values out of it.
///
/// # Safety
/// Attached; the object is live and `dict` is its dictionary.
pub unsafe fn settle_dict(object: *mut PyObject, dict: *mut PyObject) {
    // SAFETY: the caller's promise; the object's reference keeps the dictionary alive meanwhile.
    unsafe {
        if has_flag(object, MANAGED_DICT) && has_flag(object, INLINE_VALUES) {
            let values = object.byte_offset((*type_of(object)).tp_basicsize).cast::<Values>();
            if (*values).valid == 0 {
                return;
            }
            // The class's own descriptor of `__dict__`, not one that the user put in its place.
            let name = pyo3::intern!(pyo3::Python::assume_attached(), "__dict__");
            let descriptor = type_attr(type_of(object), name.as_ptr());
            if !descriptor.is_null()
                && std::ptr::eq(type_of(descriptor), &raw mut ffi::PyGetSetDescr_Type)
                && let Some(set) = (*type_of(descriptor)).tp_descr_set
                && set(descriptor, object, dict) != 0
            {
                ffi::PyErr_Clear();
            }
        }
    }
}

/// Whether changes of an object's attributes are changes of its dictionary.
///
/// # Safety
/// As [`settle_dict`].
pub unsafe fn is_settled(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        !has_flag(object, MANAGED_DICT)
            || !has_flag(object, INLINE_VALUES)
            || (*object.byte_offset((*type_of(object)).tp_basicsize).cast::<Values>()).valid == 0
    }
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

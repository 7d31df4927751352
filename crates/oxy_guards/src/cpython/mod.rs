//! What guards need of CPython beyond PyO3's bindings: borrowed reads that run no user code.
//!
//! 1. Everything here assumes an attached thread, and pointers to live objects unless it says otherwise.
//! 2. Results are borrowed; NULL means "not there". No function leaves Python's error indicator set.
//! 3. What differs between CPython versions is in `py311`, `py312` and `py313`.

use pyo3::ffi::{self, PyObject, PyTypeObject};
use std::{
    ffi::{c_int, c_ulong},
    ptr,
};

#[cfg(all(Py_3_11, not(Py_3_12)))]
#[path = "py311.rs"]
mod version;
#[cfg(all(Py_3_12, not(Py_3_13)))]
#[path = "py312.rs"]
mod version;
#[cfg(Py_3_13)]
#[path = "py313.rs"]
mod version;

mod split_keys;

#[cfg(Py_3_12)]
pub use version::{DictEvent, add_dict_watcher, unwatch_dict, watch_dict};
pub use version::{Storage, attribute_storage, is_settled, settle_dict};

mod raw {
    use super::*;

    unsafe extern "C" {
        pub static mut PyODict_Type: PyTypeObject;
        pub fn _PyType_Lookup(class: *mut PyTypeObject, name: *mut PyObject) -> *mut PyObject;
        pub fn _PyDict_GetItem_KnownHash(dict: *mut PyObject, key: *mut PyObject, hash: isize) -> *mut PyObject;
        pub fn _PyObject_GetDictPtr(object: *mut PyObject) -> *mut *mut PyObject;
    }
}

/// `tp_flags` bit: the instance dictionary is managed by the interpreter.
pub const MANAGED_DICT: c_ulong = 1 << 4;

/// # Safety
/// See the module.
#[inline]
pub unsafe fn type_of(object: *mut PyObject) -> *mut PyTypeObject {
    // SAFETY: a live object has a type.
    unsafe { ffi::Py_TYPE(object) }
}

/// # Safety
/// See the module.
#[inline]
pub unsafe fn has_flag(object: *mut PyObject, flag: c_ulong) -> bool {
    // SAFETY: a live object's type is live.
    unsafe { (*type_of(object)).tp_flags & flag != 0 }
}

/// Whether `__class__` of instances of this type may be assigned: their type is not forever.
///
/// # Safety
/// See the module.
pub unsafe fn may_change_class(class: *mut PyTypeObject) -> bool {
    // SAFETY: live by the caller's promise. Modules are the one static type that allows assignment.
    unsafe { (*class).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 || ptr::eq(class, &raw mut ffi::PyModule_Type) }
}

/// The hash of a dictionary key; -1 if it has none.
///
/// # Safety
/// See the module. The key's `__hash__` must not be user code.
pub unsafe fn hash(key: *mut PyObject) -> isize {
    // SAFETY: live by the caller's promise.
    unsafe {
        let hash = ffi::PyObject_Hash(key);
        if hash == -1 {
            ffi::PyErr_Clear();
        }
        hash
    }
}

/// # Safety
/// See the module.
#[inline]
pub unsafe fn is_dict(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { has_flag(object, ffi::Py_TPFLAGS_DICT_SUBCLASS) }
}

/// # Safety
/// See the module.
pub unsafe fn is_ordered_dict(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyObject_TypeCheck(object, &raw mut raw::PyODict_Type) != 0 }
}

/// Calls `f` with the keys of a dictionary in its order until it says no: whether it always said yes.
///
/// # Safety
/// See the module. `dict` is a dict; `f` changes no dictionary.
pub unsafe fn all_keys(dict: *mut PyObject, mut f: impl FnMut(*mut PyObject) -> bool) -> bool {
    // SAFETY: the caller's promise. An OrderedDict keeps its order outside of the dictionary part; its own iterator
    // runs no user code.
    unsafe {
        if is_ordered_dict(dict) {
            let Some(iter) = raw::PyODict_Type.tp_iter else { return false };
            let keys = iter(dict);
            if keys.is_null() {
                ffi::PyErr_Clear();
                return false;
            }
            let mut going = true;
            while going {
                let key = ffi::PyIter_Next(keys);
                if key.is_null() {
                    break;
                }
                going = f(key);
                ffi::Py_DECREF(key);
            }
            ffi::PyErr_Clear();
            ffi::Py_DECREF(keys);
            return going;
        }
        let (mut position, mut key) = (0, ptr::null_mut());
        while ffi::PyDict_Next(dict, &mut position, &mut key, ptr::null_mut()) != 0 {
            if !f(key) {
                return false;
            }
        }
        true
    }
}

/// What a dictionary (or a subclass's dictionary part) holds under a key.
///
/// # Safety
/// See the module. `dict` is a dict, and `hash` is the key's.
#[inline]
pub unsafe fn dict_item(dict: *mut PyObject, key: *mut PyObject, hash: isize) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let value = raw::_PyDict_GetItem_KnownHash(dict, key, hash);
        if value.is_null() && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        value
    }
}

/// The version tag of a dictionary. A dictionary never has the same tag before and after a change, and no two have one.
///
/// # Safety
/// See the module. `dict` is a dict.
#[inline]
pub unsafe fn dict_version_address(dict: *mut PyObject) -> *const u64 {
    // SAFETY: the field is inside of the live dictionary.
    #[allow(deprecated, reason = "deprecated for users; the field is there up to 3.13")]
    unsafe {
        &raw const (*dict.cast::<ffi::PyDictObject>()).ma_version_tag
    }
}

/// Where an object keeps its `__dict__`, after making the dictionary if its attributes are stored without one.
/// NULL: objects of this type have none.
///
/// # Safety
/// See the module.
pub unsafe fn dict_slot(object: *mut PyObject) -> *mut *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let slot = raw::_PyObject_GetDictPtr(object);
        if !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        slot
    }
}

/// The `__dict__` of an object, made if need be.
///
/// # Safety
/// See the module.
pub unsafe fn instance_dict(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; a slot is inside of the live object.
    unsafe {
        let slot = dict_slot(object);
        if slot.is_null() {
            return ptr::null_mut();
        }
        if (*slot).is_null() && has_flag(object, MANAGED_DICT) {
            // No attribute was ever set: `__dict__` makes the dictionary, and the object keeps it.
            let dict = ffi::PyObject_GenericGetDict(object, ptr::null_mut());
            if dict.is_null() {
                ffi::PyErr_Clear();
            } else {
                ffi::Py_DECREF(dict);
            }
        }
        *slot
    }
}

/// What an object's own `__dict__` has under a name, without making the dictionary.
///
/// # Safety
/// See the module. `name` is a str with its hash.
pub unsafe fn instance_attr(object: *mut PyObject, name: *mut PyObject, hash: isize) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        match attribute_storage(object) {
            Storage::Nothing => ptr::null_mut(),
            Storage::Dict(dict) => dict_item(dict, name, hash),
            Storage::Values(values) => split_keys::value(type_of(object), values, name, hash),
        }
    }
}

/// What a type's method resolution order has under a name.
///
/// # Safety
/// See the module. `class` is a type, `name` a str.
pub unsafe fn type_attr(class: *mut PyTypeObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let value = raw::_PyType_Lookup(class, name);
        if value.is_null() && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        value
    }
}

/// The version tag of a type if it has one. A type gets another tag, or none, when anything on its method resolution
/// order changes.
///
/// # Safety
/// See the module.
pub unsafe fn type_version_address(class: *mut PyTypeObject) -> Option<*const u32> {
    // SAFETY: the caller's promise.
    unsafe {
        let valid =
            (*class).tp_flags & version::VALID_VERSION == version::VALID_VERSION && (*class).tp_version_tag != 0;
        valid.then(|| &raw const (*class).tp_version_tag)
    }
}

/// A C-level member of an object by the descriptor in its class. A member that isn't kept as an object is made, and
/// then owned by `owned`.
///
/// # Safety
/// See the module. `name` is a str.
pub unsafe fn member(object: *mut PyObject, name: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    const T_OBJECT: c_int = 6;
    const T_OBJECT_EX: c_int = 16;
    // SAFETY: the caller's promise; a member descriptor found on the object's own type describes the object.
    unsafe {
        let descriptor = type_attr(type_of(object), name);
        if descriptor.is_null() || !ptr::eq(type_of(descriptor), &raw mut ffi::PyMemberDescr_Type) {
            return ptr::null_mut();
        }
        let descriptor = descriptor.cast::<ffi::PyMemberDescrObject>();
        if ffi::PyType_IsSubtype(type_of(object), (*descriptor).d_common.d_type) == 0 {
            return ptr::null_mut();
        }
        let member = (*descriptor).d_member;
        let value = ffi::PyMember_GetOne(object.cast(), member);
        if value.is_null() {
            ffi::PyErr_Clear();
        } else if matches!((*member).type_code, T_OBJECT | T_OBJECT_EX) {
            // The object's own reference is enough.
            ffi::Py_DECREF(value);
        } else {
            owned.push(value);
        }
        value
    }
}

/// # Safety
/// See the module.
pub unsafe fn is_weakref(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyWeakref_CheckRef(object) != 0 }
}

/// What a weak reference refers to.
///
/// # Safety
/// See the module. `reference` is a weak reference.
#[inline]
pub unsafe fn weakref_target(reference: *mut PyObject) -> *mut PyObject {
    /// The head of CPython's `PyWeakReference`, the same in all supported versions.
    #[repr(C)]
    struct Weakref {
        head: PyObject,
        object: *mut PyObject,
    }
    // SAFETY: the caller's promise. A dead reference holds None; an object being destroyed has no references left.
    unsafe {
        let target = (*reference.cast::<Weakref>()).object;
        let dead = ptr::eq(target, ffi::Py_None()) || ffi::Py_REFCNT(target) == 0;
        if dead { ptr::null_mut() } else { target }
    }
}

/// `left == right` of two objects of one builtin immutable type.
///
/// # Safety
/// See the module. Comparing them runs no user code.
pub unsafe fn equal_values(left: *mut PyObject, right: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let answer: c_int = ffi::PyObject_RichCompareBool(left, right, ffi::Py_EQ);
        if answer < 0 {
            ffi::PyErr_Clear();
        }
        answer == 1
    }
}

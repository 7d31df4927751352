//! Attribute values stored without a dictionary: the names are in the type's shared keys.

use pyo3::ffi::{self, PyObject, PyTypeObject};
use std::ptr;

/// `_dictkeysobject` up to its table. The same in all supported versions (without free threading).
#[repr(C)]
struct Keys {
    refcnt: isize,
    log2_size: u8,
    log2_index_bytes: u8,
    kind: u8,
    version: u32,
    usable: isize,
    nentries: isize,
    indices: [u8; 0],
}

/// `PyDictUnicodeEntry`
#[repr(C)]
struct Entry {
    key: *mut PyObject,
    value: *mut PyObject,
}

/// The value of a name, borrowed; NULL if it is unset.
///
/// # Safety
/// `class` is a heap type whose instances store values under its shared keys, `values` an instance's, in order of the
/// keys; `name` is a str with its hash. Attached.
pub unsafe fn value(
    class: *mut PyTypeObject,
    values: *const *mut PyObject,
    name: *mut PyObject,
    hash: isize,
) -> *mut PyObject {
    // SAFETY: the caller's promise; shared keys have str keys only, and entries follow the index table.
    unsafe {
        let keys = (*class.cast::<ffi::PyHeapTypeObject>()).ht_cached_keys.cast::<Keys>();
        if keys.is_null() {
            return ptr::null_mut();
        }
        let table = (&raw const (*keys).indices).cast::<u8>();
        let entries = table.add(1 << (*keys).log2_index_bytes).cast::<Entry>();
        for index in 0..(*keys).nentries as usize {
            let key = (*entries.add(index)).key;
            if key == name || (ffi::PyObject_Hash(key) == hash && ffi::PyUnicode_Compare(key, name) == 0) {
                return *values.add(index);
            }
        }
        ptr::null_mut()
    }
}

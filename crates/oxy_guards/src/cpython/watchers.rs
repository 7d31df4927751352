//! Dictionary watchers.

use pyo3::ffi::PyObject;
use std::ffi::c_int;

/// `PyDict_WatchEvent`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(dead_code, reason = "made by CPython")]
pub enum DictEvent {
    Added,
    Modified,
    Deleted,
    Cloned,
    Cleared,
    Deallocated,
}

type Callback = unsafe extern "C" fn(DictEvent, *mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

unsafe extern "C" {
    fn PyDict_AddWatcher(callback: Callback) -> c_int;
    fn PyDict_Watch(id: c_int, dict: *mut PyObject) -> c_int;
    fn PyDict_Unwatch(id: c_int, dict: *mut PyObject) -> c_int;
}

/// Registers a callback: its identifier, if the interpreter has one left.
///
/// # Safety
/// Attached. The callback runs before the change, may run at any dictionary's change, and must not raise or panic.
pub unsafe fn add_dict_watcher(callback: Callback) -> Option<c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let id = PyDict_AddWatcher(callback);
        if id < 0 {
            pyo3::ffi::PyErr_Clear();
            return None;
        }
        Some(id)
    }
}

/// # Safety
/// Attached; `id` is registered and `dict` a live dict.
pub unsafe fn watch_dict(id: c_int, dict: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let done = PyDict_Watch(id, dict) == 0;
        if !done {
            pyo3::ffi::PyErr_Clear();
        }
        done
    }
}

/// # Safety
/// As [`watch_dict`].
pub unsafe fn unwatch_dict(id: c_int, dict: *mut PyObject) {
    // SAFETY: the caller's promise.
    unsafe {
        if PyDict_Unwatch(id, dict) < 0 {
            pyo3::ffi::PyErr_Clear();
        }
    }
}

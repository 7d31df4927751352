//! Parts of functions and bound methods: `Function*`, `Method*`.

use crate::cpython;
use pyo3::ffi::{self, PyObject};
use std::ptr;

unsafe extern "C" {
    static mut PyMethod_Type: ffi::PyTypeObject;
    fn PyMethod_Self(method: *mut PyObject) -> *mut PyObject;
    fn PyMethod_Function(method: *mut PyObject) -> *mut PyObject;
}

/// Whether it is a Python function.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn is_function(base: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ptr::eq(cpython::type_of(base), &raw mut ffi::PyFunction_Type) }
}

/// Whether it is a bound method of a Python function.
///
/// # Safety
/// Attached; `base` is a live object.
unsafe fn is_method(base: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ptr::eq(cpython::type_of(base), &raw mut PyMethod_Type) }
}

/// As Python shows a part that isn't there.
fn or_none(part: *mut PyObject) -> *mut PyObject {
    // SAFETY: None always exists.
    if part.is_null() { unsafe { ffi::Py_None() } } else { part }
}

/// `__code__`
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn code(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a function.
    unsafe { if is_function(base) { (*base.cast::<ffi::PyFunctionObject>()).func_code } else { ptr::null_mut() } }
}

/// `__defaults__`; None if there are none.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn defaults(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a function.
    unsafe {
        if is_function(base) { or_none((*base.cast::<ffi::PyFunctionObject>()).func_defaults) } else { ptr::null_mut() }
    }
}

/// `__kwdefaults__`; None if there are none.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn kwdefaults(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a function.
    unsafe {
        if is_function(base) {
            or_none((*base.cast::<ffi::PyFunctionObject>()).func_kwdefaults)
        } else {
            ptr::null_mut()
        }
    }
}

/// `__closure__`; None if there is none.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn closure(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a function.
    unsafe {
        if is_function(base) { or_none((*base.cast::<ffi::PyFunctionObject>()).func_closure) } else { ptr::null_mut() }
    }
}

/// `__globals__`
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn globals(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a function.
    unsafe { if is_function(base) { (*base.cast::<ffi::PyFunctionObject>()).func_globals } else { ptr::null_mut() } }
}

/// `__self__` of a bound method.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn method_self(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a method.
    unsafe { if is_method(base) { PyMethod_Self(base) } else { ptr::null_mut() } }
}

/// `__func__` of a bound method.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn method_function(base: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise; the exact type makes it a method.
    unsafe { if is_method(base) { PyMethod_Function(base) } else { ptr::null_mut() } }
}

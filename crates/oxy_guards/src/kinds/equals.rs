//! `Equals`: the same type and an equal value.
//!
//! Floats are compared by their bits, and containers by their contents in this same sense: `(1,)`, `(True,)` and
//! `(1.0,)` are three values. Instances of Python classes are equal only if they are one object: their `__eq__` is
//! the user's.

use crate::{PyObj, cpython, object::short_repr};
use pyo3::{
    ffi::{self, PyObject},
    prelude::*,
};
use std::ptr;

/// # Safety
/// Attached; both are live.
pub unsafe fn holds(expected: *mut PyObject, value: *mut PyObject) -> bool {
    if expected == value {
        return true;
    }
    // SAFETY: the caller's promise; each cast follows the check of the exact type, or of the subclass flag.
    unsafe {
        let class = cpython::type_of(value);
        if !ptr::eq(class, cpython::type_of(expected)) {
            return false;
        }
        if ptr::eq(class, &raw mut ffi::PyLong_Type) || ptr::eq(class, &raw mut ffi::PyUnicode_Type) {
            return cpython::equal_values(value, expected);
        }
        if ptr::eq(class, &raw mut ffi::PyFloat_Type) {
            return ffi::PyFloat_AS_DOUBLE(value).to_bits() == ffi::PyFloat_AS_DOUBLE(expected).to_bits();
        }
        if ptr::eq(class, &raw mut ffi::PyComplex_Type) {
            let (left, right) = (ffi::PyComplex_AsCComplex(value), ffi::PyComplex_AsCComplex(expected));
            return left.real.to_bits() == right.real.to_bits() && left.imag.to_bits() == right.imag.to_bits();
        }
        if cpython::has_flag(value, ffi::Py_TPFLAGS_TUPLE_SUBCLASS) {
            let length = ffi::PyTuple_GET_SIZE(value);
            return length == ffi::PyTuple_GET_SIZE(expected)
                && (0..length).all(|i| holds(ffi::PyTuple_GET_ITEM(expected, i), ffi::PyTuple_GET_ITEM(value, i)));
        }
        if ptr::eq(class, &raw mut ffi::PyFrozenSet_Type) {
            return super::set_items::same_members(value, expected);
        }
        // Comparing instances of Python classes runs user code.
        (*class).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 && cpython::equal_values(value, expected)
    }
}

/// Whether an object's value can never change: as long as it is the same object, it is equal to itself.
///
/// # Safety
/// Attached; the object is live.
pub unsafe fn is_immutable(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let class = cpython::type_of(object);
        let atoms = [
            &raw mut ffi::PyLong_Type,
            &raw mut ffi::PyUnicode_Type,
            &raw mut ffi::PyFloat_Type,
            &raw mut ffi::PyComplex_Type,
            &raw mut ffi::PyBool_Type,
            &raw mut ffi::PyBytes_Type,
        ];
        if atoms.into_iter().any(|atom| ptr::eq(atom, class)) || ptr::eq(object, ffi::Py_None()) {
            return true;
        }
        if ptr::eq(class, &raw mut ffi::PyTuple_Type) {
            return (0..ffi::PyTuple_GET_SIZE(object)).all(|i| is_immutable(ffi::PyTuple_GET_ITEM(object, i)));
        }
        // torch's devices, dtypes and layouts, ranges, ellipsis: C types without mutable state.
        let is_container = cpython::has_flag(object, ffi::Py_TPFLAGS_LIST_SUBCLASS | ffi::Py_TPFLAGS_DICT_SUBCLASS)
            || ptr::eq(class, &raw mut ffi::PySet_Type)
            || ptr::eq(class, &raw mut ffi::PyByteArray_Type);
        (*class).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 && (*class).tp_hash.is_some() && !is_container
    }
}

pub fn difference(expected: &PyObj, value: &Bound<'_, PyAny>) -> String {
    let (old, new) = (expected.repr(), short_repr(value));
    if old == new {
        let class = crate::object::type_name(expected.bind(value.py()).get_type().as_any());
        return format!(
            "expected {old} of {class}, got {new} of {}",
            crate::object::type_name(value.get_type().as_any())
        );
    }
    format!("expected {old}, got {new}")
}

//! `SetItems`: exactly these members.

use super::equals;
use crate::{PyObj, object::short_repr};
use pyo3::{
    ffi::{self, PyObject},
    prelude::*,
};
use std::ptr;

unsafe extern "C" {
    fn _PySet_NextEntry(set: *mut PyObject, position: *mut isize, key: *mut *mut PyObject, hash: *mut isize) -> i32;
}

/// Whether all members of a set pass.
///
/// # Safety
/// Attached; `set` is a live set or frozenset; `f` doesn't change it.
unsafe fn all_members(set: *mut PyObject, mut f: impl FnMut(*mut PyObject) -> bool) -> bool {
    let (mut position, mut member, mut hash) = (0, ptr::null_mut(), 0);
    // SAFETY: the caller's promise.
    while unsafe { _PySet_NextEntry(set, &mut position, &mut member, &mut hash) } != 0 {
        if !f(member) {
            return false;
        }
    }
    true
}

/// # Safety
/// Attached; `value` is a live object.
pub unsafe fn holds(members: &[PyObj], value: *mut PyObject) -> bool {
    // SAFETY: the caller's promise. Members of a set differ, so equal sizes and inclusion make it the same set.
    unsafe {
        ffi::PyAnySet_Check(value) != 0
            && ffi::PySet_Size(value) == members.len() as isize
            && all_members(value, |member| members.iter().any(|expected| equals::holds(expected.as_ptr(), member)))
    }
}

/// Whether two sets have the same members, exactly.
///
/// # Safety
/// Attached; both are live sets or frozensets.
pub unsafe fn same_members(left: *mut PyObject, right: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::PySet_Size(left) == ffi::PySet_Size(right)
            && all_members(left, |member| !all_members(right, |other| !equals::holds(other, member)))
    }
}

pub fn difference(members: &[PyObj], value: &Bound<'_, PyAny>) -> String {
    let expected: Vec<String> = members.iter().map(PyObj::repr).collect();
    format!("expected the members {{{}}}, got {}", expected.join(", "), short_repr(value))
}

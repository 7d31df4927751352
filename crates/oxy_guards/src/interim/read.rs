//! Reading sources: raw, borrowed pointers, no user code except for the kinds that say so.

use crate::SourceKind;
use pyo3::ffi::{self, PyObject};
use std::ffi::c_int;
use std::ptr;

unsafe extern "C" {
    fn _PyType_Lookup(class: *mut ffi::PyTypeObject, name: *mut PyObject) -> *mut PyObject;
    fn PyMethod_Self(method: *mut PyObject) -> *mut PyObject;
    fn PyMethod_Function(method: *mut PyObject) -> *mut PyObject;
    fn PyFunction_GetKwDefaults(function: *mut PyObject) -> *mut PyObject;
    fn PyFunction_GetDefaults(function: *mut PyObject) -> *mut PyObject;
    fn PyFunction_GetClosure(function: *mut PyObject) -> *mut PyObject;
    fn PyObject_GenericGetDict(object: *mut PyObject, context: *mut std::ffi::c_void) -> *mut PyObject;
    static mut PyMethod_Type: ffi::PyTypeObject;
    static mut PyCell_Type: ffi::PyTypeObject;
    fn PyCell_Get(cell: *mut PyObject) -> *mut PyObject;
}

fn has_flag(object: *mut PyObject, flag: std::ffi::c_ulong) -> bool {
    // SAFETY: callers pass live objects.
    unsafe { ffi::PyType_HasFeature(ffi::Py_TYPE(object), flag) != 0 }
}

/// The instance dictionary of an object, borrowed from it; NULL if it has none.
///
/// # Safety
/// Attached; `object` is live.
pub unsafe fn instance_dict(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's promise. The object keeps its dictionary alive after our reference is gone.
    unsafe {
        let dict = PyObject_GenericGetDict(object, ptr::null_mut());
        if dict.is_null() {
            ffi::PyErr_Clear();
            return dict;
        }
        ffi::Py_DECREF(dict);
        dict
    }
}

/// A dictionary entry, borrowed; NULL if missing.
///
/// # Safety
/// Attached; both are live; the key's hash and equality run no user code.
pub unsafe fn dict_item(dict: *mut PyObject, key: *mut PyObject) -> *mut PyObject {
    if !has_flag(dict, ffi::Py_TPFLAGS_DICT_SUBCLASS) {
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise; it is a dict.
    unsafe {
        let item = ffi::PyDict_GetItemWithError(dict, key);
        if item.is_null() && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        item
    }
}

/// A type attribute along the method resolution order, borrowed; NULL if missing.
///
/// # Safety
/// Attached; both are live.
pub unsafe fn type_attr(class: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    if !has_flag(class, ffi::Py_TPFLAGS_TYPE_SUBCLASS) {
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise; it is a type.
    unsafe { _PyType_Lookup(class.cast(), name) }
}

/// Reads an attribute; the new reference goes to `temporaries`.
///
/// # Safety
/// Attached; both are live.
unsafe fn attribute(object: *mut PyObject, name: *mut PyObject, temporaries: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let value = ffi::PyObject_GetAttr(object, name);
        if value.is_null() {
            ffi::PyErr_Clear();
        } else {
            temporaries.push(value);
        }
        value
    }
}

/// # Safety
/// As [`attribute`].
unsafe fn named(object: *mut PyObject, name: &std::ffi::CStr, temporaries: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise; the name is a C string.
    unsafe {
        let value = ffi::PyObject_GetAttrString(object, name.as_ptr());
        if value.is_null() {
            ffi::PyErr_Clear();
        } else {
            temporaries.push(value);
        }
        value
    }
}

/// Reads a derived source from its base's value; NULL if it isn't there.
///
/// # Safety
/// Attached; `base` is a live object.
pub unsafe fn derived(kind: &SourceKind, base: *mut PyObject, temporaries: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise; each read checks the type it needs.
    unsafe {
        match kind {
            SourceKind::Local(_) | SourceKind::Stack(_) | SourceKind::Object(_) | SourceKind::Globals
            | SourceKind::Builtins | SourceKind::Function => ptr::null_mut(),
            SourceKind::CellContents(_) => {
                if !ptr::addr_eq(ffi::Py_TYPE(base), &raw const PyCell_Type) {
                    return ptr::null_mut();
                }
                let value = PyCell_Get(base);
                if !value.is_null() {
                    ffi::Py_DECREF(value);
                }
                value
            }
            SourceKind::InstanceDict(_) => instance_dict(base),
            SourceKind::InstanceAttr(_, name) => {
                let dict = instance_dict(base);
                if dict.is_null() { dict } else { dict_item(dict, name.as_ptr()) }
            }
            SourceKind::DictItem(_, key) => dict_item(base, key.as_ptr()),
            SourceKind::ListItem(_, index) => {
                if has_flag(base, ffi::Py_TPFLAGS_LIST_SUBCLASS) && (*index as isize) < ffi::PyList_Size(base) {
                    ffi::PyList_GetItem(base, *index as isize)
                } else {
                    ptr::null_mut()
                }
            }
            SourceKind::TupleItem(_, index) => {
                if has_flag(base, ffi::Py_TPFLAGS_TUPLE_SUBCLASS) && (*index as isize) < ffi::PyTuple_Size(base) {
                    ffi::PyTuple_GetItem(base, *index as isize)
                } else {
                    ptr::null_mut()
                }
            }
            SourceKind::TypeOf(_) => ffi::Py_TYPE(base).cast(),
            SourceKind::TypeAttr(_, name) => type_attr(base, name.as_ptr()),
            SourceKind::Member(_, name) | SourceKind::Attr(_, name) => attribute(base, name.as_ptr(), temporaries),
            SourceKind::FunctionCode(_) if is_function(base) => ffi::PyFunction_GetCode(base),
            SourceKind::FunctionDefaults(_) if is_function(base) => PyFunction_GetDefaults(base),
            SourceKind::FunctionKwDefaults(_) if is_function(base) => PyFunction_GetKwDefaults(base),
            SourceKind::FunctionClosure(_) if is_function(base) => PyFunction_GetClosure(base),
            SourceKind::FunctionCode(_)
            | SourceKind::FunctionDefaults(_)
            | SourceKind::FunctionKwDefaults(_)
            | SourceKind::FunctionClosure(_) => ptr::null_mut(),
            SourceKind::FunctionGlobals(_) | SourceKind::DictKeyAt(..) | SourceKind::WeakrefTarget(_) => ptr::null_mut(),
            SourceKind::MethodSelf(_) if is_method(base) => PyMethod_Self(base),
            SourceKind::MethodFunction(_) if is_method(base) => PyMethod_Function(base),
            SourceKind::MethodSelf(_) | SourceKind::MethodFunction(_) => ptr::null_mut(),
            SourceKind::TensorGrad(_) => named(base, c"grad", temporaries),
            SourceKind::PartialFunc(_) => named(base, c"func", temporaries),
            SourceKind::PartialArgs(_) => named(base, c"args", temporaries),
            SourceKind::PartialKeywords(_) => named(base, c"keywords", temporaries),
        }
    }
}

/// # Safety
/// `object` is live.
unsafe fn is_function(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ptr::addr_eq(ffi::Py_TYPE(object), &raw const ffi::PyFunction_Type) }
}

/// # Safety
/// `object` is live.
unsafe fn is_method(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ptr::addr_eq(ffi::Py_TYPE(object), &raw const PyMethod_Type) }
}

/// Same type and equal value. Literals only: no user code runs.
///
/// # Safety
/// Attached; both are live; `expected` is a literal or a container of literals.
pub unsafe fn equals(object: *mut PyObject, expected: *mut PyObject) -> bool {
    if object == expected {
        return true;
    }
    // SAFETY: the caller's promise; values of one literal type compare without user code.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if class != ffi::Py_TYPE(expected) {
            return false;
        }
        if ptr::addr_eq(class, &raw const ffi::PyFloat_Type) {
            return ffi::PyFloat_AsDouble(object).to_bits() == ffi::PyFloat_AsDouble(expected).to_bits();
        }
        let answer: c_int = ffi::PyObject_RichCompareBool(object, expected, ffi::Py_EQ);
        if answer < 0 {
            ffi::PyErr_Clear();
        }
        answer == 1
    }
}

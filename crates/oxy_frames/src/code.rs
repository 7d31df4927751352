//! From a live code object to a decoded code unit.

use std::{ffi::c_int, slice};

use oxy_bytecode::{CodeUnit, DecodeError, PythonVersion, RawCode};
use pyo3::{
    Bound, PyResult,
    exceptions::PyValueError,
    ffi::{self, PyObject},
    types::PyCode,
};

use crate::version::{NUMBER, layout::CodeObject};

unsafe extern "C" {
    fn PyCode_GetCode(code: *mut PyObject) -> *mut PyObject;
}

/// Decodes a code object. `ValueError` if its bytecode isn't what this version's compiler makes.
pub fn decode(code: &Bound<'_, PyCode>) -> PyResult<CodeUnit> {
    let malformed = |error: DecodeError| PyValueError::new_err(error.to_string());
    let version = PythonVersion::new(NUMBER.0, NUMBER.1)
        .ok_or_else(|| PyValueError::new_err("this CPython version has no decoder"))?;
    // SAFETY: it is a code object; `PyCode_GetCode` returns a new bytes object with the de-optimised bytes.
    let bytecode = unsafe { Bound::from_owned_ptr_or_err(code.py(), PyCode_GetCode(code.as_ptr()))? };
    let object = code.as_ptr().cast::<CodeObject>();
    let unsigned = |value: c_int| u32::try_from(value).unwrap_or(0);
    // SAFETY: the layout is the running version's; the tables are bytes objects the code object owns.
    let raw = unsafe {
        RawCode {
            code: bytes(bytecode.as_ptr()),
            exception_table: bytes((*object).co_exceptiontable),
            line_table: bytes((*object).co_linetable),
            localsplus_kinds: bytes((*object).co_localspluskinds),
            argcount: unsigned((*object).co_argcount),
            posonlyargcount: unsigned((*object).co_posonlyargcount),
            kwonlyargcount: unsigned((*object).co_kwonlyargcount),
            flags: unsigned((*object).co_flags),
            stacksize: unsigned((*object).co_stacksize),
            firstlineno: (*object).co_firstlineno,
        }
    };
    CodeUnit::decode(version, &raw).map_err(malformed)
}

/// # Safety
/// `object` is a bytes object that outlives the slice.
unsafe fn bytes<'a>(object: *mut PyObject) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(ffi::PyBytes_AsString(object).cast(), ffi::PyBytes_Size(object) as usize) }
}

//! Code objects as the tracer sees them: decoded once, with names and constants at hand.

use crate::value::Object;
use oxy_bytecode::{CodeUnit, PythonVersion, RawCode, analysis::Analysis};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// Decoded form of one code object, shared by every trace of it. Plain data.
pub struct Decoded {
    pub unit: CodeUnit,
    pub analysis: Analysis,
}

/// A code object with its decoded form.
pub struct Code<'py> {
    pub object: Object<'py>,
    pub decoded: Arc<Decoded>,
    pub names: Bound<'py, PyTuple>,
    pub consts: Bound<'py, PyTuple>,
    pub name: String,
    pub qualname: String,
    pub filename: String,
    /// Names of localsplus slots, in order.
    pub var_names: Vec<String>,
}

impl<'py> Code<'py> {
    pub fn new(object: Object<'py>, decoded: Arc<Decoded>) -> PyResult<Code<'py>> {
        Ok(Code {
            names: object.getattr("co_names")?.cast_into()?,
            consts: object.getattr("co_consts")?.cast_into()?,
            name: object.getattr("co_name")?.extract()?,
            qualname: object.getattr("co_qualname")?.extract()?,
            filename: object.getattr("co_filename")?.extract()?,
            var_names: local_names(&object)?.0,
            decoded,
            object,
        })
    }

    pub fn unit(&self) -> &CodeUnit {
        &self.decoded.unit
    }
}

/// Names of the localsplus slots and their kind bits (CPython's `CO_FAST_*`): locals, then cells that are not
/// locals, then free variables.
fn local_names(code: &Object<'_>) -> PyResult<(Vec<String>, Vec<u8>)> {
    const LOCAL: u8 = 0x20;
    const CELL: u8 = 0x40;
    const FREE: u8 = 0x80;
    let mut names: Vec<String> = code.getattr("co_varnames")?.extract()?;
    let mut kinds = vec![LOCAL; names.len()];
    let locals = names.len();
    for cell in code.getattr("co_cellvars")?.extract::<Vec<String>>()? {
        match names[..locals].iter().position(|name| *name == cell) {
            Some(slot) => kinds[slot] |= CELL,
            None => {
                names.push(cell);
                kinds.push(CELL);
            }
        }
    }
    for free in code.getattr("co_freevars")?.extract::<Vec<String>>()? {
        names.push(free);
        kinds.push(FREE);
    }
    Ok((names, kinds))
}

/// Decodes a real code object of the running interpreter.
pub fn decode(code: &Object<'_>) -> Result<Decoded, String> {
    let unit = decode_unit(code)?;
    let analysis = Analysis::of(&unit).map_err(|e| format!("{e:?}"))?;
    Ok(Decoded { unit, analysis })
}

fn decode_unit(code: &Object<'_>) -> Result<CodeUnit, String> {
    let text = |e: PyErr| e.to_string();
    let bytes = |name: &str| -> Result<Vec<u8>, String> { code.getattr(name).and_then(|v| v.extract()).map_err(text) };
    let number = |name: &str| -> Result<u32, String> { code.getattr(name).and_then(|v| v.extract()).map_err(text) };
    let info = code.py().version_info();
    let version = PythonVersion::new(info.major, info.minor)
        .ok_or_else(|| format!("CPython {}.{} is not supported", info.major, info.minor))?;
    let (words, exceptions, lines) = (bytes("co_code")?, bytes("co_exceptiontable")?, bytes("co_linetable")?);
    let kinds = local_names(code).map_err(text)?.1;
    let raw = RawCode {
        code: &words,
        exception_table: &exceptions,
        line_table: &lines,
        localsplus_kinds: &kinds,
        argcount: number("co_argcount")?,
        posonlyargcount: number("co_posonlyargcount")?,
        kwonlyargcount: number("co_kwonlyargcount")?,
        flags: number("co_flags")?,
        stacksize: number("co_stacksize")?,
        firstlineno: code.getattr("co_firstlineno").and_then(|v| v.extract()).map_err(text)?,
    };
    CodeUnit::decode(version, &raw).map_err(|e| format!("{e:?}"))
}

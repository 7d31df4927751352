//! Reads the text form of code objects that `tests/dump_code.py` writes, for tests and tools.
//!
//! The format is described in that script.

use crate::{code_unit::RawCode, location::Location, operand::WordOffset, version::PythonVersion};

/// A line that is not in the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed code dump: {field}")]
pub struct DumpError {
    /// What could not be read.
    pub field: &'static str,
}

/// One code object with what CPython itself says about it.
#[derive(Clone, Debug)]
pub struct DumpedCode {
    /// Which CPython compiled it.
    pub version: PythonVersion,
    /// Where it is defined.
    pub place: String,
    /// Names of the `localsplus` slots, if dumped.
    pub locals: Vec<String>,
    /// `co_names`, if dumped.
    pub names: Vec<String>,
    /// Short forms of `co_consts`, if dumped.
    pub consts: Vec<String>,
    /// `co_positions()`, one per code word.
    pub positions: Vec<Location>,
    /// The code words jumped to or used as handlers, sorted.
    pub jumps: Vec<WordOffset>,
    code: Vec<u8>,
    exception_table: Vec<u8>,
    line_table: Vec<u8>,
    localsplus_kinds: Vec<u8>,
    // argcount, posonlyargcount, kwonlyargcount, flags, stacksize
    counts: [u32; 5],
    firstlineno: i32,
}

impl DumpedCode {
    /// The decoder's view of it.
    pub fn raw(&self) -> RawCode<'_> {
        let [argcount, posonlyargcount, kwonlyargcount, flags, stacksize] = self.counts;
        RawCode {
            code: &self.code,
            exception_table: &self.exception_table,
            line_table: &self.line_table,
            localsplus_kinds: &self.localsplus_kinds,
            argcount,
            posonlyargcount,
            kwonlyargcount,
            flags,
            stacksize,
            firstlineno: self.firstlineno,
        }
    }
}

/// Reads a dump line by line.
#[derive(Debug, Default)]
pub struct DumpReader {
    locals: Vec<String>,
    names: Vec<String>,
    consts: Vec<String>,
}

impl DumpReader {
    /// Takes one line; gives the code object it completes, if it does.
    pub fn line(&mut self, line: &str) -> Result<Option<DumpedCode>, DumpError> {
        let mut fields = line.trim_end_matches('\n').split('\t');
        let symbols = match fields.next() {
            Some("locals") => &mut self.locals,
            Some("names") => &mut self.names,
            Some("consts") => &mut self.consts,
            Some("code") => return self.code(fields).map(Some),
            _ => {
                return Err(DumpError { field: "kind of line" });
            }
        };
        *symbols = fields.map(str::to_owned).collect();
        Ok(None)
    }

    fn code<'a>(&mut self, mut fields: impl Iterator<Item = &'a str>) -> Result<DumpedCode, DumpError> {
        let mut next = |field| fields.next().ok_or(DumpError { field });
        Ok(DumpedCode {
            version: version(next("version")?)?,
            place: next("place")?.to_owned(),
            counts: {
                let mut counts = [0; 5];
                for count in &mut counts {
                    *count = number(next("count")?)?;
                }
                counts
            },
            firstlineno: next("firstlineno")?.parse().map_err(|_| DumpError { field: "firstlineno" })?,
            localsplus_kinds: bytes(next("kinds")?)?,
            code: bytes(next("code")?)?,
            exception_table: bytes(next("exceptions")?)?,
            line_table: bytes(next("lines")?)?,
            positions: positions(next("positions")?)?,
            jumps: list(next("jumps")?).map(|n| number(n).map(WordOffset)).collect::<Result<_, _>>()?,
            locals: std::mem::take(&mut self.locals),
            names: std::mem::take(&mut self.names),
            consts: std::mem::take(&mut self.consts),
        })
    }
}

fn list(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').filter(|entry| !entry.is_empty())
}

fn number(field: &str) -> Result<u32, DumpError> {
    field.parse().map_err(|_| DumpError { field: "number" })
}

fn version(field: &str) -> Result<PythonVersion, DumpError> {
    let error = DumpError { field: "version" };
    let (major, minor) = field.split_once('.').ok_or(error.clone())?;
    let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else {
        return Err(error);
    };
    PythonVersion::new(major, minor).ok_or(error)
}

fn bytes(field: &str) -> Result<Vec<u8>, DumpError> {
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(DumpError { field: "bytes" });
    let pairs = field.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Ok((digit(high)? * 16 + digit(low)?) as u8),
        _ => Err(DumpError { field: "bytes" }),
    });
    pairs.collect()
}

fn positions(field: &str) -> Result<Vec<Location>, DumpError> {
    let optional = |field: Option<&str>| match field {
        Some("-") => Ok(None),
        Some(text) => number(text).map(Some),
        None => Err(DumpError { field: "positions" }),
    };
    let mut positions = Vec::new();
    for run in list(field) {
        let mut parts = run.split(':');
        let count = number(parts.next().unwrap_or(""))?;
        let location = Location {
            line: optional(parts.next())?,
            end_line: optional(parts.next())?,
            column: optional(parts.next())?,
            end_column: optional(parts.next())?,
        };
        positions.extend(std::iter::repeat_n(location, count as usize));
    }
    Ok(positions)
}

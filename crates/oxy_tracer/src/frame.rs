//! A frame being traced: the symbolic twin of CPython's.

use crate::code::Code;
use crate::value::{Object, Val};
use oxy_bytecode::InstrId;
use oxy_guards::Source;
use std::rc::Rc;

/// Where execution of a frame's instruction goes next.
#[derive(Debug)]
pub enum Flow {
    Next,
    Jump(InstrId),
    Return(Val),
    Yield(Val),
}

pub struct Frame<'py> {
    pub code: Rc<Code<'py>>,
    pub globals: Object<'py>,
    pub globals_source: Source,
    pub builtins: Object<'py>,
    /// The closure's cells, for `copy_free_vars`.
    pub closure: Vec<Val>,
    pub locals: Vec<Option<Val>>,
    pub stack: Vec<Val>,
    pub pc: InstrId,
    /// A generator's frame: `return_generator` has run.
    pub started: bool,
}

impl<'py> Frame<'py> {
    pub fn line(&self) -> u32 {
        self.code.unit().line_of(self.pc).unwrap_or(self.code.unit().firstlineno.max(0) as u32)
    }
}

/// A place in the user's program: one line of a traceback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub function: String,
}

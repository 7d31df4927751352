//! The supported CPython versions, as a list of tables.
//!
//! A version is its folder's [`VersionTable`]; this file is the only other place that enumerates them. Adding
//! a version is one folder and one line here.

use std::fmt;

use crate::decode::{Concrete, DecodeError, Emitter};

/// Everything the decoder needs to know about one CPython version.
pub struct VersionTable {
    /// The language version, as in `sys.version_info[:2]`.
    pub number: (u8, u8),
    /// The name and inline cache size (in words) of an opcode; `None` for bytes that aren't opcodes of
    /// de-optimised code.
    pub opcode: fn(u8) -> Option<(&'static str, u32)>,
    /// The opcode that extends the next one's argument.
    pub extended_arg: u8,
    /// Appends the neutral instructions of one concrete one.
    pub(crate) translate: fn(&Concrete, &mut Emitter<'_>) -> Result<(), DecodeError>,
}

/// A supported CPython version.
#[derive(Clone, Copy)]
pub struct PythonVersion(&'static VersionTable);

impl PythonVersion {
    /// All supported versions, oldest first.
    pub const ALL: &'static [PythonVersion] = &[
        PythonVersion(&crate::py311::VERSION),
        PythonVersion(&crate::py312::VERSION),
        PythonVersion(&crate::py313::VERSION),
    ];

    /// The version with this `sys.version_info[:2]`, if it is supported.
    pub fn new(major: u8, minor: u8) -> Option<PythonVersion> {
        Self::ALL.iter().copied().find(|v| v.0.number == (major, minor))
    }

    /// `sys.version_info[:2]`
    pub fn number(self) -> (u8, u8) {
        self.0.number
    }

    /// Its opcode table.
    pub fn table(self) -> &'static VersionTable {
        self.0
    }
}

impl PartialEq for PythonVersion {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl Eq for PythonVersion {}

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.0.number;
        write!(f, "{major}.{minor}")
    }
}

impl fmt::Debug for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonVersion({self})")
    }
}

/// Builds a version's `opcode` and `translate` functions from its opcode rows.
///
/// A row is `number NAME caches => action;`, where an action is one of
/// - `[Variant { operand: expression, … } …]`: these instructions, in this order;
/// - `emit (expression)`: the one instruction the expression computes;
/// - `prefix (expression)`: no instruction; what the expression notes belongs to the call that follows.
///
/// Expressions may use the two names given first, and `?`.
macro_rules! opcode_table {
    (|$op:ident, $out:ident| $($number:literal $name:ident $caches:literal => $kind:tt $(($($action:tt)*))?;)*) => {
        /// Name and inline cache size of each opcode.
        fn opcode(byte: u8) -> Option<(&'static str, u32)> {
            Some(match byte {
                $($number => (stringify!($name), $caches),)*
                _ => return None,
            })
        }

        /// The neutral instructions of each opcode.
        fn translate(
            $op: &$crate::decode::Concrete,
            $out: &mut $crate::decode::Emitter<'_>,
        ) -> Result<(), $crate::decode::DecodeError> {
            match $op.opcode {
                $($number => { $crate::version::opcode_action!($op $out $kind $(($($action)*))?); })*
                _ => return Err($op.unknown()),
            }
            Ok(())
        }
    };
}

/// The right-hand side of an opcode row.
macro_rules! opcode_action {
    ($op:ident $out:ident [$($variant:ident { $($operand:ident : $value:expr),* $(,)? })*]) => {
        $($out.emit($op, $crate::isa::Instr::$variant { $($operand: $value),* })?;)*
    };
    ($op:ident $out:ident emit ($instr:expr)) => {
        $out.emit($op, $instr?)?;
    };
    ($op:ident $out:ident prefix ($action:expr)) => {
        $action?;
    };
}

pub(crate) use {opcode_action, opcode_table};

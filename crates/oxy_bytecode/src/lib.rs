//! Decodes every supported CPython's bytecode into one neutral instruction set; knows no Python objects.
//!
//! - [`isa`] is the instruction table and what is derived from it; [`operand`] the operand types.
//! - [`CodeUnit`] is one decoded code object, made by [`CodeUnit::decode`] from plain bytes.
//! - [`Analysis`] adds stack depths, live locals, reachability and loop headers.
//! - [`text`] prints a unit; [`dump`] reads code objects that `tests/dump_code.py` wrote as text.
//! - One folder per CPython version holds all that differs between them.
//!
//! Input and output are plain data, so every version's decoder is built and tested on every host.
#![forbid(unsafe_code)]

pub mod operand;
#[macro_use]
pub mod isa;
pub mod analysis;
mod cfg;
pub mod code_unit;
pub mod decode;
pub mod dump;
mod exceptions;
mod liveness;
pub mod location;
pub mod text;
pub mod version;

pub mod py311;
pub mod py312;
pub mod py313;

pub use analysis::{Analysis, AnalysisError};
pub use code_unit::{CodeFlags, CodeUnit, LocalKind, PlacedInstr, RawCode, Region};
pub use decode::DecodeError;
pub use isa::{Flags, Instr, StackEffect};
pub use location::{Location, Locations};
pub use operand::*;
pub use version::PythonVersion;

//! Decodes every supported CPython's bytecode into one neutral instruction set; knows no Python objects.
//!
//! [`isa`] is the instruction table and what is derived from it; [`operand`] the operand types.
//! Input and output are plain data, so every version's decoder is built and tested on every host.
#![forbid(unsafe_code)]

pub mod operand;
#[macro_use]
pub mod isa;

pub use isa::{Flags, Instr, StackEffect};
pub use operand::*;

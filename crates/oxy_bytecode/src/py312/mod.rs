//! CPython 3.12: its opcode table. `NOTES.md` says what is particular to it.

mod opcodes;

pub use opcodes::VERSION;

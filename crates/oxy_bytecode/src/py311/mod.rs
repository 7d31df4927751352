//! CPython 3.11: its opcode table. `NOTES.md` says what is particular to it.

mod opcodes;

pub use opcodes::VERSION;

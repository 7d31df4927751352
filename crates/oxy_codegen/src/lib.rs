//! Code generation: loop kernels to machine code, with LLVM in process.
//!
//! `compile` turns kernels into an `Object` (bytes that can be cached), `link` makes it executable. Between them:
//! `nest` (loops) and `memory` (addresses) drive `spell` (operators) and `math` (functions), which speak to LLVM
//! through bundles of vector values (`emit`).
//!
//! Promises: generated code computes what `oxy_loops::interp` computes, bit for bit except for transcendental
//! functions, whose error bounds are in `math`, and the order of float sums. No contraction, no fast-math.
//! Unsafe code lives in two rooms, `llvm` and `link`.
#![deny(unsafe_code)]

mod compile;
mod emit;
mod error;
#[allow(unsafe_code, reason = "unsafe room: ORC's C interface")]
mod link;
#[allow(unsafe_code, reason = "unsafe room: LLVM's C interface")]
mod llvm;
mod math;
mod memory;
mod nest;
mod shape;
mod spell;
mod target;

pub use compile::{Object, assembly, compile, llvm_ir};
pub use error::CodegenError;
pub use link::{Linked, Linker, link};
pub use target::{CODEGEN_VERSION, HostTarget};

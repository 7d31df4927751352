//! Loop kernels: iteration spaces with scalar bodies, as plain data with a text form.
//!
//! A kernel is what code generation consumes. It says which points are visited, what is loaded, computed,
//! reduced and stored; it says nothing of registers, threads or instructions beyond which dimension is the
//! vector one. No Python, no unsafe, no IO.
#![forbid(unsafe_code)]

pub mod interp;
pub mod kernel;
mod parse;
mod print;
pub mod scalar;
pub mod schedule;
pub mod special;
mod verify;

pub use kernel::{Body, Dim, DimKind, Index, Kernel, Param, Phase, Reduction, Split, Store, V};
pub use parse::{ParseError, parse, parse_all};
pub use scalar::{Expr, ReduceOp, ScalarOp, Ty};
pub use verify::{VerifyError, result_type, verify};

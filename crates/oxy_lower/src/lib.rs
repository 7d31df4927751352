//! Graph passes and lowering of graphs to programs: kernels, operator calls and views.
//!
//! Promises: a program computes what the graph's operators compute, in their order where order can be seen
//! (mutation, random numbers, errors); results have the metadata that the graph records. Operators without a row
//! in the registry become calls. Nothing here knows Python.
#![forbid(unsafe_code)]

pub mod passes;
pub mod pipeline;
pub mod program;

mod affine;
mod cost;
mod emit;
mod lowering;
mod materialize;
mod points;

pub use pipeline::{LowerError, Options, lower};
pub use program::{Program, Step};

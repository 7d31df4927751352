//! Guard programs evaluated on every call, without a stable section.

mod apply;
mod program;
mod read;
mod tensor;

pub use program::{Env, FailedGuard, GuardProgram, Registers};

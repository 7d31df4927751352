//! The room that owns CPython frames: seeing them, reading and writing them, ending them.
//!
//! - [`hook`] installs a PEP 523 frame evaluator that costs frames it doesn't care about one lookup.
//! - [`Frame`] is the frame under evaluation: its slots, its value stack, its code.
//! - A frame ends by one of the functions that make a [`Completion`]: [`Frame::leave`] (on-stack replacement: the
//!   interpreter goes on in the middle of the function), [`Frame::finish`], [`Frame::raise_at`], [`Frame::plain`].
//! - [`step`](step::step) performs one neutral instruction on the real objects, exactly as the interpreter would;
//!   [`unwind`](unwind::unwind) goes to the handler of an exception a step raised.
//!
//! Promises: the interpreter sees a well-formed frame whenever Python code can run. Does not: decide anything, keep
//! policy, or know what a tensor is.
//!
//! What differs between CPython versions is in one folder per version, re-exported as [`version`]. The layouts of
//! all versions are compiled, and their sizes checked, on every host.

mod capi;
pub mod code;
pub mod code_extra;
mod completion;
mod error;
mod frame;
pub mod hook;
mod stack;
pub mod step;
pub mod unwind;

pub mod py311;
pub mod py312;
pub mod py313;

#[cfg(all(Py_3_11, not(Py_3_12)))]
pub use py311 as version;
#[cfg(all(Py_3_12, not(Py_3_13)))]
pub use py312 as version;
#[cfg(all(Py_3_13, not(Py_3_14)))]
pub use py313 as version;

#[cfg(any(not(Py_3_11), Py_3_14))]
compile_error!("oxyfuel supports CPython 3.11, 3.12 and 3.13: add a folder for this version");

pub use completion::Completion;
pub use error::FrameError;
pub use frame::Frame;
pub use hook::{FrameHandler, HookGuard, Mark};
pub use step::{StepOutcome, step};
pub use unwind::unwind;

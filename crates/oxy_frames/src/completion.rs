//! How a frame's evaluation ends.
//!
//! The functions here validate and return a [`Completion`], which the handler returns from `evaluate`. The hook then
//! unlinks the frame and acts on it, so that the interpreter never runs on top of the engine's own stack frames.

use oxy_bytecode::{CodeUnit, InstrId};
use pyo3::{Bound, Py, PyAny};

use crate::{error::FrameError, frame::Frame, unwind};

/// What is to be done with a frame when its handler returns.
#[must_use = "return it from `FrameHandler::evaluate`"]
pub struct Completion(pub(crate) How);

pub(crate) enum How {
    /// Evaluate it from the start.
    Plain,
    /// The interpreter goes on at this word of the code.
    Leave(u32),
    /// Return this value.
    Finish(Py<PyAny>),
    /// The exception that is set goes to the caller.
    Fail,
}

impl<'f> Frame<'f> {
    /// The interpreter evaluates the frame as if nothing had happened. Only for a frame that wasn't touched.
    pub fn plain(&self) -> Result<Completion, FrameError> {
        if self.is_touched() { Err(FrameError::Touched) } else { Ok(Completion(How::Plain)) }
    }

    /// On-stack replacement: the interpreter goes on at `at`, with the slots and the stack as they are now.
    pub fn leave(&self, unit: &CodeUnit, at: InstrId) -> Result<Completion, FrameError> {
        let placed = self.placed(unit, at)?;
        if !placed.enterable {
            return Err(FrameError::NotEnterable);
        }
        Ok(Completion(How::Leave(placed.start.0)))
    }

    /// The frame returns `value` without the interpreter. What it still holds is dropped, unless a frame object that
    /// outlives it (a traceback's, `sys._getframe()`'s) takes it over.
    pub fn finish(&self, value: Bound<'f, PyAny>) -> Completion {
        Completion(How::Finish(value.unbind()))
    }

    /// With an exception set: it is raised at `at`, in this frame. The interpreter goes on in the frame's handler for
    /// it, or the exception goes to the caller.
    pub fn raise_at(&mut self, unit: &CodeUnit, at: InstrId) -> Result<Completion, FrameError> {
        let placed = self.placed(unit, at)?;
        self.set_executing(placed.offset.0);
        Ok(match unwind::unwind(self, unit, at)? {
            Some(handler) => self.leave(unit, handler)?,
            None => Completion(How::Fail),
        })
    }

    /// With an exception set: it goes to the caller, without looking for a handler in this frame. For use when
    /// [`unwind`](unwind::unwind) found none.
    pub fn fail(&self) -> Completion {
        Completion(How::Fail)
    }
}

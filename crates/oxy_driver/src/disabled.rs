//! Frames of `disable` wrappers: run by steps, so that what they call is not compiled.
//!
//! All recursive wrappers share one code object, all non-recursive ones another (`oxyfuel._decorators`).

use crate::compiled::{Activation, Compiled};
use crate::engine::Engine;
use crate::frames::{plain, report_fault};
use oxy_bytecode::InstrId;
use oxy_frames::{Completion, Frame, FrameError, StepOutcome, step};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::Cell;
use std::sync::Arc;

static CODES: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();

thread_local! {
    /// The next frame is left to the interpreter (the function beneath a non-recursive wrapper).
    static SKIP_NEXT: Cell<bool> = const { Cell::new(false) };
}

/// Whether this frame is the one that a non-recursive wrapper calls.
pub fn take_skip() -> bool {
    SKIP_NEXT.with(|skip| skip.replace(false))
}

/// Whether a frame is a wrapper's: `Some(recursive)`.
pub fn kind_of(frame: &Frame<'_>) -> Option<bool> {
    let py = frame.py();
    let codes = CODES.get_or_try_init(py, || -> PyResult<_> {
        let decorators = py.import("oxyfuel._decorators")?;
        Ok((decorators.getattr("DISABLED_CODE")?.unbind(), decorators.getattr("DISABLED_FRAME_CODE")?.unbind()))
    });
    let (recursive, single) = codes.ok()?;
    let code = frame.code().as_ptr();
    if code == recursive.as_ptr() { Some(true) } else { (code == single.as_ptr()).then_some(false) }
}

/// Runs a wrapper's frame. The caller has made no compiled callable active.
pub fn evaluate(engine: &Engine, compiled: Arc<Compiled>, frame: &mut Frame<'_>, recursive: bool) -> Completion {
    let active = if recursive { None } else { Some(compiled) };
    match steps(engine, active, frame) {
        Ok(completion) => completion,
        Err(fault) => {
            report_fault(engine, &fault, "running a disabled function");
            plain(frame)
        }
    }
}

fn steps(engine: &Engine, active: Option<Arc<Compiled>>, frame: &mut Frame<'_>) -> Result<Completion, String> {
    let code = frame.code().to_owned().into_any();
    let decoded = engine.decode(&code)?;
    let unit = &decoded.unit;
    let text = |e: FrameError| format!("{e:?}");
    let mut pc = InstrId(0);
    loop {
        let outcome = {
            let _active = Activation::enter(active.clone());
            SKIP_NEXT.with(|skip| skip.set(active.is_some()));
            let outcome = step(frame, unit, pc);
            SKIP_NEXT.with(|skip| skip.set(false));
            outcome
        };
        match outcome {
            StepOutcome::Next => pc = InstrId(pc.0 + 1),
            StepOutcome::Jump(target) => pc = target,
            StepOutcome::Return(value) => return Ok(frame.finish(value)),
            StepOutcome::Raised => return frame.raise_at(unit, pc).map_err(text),
            StepOutcome::MustLeave => return frame.leave(unit, pc).map_err(text),
        }
    }
}

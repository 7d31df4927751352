//! The frame driver: runs one Python frame as segments and steps, and leaves it to the interpreter where that is best.

use crate::cache::{CodeState, Policy, Segment};
use crate::compiled::{self, Activation, Compiled};
use crate::disabled;
use crate::engine::{Engine, engine};
use crate::segment::{self, Attempt};
use oxy_bytecode::InstrId;
use oxy_frames::{Completion, Frame, FrameError, FrameHandler, Mark, StepOutcome, code_extra, step};
use oxy_guards::Env;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The one frame handler of the process.
pub struct Driver;

pub static DRIVER: Driver = Driver;

impl FrameHandler for Driver {
    fn is_active(&self) -> bool {
        compiled::is_active()
    }

    fn evaluate(&self, frame: &mut Frame<'_>, mark: Mark) -> Completion {
        let py = frame.py();
        let Some(compiled) = compiled::active() else { return plain(frame) };
        // Nothing that the engine itself runs is to be compiled; steps are made active again one by one.
        let _eager = Activation::enter(None);
        if disabled::take_skip() {
            return plain(frame);
        }
        if let Some(recursive) = disabled::kind_of(frame) {
            return disabled::evaluate(engine(py), compiled, frame, recursive);
        }
        let engine = engine(py);
        let code = frame.code().to_owned();
        let address = code.as_ptr() as usize;
        if !compiled::take_announced(address) && matches!(mark, Mark::Unknown) && is_library_code(code.as_any()) {
            // Marking is an optimisation; failing to mark costs a lookup the next time. A function that somebody
            // compiled can't be skipped for everybody.
            if !engine.is_target(address) {
                _ = code_extra::set(&code, Mark::Skip);
            }
            return plain(frame);
        }
        let state = {
            let code = frame.code().to_owned().into_any();
            compiled.code_state(engine, &code)
        };
        let state = match state {
            Ok(state) if !state.is_skipped() => state,
            Ok(_) => return plain(frame),
            Err(fault) => {
                report_fault(engine, &fault, "decoding");
                return plain(frame);
            }
        };
        let mut run = FrameRun { py, engine, compiled, state, graphs_ran: false, pc: InstrId(0), refusal: None };
        match run.drive(frame) {
            Ok(completion) => completion,
            Err(error) => {
                report_fault(engine, &format!("{error:?}"), "running a frame");
                match frame.plain() {
                    Ok(completion) => completion,
                    Err(_) => {
                        pyo3::exceptions::PySystemError::new_err(format!("oxyfuel: {error:?}")).restore(py);
                        frame.fail()
                    }
                }
            }
        }
    }
}

pub fn plain(frame: &mut Frame<'_>) -> Completion {
    match frame.plain() {
        Ok(completion) => completion,
        Err(_) => frame.fail(),
    }
}

/// One log line for a fault of ours; the frame runs eagerly.
pub fn report_fault(engine: &Engine, fault: &str, stage: &'static str) {
    engine.stats.update(|counts| counts.faults += 1);
    tracing::error!(target: "oxyfuel", stage, "fault: {fault}");
    crate::log::line(&format!("oxyfuel: internal fault while {stage}: {fault}; this frame runs eagerly"));
}

/// Code of the standard library, of torch and of this package: run as it is.
fn is_library_code(code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    let Ok(file) = code.getattr(pyo3::intern!(py, "co_filename")).and_then(|f| f.extract::<String>()) else {
        return true;
    };
    // The frame that stands for a callable written in C, or for a module's whole call.
    let name = code.getattr(pyo3::intern!(py, "co_qualname")).and_then(|n| n.extract::<String>());
    if name.is_ok_and(|name| name == "calling.<locals>.call") {
        return false;
    }
    match crate::skip::library_prefixes(py) {
        Ok(prefixes) => {
            file.starts_with('<')
                && file != "<string>"
                && file != "<stdin>"
                && !file.starts_with("<ipython")
                && !file.starts_with("<test")
                || prefixes.iter().any(|prefix| file.starts_with(prefix.as_str())) && !is_torch_module(&file)
        }
        Err(_) => false,
    }
}

/// torch's own layers (`nn.Sequential` as the compiled module), but not the machinery of their calls.
fn is_torch_module(file: &str) -> bool {
    file.contains("/torch/nn/modules/") && !file.ends_with("/module.py")
}

struct FrameRun<'py> {
    py: Python<'py>,
    engine: &'static Engine,
    compiled: Arc<Compiled>,
    state: Arc<CodeState>,
    graphs_ran: bool,
    pc: InstrId,
    /// The error if the instruction being stepped doesn't raise.
    refusal: Option<Arc<str>>,
}

/// What trying segments at an entry gave.
enum Tried<'py> {
    /// A segment ran; the frame goes on.
    Ran,
    Returned(Bound<'py, PyAny>),
    /// An exception is set, to be raised at the current instruction.
    Raised,
    /// The instruction that the frame is at is to be performed by itself. `refusal`: the error if it doesn't raise.
    Step {
        refusal: Option<Arc<str>>,
    },
    Leave,
    /// The exception that is set leaves the frame as it is (compilation errors).
    Failed,
}

impl<'py> FrameRun<'py> {
    fn drive(&mut self, frame: &mut Frame<'py>) -> Result<Completion, FrameError> {
        let decoded = self.state.decoded.clone();
        let unit = &decoded.unit;
        loop {
            match self.try_segments(frame)? {
                Tried::Ran => continue,
                Tried::Step { refusal } => self.refusal = refusal,
                Tried::Returned(value) => {
                    self.finished();
                    return Ok(frame.finish(value));
                }
                Tried::Raised => return frame.raise_at(unit, self.pc),
                Tried::Failed => return Ok(frame.fail()),
                Tried::Leave => return frame.leave(unit, self.pc),
            }
            // Steps until the next instruction at which a segment may start.
            loop {
                if frame.is_observed() && unit.get(self.pc).is_some_and(|placed| placed.enterable) {
                    return frame.leave(unit, self.pc);
                }
                let outcome = {
                    let _active = Activation::enter(Some(self.compiled.clone()));
                    step(frame, unit, self.pc)
                };
                match outcome {
                    StepOutcome::Next => self.pc = InstrId(self.pc.0 + 1),
                    StepOutcome::Jump(target) => self.pc = target,
                    StepOutcome::Return(value) => {
                        self.finished();
                        return Ok(frame.finish(value));
                    }
                    StepOutcome::Raised => return frame.raise_at(unit, self.pc),
                    StepOutcome::MustLeave => return frame.leave(unit, self.pc),
                }
                if let Some(refusal) = self.refusal.take() {
                    // The program was expected to raise here, and didn't: what broke the graph is ours.
                    segment::user_error(self.py, "Unsupported", &refusal).restore(self.py);
                    return Ok(frame.fail());
                }
                if unit.get(self.pc).is_none_or(|placed| placed.enterable) {
                    break;
                }
            }
        }
    }

    /// A frame that ran to its end without any graph is left alone from then on.
    fn finished(&self) {
        if !self.graphs_ran && self.state.idle_runs.fetch_add(1, Ordering::Relaxed) >= 2 {
            self.state.skip.store(true, Ordering::Relaxed);
        }
    }

    fn try_segments(&mut self, frame: &mut Frame<'py>) -> Result<Tried<'py>, FrameError> {
        let mut n = 0;
        while let Some(segment) = self.state.segment(self.pc, n) {
            if let Some(tried) = self.try_segment(frame, &segment)? {
                self.state.hit(self.pc, n);
                return Ok(tried);
            }
            n += 1;
        }
        match self.state.policy(self.pc) {
            (Policy::Step, refusal) => return Ok(Tried::Step { refusal }),
            (Policy::Leave, _) => return Ok(Tried::Leave),
            (Policy::Trace, _) => {}
        }
        let attempt = segment::compile(self.py, self.engine, &self.compiled, &self.state, frame, self.pc);
        match attempt {
            Attempt::Segment(segment) => match self.try_segment(frame, &segment)? {
                Some(tried) => Ok(tried),
                None => {
                    let why = segment.program.explain(&env_of(frame)).join("; ");
                    report_fault(self.engine, &format!("a new segment's guards failed: {why}"), "checking guards");
                    self.state.set_policy(self.pc, Policy::Leave);
                    Ok(Tried::Leave)
                }
            },
            Attempt::Step { refusal } => Ok(Tried::Step { refusal }),
            Attempt::Leave => Ok(Tried::Leave),
            Attempt::Error(error) => {
                error.restore(self.py);
                Ok(Tried::Failed)
            }
        }
    }

    /// Runs a segment if its guards hold.
    fn try_segment(&mut self, frame: &mut Frame<'py>, segment: &Segment) -> Result<Option<Tried<'py>>, FrameError> {
        let env = env_of(frame);
        let mut registers = segment.program.registers();
        if segment.program.run(&env, &mut registers).is_err() {
            return Ok(None);
        }
        // Python code may run from here on, and drop what the registers borrow.
        registers.hold(self.py);
        let built = segment
            .runner
            .run(self.py, &registers, segment.input_count)
            .and_then(|outputs| segment.exit.apply(self.py, &segment.program, &registers, &outputs));
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                error.restore(self.py);
                return Ok(Some(Tried::Raised));
            }
        };
        drop(registers);
        self.graphs_ran |= !segment.runner.is_empty();
        let Some(resume) = segment.resume else {
            let value =
                built.value.map(|v| v.into_bound(self.py)).unwrap_or_else(|| self.py.None().into_bound(self.py));
            return Ok(Some(Tried::Returned(value)));
        };
        // New stack first: its values may be the old stack's.
        let stack: Vec<_> = built.stack.into_iter().map(|v| v.map(|v| v.into_bound(self.py))).collect();
        frame.truncate(0);
        for (slot, value) in built.slots {
            frame.set_local(slot.0, value.map(|v| v.into_bound(self.py)))?;
        }
        for value in stack {
            frame.push(value)?;
        }
        self.pc = resume;
        Ok(Some(match segment.step_next {
            true => Tried::Step { refusal: segment.refusal.clone() },
            false => Tried::Ran,
        }))
    }
}

/// The real state that guards read.
pub fn env_of(frame: &Frame<'_>) -> Env {
    // SAFETY: the slots are the live frame's, which keeps the other objects alive while it is evaluated.
    unsafe {
        Env::of_frame(
            frame.locals_ptr(),
            frame.nlocalsplus() as usize,
            frame.stack_depth() as usize,
            frame.globals().as_ptr(),
            frame.builtins().as_ptr(),
            frame.func().as_ptr(),
        )
    }
}

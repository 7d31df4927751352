//! Test-only extension module behind `tests/frames`: a frame handler with no tracer and no compiler.
//!
//! Marked functions are executed by single steps. The outermost marked frame of a run can be left to the interpreter
//! after a given number of steps, and exceptions either continue by unwinding here or are raised into the interpreter.
#![forbid(unsafe_code)]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    sync::Arc,
};

use oxy_bytecode::{CodeUnit, Instr, InstrId};
use oxy_frames::{Completion, Frame, FrameError, FrameHandler, HookGuard, Mark, StepOutcome, code, code_extra, hook};
use pyo3::{
    exceptions::{PySystemError, PyTypeError},
    prelude::*,
    types::{PyCode, PyDict, PyTuple},
};

/// How a run continues when a step has raised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnRaise {
    /// Go to the handler and step on.
    Unwind,
    /// Let the interpreter go on in the handler.
    RaiseAt,
}

thread_local! {
    /// How many runs are active in this thread.
    static RUNS: Cell<u32> = const { Cell::new(0) };
    /// Whether code without a mark is marked, and stepped through, when it first runs.
    static MARK_UNKNOWN: Cell<bool> = const { Cell::new(false) };
    static ON_RAISE: Cell<OnRaise> = const { Cell::new(OnRaise::Unwind) };
    /// After how many steps the next marked frame is left; taken by that frame.
    static LEAVE_AFTER: Cell<Option<u64>> = const { Cell::new(None) };
    /// Steps done by the frame that took it.
    static STEPS_OF_FIRST: Cell<u64> = const { Cell::new(0) };
    /// What goes wrong on purpose; taken by the frame that commits it.
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    /// The instructions that were performed by a step, by name.
    static PERFORMED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
    /// Steps done by all frames, and what became of frames, since `reset_counts`.
    static COUNTS: RefCell<Counts> = const { RefCell::new(Counts { steps: 0, finished: 0, left: 0, raised: 0, unwound: 0 }) };
}

/// A fault to commit in the next marked frame, before the given step.
#[derive(Clone, Copy)]
enum Fault {
    Panic(u64),
    WrongUnit(u64),
}

struct Counts {
    steps: u64,
    finished: u64,
    left: u64,
    raised: u64,
    unwound: u64,
}

fn count(change: impl FnOnce(&mut Counts)) {
    COUNTS.with_borrow_mut(change);
}

struct Stress;

static STRESS: Stress = Stress;

impl FrameHandler for Stress {
    fn is_active(&self) -> bool {
        RUNS.get() > 0
    }

    fn evaluate(&self, frame: &mut Frame<'_>, mark: Mark) -> Completion {
        let result = match mark {
            Mark::Data(data) => match data.downcast_ref::<CodeUnit>() {
                Some(unit) => run(frame, unit),
                None => frame.plain(),
            },
            Mark::Unknown if MARK_UNKNOWN.get() => match mark_and_decode(frame) {
                Ok(unit) => run(frame, &unit),
                Err(error) => {
                    error.restore(frame.py());
                    Ok(frame.fail())
                }
            },
            Mark::Unknown | Mark::Skip => frame.plain(),
        };
        result.unwrap_or_else(|error| {
            PySystemError::new_err(format!("stress: {error}")).restore(frame.py());
            frame.fail()
        })
    }
}

fn mark_and_decode(frame: &Frame<'_>) -> PyResult<Arc<CodeUnit>> {
    let code = frame.code().to_owned();
    let unit = Arc::new(code::decode(&code)?);
    code_extra::set(&code, Mark::Data(unit.clone()))?;
    Ok(unit)
}

/// Steps through a frame.
fn run(frame: &mut Frame<'_>, unit: &CodeUnit) -> Result<Completion, FrameError> {
    let first = LEAVE_AFTER.take();
    let mut at = InstrId(0);
    let mut steps = 0;
    loop {
        if first.is_some() {
            STEPS_OF_FIRST.set(steps);
        }
        let enterable = unit.get(at).is_some_and(|placed| placed.enterable);
        if enterable && (first.is_some_and(|after| steps >= after) || frame.is_observed()) {
            count(|counts| counts.left += 1);
            return frame.leave(unit, at);
        }
        match FAULT.get() {
            Some(Fault::Panic(before)) if before == steps => {
                FAULT.set(None);
                panic!("a panic on purpose");
            }
            Some(Fault::WrongUnit(before)) if before == steps => {
                FAULT.set(None);
                return refuse_everything(frame, unit, at);
            }
            _ => {}
        }
        steps += 1;
        count(|counts| counts.steps += 1);
        let outcome = oxy_frames::step(frame, unit, at);
        if let Some(placed) = unit.get(at)
            && !matches!(outcome, StepOutcome::MustLeave)
        {
            PERFORMED.with_borrow_mut(|performed| performed.insert(placed.instr.mnemonic()));
        }
        match outcome {
            StepOutcome::Next => at = InstrId(at.0 + 1),
            StepOutcome::Jump(target) => at = target,
            StepOutcome::Return(value) => {
                count(|counts| counts.finished += 1);
                return Ok(frame.finish(value));
            }
            StepOutcome::MustLeave => {
                count(|counts| counts.left += 1);
                return frame.leave(unit, at);
            }
            StepOutcome::Raised => {
                if ON_RAISE.get() == OnRaise::RaiseAt {
                    count(|counts| counts.raised += 1);
                    return frame.raise_at(unit, at);
                }
                count(|counts| counts.unwound += 1);
                match oxy_frames::unwind(frame, unit, at)? {
                    Some(handler) => at = handler,
                    None => return Ok(frame.fail()),
                }
            }
        }
    }
}

/// Misuses a frame in every way there is; each has to be refused without harm. Then steps on.
fn refuse_everything(frame: &mut Frame<'_>, unit: &CodeUnit, at: InstrId) -> Result<Completion, FrameError> {
    let depth = frame.stack_depth();
    let mut wrong = unit.clone();
    wrong.stacksize += 1;
    let none = frame.py().None().into_bound(frame.py());
    let mut surprises = Vec::new();
    let mut expect = |what: &str, refused: bool| {
        if !refused {
            surprises.push(what.to_owned());
        }
    };
    expect("leave by another unit", matches!(frame.leave(&wrong, at), Err(FrameError::WrongCode)));
    expect("leave past the end", matches!(frame.leave(unit, InstrId(u32::MAX)), Err(FrameError::NoSuchInstr)));
    expect("step of another unit", matches!(oxy_frames::step(frame, &wrong, at), StepOutcome::Raised));
    expect("its error", PyErr::take(frame.py()).is_some());
    expect("set a slot", frame.set_local(frame.nlocalsplus(), None) == Err(FrameError::NoSuchLocal));
    expect("read a slot", frame.local(frame.nlocalsplus()).is_none());
    expect("read the stack", frame.stack(depth).is_none());
    while frame.push(Some(none.clone())).is_ok() {}
    expect("push past the end", frame.push(None) == Err(FrameError::StackOverflow));
    frame.truncate(depth);
    expect("truncate", frame.stack_depth() == depth);
    expect("start over", matches!(frame.plain(), Err(FrameError::Touched)));
    if !surprises.is_empty() {
        PySystemError::new_err(format!("not refused: {}", surprises.join(", "))).restore(frame.py());
        return Ok(frame.fail());
    }
    frame.leave(unit, at)
}

/// The hook, and this thread's interest in frames, for the duration of a run.
struct Run {
    _guard: HookGuard,
    on_raise: OnRaise,
    leave_after: Option<u64>,
}

impl Run {
    fn start(py: Python<'_>, on_raise: OnRaise, leave_after: Option<u64>) -> PyResult<Run> {
        let guard = hook::install(py, &STRESS)?;
        RUNS.set(RUNS.get() + 1);
        Ok(Run { _guard: guard, on_raise: ON_RAISE.replace(on_raise), leave_after: LEAVE_AFTER.replace(leave_after) })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        RUNS.set(RUNS.get() - 1);
        ON_RAISE.set(self.on_raise);
        LEAVE_AFTER.set(self.leave_after);
    }
}

fn code_of<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCode>> {
    let code = function.getattr("__code__")?;
    code.cast_into::<PyCode>().map_err(|_| PyTypeError::new_err("not a Python function"))
}

/// From now on, frames of this function are stepped through during runs.
#[pyfunction]
fn mark(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let code = code_of(function)?;
    if let Mark::Unknown = code_extra::get(&code)? {
        let unit = code::decode(&code)?;
        code_extra::set(&code, Mark::Data(Arc::new(unit)))?;
    }
    Ok(())
}

/// Frames of this function are evaluated plainly, at the least cost.
#[pyfunction]
fn mark_skip(function: &Bound<'_, PyAny>) -> PyResult<()> {
    code_extra::set(&code_of(function)?, Mark::Skip)
}

/// Forgets a function's mark.
#[pyfunction]
fn unmark(function: &Bound<'_, PyAny>) -> PyResult<()> {
    code_extra::set(&code_of(function)?, Mark::Unknown)
}

/// Calls with every marked frame stepped through to its end.
#[pyfunction]
fn run_stepped<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _run = Run::start(function.py(), OnRaise::Unwind, None)?;
    function.call(args, kwargs)
}

/// Calls with every frame stepped through, whether marked or not.
#[pyfunction]
fn run_everything<'py>(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let _run = Run::start(function.py(), OnRaise::Unwind, None)?;
    let before = MARK_UNKNOWN.replace(true);
    let result = function.call1(args);
    MARK_UNKNOWN.set(before);
    result
}

/// Like `run_stepped`, but what a step raises is raised into the interpreter.
#[pyfunction]
fn run_raising<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _run = Run::start(function.py(), OnRaise::RaiseAt, None)?;
    function.call(args, kwargs)
}

/// Calls with the first marked frame left to the interpreter after `steps` steps.
#[pyfunction]
fn run_leaving<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    steps: u64,
) -> PyResult<Bound<'py, PyAny>> {
    STEPS_OF_FIRST.set(0);
    let _run = Run::start(function.py(), OnRaise::Unwind, Some(steps))?;
    function.call(args, kwargs)
}

/// Steps that the first marked frame of the latest `run_leaving` made.
#[pyfunction]
fn steps_of_first() -> u64 {
    STEPS_OF_FIRST.get()
}

/// Calls with the hook installed and wanted, so that every frame is offered, but with no marks of ours involved.
#[pyfunction]
fn run_hooked<'py>(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let _run = Run::start(function.py(), OnRaise::Unwind, None)?;
    function.call1(args)
}

/// Calls with the hook installed but not wanted by this thread.
#[pyfunction]
fn run_unwanted<'py>(function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let _guard = hook::install(function.py(), &STRESS)?;
    function.call1(args)
}

/// Like `run_stepped`, with a panic before the given step of the first marked frame.
#[pyfunction]
fn run_panicking<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    step: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let _run = Run::start(function.py(), OnRaise::Unwind, None)?;
    FAULT.set(Some(Fault::Panic(step)));
    function.call1(args)
}

/// Like `run_leaving`, after trying everything that has to be refused.
#[pyfunction]
fn run_misusing<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    step: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let _run = Run::start(function.py(), OnRaise::Unwind, None)?;
    FAULT.set(Some(Fault::WrongUnit(step)));
    function.call1(args)
}

/// The names of all instructions, and of those that steps have performed in this thread.
#[pyfunction]
fn instructions() -> (Vec<&'static str>, Vec<&'static str>) {
    (Instr::MNEMONICS.to_vec(), PERFORMED.with_borrow(|performed| performed.iter().copied().collect()))
}

/// Starts counting anew; returns the counts so far: steps, frames finished, left, raised, exceptions unwound.
#[pyfunction]
fn reset_counts() -> (u64, u64, u64, u64, u64) {
    COUNTS.with_borrow_mut(|counts| {
        let now = (counts.steps, counts.finished, counts.left, counts.raised, counts.unwound);
        *counts = Counts { steps: 0, finished: 0, left: 0, raised: 0, unwound: 0 };
        now
    })
}

/// See the crate's documentation.
#[pymodule]
fn oxy_frames_stress(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(mark, module)?)?;
    module.add_function(wrap_pyfunction!(mark_skip, module)?)?;
    module.add_function(wrap_pyfunction!(unmark, module)?)?;
    module.add_function(wrap_pyfunction!(run_stepped, module)?)?;
    module.add_function(wrap_pyfunction!(run_everything, module)?)?;
    module.add_function(wrap_pyfunction!(run_raising, module)?)?;
    module.add_function(wrap_pyfunction!(run_leaving, module)?)?;
    module.add_function(wrap_pyfunction!(steps_of_first, module)?)?;
    module.add_function(wrap_pyfunction!(run_hooked, module)?)?;
    module.add_function(wrap_pyfunction!(run_unwanted, module)?)?;
    module.add_function(wrap_pyfunction!(run_panicking, module)?)?;
    module.add_function(wrap_pyfunction!(run_misusing, module)?)?;
    module.add_function(wrap_pyfunction!(instructions, module)?)?;
    module.add_function(wrap_pyfunction!(reset_counts, module)?)?;
    Ok(())
}

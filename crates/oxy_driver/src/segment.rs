//! Compiles one segment: traces it, compiles its guards and its graph, and puts it into the cache.

use crate::backend;
use crate::cache::{CodeState, Policy, Segment};
use crate::compiled::Compiled;
use crate::engine::Engine;
use crate::frames::report_fault;
use oxy_bytecode::InstrId;
use oxy_frames::Frame;
use oxy_guards::{Exit, GuardProgram, Recipe};
use oxy_tracer::breaks::{self, Break};
use oxy_tracer::tracer::Options;
use oxy_tracer::{Entry, Failure, trace};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Instant;

/// The outcome of compiling at an entry point.
pub enum Attempt {
    Segment(Arc<Segment>),
    /// The first instruction can't be captured. `refusal`: under `fullgraph`, the error if it doesn't raise.
    Step {
        refusal: Option<Arc<str>>,
    },
    Leave,
    /// An error that the user asked for (`fullgraph`, limits).
    Error(PyErr),
}

/// Compiles the segment that starts at `pc` with the frame's state.
pub fn compile<'py>(
    py: Python<'py>,
    engine: &'static Engine,
    compiled: &Arc<Compiled>,
    state: &Arc<CodeState>,
    frame: &Frame<'py>,
    pc: InstrId,
) -> Attempt {
    let entry = Entry {
        code: frame.code().to_owned().into_any(),
        pc,
        locals: (0..frame.nlocalsplus()).map(|slot| frame.local(slot).map(|o| o.to_owned())).collect(),
        stack: (0..frame.stack_depth()).map(|index| frame.stack(index).map(|o| o.to_owned())).collect(),
        globals: frame.globals().to_owned(),
        function: Some(frame.func().to_owned()),
    };
    let guarded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        compile_entry(py, engine, compiled, state, &entry, &|| explain(state, frame, pc))
    }));
    match guarded {
        Ok(attempt) => attempt,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_else(|| "panic".to_owned());
            fault(engine, state, pc, &format!("panic: {text}"))
        }
    }
}

/// A fault of ours: the frame is the interpreter's from here on.
fn fault(engine: &Engine, state: &CodeState, pc: InstrId, text: &str) -> Attempt {
    if engine.config.get().strict {
        return Attempt::Error(pyo3::exceptions::PySystemError::new_err(format!("oxyfuel: {text}")));
    }
    report_fault(engine, text, "compiling");
    state.set_policy(pc, Policy::Leave);
    Attempt::Leave
}

fn compile_entry<'py>(
    py: Python<'py>,
    engine: &'static Engine,
    compiled: &Arc<Compiled>,
    state: &Arc<CodeState>,
    entry: &Entry<'py>,
    explain: &dyn Fn() -> String,
) -> Attempt {
    let config = engine.config.get();
    let limit = compiled.options.recompile_limit.unwrap_or(config.recompile_limit);
    let existing = state.count(entry.pc);
    if existing > 0 && config.error_on_recompile {
        let text = format!("recompilation of {}: {}", place(entry), explain());
        return Attempt::Error(user_error(py, "RecompileError", &text));
    }
    match config.stance.as_str() {
        "eager_on_recompile" if existing > 0 => return Attempt::Leave,
        "fail_on_recompile" if existing > 0 => {
            let text =
                format!("{} would be compiled again under the stance fail_on_recompile: {}", place(entry), explain());
            return Attempt::Error(pyo3::exceptions::PyRuntimeError::new_err(text));
        }
        _ => {}
    }
    if existing as i64 >= limit || state.total() as i64 >= config.accumulated_recompile_limit {
        let text = format!(
            "{} was compiled {existing} times here and runs uncompiled from now on (config.recompile_limit = {limit})",
            place(entry)
        );
        if config.fail_on_recompile_limit_hit || compiled.options.fullgraph {
            return Attempt::Error(user_error(py, "FailOnRecompileLimitHit", &text));
        }
        crate::log::line(&format!("oxyfuel: {text}"));
        state.set_policy(entry.pc, Policy::Leave);
        return Attempt::Leave;
    }
    if config.inject_panic == "trace" {
        panic!("injected by config.inject_panic");
    }
    let known = match engine.known(py) {
        Ok(known) => known,
        Err(error) => return Attempt::Error(error),
    };
    let options = Options { depth_max: config.inline_depth_max.clamp(1, 400) as u32, ..Options::default() };
    let decode = |code: &Bound<'_, PyAny>| engine.decode(code);
    let started = Instant::now();
    let mut traced = trace(py, known, &decode, options.clone(), entry, None);
    let mut why: Option<Box<Break>> = None;
    let mut refusal: Option<Arc<str>> = None;
    if let Err(Failure::Break { stop_at, why: reason, .. }) = traced {
        match refuse(py, compiled, &reason) {
            Some(Refusal::Now(error)) => return Attempt::Error(error),
            Some(Refusal::UnlessRaised(text)) => refusal = Some(text),
            None => count_break(engine, &reason),
        }
        if stop_at == 0 {
            state.set_step(entry.pc, refusal.clone());
            return Attempt::Step { refusal };
        }
        why = Some(reason);
        traced = trace(py, known, &decode, options, entry, Some(stop_at));
    }
    engine.stats.phase("trace", started.elapsed());
    let segment = match traced {
        Ok(segment) => segment,
        Err(Failure::Rebuild(reason)) => {
            if (compiled.options.fullgraph || reason.strict == Some(true)) && refusal.is_none() {
                return Attempt::Error(user_error(py, "Unsupported", &break_message(py, &reason)));
            }
            count_break(engine, &reason);
            state.set_step(entry.pc, refusal.clone());
            return Attempt::Step { refusal };
        }
        Err(Failure::Break { why, .. }) => {
            return fault(engine, state, entry.pc, &format!("the trace broke earlier the second time: {}", why.detail));
        }
        Err(Failure::Bug(text)) => return fault(engine, state, entry.pc, &text),
    };
    let started = Instant::now();
    let strict = compiled.options.fullgraph || scope_is_strict(py);
    let runner = match backend::compile(py, engine, compiled, &segment) {
        Ok(runner) => runner,
        Err(error) if error.get_type(py).name().is_ok_and(|name| name == "SkipFrame") && !strict => {
            state.set_policy(entry.pc, Policy::Leave);
            return Attempt::Leave;
        }
        Err(error) if config.suppress_errors && !strict => {
            crate::log::line(&format!("oxyfuel: {} runs uncompiled: {error}", place(entry)));
            return Attempt::Leave;
        }
        Err(error) => return Attempt::Error(error),
    };
    engine.stats.phase("backend", started.elapsed());
    let started = Instant::now();
    let inputs: Vec<_> = segment.graph.inputs.iter().map(|input| input.source.clone()).collect();
    let input_count = inputs.len();
    let program = match GuardProgram::compile(py, segment.guards, inputs, &segment.exit) {
        Ok(program) => program,
        Err(error) => return fault(engine, state, entry.pc, &error.to_string()),
    };
    engine.stats.phase("guards", started.elapsed());
    let calls = segment.graph.calls.len() as u64;
    engine.stats.update(|counts| {
        counts.segments += 1;
        counts.operators += calls;
        counts.graphs += (calls > 0) as u64;
        counts.kernels += runner.kernel_count() as u64;
        counts.recompiles += (existing > 0) as u64;
    });
    let returned_output = returned_output(&segment.exit);
    let made = Arc::new(Segment {
        program,
        exit: segment.exit,
        resume: segment.resume,
        step_next: why.is_some(),
        refusal,
        runner,
        returned_output,
        input_count,
    });
    state.add(entry.pc, made.clone());
    Attempt::Segment(made)
}

/// Why the segments at an entry don't fit.
fn explain(state: &CodeState, frame: &Frame<'_>, pc: InstrId) -> String {
    let env = crate::frames::env_of(frame);
    let segments = (0..).map_while(|n| state.segment(pc, n));
    segments.flat_map(|segment| segment.program.explain(&env)).collect::<Vec<_>>().join("; ")
}

/// Whether `error_on_graph_break(True)` is in force.
fn scope_is_strict(py: Python<'_>) -> bool {
    let scope = py.import("oxyfuel._decorators").and_then(|m| m.getattr("SCOPE"));
    scope.and_then(|s| s.getattr("error_on_graph_break")).and_then(|v| v.extract::<Option<bool>>()).ok().flatten()
        == Some(true)
}

/// The output that an exit without any other business returns.
fn returned_output(exit: &Exit) -> Option<u32> {
    if !exit.effects.is_empty() || !exit.slots.is_empty() || !exit.stack.is_empty() {
        return None;
    }
    match exit.recipes.get(exit.value?.0 as usize) {
        Some(Recipe::Output(index)) => Some(*index),
        _ => None,
    }
}

fn count_break(engine: &Engine, reason: &Break) {
    engine.stats.update(|counts| {
        counts.graph_breaks += 1;
        let place = reason.stack.last().map(|p| format!(" at {}:{}", p.file, p.line)).unwrap_or_default();
        *counts.break_reasons.entry(format!("{}: {}{place}", reason.reason.title, reason.detail)).or_default() += 1;
    });
}

/// What `fullgraph` makes of a break.
enum Refusal {
    Now(PyErr),
    /// The program itself may raise there: it runs, and this is the error if it doesn't.
    UnlessRaised(Arc<str>),
}

fn refuse(py: Python<'_>, compiled: &Compiled, reason: &Break) -> Option<Refusal> {
    if reason.reason != breaks::STANCE && !compiled.options.fullgraph && reason.strict != Some(true) {
        return None;
    }
    let message = break_message(py, reason);
    if reason.reason == breaks::EXCEPTION_ESCAPES || reason.reason == breaks::FAKE_CALL {
        return Some(Refusal::UnlessRaised(message.into()));
    }
    Some(Refusal::Now(user_error(py, "Unsupported", &message)))
}

fn break_message(py: Python<'_>, reason: &Break) -> String {
    let lines = py.import("linecache").ok();
    reason.message(|file, line| {
        lines.as_ref()?.call_method1("getline", (file, line)).ok()?.extract::<String>().ok().filter(|l| !l.is_empty())
    })
}

/// An exception of `oxyfuel.exc`.
pub fn user_error(py: Python<'_>, class: &str, message: &str) -> PyErr {
    match py.import("oxyfuel.exc").and_then(|m| m.getattr(class)).and_then(|c| c.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

fn place(entry: &Entry<'_>) -> String {
    let text = |name: &str| entry.code.getattr(name).map(|v| v.to_string()).unwrap_or_default();
    format!("{} ({}:{})", text("co_qualname"), text("co_filename"), text("co_firstlineno"))
}

//! The symbolic interpreter: bytecode in; guards, graph, effects and exits out.
//!
//! [`trace`] runs a frame from an entry point on traced values. It changes none of the user's objects: mutation is
//! recorded and handed to the exit. Torch calls run on fake tensors to learn their results' metadata. What can't be
//! traced ends the trace with a [`Break`](breaks::Break) that says why; the caller traces again with `stop_at` to get the segment that
//! ends just before it.
#![forbid(unsafe_code)]

pub mod attrs;
pub mod breaks;
pub mod builtins;
pub mod calls;
pub mod code;
pub mod containers;
pub mod copying;
pub mod deques;
pub mod exits;
pub mod frame;
pub mod interp;
pub mod markers;
pub mod operators;
pub mod partials;
pub mod semantics;
pub mod subclasses;
pub mod torch_graph;
pub mod torch_ops;
pub mod tracer;
pub mod value;
pub mod well_known;

use breaks::{Break, Stop};
use code::Code;
use exits::ExitBuilder;
use frame::Frame;
use interp::Outcome;
use oxy_bytecode::InstrId;
use oxy_guards::{Exit, Guard, GuardKind, PyObj, Source, SourceKind, SourceTable};
use pyo3::prelude::*;
use std::rc::Rc;
use torch_graph::TorchGraph;
use tracer::{DecodeFn, Options, Tracer};
use value::{Kind, Object, Val};
use well_known::WellKnown;

/// The real state of the frame at the segment's entry.
pub struct Entry<'py> {
    pub code: Object<'py>,
    pub pc: InstrId,
    /// localsplus slots, cells as cell objects.
    pub locals: Vec<Option<Object<'py>>>,
    /// The value stack; `None` is NULL.
    pub stack: Vec<Option<Object<'py>>>,
    pub globals: Object<'py>,
    pub function: Option<Object<'py>>,
}

/// A traced segment.
pub struct Segment<'py> {
    pub guards: Vec<Guard>,
    pub sources: SourceTable,
    pub exit: Exit,
    /// Where the frame goes on; `None` after a return.
    pub resume: Option<InstrId>,
    pub graph: TorchGraph<'py>,
    /// Names of the entry frame's slots, for the texts of sources.
    pub local_names: Vec<String>,
    /// Tensor numbers the graph returns.
    pub outputs: Vec<u32>,
    pub steps: u64,
    /// Instructions of the entry frame that the segment covers.
    pub outer_steps: u64,
}

/// Why there is no segment.
#[derive(Debug)]
pub enum Failure {
    /// The segment can reach up to `stop_at` instructions of the entry frame, where it stands at `pc`.
    Break {
        stop_at: u64,
        pc: InstrId,
        why: Box<Break>,
    },
    /// What is alive at the end can't be rebuilt: no segment from this entry.
    Rebuild(Box<Break>),
    Bug(String),
}

/// Traces from an entry. `stop_at`: end before this many instructions of the entry frame.
pub fn trace<'py>(
    py: Python<'py>,
    known: &WellKnown,
    decode: &DecodeFn<'_>,
    options: Options,
    entry: &Entry<'py>,
    stop_at: Option<u64>,
) -> Result<Segment<'py>, Failure> {
    let bug = |e: PyErr| Failure::Bug(e.to_string());
    let mut tracer = Tracer::new(py, options, decode, known, stop_at).map_err(bug)?;
    let mode = tracer.entry_grad_mode;
    let result = run(&mut tracer, entry);
    if known.grad_enabled(py).map_err(bug)? != mode {
        let set = known.torch.bind(py).getattr("_C").and_then(|c| c.getattr("_set_grad_enabled")).map_err(bug)?;
        set.call1((mode,)).map_err(bug)?;
    }
    let finished = result?;
    let local_names = tracer.code(&entry.code).map(|code| code.var_names.clone()).unwrap_or_default();
    let state = oxy_guards::GlobalState::current(py).map_err(bug)?;
    let any = tracer.src(SourceKind::Globals);
    tracer.guards.push(Guard::global_state(&any, state));
    Ok(Segment {
        guards: tracer.guards,
        sources: tracer.sources,
        exit: finished.exit,
        resume: finished.resume,
        outputs: finished.outputs,
        steps: tracer.steps,
        outer_steps: tracer.outer_steps,
        graph: tracer.graph,
        local_names,
    })
}

struct Finished {
    exit: Exit,
    outputs: Vec<u32>,
    resume: Option<InstrId>,
}

fn run<'py>(t: &mut Tracer<'py, '_>, entry: &Entry<'py>) -> Result<Finished, Failure> {
    let mut frame = entry_frame(t, entry).map_err(|stop| failure(t, stop))?;
    let entry_locals: Vec<Option<Val>> = frame.locals.clone();
    let capture = t.graph.capture.clone();
    let bug = |e: PyErr| Failure::Bug(e.to_string());
    // Hooks on saved tensors are for what runs, not for what is traced.
    let hooks =
        t.py.import("torch._C._autograd").and_then(|m| m.getattr("_saved_tensors_hooks_set_tracing")).map_err(bug)?;
    let tracing = hooks.call1((true,)).map_err(bug)?;
    let state = t.py.import("oxyfuel.polyfills").and_then(|m| m.getattr("thread_state")).map_err(bug)?;
    let before = state.call0().map_err(bug)?;
    capture.call_method0("enter").map_err(bug)?;
    let outcome = t.run(&mut frame, true);
    let after = state.call0().map_err(bug)?;
    t.thread_state = Some((before, after));
    capture.call_method0("exit").map_err(bug)?;
    hooks.call1((tracing,)).map_err(bug)?;
    let outcome = outcome.map_err(|stop| failure(t, stop))?;
    t.guard_overlap().map_err(|stop| rebuild_failure(t, stop))?;
    let resume = match &outcome {
        Outcome::Return(_) => None,
        Outcome::Stopped => Some(frame.pc),
        Outcome::Yield(_) => return Err(Failure::Bug("the entry frame yielded".to_owned())),
    };
    let built = match outcome {
        Outcome::Return(val) => ExitBuilder::new(t).returning(val),
        _ => ExitBuilder::new(t).resuming(&frame, frame.pc, &entry_locals),
    };
    let (exit, outputs) = built.map_err(|stop| rebuild_failure(t, stop))?;
    Ok(Finished { exit, outputs, resume })
}

fn failure(t: &Tracer<'_, '_>, stop: Stop) -> Failure {
    match stop {
        Stop::Break(mut why) => {
            why.strict = t.breaks_are_errors();
            // While a handler of the entry frame runs, only the point before its exception can be resumed at.
            let (stop_at, pc) = match (t.handled, t.raised_at) {
                (_, Some(raised)) => raised,
                _ => t.outer_enterable,
            };
            Failure::Break { stop_at, pc, why }
        }
        Stop::Raise(_) => Failure::Bug("an exception left the trace".to_owned()),
        Stop::Bug(text) => Failure::Bug(text),
    }
}

fn rebuild_failure(t: &Tracer<'_, '_>, stop: Stop) -> Failure {
    match stop {
        Stop::Break(mut why) => {
            why.strict = t.breaks_are_errors();
            Failure::Rebuild(why)
        }
        other => failure(t, other),
    }
}

fn entry_frame<'py>(t: &mut Tracer<'py, '_>, entry: &Entry<'py>) -> Result<Frame<'py>, Stop> {
    let code: Rc<Code<'py>> = t.code(&entry.code)?;
    let mut locals = Vec::with_capacity(entry.locals.len());
    for (slot, object) in entry.locals.iter().enumerate() {
        let source = t.src(SourceKind::Local(slot as u32));
        locals.push(match object {
            Some(object) => Some(t.external(object.clone(), source)),
            None => {
                let live = code.decoded.analysis.is_live(entry.pc, oxy_bytecode::Var(slot as u32));
                if entry.pc.0 > 0 && live {
                    t.guard(&source, GuardKind::Missing);
                }
                None
            }
        });
    }
    let mut stack = Vec::with_capacity(entry.stack.len());
    for (index, object) in entry.stack.iter().enumerate() {
        let source = t.src(SourceKind::Stack(index as u32));
        stack.push(match object {
            Some(object) => t.external(object.clone(), source),
            None => {
                t.guard(&source, GuardKind::Missing);
                t.add(Kind::Null)
            }
        });
    }
    let mut closure = Vec::new();
    if let Some(function) = &entry.function {
        let cells = function.getattr("__closure__")?;
        if !cells.is_none() {
            let function_source: Source = t.src(SourceKind::Function);
            let closure_source = t.src(SourceKind::FunctionClosure(function_source));
            for (i, cell) in cells.try_iter()?.enumerate() {
                let source = t.src(SourceKind::TupleItem(closure_source.clone(), i as u32));
                closure.push(t.external(cell?, source));
            }
        }
    }
    let globals_source = t.src(SourceKind::Object(PyObj::new(&entry.globals)));
    // Functions that share a code object may have other globals.
    let frame_globals = t.src(SourceKind::Globals);
    t.guard_identity(&frame_globals, &entry.globals);
    let builtins = t.builtins_of(&entry.globals)?;
    Ok(Frame {
        code,
        globals: entry.globals.clone(),
        globals_source,
        builtins,
        closure,
        locals,
        stack,
        pc: entry.pc,
        started: false,
    })
}

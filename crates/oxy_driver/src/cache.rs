//! What a compiled callable knows of the code it ran: segments by entry point.

use crate::backend::Runner;
use oxy_bytecode::InstrId;
use oxy_guards::{Exit, GuardProgram};
use oxy_tracer::code::Decoded;
use parking_lot::Mutex;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One compiled segment.
pub struct Segment {
    pub program: GuardProgram,
    pub exit: Exit,
    /// Where the frame goes on; `None` after a return.
    pub resume: Option<InstrId>,
    /// The instruction at `resume` is the one that couldn't be captured.
    pub step_next: bool,
    /// Under `fullgraph`: the error if the instruction at `resume` doesn't raise one of its own.
    pub refusal: Option<Arc<str>>,
    pub runner: Runner,
    /// All that the segment does is return this output of its graph.
    pub returned_output: Option<u32>,
    /// Tensor inputs: the first registers' worth of the guard program.
    pub input_count: usize,
}

/// What to do at an entry point when no segment fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Trace,
    /// The instruction can't be captured: it is performed by itself.
    Step,
    /// No more segments: the rest of the frame is the interpreter's.
    Leave,
}

/// Segments that start at one instruction. Newest hit first.
pub struct EntryPoint {
    pub segments: Vec<Arc<Segment>>,
    pub policy: Policy,
    /// Under `fullgraph`, with `Policy::Step`: the error if the instruction doesn't raise one of its own.
    pub refusal: Option<Arc<str>>,
}

impl EntryPoint {
    fn new() -> EntryPoint {
        EntryPoint { segments: Vec::new(), policy: Policy::Trace, refusal: None }
    }
}

/// A code object within one compiled callable.
pub struct CodeState {
    /// Keeps the code object, whose address is the key, alive.
    pub code: Py<PyAny>,
    pub decoded: Arc<Decoded>,
    pub entries: Mutex<FxHashMap<u32, EntryPoint>>,
    /// Frames of this code are left to the interpreter from their start.
    pub skip: AtomicBool,
    /// Complete runs of a frame in which no graph ran.
    pub idle_runs: AtomicU32,
}

impl CodeState {
    pub fn new(code: Py<PyAny>, decoded: Arc<Decoded>) -> CodeState {
        CodeState {
            code,
            decoded,
            entries: Mutex::default(),
            skip: AtomicBool::new(false),
            idle_runs: AtomicU32::new(0),
        }
    }

    /// What to do at an instruction when no segment fits.
    pub fn policy(&self, pc: InstrId) -> (Policy, Option<Arc<str>>) {
        match self.entries.lock().get(&pc.0) {
            Some(entry) => (entry.policy, entry.refusal.clone()),
            None => (Policy::Trace, None),
        }
    }

    /// The `n`-th segment at an instruction, without copying the list.
    pub fn segment(&self, pc: InstrId, n: usize) -> Option<Arc<Segment>> {
        self.entries.lock().get(&pc.0)?.segments.get(n).cloned()
    }

    /// Moves a segment that fitted to the front.
    pub fn hit(&self, pc: InstrId, n: usize) {
        if n > 0
            && let Some(entry) = self.entries.lock().get_mut(&pc.0)
            && n < entry.segments.len()
        {
            entry.segments[..=n].rotate_right(1);
        }
    }

    pub fn add(&self, pc: InstrId, segment: Arc<Segment>) -> usize {
        let mut entries = self.entries.lock();
        let entry = entries.entry(pc.0).or_insert_with(EntryPoint::new);
        entry.segments.insert(0, segment);
        entry.segments.len()
    }

    pub fn set_policy(&self, pc: InstrId, policy: Policy) {
        self.entries.lock().entry(pc.0).or_insert_with(EntryPoint::new).policy = policy;
    }

    /// The instruction is performed by itself from now on.
    pub fn set_step(&self, pc: InstrId, refusal: Option<Arc<str>>) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(pc.0).or_insert_with(EntryPoint::new);
        entry.policy = Policy::Step;
        entry.refusal = refusal;
    }

    pub fn count(&self, pc: InstrId) -> usize {
        self.entries.lock().get(&pc.0).map_or(0, |entry| entry.segments.len())
    }

    pub fn total(&self) -> usize {
        self.entries.lock().values().map(|entry| entry.segments.len()).sum()
    }

    pub fn is_skipped(&self) -> bool {
        self.skip.load(Ordering::Relaxed)
    }
}

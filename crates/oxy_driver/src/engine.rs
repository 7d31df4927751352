//! The engine: what all compiled callables of the process share.

use crate::config::SharedConfig;
use crate::native::NativeState;
use crate::stats::Stats;
use oxy_tracer::code::{Decoded, decode};
use oxy_tracer::well_known::WellKnown;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCode;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

type DecodedByAddress = FxHashMap<usize, (Py<PyAny>, Arc<Decoded>)>;

/// Process-wide state: recognised objects, configuration, counters, decoded code.
pub struct Engine {
    pub config: SharedConfig,
    pub stats: Stats,
    known: PyOnceLock<WellKnown>,
    native: PyOnceLock<Result<NativeState, String>>,
    /// Decoded code by address, with the object itself so that the address isn't reused.
    decoded: Mutex<DecodedByAddress>,
    /// Addresses of the code of functions that were compiled: not to be marked as skipped. The code objects live as long
    /// as their entries in use; a stale address costs a look at a frame.
    targets: Mutex<rustc_hash::FxHashSet<usize>>,
    /// Live compiled callables, for `reset`.
    compiled: Mutex<Vec<Weak<crate::compiled::Compiled>>>,
}

static ENGINE: PyOnceLock<Engine> = PyOnceLock::new();

/// The process's engine.
pub fn engine(py: Python<'_>) -> &'static Engine {
    ENGINE.get_or_init(py, Engine::new)
}

impl Engine {
    fn new() -> Engine {
        Engine {
            config: SharedConfig::default(),
            stats: Stats::default(),
            known: PyOnceLock::new(),
            native: PyOnceLock::new(),
            decoded: Mutex::default(),
            targets: Mutex::default(),
            compiled: Mutex::default(),
        }
    }

    pub fn known(&self, py: Python<'_>) -> PyResult<&WellKnown> {
        self.known.get_or_try_init(py, || WellKnown::load(py))
    }

    /// What native graphs share; the same error each time if it can't be had.
    pub fn native(&self, py: Python<'_>) -> Result<&NativeState, String> {
        self.native.get_or_init(py, || NativeState::new(py)).as_ref().map_err(String::clone)
    }

    /// The text of a captured graph, if it is asked for.
    pub fn dump_text(&self, graph: &oxy_graph::Graph) -> Option<String> {
        self.config.get().print_graphs.then(|| graph.to_string())
    }

    /// The decoded form of a code object, made once.
    pub fn decode(&self, code: &Bound<'_, PyAny>) -> Result<Arc<Decoded>, String> {
        let address = code.as_ptr() as usize;
        if let Some((_, decoded)) = self.decoded.lock().get(&address) {
            return Ok(decoded.clone());
        }
        let decoded = Arc::new(decode(code)?);
        self.decoded.lock().insert(address, (code.clone().unbind(), decoded.clone()));
        Ok(decoded)
    }

    /// Notes that a function with this code was compiled.
    pub fn add_target(&self, code: &Bound<'_, PyCode>) -> PyResult<()> {
        self.targets.lock().insert(code.as_ptr() as usize);
        oxy_frames::code_extra::set(code, oxy_frames::Mark::Unknown)
    }

    pub fn is_target(&self, code: usize) -> bool {
        self.targets.lock().contains(&code)
    }

    pub fn register(&self, compiled: &Arc<crate::compiled::Compiled>) {
        let mut all = self.compiled.lock();
        all.retain(|weak| weak.strong_count() > 0);
        all.push(Arc::downgrade(compiled));
    }

    /// Drops all compiled code.
    pub fn reset(&self) {
        let live: Vec<_> = self.compiled.lock().iter().filter_map(Weak::upgrade).collect();
        for compiled in live {
            compiled.clear();
        }
        // Decoded code holds code objects of functions that may be gone.
        let dropped = std::mem::take(&mut *self.decoded.lock());
        drop(dropped);
    }
}

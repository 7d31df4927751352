//! Counters since the process began, as `oxyfuel.stats()` gives them.

use indexmap::IndexMap;
use parking_lot::Mutex;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub graphs: u64,
    pub operators: u64,
    pub kernels: u64,
    pub graph_breaks: u64,
    pub recompiles: u64,
    /// Segments compiled, those without a graph included.
    pub segments: u64,
    pub faults: u64,
    pub break_reasons: IndexMap<String, u64>,
    /// Seconds by phase.
    pub phases: IndexMap<&'static str, f64>,
}

/// Shared counters.
#[derive(Default)]
pub struct Stats(Mutex<Counts>);

impl Stats {
    pub fn update(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock());
    }

    pub fn phase(&self, name: &'static str, elapsed: Duration) {
        *self.0.lock().phases.entry(name).or_default() += elapsed.as_secs_f64();
    }

    pub fn counts(&self) -> Counts {
        self.0.lock().clone()
    }
}

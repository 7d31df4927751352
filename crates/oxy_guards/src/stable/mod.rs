//! Stable sections: reads and checks that need not be repeated while nothing that they looked at has changed.
//!
//! A run of a section that passes is *recorded*: which dictionaries it read and which keys of them, which types, and which
//! words of objects (an object's type, where its `__dict__` is, a function's code). Later runs only ask whether
//! any of that has changed:
//!
//! 1. Dictionaries are watched where CPython has watchers (3.12 and newer): a change to a key that was read marks the
//!    record stale, and no time is spent on unchanged ones. Elsewhere their version tags are compared.
//! 2. Types are compared by their version tags, which change with anything on the method resolution order.
//! 3. Words are compared as they are. What they point to is held, or can't be replaced by something at the same address
//!    without one of these checks noticing.
//! 4. The root, what the call brought along, is compared with the root of the record, through a weak reference.
//!
//! Hence everything that a record points to is alive while the record holds: it is reached from the root, or from
//! an object that the program holds, through unchanged dictionaries. Values read are taken from the record.
//!
//! Not here: anything that can change unnoticed, such as list items, cells and tensor metadata; `program::plan` keeps
//! that out.

mod record;
#[cfg(Py_3_12)]
mod watch;
#[cfg(not(Py_3_12))]
#[path = "no_watch.rs"]
mod watch;
mod words;

use crate::{
    cpython,
    program::{Checks, Env, FailedGuard, NONE, Raw, Registers, Step},
    sources::read::read,
};
use pyo3::prelude::*;
use record::{Record, Recorder};
use rustc_hash::FxHashSet;
use std::{
    cell::{Cell, UnsafeCell},
    ptr,
};

/// Runs after which a record that never paid is tried again, at most.
const BACKOFF_MAX: u32 = 255;
/// Runs that a record must have served to count as worth it.
const WORTH_IT: u32 = 8;

pub(crate) struct Section {
    /// The register of what the call brought along.
    root: Option<u32>,
    pub steps: Vec<Step>,
    /// Registers that steps outside of the section use.
    pub exported: Vec<u32>,
    state: State,
}

/// What changes from call to call.
struct State {
    /// Only touched through `with_record`, which takes it out, or read by `serve`, which runs no Python code.
    record: UnsafeCell<Option<Box<Record>>>,
    /// Runs that the current record served.
    served: Cell<u32>,
    /// Runs to let pass before recording again, and the number to let pass the next time.
    wait: Cell<u32>,
    backoff: Cell<u32>,
    /// The root of the last full run that wasn't the record's: met twice in a row, it becomes the record's.
    other_root: Cell<Raw>,
    /// Nothing here can be recorded.
    hopeless: Cell<bool>,
    full_runs: Cell<u64>,
    /// Dictionaries that change although what was read from them doesn't (version tags only).
    volatile: UnsafeCell<FxHashSet<usize>>,
}

// SAFETY: a section's state is only touched by threads that are attached to the one interpreter lock, and nothing that
// borrows it lets go of the lock.
unsafe impl Sync for Section {}
// SAFETY: as above; references to Python objects are dropped while attached.
unsafe impl Send for Section {}

impl Section {
    pub fn new(root: Option<u32>, steps: Vec<Step>, exported: Vec<u32>) -> Section {
        let state = State {
            record: UnsafeCell::new(None),
            served: Cell::new(0),
            wait: Cell::new(0),
            backoff: Cell::new(0),
            other_root: Cell::new(ptr::null_mut()),
            hopeless: Cell::new(false),
            full_runs: Cell::new(0),
            volatile: UnsafeCell::default(),
        };
        Section { root, steps, exported, state }
    }

    /// Makes sure that the section's guards hold, and gives the exported registers their values.
    ///
    /// # Safety
    /// Attached; the environment is valid and the root's register holds a live object.
    #[inline]
    pub unsafe fn run(&self, checks: &Checks, env: &Env, registers: &mut Registers) -> Result<(), FailedGuard> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.serve(checks, registers) {
                return Ok(());
            }
            self.run_in_full(checks, env, registers)
        }
    }

    /// Answers from the record, if it still holds.
    ///
    /// # Safety
    /// As [`Section::run`].
    #[inline]
    unsafe fn serve(&self, checks: &Checks, registers: &mut Registers) -> bool {
        // SAFETY: attached, and no Python code runs while the record is borrowed.
        let Some(record) = (unsafe { &*self.state.record.get() }) else { return false };
        let root = self.root.map_or(ptr::null_mut(), |root| registers.values[root as usize]);
        // SAFETY: the caller's promise.
        if !unsafe { record.is_of_root(root) && record.holds() && record.serve(checks, registers) } {
            return false;
        }
        self.state.served.set(self.state.served.get().saturating_add(1));
        true
    }

    /// # Safety
    /// As [`Section::run`].
    #[cold]
    unsafe fn run_in_full(&self, checks: &Checks, env: &Env, registers: &mut Registers) -> Result<(), FailedGuard> {
        let state = &self.state;
        let root = self.root.map_or(ptr::null_mut(), |root| registers.values[root as usize]);
        // SAFETY: the caller's promise.
        if unsafe { self.serve_after_look(root, checks, registers) } {
            return Ok(());
        }
        state.full_runs.set(state.full_runs.get() + 1);
        // SAFETY: the caller's promise; registers hold what was read, and no Python code runs.
        unsafe {
            for step in &self.steps {
                match step {
                    Step::Read(step) => {
                        let base = registers.values.get(step.base as usize).copied().unwrap_or(ptr::null_mut());
                        let value = read(step.read, env, base, &mut registers.owned);
                        if value.is_null() && !step.may_miss {
                            return Err(FailedGuard(step.guard));
                        }
                        registers.values[step.register as usize] = value;
                    }
                    Step::Check { register, guard } => {
                        if !checks.holds(*guard, *register, &registers.values) {
                            return Err(FailedGuard(*guard));
                        }
                    }
                    Step::Section(_) | Step::Copy { .. } | Step::Tensors { .. } => {}
                }
            }
            if !state.hopeless.get() && self.is_time_to_record(root) {
                self.record(checks, registers, root);
            }
        }
        Ok(())
    }

    /// A record that doesn't hold at first sight may hold at the second: a dictionary changed, but not under the keys
    /// that were read. A record that doesn't is thrown away.
    ///
    /// # Safety
    /// As [`Section::run`].
    unsafe fn serve_after_look(&self, root: Raw, checks: &Checks, registers: &mut Registers) -> bool {
        let state = &self.state;
        // Taken out: looking up keys might run code.
        // SAFETY: attached, and nothing borrows the record.
        let Some(mut record) = (unsafe { (*state.record.get()).take() }) else { return false };
        // SAFETY: the caller's promise.
        unsafe {
            if !record.is_of_root(root) {
                // Another root's record stays, unless this root comes again right away.
                *state.record.get() = Some(record);
                return false;
            }
            if record.look(&mut *state.volatile.get()) && record.serve(checks, registers) {
                *state.record.get() = Some(record);
                return true;
            }
        }
        let worth_it = state.served.get() >= WORTH_IT;
        state.backoff.set(if worth_it { 0 } else { (state.backoff.get() * 2 + 1).min(BACKOFF_MAX) });
        state.wait.set(if worth_it { 0 } else { state.backoff.get() });
        drop(record);
        false
    }

    fn is_time_to_record(&self, root: Raw) -> bool {
        let state = &self.state;
        // SAFETY: attached, and nothing borrows the record.
        if unsafe { (*state.record.get()).is_some() } && state.other_root.replace(root) != root {
            return false;
        }
        let wait = state.wait.get();
        state.wait.set(wait.saturating_sub(1));
        wait == 0
    }

    /// Notes all that the run that has just passed depended on.
    ///
    /// # Safety
    /// As [`Section::run`]; the registers hold the values of all steps.
    unsafe fn record(&self, checks: &Checks, registers: &Registers, root: Raw) {
        let state = &self.state;
        // SAFETY: attached, and nothing borrows the record or the set.
        unsafe {
            *state.record.get() = None;
            let py = Python::assume_attached();
            let mut recorder = Recorder::new(py, &*state.volatile.get());
            let value = |register: u32| registers.values.get(register as usize).copied().unwrap_or(ptr::null_mut());
            let mut complete = recorder.root(root);
            for step in &self.steps {
                complete &= match step {
                    Step::Read(step) => {
                        let base = if step.base == NONE { ptr::null_mut() } else { value(step.base) };
                        recorder.read(step.read, base, value(step.register))
                    }
                    Step::Check { register, guard } => {
                        recorder.check(checks, *guard, *register, value(*register));
                        true
                    }
                    Step::Section(_) | Step::Copy { .. } | Step::Tensors { .. } => false,
                };
                if !complete {
                    break;
                }
            }
            if !complete {
                state.hopeless.set(true);
                return;
            }
            let exports = self.exported.iter().map(|&register| (register, value(register))).collect();
            state.served.set(0);
            *state.record.get() = recorder.finish(exports).map(Box::new);
        }
    }

    /// Whether there is a record that holds.
    pub fn is_valid(&self) -> bool {
        // SAFETY: attached callers; nothing else borrows the record.
        unsafe {
            let Some(record) = (*self.state.record.get()).as_ref() else { return false };
            record.is_of_root(record.root()) && record.holds()
        }
    }

    pub fn full_runs(&self) -> u64 {
        self.state.full_runs.get()
    }
}

/// Whether objects of a type keep their facts for good while they are the same object.
///
/// # Safety
/// Attached; the object is live.
pub(crate) unsafe fn class_is_forever(object: Raw) -> bool {
    // SAFETY: the caller's promise.
    unsafe { !cpython::may_change_class(cpython::type_of(object)) }
}

//! A compiled callable: its options and the code it has compiled.

use crate::cache::CodeState;
use crate::engine::Engine;
use parking_lot::Mutex;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// Options of one `compile` call.
pub struct CompileOptions {
    pub fullgraph: bool,
    pub dynamic: Option<bool>,
    /// `None`: the native backend.
    pub backend: Option<Py<PyAny>>,
    pub recompile_limit: Option<i64>,
    pub name: Option<String>,
}

pub struct Compiled {
    pub options: CompileOptions,
    codes: Mutex<FxHashMap<usize, Arc<CodeState>>>,
}

impl Compiled {
    pub fn new(options: CompileOptions) -> Compiled {
        Compiled { options, codes: Mutex::default() }
    }

    /// What is known of a code object.
    pub fn code_state(&self, engine: &Engine, code: &Bound<'_, PyAny>) -> Result<Arc<CodeState>, String> {
        if let Some(state) = self.existing(code.as_ptr() as usize) {
            return Ok(state);
        }
        let decoded = engine.decode(code)?;
        let state = Arc::new(CodeState::new(code.clone().unbind(), decoded));
        self.codes.lock().insert(code.as_ptr() as usize, state.clone());
        Ok(state)
    }

    /// What is known of a code object that has been seen.
    pub fn existing(&self, code: usize) -> Option<Arc<CodeState>> {
        self.codes.lock().get(&code).cloned()
    }

    pub fn clear(&self) {
        // Dropped outside of the lock: dropping Python references may run code.
        let dropped = std::mem::take(&mut *self.codes.lock());
        drop(dropped);
    }
}

/// The compiled callables a thread is inside of, innermost last; `None` marks a stretch that runs eagerly (disabled
/// functions, the engine's own Python).
type Active = Vec<Option<Arc<Compiled>>>;

thread_local! {
    static ACTIVE: RefCell<Active> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    /// The code of the function that a compiled callable is about to call, until its frame is seen.
    static CALLED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Announces the frame of a compiled callable's own function: it is compiled wherever its code comes from.
pub fn announce(code: usize) {
    CALLED.set(code);
}

/// Whether a frame of this code is the one announced; it is from then on no longer.
pub fn take_announced(code: usize) -> bool {
    let announced = CALLED.get() == code;
    if announced {
        CALLED.set(0);
    }
    announced
}

/// Makes `compiled` the active one of this thread while the guard lives.
pub struct Activation(());

impl Activation {
    pub fn enter(compiled: Option<Arc<Compiled>>) -> Activation {
        ACTIVE.with(|active| active.borrow_mut().push(compiled));
        Activation(())
    }
}

impl Drop for Activation {
    fn drop(&mut self) {
        let popped = ACTIVE.with(|active| active.borrow_mut().pop());
        drop(popped);
    }
}

/// The active compiled callable of this thread.
pub fn active() -> Option<Arc<Compiled>> {
    ACTIVE.with(|active| active.borrow().last().cloned().flatten())
}

pub fn is_active() -> bool {
    ACTIVE.with(|active| active.borrow().last().is_some_and(Option::is_some))
}

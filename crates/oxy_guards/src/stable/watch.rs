//! Dictionary watchers: which records depend on which dictionaries.
//!
//! CPython calls one function of the process, with no data of ours, before a watched dictionary changes; hence the
//! one registry of the process. It maps a dictionary's address to the records that read it. A dictionary's death is a
//! change, too, so an address never outlives its dictionary here.

use super::record::Use;
use crate::{
    cpython::{self, DictEvent},
    program::Raw,
};
use pyo3::ffi::{self, PyObject};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::{
    ffi::c_int,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// A record's part in watching: stale once something that it read has changed.
pub struct Watch {
    stale: Arc<AtomicBool>,
    dicts: Box<[usize]>,
}

impl Watch {
    /// Watches dictionaries for changes of what was read from them: keys, or (true) also which keys there are. `None`:
    /// CPython has no watcher left for us.
    ///
    /// # Safety
    /// Attached; the dictionaries are live.
    pub unsafe fn start(uses: &[(Raw, Vec<Use>, bool)]) -> Option<Watch> {
        let mut registry = registry();
        if registry.id.is_none() {
            // SAFETY: attached; the callback doesn't raise and doesn't panic.
            registry.id = Some(unsafe { cpython::add_dict_watcher(on_change) });
        }
        let id = registry.id.flatten()?;
        let watch = Watch { stale: Arc::default(), dicts: uses.iter().map(|(dict, ..)| *dict as usize).collect() };
        for (dict, keys, whole) in uses {
            // SAFETY: attached, and a live dictionary.
            if !unsafe { cpython::watch_dict(id, *dict) } {
                watch.stale.store(true, Ordering::Relaxed);
            }
            let mut hashes: Box<[isize]> = keys.iter().map(|key| key.hash).collect();
            hashes.sort_unstable();
            let dependents = registry.dependents.entry(*dict as usize).or_default();
            dependents.retain(|dependent| Arc::strong_count(&dependent.stale) > 1);
            dependents.push(Dependent { stale: watch.stale.clone(), hashes, whole: *whole });
        }
        Some(watch)
    }

    #[inline]
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut registry = registry();
        for dict in &self.dicts {
            // The dictionary stays watched: it may be gone, and a change without dependents costs little.
            if let Some(dependents) = registry.dependents.get_mut(dict) {
                dependents.retain(|dependent| !Arc::ptr_eq(&dependent.stale, &self.stale));
                if dependents.is_empty() {
                    registry.dependents.remove(dict);
                }
            }
        }
    }
}

struct Dependent {
    stale: Arc<AtomicBool>,
    /// Hashes of the keys that were read, sorted. Another key with the same hash is taken for one of them.
    hashes: Box<[isize]>,
    /// The dictionary's keys and their order were read.
    whole: bool,
}

impl Dependent {
    fn minds(&self, event: DictEvent, hash: Option<isize>) -> bool {
        match (event, hash) {
            (DictEvent::Added | DictEvent::Deleted, _) if self.whole => true,
            (DictEvent::Added | DictEvent::Modified | DictEvent::Deleted, Some(hash)) => {
                self.hashes.binary_search(&hash).is_ok()
            }
            (DictEvent::Added | DictEvent::Modified | DictEvent::Deleted, None)
            | (DictEvent::Cloned | DictEvent::Cleared | DictEvent::Deallocated, _) => true,
        }
    }
}

#[derive(Default)]
struct Registry {
    /// CPython's identifier of our callback; `Some(None)`: there was none left.
    id: Option<Option<c_int>>,
    dependents: FxHashMap<usize, SmallVec<[Dependent; 1]>>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// The registry, while no Python code runs.
struct Locked(MutexGuard<'static, Option<Registry>>);

fn registry() -> Locked {
    let mut guard = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_default();
    Locked(guard)
}

impl std::ops::Deref for Locked {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        static EMPTY: std::sync::LazyLock<Registry> = std::sync::LazyLock::new(Registry::default);
        self.0.as_ref().unwrap_or(&EMPTY)
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Registry {
        self.0.get_or_insert_default()
    }
}

/// CPython's call before a change.
unsafe extern "C" fn on_change(
    event: DictEvent,
    dict: *mut PyObject,
    key: *mut PyObject,
    value: *mut PyObject,
) -> c_int {
    let mut registry = registry();
    let Some(dependents) = registry.dependents.get_mut(&(dict as usize)) else {
        if event != DictEvent::Deallocated
            && let Some(id) = registry.id.flatten()
        {
            // SAFETY: attached, and the dictionary is live.
            unsafe { cpython::unwatch_dict(id, dict) };
        }
        return 0;
    };
    // Other keys than strings might have a `__hash__` of the user's.
    // SAFETY: attached; a key that is given is live.
    let hash = unsafe {
        let is_str = !key.is_null() && ptr::eq(cpython::type_of(key), &raw mut ffi::PyUnicode_Type);
        is_str.then(|| cpython::hash(key))
    };
    // Storing what is there already is announced, too, by some ways to store.
    // SAFETY: attached; the dictionary is as it was before the change, and the key a str with this hash.
    if event == DictEvent::Modified
        && let Some(hash) = hash
        && unsafe { cpython::dict_item(dict, key, hash) } == value
    {
        return 0;
    }
    dependents.retain(|dependent| {
        let minds = dependent.minds(event, hash);
        if minds {
            dependent.stale.store(true, Ordering::Relaxed);
        }
        !minds
    });
    if dependents.is_empty() {
        registry.dependents.remove(&(dict as usize));
    }
    0
}

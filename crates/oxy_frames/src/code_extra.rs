//! What the engine knows about a code object, attached to the code object itself.
//!
//! A code object carries one mark: nothing yet, "skip it", or the caller's data. The mark goes when the code object
//! does. CPython hands out the slot (`co_extra`) once per process; it can't be given back, so this module keeps its
//! index in a static.

use std::{
    any::Any,
    ffi::c_void,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicIsize, Ordering},
    },
};

use pyo3::{
    Bound, PyErr, PyResult,
    exceptions::PyRuntimeError,
    ffi::{self, PyObject},
    types::PyCode,
};

/// Data attached to a code object.
pub type Data = Arc<dyn Any + Send + Sync>;

/// What is known about a code object.
#[derive(Clone, Debug)]
pub enum Mark {
    /// Nobody has looked at it yet.
    Unknown,
    /// Its frames are evaluated plainly, at the cost of one lookup.
    Skip,
    /// The caller's data.
    Data(Data),
}

static INDEX: AtomicIsize = AtomicIsize::new(-1);

/// Its address is the "skip" mark.
static SKIP: u8 = 0;

fn skip() -> *mut c_void {
    (&raw const SKIP).cast_mut().cast()
}

/// Asks for the slot if that hasn't been done.
pub(crate) fn prepare() -> PyResult<()> {
    if INDEX.load(Ordering::Relaxed) < 0 {
        // SAFETY: called attached; `free` takes what `set` stores.
        let index = unsafe { ffi::PyUnstable_Eval_RequestCodeExtraIndex(free) };
        if index < 0 {
            return Err(PyRuntimeError::new_err("no code extra slot is left"));
        }
        INDEX.store(index, Ordering::Relaxed);
    }
    Ok(())
}

unsafe extern "C" fn free(extra: *mut c_void) {
    if !extra.is_null() && extra != skip() {
        // SAFETY: it is a pointer made by `set`, given back once, when it is replaced or its code object dies.
        drop(unsafe { Box::from_raw(extra.cast::<Data>()) });
    }
}

/// The raw mark: NULL, the skip mark, or a pointer to data.
///
/// # Safety
/// Called attached, with a code object, after `prepare`.
pub(crate) unsafe fn lookup(code: *mut PyObject) -> *mut c_void {
    let mut extra = ptr::null_mut();
    // SAFETY: the caller's promise; the call only reads.
    unsafe { ffi::PyUnstable_Code_GetExtra(code, INDEX.load(Ordering::Relaxed), &mut extra) };
    extra
}

pub(crate) fn is_skip(extra: *mut c_void) -> bool {
    extra == skip()
}

/// # Safety
/// `extra` was just looked up.
pub(crate) unsafe fn to_mark(extra: *mut c_void) -> Mark {
    if extra.is_null() {
        Mark::Unknown
    } else if extra == skip() {
        Mark::Skip
    } else {
        // SAFETY: pointers other than these two are boxes made by `set`, live while attached.
        Mark::Data(unsafe { (*extra.cast::<Data>()).clone() })
    }
}

/// The mark of a code object.
pub fn get(code: &Bound<'_, PyCode>) -> PyResult<Mark> {
    prepare()?;
    // SAFETY: attached, a code object, and prepared; the mark is cloned before anything else runs.
    Ok(unsafe { to_mark(lookup(code.as_ptr())) })
}

/// Replaces the mark of a code object.
pub fn set(code: &Bound<'_, PyCode>, mark: Mark) -> PyResult<()> {
    prepare()?;
    let new = match mark {
        Mark::Unknown => ptr::null_mut(),
        Mark::Skip => skip(),
        Mark::Data(data) => Box::into_raw(Box::new(data)).cast(),
    };
    // SAFETY: attached, a code object, and prepared. CPython frees the old mark while its slot still holds it, so
    // another reference delays the end of the data, which may run code, until the new mark is in place.
    unsafe {
        let _old = to_mark(lookup(code.as_ptr()));
        if ffi::PyUnstable_Code_SetExtra(code.as_ptr(), INDEX.load(Ordering::Relaxed), new) != 0 {
            free(new);
            return Err(PyErr::fetch(code.py()));
        }
    }
    Ok(())
}

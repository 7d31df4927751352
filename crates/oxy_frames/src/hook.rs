//! The frame evaluator (PEP 523): who gets to see which frame.
//!
//! 1. It is installed while at least one [`HookGuard`] lives, and then fires for every frame of every thread.
//! 2. A frame that nobody wants costs one code-extra lookup.
//! 3. It is re-entrant: anything below [`FrameHandler::evaluate`] may run Python code.
//! 4. Generators and coroutines, thrown exceptions and watched threads are evaluated by the interpreter alone.
//! 5. Deep recursion ends where it would without us. While a frame evaluator is installed, the interpreter spends C
//!    stack on every Python call; when that runs low, the hook takes itself out until the frame has returned.
//! 6. A frame evaluator that was installed before ours gets the frames we evaluate plainly.
//!
//! PEP 523 passes no user data to the evaluator, so the handler and the evaluator underneath live in statics.

use std::{
    ffi::c_int,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicPtr, Ordering},
    },
};

use pyo3::{
    PyResult, Python,
    exceptions::{PyRuntimeError, PySystemError},
    ffi::{self, PyObject},
};

pub use crate::code_extra::Mark;
use crate::{
    code_extra,
    completion::{Completion, How},
    frame::Frame,
    stack,
    version::{
        self,
        layout::{InterpreterFrame, ThreadState},
    },
};

/// Decides what happens to frames. There is one per process.
pub trait FrameHandler: Sync {
    /// Whether the current thread wants frames at all now. Asked for every frame whose code isn't marked "skip", so
    /// it should be a few nanoseconds, and must not run Python code.
    fn is_active(&self) -> bool;

    /// Evaluates a frame. `mark` is what its code object carries: [`Mark::Unknown`] or [`Mark::Data`]. Marking unknown
    /// code (see [`code_extra::set`]) is the handler's business, or it is asked again.
    fn evaluate(&self, frame: &mut Frame<'_>, mark: Mark) -> Completion;
}

type FrameEvaluator = unsafe extern "C" fn(*mut ThreadState, *mut InterpreterFrame, c_int) -> *mut PyObject;

unsafe extern "C" {
    pub(crate) fn _PyEval_EvalFrameDefault(
        tstate: *mut ThreadState,
        frame: *mut InterpreterFrame,
        throwflag: c_int,
    ) -> *mut PyObject;
    fn _PyInterpreterState_GetEvalFrameFunc(interp: *mut ffi::PyInterpreterState) -> FrameEvaluator;
    fn _PyInterpreterState_SetEvalFrameFunc(interp: *mut ffi::PyInterpreterState, evaluator: FrameEvaluator);
}

static HANDLER: OnceLock<&'static dyn FrameHandler> = OnceLock::new();

/// The evaluator under ours, as an address; never NULL once ours is installed.
static PREVIOUS: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// How many guards live, and how many frames run with the hook taken out.
static USERS: Mutex<Users> = Mutex::new(Users { guards: 0, suspended: 0 });

struct Users {
    guards: usize,
    suspended: usize,
}

// The lock is held for a few instructions that run no Python code, so it can't be poisoned, nor wait for the GIL.
fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the hook installed. Guards nest and may be dropped in any order, by any attached thread.
#[must_use = "the hook is uninstalled when the guard is dropped"]
pub struct HookGuard(());

/// Installs the hook, or adds to the count of those who want it.
pub fn install(py: Python<'_>, handler: &'static dyn FrameHandler) -> PyResult<HookGuard> {
    let installed = *HANDLER.get_or_init(|| handler);
    if !ptr::addr_eq(installed, handler) {
        return Err(PyRuntimeError::new_err("another frame handler has been installed"));
    }
    code_extra::prepare()?;
    let mut users = users();
    if users.guards == 0 {
        check_layout(py)?;
        // SAFETY: attached, so there is a current interpreter.
        unsafe {
            let interp = ffi::PyInterpreterState_Get();
            let current = _PyInterpreterState_GetEvalFrameFunc(interp);
            // Someone who was installed on top of ours may still call it.
            if !is_ours(current) {
                PREVIOUS.store(current as *mut (), Ordering::Release);
                _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_frame);
            }
        }
    }
    users.guards += 1;
    Ok(HookGuard(()))
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        let attached = Python::try_attach(|_| {
            let mut users = users();
            users.guards -= 1;
            if users.guards > 0 {
                return;
            }
            // SAFETY: attached; the evaluator underneath was read from this interpreter.
            unsafe {
                let interp = ffi::PyInterpreterState_Get();
                // If someone installed theirs on top of ours, ours stays below it and passes frames on.
                if is_ours(_PyInterpreterState_GetEvalFrameFunc(interp)) {
                    _PyInterpreterState_SetEvalFrameFunc(interp, previous());
                }
            }
        });
        // While the interpreter shuts down there is nothing left to uninstall from.
        let _ = attached;
    }
}

fn is_ours(evaluator: FrameEvaluator) -> bool {
    evaluator as *const () == evaluate_frame as *const ()
}

fn previous() -> FrameEvaluator {
    let address = PREVIOUS.load(Ordering::Acquire);
    if address.is_null() {
        return _PyEval_EvalFrameDefault;
    }
    // SAFETY: only `install` stores here, and it stores an evaluator.
    unsafe { mem::transmute::<*mut (), FrameEvaluator>(address) }
}

/// Refuses an interpreter whose thread state isn't laid out as this build expects.
fn check_layout(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: attached, so there is a current thread state; the fields read lie within its first words.
    let matches = unsafe {
        let tstate = ffi::PyThreadState_Get().cast::<ThreadState>();
        ptr::addr_eq((*tstate).interp, ffi::PyInterpreterState_Get())
            && !(*tstate).exc_info.is_null()
            && !(*tstate).datastack_chunk.is_null()
            && (*tstate).datastack_top <= (*tstate).datastack_limit
    };
    if matches { Ok(()) } else { Err(PyRuntimeError::new_err("this CPython build has an unknown frame layout")) }
}

const CO_GENERATOR: c_int = 0x20;
const CO_COROUTINE: c_int = 0x80;
const CO_ASYNC_GENERATOR: c_int = 0x200;

/// The evaluator. Called by the interpreter with the GIL held, for each frame that starts or resumes.
unsafe extern "C" fn evaluate_frame(
    tstate: *mut ThreadState,
    frame: *mut InterpreterFrame,
    throwflag: c_int,
) -> *mut PyObject {
    // SAFETY: the interpreter passes its current thread and a live frame that isn't linked yet.
    unsafe {
        let bytes_left = stack::bytes_left();
        if !stack::has_room(bytes_left) || !version::has_c_recursion(tstate) {
            return evaluate_without_hook(tstate, frame, throwflag);
        }
        let code = version::code(frame);
        let extra = code_extra::lookup(code.cast());
        if code_extra::is_skip(extra)
            || throwflag != 0
            || !version::is_owned_by_thread(frame)
            || (*code).co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR) != 0
        {
            return previous()(tstate, frame, throwflag);
        }
        let Some(handler) = HANDLER.get() else {
            return previous()(tstate, frame, throwflag);
        };
        if !handler.is_active() || version::is_observed(tstate, code) {
            return previous()(tstate, frame, throwflag);
        }
        // At the limit the interpreter raises the RecursionError.
        let Some(charge) = version::enter_recursive(tstate, bytes_left) else {
            return previous()(tstate, frame, throwflag);
        };
        let mark = code_extra::to_mark(extra);

        let mut link = version::Link::new();
        link.enter(tstate, frame);
        let how = Python::try_attach(|py| handle(py, *handler, tstate, frame, mark)).unwrap_or(How::Plain);
        link.exit(tstate);
        version::leave_recursive(tstate, charge);
        match how {
            How::Plain => previous()(tstate, frame, 0),
            How::Leave(word) => {
                version::set_next(frame, word);
                _PyEval_EvalFrameDefault(tstate, frame, 0)
            }
            How::Finish(value) => {
                let value = value.into_ptr();
                version::clear_and_pop(tstate, frame);
                value
            }
            How::Fail => {
                version::clear_and_pop(tstate, frame);
                ptr::null_mut()
            }
        }
    }
}

/// Evaluates a frame, and everything it calls, in an interpreter without our hook. Other threads are without it, too.
///
/// # Safety
/// As for `evaluate_frame`.
#[cold]
unsafe fn evaluate_without_hook(
    tstate: *mut ThreadState,
    frame: *mut InterpreterFrame,
    throwflag: c_int,
) -> *mut PyObject {
    // SAFETY: attached; the evaluator underneath was read from this interpreter.
    unsafe {
        let interp = ffi::PyInterpreterState_Get();
        users().suspended += 1;
        _PyInterpreterState_SetEvalFrameFunc(interp, previous());
        let result = previous()(tstate, frame, throwflag);
        let mut users = users();
        users.suspended -= 1;
        if users.suspended == 0 && users.guards > 0 {
            _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_frame);
        }
        result
    }
}

/// Calls the handler, and makes the frame ready for the completion it chose.
fn handle(
    py: Python<'_>,
    handler: &dyn FrameHandler,
    tstate: *mut ThreadState,
    raw: *mut InterpreterFrame,
    mark: Mark,
) -> How {
    // SAFETY: the caller linked the frame and unlinks it after we return.
    let mut frame = unsafe { Frame::new(py, tstate, raw) };
    let how = match catch_unwind(AssertUnwindSafe(|| handler.evaluate(&mut frame, mark))) {
        Ok(completion) => completion.0,
        Err(_) if !frame.is_touched() => How::Plain,
        Err(_) => {
            PySystemError::new_err("panic while a frame was being evaluated").restore(py);
            How::Fail
        }
    };
    match &how {
        How::Plain | How::Leave(_) => {}
        How::Finish(_) => frame.truncate(0),
        How::Fail => {
            frame.truncate(0);
            // SAFETY: attached.
            if unsafe { ffi::PyErr_Occurred() }.is_null() {
                PySystemError::new_err("frame failed without an exception").restore(py);
            }
        }
    }
    how
}

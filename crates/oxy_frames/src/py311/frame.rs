//! What the interpreter does with a frame in CPython 3.11. Helpers carry the names of the functions they mirror.
//!
//! Callers hold the GIL and pass the current thread's state and a live frame of that thread.

use std::{ffi::c_int, ptr};

use pyo3::ffi::{self, PyObject};

use super::layout::{CFrame, CodeObject, CodeUnitWord, FRAME_OWNED_BY_THREAD, InterpreterFrame, ThreadState};

/// The entry in the thread's list of evaluation loops that makes a frame the current one.
pub(crate) struct Link {
    cframe: CFrame,
}

impl Link {
    pub(crate) fn new() -> Link {
        Link { cframe: CFrame { use_tracing: 0, current_frame: ptr::null_mut(), previous: ptr::null_mut() } }
    }

    /// Makes `frame` current, as the start of `_PyEval_EvalFrameDefault` does.
    ///
    /// # Safety
    /// `self` must not move until `exit`.
    pub(crate) unsafe fn enter(&mut self, tstate: *mut ThreadState, frame: *mut InterpreterFrame) {
        // SAFETY: both pointers are live and this thread's (module contract); a thread always has a cframe.
        unsafe {
            let previous = (*tstate).cframe;
            self.cframe.use_tracing = (*previous).use_tracing;
            self.cframe.previous = previous;
            self.cframe.current_frame = frame;
            (*frame).is_entry = true;
            (*frame).previous = (*previous).current_frame;
            (*tstate).cframe = &mut self.cframe;
        }
    }

    /// Makes the caller's frame current again.
    ///
    /// # Safety
    /// Follows `enter` with nothing entered in between still open.
    pub(crate) unsafe fn exit(&mut self, tstate: *mut ThreadState) {
        // SAFETY: `previous` is the loop below this one on the C stack, still running.
        unsafe {
            (*tstate).cframe = self.cframe.previous;
            (*(*tstate).cframe).use_tracing = self.cframe.use_tracing;
        }
    }
}

pub(crate) unsafe fn code(frame: *mut InterpreterFrame) -> *mut CodeObject {
    // SAFETY: module contract.
    unsafe { (*frame).f_code }
}

pub(crate) unsafe fn func(frame: *mut InterpreterFrame) -> *mut PyObject {
    // SAFETY: module contract.
    unsafe { (*frame).f_func }
}

/// Whether the frame lives on the thread's data stack (and not in a generator).
pub(crate) unsafe fn is_owned_by_thread(frame: *mut InterpreterFrame) -> bool {
    // SAFETY: module contract.
    unsafe { (*frame).owner == FRAME_OWNED_BY_THREAD }
}

unsafe fn code_start(frame: *mut InterpreterFrame) -> *mut CodeUnitWord {
    // SAFETY: the frame owns its code object, whose words start there.
    unsafe { (&raw mut (*(*frame).f_code).co_code_adaptive).cast() }
}

/// The frame is executing the opcode at `word`.
pub(crate) unsafe fn set_executing(frame: *mut InterpreterFrame, word: u32) {
    // SAFETY: only the address is computed; `word` lies in the code.
    unsafe { (*frame).prev_instr = code_start(frame).wrapping_add(word as usize) }
}

/// The frame is about to execute the opcode at `word`: `prev_instr` is the word before it.
pub(crate) unsafe fn set_next(frame: *mut InterpreterFrame, word: u32) {
    // SAFETY: only the address is computed; before the first instruction CPython also points one word too low.
    unsafe { (*frame).prev_instr = code_start(frame).wrapping_add(word as usize).wrapping_sub(1) }
}

/// `_PyInterpreterFrame_LASTI`
pub(crate) unsafe fn last_instr(frame: *mut InterpreterFrame) -> i32 {
    // SAFETY: both addresses are in, or one word before, the same code.
    unsafe { ((*frame).prev_instr as isize - code_start(frame) as isize) as i32 / 2 }
}

/// `_PyFrame_IsIncomplete`, for frames owned by a thread.
pub(crate) unsafe fn is_incomplete(frame: *mut InterpreterFrame) -> bool {
    // SAFETY: module contract.
    unsafe { last_instr(frame) < (*(*frame).f_code).co_firsttraceable }
}

/// Whether a trace or profile function watches this thread.
pub(crate) unsafe fn is_observed(tstate: *mut ThreadState, _code: *mut CodeObject) -> bool {
    // SAFETY: module contract.
    unsafe { (*(*tstate).cframe).use_tracing != 0 }
}

/// Whether the interpreter's count of C calls is far from its limit. This version counts none.
pub(crate) unsafe fn has_c_recursion(_tstate: *mut ThreadState) -> bool {
    true
}

/// `_Py_EnterRecursiveCallTstate`, without the exception: `None` when the limit is reached, and nothing was taken.
/// Otherwise what to give back.
pub(crate) unsafe fn enter_recursive(tstate: *mut ThreadState, _stack_bytes_left: usize) -> Option<c_int> {
    // SAFETY: module contract.
    unsafe {
        if (*tstate).recursion_remaining <= 1 {
            return None;
        }
        (*tstate).recursion_remaining -= 1;
    }
    Some(1)
}

/// `_Py_LeaveRecursiveCallTstate`
pub(crate) unsafe fn leave_recursive(tstate: *mut ThreadState, charge: c_int) {
    // SAFETY: module contract.
    unsafe { (*tstate).recursion_remaining += charge }
}

/// The end of a frame that ran to completion without the interpreter. In this version `_PyEval_Vector`, which
/// called the hook, clears and pops the frame.
///
/// # Safety
/// The value stack is empty and the frame is no longer current.
pub(crate) unsafe fn clear_and_pop(_tstate: *mut ThreadState, _frame: *mut InterpreterFrame) {}

/// Whether the interpreter would look at signals, pending calls or other threads now.
pub(crate) unsafe fn must_poll(tstate: *mut ThreadState) -> bool {
    // SAFETY: the flag is an int written by other threads with relaxed atomics; a volatile read sees it eventually.
    unsafe { (&raw const (*(*tstate).interp).eval_breaker).read_volatile() != 0 }
}

/// `eval_frame_handle_pending`: nonzero if an exception is set.
pub(crate) unsafe fn handle_pending(tstate: *mut ThreadState) -> c_int {
    // SAFETY: the GIL is held; the API calls may run any Python code, which the caller expects here.
    unsafe {
        if ffi::Py_MakePendingCalls() != 0 {
            return -1;
        }
        if (&raw const (*(*tstate).interp).gil_drop_request).read_volatile() != 0 {
            ffi::PyEval_RestoreThread(ffi::PyEval_SaveThread());
        }
        if (*tstate).async_exc.is_null() { 0 } else { crate::unwind::raise_asynchronous() }
    }
}

/// `_PyErr_Fetch`, normalised and with its traceback in place: the raised exception, owned, or NULL.
pub(crate) unsafe fn take_raised() -> *mut PyObject {
    let (mut kind, mut value, mut traceback) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the out pointers are valid; after normalising, `value` is an exception instance that we own.
    unsafe {
        ffi::PyErr_Fetch(&mut kind, &mut value, &mut traceback);
        if kind.is_null() {
            return ptr::null_mut();
        }
        ffi::PyErr_NormalizeException(&mut kind, &mut value, &mut traceback);
        let shown = if traceback.is_null() { ffi::Py_None() } else { traceback };
        ffi::PyException_SetTraceback(value, shown);
        ffi::Py_XDECREF(traceback);
        ffi::Py_XDECREF(kind);
    }
    value
}

/// Raises an exception instance again, with its own traceback. Takes over the reference.
pub(crate) unsafe fn restore_raised(exception: *mut PyObject) {
    // SAFETY: `exception` is an owned exception instance; the three references given away are owned.
    unsafe {
        let kind = ffi::Py_TYPE(exception).cast::<PyObject>();
        ffi::Py_INCREF(kind);
        ffi::PyErr_Restore(kind, exception, ffi::PyException_GetTraceback(exception));
    }
}

/// The interpreter's own `exception_group_match`; this version doesn't export it.
pub(crate) const EXCEPTION_GROUP_MATCH: Option<crate::step::ExceptionGroupMatch> = None;

/// The interpreter's own `_PyExc_PrepReraiseStar`; this version doesn't export it.
pub(crate) const PREP_RERAISE_STAR: Option<crate::step::PrepReraiseStar> = None;

/// What is said of a class pattern whose class isn't one.
pub(crate) const MATCH_CLASS_WANTS_CLASS: &std::ffi::CStr = c"called match pattern must be a type";

/// Whether `raise exception from Class` makes sure that calling the class made an exception.
pub(crate) const CHECKS_MADE_CAUSE: bool = false;

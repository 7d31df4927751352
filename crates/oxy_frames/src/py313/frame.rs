//! What the interpreter does with a frame in CPython 3.13. Helpers carry the names of the functions they mirror.
//!
//! Callers hold the GIL and pass the current thread's state and a live frame of that thread.

use std::{ffi::c_int, ptr};

use pyo3::ffi::{self, PyObject};

use super::layout::{
    CodeObject, CodeUnitWord, FRAME_OWNED_BY_FRAME_OBJECT, FRAME_OWNED_BY_THREAD, FrameObject, InterpreterFrame,
    ThreadState,
};

/// `PY_EVAL_C_STACK_UNITS`
const C_STACK_UNITS: c_int = 2;

/// What the interpreter reckons a unit takes: its limit of 10,000 fits a stack of 8 MB.
const C_STACK_UNIT_BYTES: usize = 800;

/// What is left of the count of C calls for code that isn't Python calling Python.
const C_RECURSION_RESERVE: c_int = 300;

/// The bits of `eval_breaker` below the monitoring version: `_PY_EVAL_EVENTS_MASK`.
const EVAL_EVENTS_MASK: usize = 0xff;

unsafe extern "C" {
    fn _PyThreadState_PopFrame(tstate: *mut ThreadState, frame: *mut InterpreterFrame);
    fn _Py_HandlePending(tstate: *mut ThreadState) -> c_int;
    fn _PyEval_ExceptionGroupMatch(
        exception: *mut PyObject,
        kind: *mut PyObject,
        matched: *mut *mut PyObject,
        rest: *mut *mut PyObject,
    ) -> c_int;
    fn PyUnstable_Exc_PrepReraiseStar(original: *mut PyObject, exceptions: *mut PyObject) -> *mut PyObject;
}

/// What makes a frame the thread's current one, and the one that was.
pub(crate) struct Link {
    previous: *mut InterpreterFrame,
}

impl Link {
    pub(crate) fn new() -> Link {
        Link { previous: ptr::null_mut() }
    }

    /// Makes `frame` current, as the start of `_PyEval_EvalFrameDefault` does.
    ///
    /// # Safety
    /// The module's contract.
    pub(crate) unsafe fn enter(&mut self, tstate: *mut ThreadState, frame: *mut InterpreterFrame) {
        // SAFETY: both pointers are live and this thread's (module contract).
        unsafe {
            self.previous = (*tstate).current_frame;
            (*frame).previous = self.previous;
            (*tstate).current_frame = frame;
        }
    }

    /// Makes the caller's frame current again.
    ///
    /// # Safety
    /// Follows `enter` with nothing entered in between still open.
    pub(crate) unsafe fn exit(&mut self, tstate: *mut ThreadState) {
        // SAFETY: the caller's frame is still running.
        unsafe { (*tstate).current_frame = self.previous }
    }
}

pub(crate) unsafe fn code(frame: *mut InterpreterFrame) -> *mut CodeObject {
    // SAFETY: module contract.
    unsafe { (*frame).f_executable }
}

pub(crate) unsafe fn func(frame: *mut InterpreterFrame) -> *mut PyObject {
    // SAFETY: module contract.
    unsafe { (*frame).f_funcobj }
}

/// Whether the frame lives on the thread's data stack (and not in a generator).
pub(crate) unsafe fn is_owned_by_thread(frame: *mut InterpreterFrame) -> bool {
    // SAFETY: module contract.
    unsafe { (*frame).owner == FRAME_OWNED_BY_THREAD }
}

unsafe fn code_start(frame: *mut InterpreterFrame) -> *mut CodeUnitWord {
    // SAFETY: the frame owns its code object, whose words start there.
    unsafe { (&raw mut (*(*frame).f_executable).co_code_adaptive).cast() }
}

/// The frame is executing the opcode at `word`.
pub(crate) unsafe fn set_executing(frame: *mut InterpreterFrame, word: u32) {
    // SAFETY: only the address is computed; `word` lies in the code.
    unsafe { (*frame).instr_ptr = code_start(frame).wrapping_add(word as usize) }
}

/// The frame is about to execute the opcode at `word`, which is spelled the same way.
pub(crate) unsafe fn set_next(frame: *mut InterpreterFrame, word: u32) {
    // SAFETY: as for `set_executing`.
    unsafe { set_executing(frame, word) }
}

/// `_PyInterpreterFrame_LASTI`
pub(crate) unsafe fn last_instr(frame: *mut InterpreterFrame) -> i32 {
    // SAFETY: both addresses are in, or one word before, the same code.
    unsafe { ((*frame).instr_ptr as isize - code_start(frame) as isize) as i32 / 2 }
}

/// `_PyFrame_IsIncomplete`, for frames owned by a thread.
pub(crate) unsafe fn is_incomplete(frame: *mut InterpreterFrame) -> bool {
    // SAFETY: module contract.
    unsafe { last_instr(frame) < (*(*frame).f_executable).co_firsttraceable }
}

/// Whether a trace or profile function watches this thread, or a monitoring tool this code. Code that the
/// interpreter has yet to bring up to date with the registered tools counts as watched.
pub(crate) unsafe fn is_observed(tstate: *mut ThreadState, code: *mut CodeObject) -> bool {
    // SAFETY: module contract; monitoring data, if any, belongs to the code object.
    unsafe {
        if !(*tstate).c_tracefunc.is_null() || !(*tstate).c_profilefunc.is_null() {
            return true;
        }
        if (*code).co_instrumentation_version != (*tstate).eval_breaker & !EVAL_EVENTS_MASK {
            return true;
        }
        let monitoring = (*code).co_monitoring;
        !monitoring.is_null() && (*monitoring).active_monitors.iter().any(|tools| *tools != 0)
    }
}

/// Whether the interpreter's count of C calls is far from its limit.
pub(crate) unsafe fn has_c_recursion(tstate: *mut ThreadState) -> bool {
    // SAFETY: module contract.
    unsafe { (*tstate).c_recursion_remaining > C_RECURSION_RESERVE }
}

/// Charges the recursion limits as `_PyEval_EvalFrameDefault` does, without the exception: `None` when one is
/// reached, and nothing was taken. Otherwise the C calls to give back.
///
/// The engine takes more stack than the interpreter reckons with, so it charges more where the count would promise
/// more stack than there is.
pub(crate) unsafe fn enter_recursive(tstate: *mut ThreadState, stack_bytes_left: usize) -> Option<c_int> {
    // SAFETY: module contract.
    unsafe {
        let affordable = c_int::try_from(stack_bytes_left / C_STACK_UNIT_BYTES).unwrap_or(c_int::MAX);
        let charge = ((*tstate).c_recursion_remaining - affordable).max(C_STACK_UNITS);
        if (*tstate).py_recursion_remaining <= 1 || (*tstate).c_recursion_remaining <= charge {
            return None;
        }
        (*tstate).py_recursion_remaining -= 1;
        (*tstate).c_recursion_remaining -= charge;
        Some(charge)
    }
}

/// Gives back what `enter_recursive` took.
pub(crate) unsafe fn leave_recursive(tstate: *mut ThreadState, charge: c_int) {
    // SAFETY: module contract.
    unsafe {
        (*tstate).py_recursion_remaining += 1;
        (*tstate).c_recursion_remaining += charge;
    }
}

/// The end of a frame that ran to completion without the interpreter: `clear_thread_frame`.
///
/// # Safety
/// The value stack is empty and the frame is no longer current. The frame is gone afterwards.
pub(crate) unsafe fn clear_and_pop(tstate: *mut ThreadState, frame: *mut InterpreterFrame) {
    // SAFETY: the frame owns the references dropped here; it was unlinked, so finalizers that run don't see it.
    unsafe {
        let code = (*frame).f_executable.cast::<PyObject>();
        (*tstate).c_recursion_remaining -= 1;
        clear_except_code(tstate, frame);
        ffi::Py_DECREF(code);
        (*tstate).c_recursion_remaining += 1;
        _PyThreadState_PopFrame(tstate, frame);
    }
}

/// `_PyFrame_ClearExceptCode`
unsafe fn clear_except_code(tstate: *mut ThreadState, frame: *mut InterpreterFrame) {
    // SAFETY: as for `clear_and_pop`.
    unsafe {
        let object = (*frame).frame_obj;
        if !object.is_null() {
            (*frame).frame_obj = ptr::null_mut();
            if ffi::Py_REFCNT(object.cast()) > 1 {
                take_ownership(tstate, object, frame);
                ffi::Py_DECREF(object.cast());
                return;
            }
            ffi::Py_DECREF(object.cast());
        }
        let stacktop = (*frame).stacktop;
        (*frame).stacktop = 0;
        let slots = (&raw mut (*frame).localsplus).cast::<*mut PyObject>();
        for i in 0..stacktop as usize {
            ffi::Py_XDECREF(*slots.add(i));
        }
        ffi::Py_XDECREF((*frame).f_locals);
        ffi::Py_DECREF((*frame).f_funcobj);
    }
}

/// `take_ownership`: the frame object outlives the frame and gets its contents.
unsafe fn take_ownership(tstate: *mut ThreadState, object: *mut FrameObject, frame: *mut InterpreterFrame) {
    // SAFETY: a frame object is allocated with room for the frame of its code; the references move into it.
    unsafe {
        let end = (&raw mut (*frame).localsplus).cast::<*mut PyObject>().add((*frame).stacktop as usize);
        let size = end as usize - frame as usize;
        ffi::Py_INCREF((*frame).f_executable.cast());
        let own = (&raw mut (*object).f_frame_data).cast::<u8>();
        ptr::copy_nonoverlapping(frame.cast::<u8>(), own, size);
        let own = own.cast::<InterpreterFrame>();
        (*object).f_frame = own;
        (*own).owner = FRAME_OWNED_BY_FRAME_OBJECT;
        if is_incomplete(own) {
            (*own).instr_ptr = code_start(own).wrapping_add((*(*own).f_executable).co_firsttraceable as usize + 1);
        }
        (*own).previous = ptr::null_mut();
        // The frame is unlinked, so the current complete frame is its caller.
        let back = ffi::PyThreadState_GetFrame(tstate.cast());
        (*object).f_back = back.cast();
        if ffi::PyObject_GC_IsTracked(object.cast()) == 0 {
            ffi::PyObject_GC_Track(object.cast());
        }
    }
}

/// Whether the interpreter would look at signals, pending calls or other threads now.
pub(crate) unsafe fn must_poll(tstate: *mut ThreadState) -> bool {
    // SAFETY: the word is written by other threads with relaxed atomics; a volatile read sees it eventually.
    unsafe { (&raw const (*tstate).eval_breaker).read_volatile() & EVAL_EVENTS_MASK != 0 }
}

/// `_Py_HandlePending`: nonzero if an exception is set.
pub(crate) unsafe fn handle_pending(tstate: *mut ThreadState) -> c_int {
    // SAFETY: the GIL is held; any Python code may run, which the caller expects here.
    unsafe { _Py_HandlePending(tstate) }
}

/// The raised exception, owned, or NULL.
pub(crate) unsafe fn take_raised() -> *mut PyObject {
    // SAFETY: the GIL is held.
    unsafe { ffi::PyErr_GetRaisedException() }
}

/// Raises an exception instance again, with its own traceback. Takes over the reference.
pub(crate) unsafe fn restore_raised(exception: *mut PyObject) {
    // SAFETY: `exception` is an owned exception instance.
    unsafe { ffi::PyErr_SetRaisedException(exception) }
}

/// The interpreter's own `exception_group_match`.
pub(crate) const EXCEPTION_GROUP_MATCH: Option<crate::step::ExceptionGroupMatch> = Some(_PyEval_ExceptionGroupMatch);

/// The interpreter's own `_PyExc_PrepReraiseStar`.
pub(crate) const PREP_RERAISE_STAR: Option<crate::step::PrepReraiseStar> = Some(PyUnstable_Exc_PrepReraiseStar);

/// What is said of a class pattern whose class isn't one.
pub(crate) const MATCH_CLASS_WANTS_CLASS: &std::ffi::CStr = c"called match pattern must be a class";

/// Whether `raise exception from Class` makes sure that calling the class made an exception.
pub(crate) const CHECKS_MADE_CAUSE: bool = true;

//! From a raised exception to its handler in the same frame: the interpreter's `error` and `exception_unwind`.

use std::ptr;

use oxy_bytecode::{CodeUnit, Instr, InstrId};
use pyo3::{
    exceptions::PySystemError,
    ffi::{self, PyObject},
};

use crate::{error::FrameError, frame::Frame, frame::drop_reference, version};

unsafe extern "C" {
    fn PyErr_GetHandledException() -> *mut PyObject;
}

/// With an exception set by the step at `at`: extends its traceback, cuts the stack, and pushes what the handler
/// expects. Returns the handler's first instruction; `None` if the frame has no handler for that place, and then the
/// stack is empty and the exception still set (end the frame with [`Frame::fail`]).
pub fn unwind(frame: &mut Frame<'_>, unit: &CodeUnit, at: InstrId) -> Result<Option<InstrId>, FrameError> {
    let placed = frame.placed(unit, at)?;
    frame.touch();
    // SAFETY: attached.
    if unsafe { ffi::PyErr_Occurred() }.is_null() {
        PySystemError::new_err("error return without exception set").restore(frame.py());
    }
    if !is_raised_again(&placed.instr) {
        extend_traceback(frame);
    }
    let Some(region) = unit.region_of(at) else {
        frame.truncate(0);
        return Ok(None);
    };
    let pushes = 1 + region.push_lasti as u32;
    if region.depth > frame.stack_depth() {
        return Err(FrameError::StackUnderflow);
    }
    if region.depth + pushes > frame.stacksize() {
        return Err(FrameError::StackOverflow);
    }
    frame.truncate(region.depth);
    if region.push_lasti {
        // SAFETY: attached and the frame is live. A `reraise` step has moved the position to where the exception was
        // first raised, and that is what goes on the stack.
        let lasti = unsafe { ffi::PyLong_FromLong(version::last_instr(frame.raw()).into()) };
        if lasti.is_null() {
            // Out of memory: the interpreter starts over with the new exception, and so would we, for ever.
            frame.truncate(0);
            return Ok(None);
        }
        frame.push_raw(lasti);
    }
    // SAFETY: attached, and an exception is set.
    frame.push_raw(unsafe { version::take_raised() });
    Ok(Some(region.target))
}

/// Whether the exception that is set continues an earlier one, whose traceback has this frame already.
fn is_raised_again(instr: &Instr) -> bool {
    match instr {
        Instr::Reraise { .. } | Instr::EndAsyncFor {} | Instr::CleanupThrow {} => true,
        // A bare `raise` sets the handled exception, or makes a RuntimeError if there is none.
        Instr::RaiseVarargs { count: 0 } => is_handled_exception_set(),
        _ => false,
    }
}

/// Whether the exception that is set is the one being handled.
fn is_handled_exception_set() -> bool {
    // SAFETY: attached; both references are owned, and the raised one goes back where it was.
    unsafe {
        let handled = PyErr_GetHandledException();
        let raised = version::take_raised();
        let same = !raised.is_null() && ptr::eq(handled, raised);
        if !raised.is_null() {
            version::restore_raised(raised);
        }
        drop_reference(handled);
        same
    }
}

/// Adds this frame's entry to the traceback of the exception that is set.
fn extend_traceback(frame: &Frame<'_>) {
    // SAFETY: the frame is the thread's current one, so its frame object is what `PyThreadState_GetFrame` makes;
    // before the function's first traceable instruction there is none.
    unsafe {
        if version::is_incomplete(frame.raw()) {
            return;
        }
        let object = ffi::PyThreadState_GetFrame(frame.tstate().cast());
        if !object.is_null() {
            ffi::PyTraceBack_Here(object);
            drop_reference(object.cast());
        }
    }
}

/// Raises the exception another thread has asked this one to raise, as the interpreter does at its next look, and
/// returns nonzero. For versions whose own function isn't exported.
///
/// # Safety
/// Called attached, with such an exception pending.
#[allow(dead_code, reason = "used by the versions that need it")]
pub(crate) unsafe fn raise_asynchronous() -> std::ffi::c_int {
    // SAFETY: running any code makes the interpreter take the exception; the dict is owned until the end.
    unsafe {
        let globals = ffi::PyDict_New();
        if globals.is_null() {
            return -1;
        }
        let result = ffi::PyRun_StringFlags(c"0".as_ptr(), ffi::Py_eval_input, globals, globals, ptr::null_mut());
        ffi::Py_DECREF(globals);
        if !result.is_null() {
            ffi::Py_DECREF(result);
            return 0;
        }
        // The entry of the code above is no part of the user's traceback.
        let raised = version::take_raised();
        if !raised.is_null() {
            ffi::PyException_SetTraceback(raised, ffi::Py_None());
            version::restore_raised(raised);
        }
    }
    -1
}

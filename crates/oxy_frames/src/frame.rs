//! The frame under evaluation: what it runs and what its slots hold.
//!
//! A `Frame` exists only while the hook evaluates it; the thread sees it as its current frame, so user code that
//! runs meanwhile (a guard, a step, a tensor's method) finds it with `sys._getframe()`.

use std::{ffi::c_int, marker::PhantomData};

use oxy_bytecode::{CodeUnit, InstrId, PlacedInstr};
use pyo3::{Borrowed, Bound, PyAny, Python, ffi, ffi::PyObject, types::PyCode};

use crate::{
    error::FrameError,
    version::{
        self,
        layout::{CodeObject, InterpreterFrame, ThreadState},
    },
};

/// A frame of the current thread that is being evaluated by us instead of the interpreter.
///
/// Slots and stack are addressed from 0. A fresh frame has its arguments in the first slots, no cells made yet, and
/// an empty stack.
pub struct Frame<'f> {
    // Invariant: live and linked as the thread's current frame for as long as this value exists.
    raw: *mut InterpreterFrame,
    tstate: *mut ThreadState,
    code: *mut CodeObject,
    nlocalsplus: u32,
    stacksize: u32,
    touched: bool,
    py: Python<'f>,
    // Slots belong to the thread that runs the frame.
    not_send: PhantomData<*mut ()>,
}

impl<'f> Frame<'f> {
    /// # Safety
    /// `raw` is linked as the current frame of `tstate`, the current thread, until the value is dropped.
    pub(crate) unsafe fn new(py: Python<'f>, tstate: *mut ThreadState, raw: *mut InterpreterFrame) -> Frame<'f> {
        // SAFETY: the frame is live and owns its code.
        unsafe {
            let code = version::code(raw);
            Frame {
                raw,
                tstate,
                code,
                nlocalsplus: (*code).co_nlocalsplus as u32,
                stacksize: (*code).co_stacksize as u32,
                touched: false,
                py,
                not_send: PhantomData,
            }
        }
    }

    /// The token that says the thread is attached to the interpreter.
    pub fn py(&self) -> Python<'f> {
        self.py
    }

    /// The code object.
    pub fn code(&self) -> Borrowed<'_, 'f, PyCode> {
        // SAFETY: the frame owns a reference to it, and it is a code object.
        unsafe { Borrowed::from_ptr(self.py, self.code.cast()).cast_unchecked() }
    }

    /// The function object.
    pub fn func(&self) -> Borrowed<'_, 'f, PyAny> {
        // SAFETY: the frame owns a reference to it.
        unsafe { Borrowed::from_ptr(self.py, version::func(self.raw)) }
    }

    /// The module globals. Almost always a dict.
    pub fn globals(&self) -> Borrowed<'_, 'f, PyAny> {
        // SAFETY: borrowed from the function, which the frame owns.
        unsafe { Borrowed::from_ptr(self.py, (*self.raw).f_globals) }
    }

    /// The builtins namespace. Almost always a dict.
    pub fn builtins(&self) -> Borrowed<'_, 'f, PyAny> {
        // SAFETY: borrowed from the function, which the frame owns.
        unsafe { Borrowed::from_ptr(self.py, (*self.raw).f_builtins) }
    }

    /// The locals mapping of a module or class body; `None` in functions (where `locals()` makes one on demand).
    pub fn locals_mapping(&self) -> Option<Borrowed<'_, 'f, PyAny>> {
        // SAFETY: the frame owns it, if there is one.
        unsafe { Borrowed::from_ptr_or_opt(self.py, (*self.raw).f_locals) }
    }

    /// How many local slots there are: locals, cells and free variables.
    pub fn nlocalsplus(&self) -> u32 {
        self.nlocalsplus
    }

    /// The start of the local slots, for readers that check bounds themselves. NULL is unbound. The value stack
    /// follows the slots.
    pub fn locals_ptr(&self) -> *const *mut PyObject {
        self.slots()
    }

    /// What a local slot holds, as it is: a cell for cell and free variables after the prologue.
    pub fn local(&self, slot: u32) -> Option<Borrowed<'_, 'f, PyAny>> {
        if slot >= self.nlocalsplus {
            return None;
        }
        // SAFETY: the slot exists and holds NULL or an owned reference.
        unsafe { Borrowed::from_ptr_or_opt(self.py, *self.slots().add(slot as usize)) }
    }

    /// Sets or unbinds a local slot. What it held is dropped after it has been replaced.
    pub fn set_local(&mut self, slot: u32, value: Option<Bound<'f, PyAny>>) -> Result<(), FrameError> {
        if slot >= self.nlocalsplus {
            return Err(FrameError::NoSuchLocal);
        }
        self.touched = true;
        let new = value.map_or(std::ptr::null_mut(), Bound::into_ptr);
        // SAFETY: the slot exists; the old value is dropped once the slot holds the new one.
        unsafe { drop_reference(std::ptr::replace(self.slots().add(slot as usize), new)) };
        Ok(())
    }

    /// How many values are on the stack.
    pub fn stack_depth(&self) -> u32 {
        // SAFETY: the frame is live.
        let stacktop = unsafe { (*self.raw).stacktop };
        (stacktop as u32).saturating_sub(self.nlocalsplus)
    }

    /// A value on the stack; 0 is the bottom. `None` for NULL and past the top.
    pub fn stack(&self, index: u32) -> Option<Borrowed<'_, 'f, PyAny>> {
        if index >= self.stack_depth() {
            return None;
        }
        // SAFETY: the entry exists and holds NULL or an owned reference.
        unsafe { Borrowed::from_ptr_or_opt(self.py, *self.stack_base().add(index as usize)) }
    }

    /// Pushes a value, or NULL.
    pub fn push(&mut self, value: Option<Bound<'f, PyAny>>) -> Result<(), FrameError> {
        if self.stack_depth() >= self.stacksize {
            return Err(FrameError::StackOverflow);
        }
        self.push_raw(value.map_or(std::ptr::null_mut(), Bound::into_ptr));
        Ok(())
    }

    /// Pops a value. `None` is NULL.
    pub fn pop(&mut self) -> Result<Option<Bound<'f, PyAny>>, FrameError> {
        if self.stack_depth() == 0 {
            return Err(FrameError::StackUnderflow);
        }
        // SAFETY: the reference popped is owned by us now.
        Ok(unsafe { Bound::from_owned_ptr_or_opt(self.py, self.pop_raw()) })
    }

    /// Drops values from the top until `depth` are left.
    pub fn truncate(&mut self, depth: u32) {
        while self.stack_depth() > depth {
            let value = self.pop_raw();
            // SAFETY: it was owned by the stack, which no longer holds it.
            unsafe { drop_reference(value) };
        }
    }

    /// Whether slots, stack or position were changed since the frame was entered.
    pub fn is_touched(&self) -> bool {
        self.touched
    }

    /// Whether a debugger, profiler or coverage tool has begun to watch this thread or code. Watched frames should be
    /// left to the interpreter.
    pub fn is_observed(&self) -> bool {
        // SAFETY: thread and code are live.
        unsafe { version::is_observed(self.tstate, self.code) }
    }

    /// Makes `at` the instruction that tracebacks, warnings and `sys._getframe()` report while user code runs.
    pub fn set_position(&mut self, unit: &CodeUnit, at: InstrId) -> Result<(), FrameError> {
        let word = self.placed(unit, at)?.offset.0;
        self.touched = true;
        self.set_executing(word);
        Ok(())
    }

    /// Checks that `unit` can be this frame's code, and finds an instruction.
    pub(crate) fn placed<'u>(&self, unit: &'u CodeUnit, at: InstrId) -> Result<&'u PlacedInstr, FrameError> {
        // SAFETY: the code object is live; its size is counted in words.
        let words = unsafe { (*self.code).ob_size };
        let ends_here = unit.instrs.last().is_some_and(|last| last.next.0 as ffi::Py_ssize_t == words);
        if !ends_here || unit.nlocalsplus() != self.nlocalsplus || unit.stacksize != self.stacksize {
            return Err(FrameError::WrongCode);
        }
        unit.get(at).ok_or(FrameError::NoSuchInstr)
    }

    pub(crate) fn tstate(&self) -> *mut ThreadState {
        self.tstate
    }

    pub(crate) fn raw(&self) -> *mut InterpreterFrame {
        self.raw
    }

    pub(crate) fn code_object(&self) -> *mut CodeObject {
        self.code
    }

    pub(crate) fn stacksize(&self) -> u32 {
        self.stacksize
    }

    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    pub(crate) fn set_executing(&mut self, word: u32) {
        // SAFETY: the frame is live and `word` is from its code unit.
        unsafe { version::set_executing(self.raw, word) }
    }

    pub(crate) fn slots(&self) -> *mut *mut PyObject {
        // SAFETY: only an address inside the live frame.
        unsafe { (&raw mut (*self.raw).localsplus).cast() }
    }

    pub(crate) fn stack_base(&self) -> *mut *mut PyObject {
        // SAFETY: the stack follows the slots in the same allocation.
        unsafe { self.slots().add(self.nlocalsplus as usize) }
    }

    /// Pushes without a bounds check; the caller made one.
    pub(crate) fn push_raw(&mut self, value: *mut PyObject) {
        self.touched = true;
        // SAFETY: there is room (caller); the entry is written before the top moves past it.
        unsafe {
            let top = (*self.raw).stacktop;
            *self.slots().add(top as usize) = value;
            (*self.raw).stacktop = top + 1;
        }
    }

    /// Pops without a bounds check; the caller made one.
    pub(crate) fn pop_raw(&mut self) -> *mut PyObject {
        self.touched = true;
        // SAFETY: the stack isn't empty (caller).
        unsafe {
            (*self.raw).stacktop -= 1;
            *self.slots().add((*self.raw).stacktop as usize)
        }
    }

    /// Lowers the top of the stack without dropping anything: the values above belong to the caller now.
    pub(crate) fn set_depth_raw(&mut self, depth: u32) {
        self.touched = true;
        // SAFETY: the new top lies in the stack (caller).
        unsafe { (*self.raw).stacktop = (self.nlocalsplus + depth) as c_int }
    }
}

/// Drops an owned reference, or nothing.
///
/// # Safety
/// `value` is NULL or owned by the caller, who is attached.
pub(crate) unsafe fn drop_reference(value: *mut PyObject) {
    // SAFETY: the caller's promise.
    unsafe { ffi::Py_XDECREF(value) }
}

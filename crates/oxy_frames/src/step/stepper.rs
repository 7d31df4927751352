//! The frame as the rows see it: a stack and slots of references.

use std::ptr;

use oxy_bytecode::{CodeUnit, ConstId, NameId, Var};
use pyo3::ffi::{self, PyObject};

use super::{Flow, StepResult};
use crate::{
    capi::{self, Outcome, Owned, Raised, Ref},
    frame::{Frame, drop_reference},
    version,
};

/// A frame during one step. The stack holds the operands of the instruction, and has room for its results.
pub(crate) struct Stepper<'a, 'f> {
    frame: &'a mut Frame<'f>,
    pub(super) unit: &'a CodeUnit,
}

impl<'a, 'f> Stepper<'a, 'f> {
    pub(super) fn new(frame: &'a mut Frame<'f>, unit: &'a CodeUnit) -> Stepper<'a, 'f> {
        Stepper { frame, unit }
    }

    pub(super) fn frame(&mut self) -> &mut Frame<'f> {
        self.frame
    }

    /// The address of the value `depth` below the top (0 is the top).
    fn entry(&self, depth: u32) -> *mut *mut PyObject {
        let index = self.frame.stack_depth() - 1 - depth;
        // SAFETY: rows only name entries that were checked to exist before the step.
        unsafe { self.frame.stack_base().add(index as usize) }
    }

    /// The address of the value `depth` below the top, for vectorcalls and swaps.
    pub(super) fn entry_ptr(&self, depth: u32) -> *mut *mut PyObject {
        self.entry(depth)
    }

    /// The value `depth` below the top, or NULL as `None`. It stays alive while it is on the stack.
    pub(super) fn peek_or_null(&self, depth: u32) -> Option<Ref<'_>> {
        // SAFETY: the entry exists and owns what it holds.
        unsafe { Ref::new(*self.entry(depth)) }
    }

    /// The value `depth` below the top.
    pub(super) fn peek(&self, depth: u32) -> Outcome<Ref<'_>> {
        self.peek_or_null(depth).ok_or_else(|| capi::raise(capi::system_error(), c"NULL on the value stack"))
    }

    pub(super) fn push(&mut self, value: Owned) {
        self.frame.push_raw(value.into_ptr());
    }

    pub(super) fn push_or_null(&mut self, value: Option<Owned>) {
        self.frame.push_raw(value.map_or(ptr::null_mut(), Owned::into_ptr));
    }

    /// Pops a value, which may be NULL.
    pub(super) fn pop_or_null(&mut self) -> Option<Owned> {
        // SAFETY: the entry exists; the reference popped is owned by us now.
        unsafe { Owned::from_new(self.frame.pop_raw()) }.ok()
    }

    /// Drops the top `count` values, the lowest first. None of them is on the stack any more when finalizers run.
    pub(super) fn drop_top(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        let first = self.entry(count - 1);
        self.frame.set_depth_raw(self.frame.stack_depth() - count);
        for i in 0..count as usize {
            // SAFETY: the entries above the top are ours, and nothing overwrites them: a frame's stack is written by
            // the frame's own instructions only.
            unsafe { drop_reference(*first.add(i)) };
        }
    }

    /// Drops the top `count` operands, then pushes the result.
    pub(super) fn replace(&mut self, count: u32, result: Outcome<Owned>) -> StepResult {
        self.drop_top(count);
        self.push(result?);
        Ok(Flow::Next)
    }

    /// Drops the top `count` operands of an instruction without a result.
    pub(super) fn consume(&mut self, count: u32, result: Outcome<()>) -> StepResult {
        self.drop_top(count);
        result.map(|()| Flow::Next)
    }

    /// What a local slot holds. Anything that runs user code may change it.
    pub(super) fn local(&self, var: Var) -> Option<Ref<'_>> {
        if var.0 >= self.frame.nlocalsplus() {
            return None;
        }
        // SAFETY: the slot exists and owns what it holds.
        unsafe { Ref::new(*self.frame.slots().add(var.index())) }
    }

    /// Puts a value, or nothing, into a slot and returns what it held.
    pub(super) fn replace_local(&mut self, var: Var, value: Option<Owned>) -> Option<Owned> {
        if var.0 >= self.frame.nlocalsplus() {
            return None;
        }
        let new = value.map_or(ptr::null_mut(), Owned::into_ptr);
        // SAFETY: the slot exists; the reference it gave up is owned by us.
        unsafe { Owned::from_new(ptr::replace(self.frame.slots().add(var.index()), new)) }.ok()
    }

    /// The cell in a slot, kept alive.
    pub(super) fn cell(&self, var: Var) -> Outcome<Owned> {
        match self.local(var) {
            Some(cell) if capi::is_cell(cell) => Ok(cell.to_owned()),
            _ => Err(capi::raise(capi::system_error(), c"no cell in the slot of a cell variable")),
        }
    }

    pub(super) fn name(&self, name: NameId) -> Outcome<Ref<'a>> {
        // SAFETY: the code object, which the frame keeps alive, owns its tuple of names.
        self.item_of_code(unsafe { (*self.frame.code_object()).co_names }, name.index())
    }

    pub(super) fn constant(&self, constant: ConstId) -> Outcome<Ref<'a>> {
        // SAFETY: the code object, which the frame keeps alive, owns its tuple of constants.
        self.item_of_code(unsafe { (*self.frame.code_object()).co_consts }, constant.index())
    }

    pub(super) fn local_name(&self, var: Var) -> Outcome<Ref<'a>> {
        // SAFETY: the code object, which the frame keeps alive, owns its tuple of variable names.
        self.item_of_code(unsafe { (*self.frame.code_object()).co_localsplusnames }, var.index())
    }

    fn item_of_code(&self, tuple: *mut PyObject, index: usize) -> Outcome<Ref<'a>> {
        // SAFETY: a tuple of the code object: alive as long as the frame is, which outlives `'a`.
        let tuple: Option<Ref<'a>> = unsafe { Ref::new(tuple) };
        tuple
            .and_then(|tuple| capi::tuple_get(tuple, index))
            .ok_or_else(|| capi::raise(capi::system_error(), c"operand out of range of the code object's tuple"))
    }

    pub(super) fn globals(&self) -> Outcome<Ref<'a>> {
        // SAFETY: borrowed from the function, which the frame keeps alive.
        unsafe { Ref::new((*self.frame.raw()).f_globals) }.ok_or_else(no_namespace)
    }

    pub(super) fn builtins(&self) -> Outcome<Ref<'a>> {
        // SAFETY: borrowed from the function, which the frame keeps alive.
        unsafe { Ref::new((*self.frame.raw()).f_builtins) }.ok_or_else(no_namespace)
    }

    /// The locals mapping of a module or class body.
    pub(super) fn locals(&self) -> Option<Ref<'a>> {
        // SAFETY: owned by the frame, which outlives `'a`; nothing replaces it while the frame runs.
        unsafe { Ref::new((*self.frame.raw()).f_locals) }
    }

    pub(super) fn function(&self) -> Outcome<Ref<'a>> {
        // SAFETY: owned by the frame, which outlives `'a`.
        unsafe { Ref::new(version::func(self.frame.raw())) }.ok_or_else(no_namespace)
    }

    /// Looks at signals, pending calls, due garbage collections and other threads, where the interpreter does.
    pub(super) fn poll(&mut self) -> Outcome<()> {
        let tstate = self.frame.tstate();
        // SAFETY: attached, in the frame's thread; the frame's state is complete, so user code may run.
        let result = unsafe { if version::must_poll(tstate) { version::handle_pending(tstate) } else { 0 } };
        capi::status(result)
    }

    /// The slot that holds the exception being handled in this thread or generator.
    pub(super) fn handled_exception(&mut self) -> *mut *mut PyObject {
        // SAFETY: a thread always has an exception state.
        unsafe { &raw mut (*(*self.frame.tstate()).exc_info).exc_value }
    }
}

fn no_namespace() -> Raised {
    capi::raise(capi::system_error(), c"frame without a namespace")
}

/// Writes an owned reference into a field of an object that holds none yet.
///
/// # Safety
/// `field` belongs to a live object and is NULL or an owned reference.
pub(super) unsafe fn set_field(field: *mut *mut PyObject, value: Owned) {
    // SAFETY: the caller's promise; the old value is dropped after the new one is in place.
    unsafe { ffi::Py_XDECREF(ptr::replace(field, value.into_ptr())) };
}

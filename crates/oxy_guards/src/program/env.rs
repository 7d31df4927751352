//! What guards read from, and what they read.

use crate::kinds::tensor::view;
use oxy_torch::{TensorRef, Torch};
use pyo3::{
    exceptions::PySystemError,
    ffi::{self, PyObject},
    prelude::*,
    types::PyFunction,
};
use smallvec::SmallVec;
use std::ptr::{self, NonNull};

/// An object that may be NULL, borrowed from wherever it was read.
pub(crate) type Raw = *mut PyObject;

/// The state at a segment's entry: a frame's, or that of a call without a frame.
pub struct Env {
    locals: *const *mut PyObject,
    locals_count: usize,
    stack_count: usize,
    pub(crate) globals: *mut PyObject,
    pub(crate) builtins: *mut PyObject,
    pub(crate) function: *mut PyObject,
}

impl Env {
    /// Of a frame: its slots, followed by its value stack.
    ///
    /// # Safety
    /// `locals` points to `locals_count + stack_count` slots of a live frame, which keeps the other objects alive, and the
    /// thread is attached, for as long as the value is used.
    pub unsafe fn of_frame(
        locals: *const *mut PyObject,
        locals_count: usize,
        stack_count: usize,
        globals: *mut PyObject,
        builtins: *mut PyObject,
        function: *mut PyObject,
    ) -> Env {
        Env { locals, locals_count, stack_count, globals, builtins, function }
    }

    /// Of a call without a frame: bound arguments in localsplus order.
    ///
    /// # Safety
    /// The slots hold live objects or NULL, and the thread is attached, for as long as the value is used; so does `function`
    /// live.
    pub unsafe fn of_call(function: &Bound<'_, PyFunction>, slots: &[*mut PyObject]) -> Env {
        let parts = function.as_ptr().cast::<ffi::PyFunctionObject>();
        // SAFETY: a live function has its globals and builtins, and keeps them alive.
        let (globals, builtins) = unsafe { ((*parts).func_globals, (*parts).func_builtins) };
        Env {
            locals: slots.as_ptr(),
            locals_count: slots.len(),
            stack_count: 0,
            globals,
            builtins,
            function: function.as_ptr(),
        }
    }

    #[inline]
    pub(crate) fn local(&self, slot: u32) -> Raw {
        self.slot(slot as usize, 0, self.locals_count)
    }

    #[inline]
    pub(crate) fn stack(&self, index: u32) -> Raw {
        self.slot(index as usize, self.locals_count, self.stack_count)
    }

    #[inline]
    fn slot(&self, index: usize, start: usize, count: usize) -> Raw {
        if index >= count {
            return ptr::null_mut();
        }
        // SAFETY: within the slots that the constructor was promised.
        unsafe { *self.locals.add(start + index) }
    }
}

/// Values of a program's sources. Dropped while attached.
pub struct Registers {
    /// Borrowed.
    pub(crate) values: SmallVec<[Raw; 32]>,
    /// References that live as long as the registers.
    pub(crate) owned: Vec<Raw>,
}

impl Registers {
    pub(crate) fn new(count: usize) -> Registers {
        Registers { values: SmallVec::from_elem(ptr::null_mut(), count), owned: Vec::new() }
    }

    /// The value in a register, borrowed; NULL if there is none.
    pub fn raw(&self, register: usize) -> *mut PyObject {
        self.values.get(register).copied().unwrap_or(ptr::null_mut())
    }

    /// The value in a register.
    pub fn object(&self, py: Python<'_>, register: usize) -> PyResult<Py<PyAny>> {
        // SAFETY: after a run, registers hold live objects while their environment lives.
        match unsafe { Bound::from_borrowed_ptr_or_opt(py, self.raw(register)) } {
            Some(object) => Ok(object.unbind()),
            None => Err(PySystemError::new_err("oxyfuel: a register is empty")),
        }
    }

    /// The tensor in a register.
    ///
    /// # Safety
    /// A tensor guard on the register's source passed, and the result isn't used longer than the object lives.
    pub unsafe fn tensor<'a>(&self, torch: &'static Torch, register: usize) -> Option<TensorRef<'a>> {
        let value = NonNull::new(self.raw(register))?;
        // SAFETY: the caller's promise.
        Some(unsafe { view(torch, value) })
    }

    /// Owns all values from here on. Needed before Python code runs or the interpreter lock is let go, if the values are
    /// used afterwards.
    pub fn hold(&mut self, _py: Python<'_>) {
        for index in 0..self.values.len() {
            // SAFETY: attached; values are NULL or live until Python code runs.
            unsafe {
                let value = self.values[index];
                ffi::Py_XINCREF(value);
                if !value.is_null() {
                    self.owned.push(value);
                }
            }
        }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        if self.owned.is_empty() {
            return;
        }
        let owned = std::mem::take(&mut self.owned);
        Python::attach(|_py| {
            for value in owned {
                // SAFETY: an owned reference, and attached.
                unsafe { ffi::Py_DECREF(value) };
            }
        });
    }
}

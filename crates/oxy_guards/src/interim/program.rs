//! Guard programs: flat lists of reads and checks.

use super::{read, tensor};
use crate::{Exit, Guard, GuardKind, Source, SourceKind};
use oxy_torch::Torch;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyFunction;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ptr::{self, NonNull};

/// The real state that guards read, valid while its frame or arguments are.
pub struct Env {
    locals: *const *mut PyObject,
    locals_count: usize,
    stack_count: usize,
    globals: *mut PyObject,
    builtins: *mut PyObject,
    function: *mut PyObject,
}

impl Env {
    /// Of a frame.
    ///
    /// # Safety
    /// `locals` points to `locals_count + stack_count` slots of a live frame, which keeps the other objects alive, for as
    /// long as the value is used.
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
    /// The slots hold live objects or NULL for as long as the value is used, and so does `function`.
    pub unsafe fn of_call(function: &Bound<'_, PyFunction>, slots: &[*mut PyObject]) -> Env {
        // SAFETY: a function keeps its globals and builtins alive; the struct's head is stable over 3.11 to 3.13:
        // PyObject, then globals, builtins.
        let (globals, builtins) = unsafe {
            let head = function.as_ptr().cast::<u8>().add(size_of::<PyObject>()).cast::<*mut PyObject>();
            (*head, *head.add(1))
        };
        Env {
            locals: slots.as_ptr(),
            locals_count: slots.len(),
            stack_count: 0,
            globals,
            builtins,
            function: function.as_ptr(),
        }
    }

    fn slot(&self, index: usize, count: usize, offset: usize) -> *mut PyObject {
        if index >= count {
            return ptr::null_mut();
        }
        // SAFETY: within the slots the constructor promised.
        unsafe { *self.locals.add(offset + index) }
    }
}

/// Values of a program's sources. Borrowed from the frame, except temporaries, which are dropped with it.
pub struct Registers {
    values: SmallVec<[*mut PyObject; 32]>,
    temporaries: Vec<*mut PyObject>,
}

impl Registers {
    /// The object in a register.
    pub fn object(&self, py: Python<'_>, register: usize) -> PyResult<Py<PyAny>> {
        let value = self.values.get(register).copied().unwrap_or(ptr::null_mut());
        if value.is_null() {
            return Err(pyo3::exceptions::PySystemError::new_err("oxyfuel: a register is empty"));
        }
        // SAFETY: registers hold live objects while their program's environment lives.
        Ok(unsafe { Bound::from_borrowed_ptr(py, value) }.unbind())
    }

    /// The tensor in a register, which a guard has checked to be one.
    ///
    /// # Safety
    /// A tensor guard on the register's source passed, and the result isn't used longer than the environment.
    pub unsafe fn tensor<'a>(&self, torch: &'static Torch, register: usize) -> Option<oxy_torch::TensorRef<'a>> {
        let value = NonNull::new(self.values.get(register).copied()?)?;
        // SAFETY: the caller's promise.
        Some(unsafe { tensor::view(torch, value) })
    }

    pub(crate) fn raw(&self, register: usize) -> *mut PyObject {
        self.values.get(register).copied().unwrap_or(ptr::null_mut())
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        for temporary in self.temporaries.drain(..) {
            // SAFETY: temporaries are owned references; programs run attached.
            unsafe { ffi::Py_DECREF(temporary) };
        }
    }
}

/// The position of the guard that failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedGuard(pub u32);

enum Op {
    /// register ← source; a missing one fails unless it may be missing.
    Read { register: u32, base: u32, source: Source, may_miss: bool },
    Check { register: u32, other: u32, guard: u32 },
}

/// Whether autograd records, as the segment was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    grad_enabled: bool,
}

impl State {
    fn current(torch: &Torch) -> State {
        State { grad_enabled: torch.is_grad_enabled() }
    }
}

/// Guards of one segment, ready to run.
pub struct GuardProgram {
    ops: Vec<Op>,
    guards: Vec<Guard>,
    registers: FxHashMap<Source, u32>,
    count: usize,
    torch: &'static Torch,
    state: State,
}

const NONE: u32 = u32::MAX;

impl GuardProgram {
    /// `inputs` get the first registers, in order; sources that the exit reads get registers, too.
    pub fn compile(_py: Python<'_>, guards: Vec<Guard>, inputs: Vec<Source>, exit: &Exit) -> Result<GuardProgram, String> {
        let torch = Torch::load().map_err(|e| e.to_string())?;
        let mut program = GuardProgram {
            ops: Vec::new(),
            guards,
            registers: FxHashMap::default(),
            count: 0,
            torch,
            state: State::current(torch),
        };
        for input in &inputs {
            program.reserve(input);
        }
        let missing: Vec<Source> = program
            .guards
            .iter()
            .filter(|guard| matches!(guard.kind, GuardKind::Missing))
            .map(|guard| guard.source.clone())
            .collect();
        let mut done = FxHashMap::default();
        for index in 0..program.guards.len() {
            let guard = program.guards[index].clone();
            program.read(&guard.source, &missing, &mut done);
            let mut other = NONE;
            match &guard.kind {
                GuardKind::SameObject(source) | GuardKind::NotSameObject(source) => {
                    other = program.read(source, &missing, &mut done);
                }
                GuardKind::NoOverlap(sources) => {
                    for source in sources {
                        program.read(source, &missing, &mut done);
                    }
                }
                _ => {}
            }
            let register = program.reserve(&guard.source);
            program.ops.push(Op::Check { register, other, guard: index as u32 });
        }
        for input in &inputs {
            program.read(input, &missing, &mut done);
        }
        for source in exit.sources() {
            program.read(source, &missing, &mut done);
        }
        Ok(program)
    }

    fn reserve(&mut self, source: &Source) -> u32 {
        let next = self.count as u32;
        let register = *self.registers.entry(source.clone()).or_insert(next);
        if register == next {
            self.count += 1;
        }
        register
    }

    /// Makes sure a source is read, and gives its register.
    fn read(&mut self, source: &Source, missing: &[Source], done: &mut FxHashMap<Source, ()>) -> u32 {
        let register = self.reserve(source);
        if done.contains_key(source) {
            return register;
        }
        let base = match source.base() {
            Some(base) => self.read(base, missing, done),
            None => NONE,
        };
        done.insert(source.clone(), ());
        let may_miss = missing.contains(source);
        self.ops.push(Op::Read { register, base, source: source.clone(), may_miss });
        register
    }

    /// Empty registers for this program.
    pub fn registers(&self) -> Registers {
        Registers { values: SmallVec::from_elem(ptr::null_mut(), self.count), temporaries: Vec::new() }
    }

    pub(crate) fn register_of(&self, source: &Source) -> Option<u32> {
        self.registers.get(source).copied()
    }

    pub fn guard_count(&self) -> usize {
        self.guards.len()
    }

    /// Checks all guards; afterwards the registers hold the sources' values.
    pub fn run(&self, env: &Env, registers: &mut Registers) -> Result<(), FailedGuard> {
        if State::current(self.torch) != self.state {
            return Err(FailedGuard(NONE));
        }
        for op in &self.ops {
            match op {
                Op::Read { register, base, source, may_miss } => {
                    let value = self.load(env, source, *base, registers);
                    if value.is_null() && !may_miss {
                        return Err(FailedGuard(NONE));
                    }
                    registers.values[*register as usize] = value;
                }
                Op::Check { register, other, guard } => {
                    if !self.check(*register, *other, *guard, registers) {
                        return Err(FailedGuard(*guard));
                    }
                }
            }
        }
        Ok(())
    }

    fn load(&self, env: &Env, source: &Source, base: u32, registers: &mut Registers) -> *mut PyObject {
        match source.kind() {
            SourceKind::Local(slot) => env.slot(*slot as usize, env.locals_count, 0),
            SourceKind::Stack(index) => env.slot(*index as usize, env.stack_count, env.locals_count),
            SourceKind::Object(object) => object.as_ptr(),
            SourceKind::Globals => env.globals,
            SourceKind::Builtins => env.builtins,
            SourceKind::Function => env.function,
            kind => {
                let base = registers.raw(base as usize);
                if base.is_null() {
                    return base;
                }
                // SAFETY: programs run attached; the base is live: its own read gave it.
                unsafe { read::derived(kind, base, &mut registers.temporaries) }
            }
        }
    }

    fn check(&self, register: u32, other: u32, guard: u32, registers: &Registers) -> bool {
        let guard = &self.guards[guard as usize];
        let value = registers.raw(register as usize);
        if let GuardKind::Missing = guard.kind {
            return value.is_null();
        }
        // SAFETY: programs run attached; registers hold live objects, and reads of missing ones failed before.
        unsafe {
            match &guard.kind {
                GuardKind::TypeIs(class) => ffi::Py_TYPE(value).cast() == class.as_ptr(),
                GuardKind::IsObject(object) => value == object.as_ptr(),
                GuardKind::Equals(object) => read::equals(value, object.as_ptr()),
                GuardKind::Tensor(tensor) => tensor::matches(self.torch, tensor, value),
                GuardKind::ListLength(length) => ffi::PyList_Size(value) == *length as isize,
                GuardKind::TupleLength(length) => ffi::PyTuple_Size(value) == *length as isize,
                GuardKind::DictKeys(keys) => dict_has_keys(value, keys),
                GuardKind::DictLacksKey(key) => read::dict_item(value, key.as_ptr()).is_null(),
                GuardKind::SetItems(items) => {
                    ffi::PySet_Size(value) == items.len() as isize
                        && items.iter().all(|item| ffi::PySet_Contains(value, item.as_ptr()) == 1)
                }
                GuardKind::InstanceLacks(name) => {
                    let dict = read::instance_dict(value);
                    dict.is_null() || read::dict_item(dict, name.as_ptr()).is_null()
                }
                GuardKind::TypeLacks(name) => read::type_attr(value, name.as_ptr()).is_null(),
                GuardKind::SameObject(_) => value == registers.raw(other as usize),
                GuardKind::NotSameObject(_) => value != registers.raw(other as usize),
                GuardKind::NoOverlap(sources) => self.no_overlap(sources, registers),
                GuardKind::Missing => false,
                GuardKind::IsNotObject(object) => value != object.as_ptr(),
                GuardKind::DictLength(length) => ffi::PyDict_Size(value) == *length as isize,
                GuardKind::DictHasKey(key) => !read::dict_item(value, key.as_ptr()).is_null(),
                GuardKind::AllDistinct(_) | GuardKind::Predicate(_) | GuardKind::GlobalState(_) => false,
            }
        }
    }

    /// # Safety
    /// Attached; the sources' tensor guards passed.
    unsafe fn no_overlap(&self, sources: &[Source], registers: &Registers) -> bool {
        let mut ranges: SmallVec<[(usize, usize); 16]> = SmallVec::new();
        for source in sources {
            let Some(register) = self.register_of(source) else { return false };
            let Some(value) = NonNull::new(registers.raw(register as usize)) else { return false };
            // SAFETY: the caller's promise.
            let range = unsafe { tensor::storage_range(self.torch, value) };
            if range.0 != 0 {
                ranges.push(range);
            }
        }
        ranges.sort_unstable();
        ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0)
    }

    /// Why the guards fail: one sentence, or none if they hold.
    pub fn explain(&self, env: &Env) -> Vec<String> {
        let mut registers = self.registers();
        match self.run(env, &mut registers) {
            Ok(()) => Vec::new(),
            Err(FailedGuard(NONE)) if State::current(self.torch) != self.state => {
                vec![format!("grad mode: expected {}", self.state.grad_enabled)]
            }
            Err(FailedGuard(NONE)) => vec!["something that was there when it was traced is missing".to_owned()],
            Err(FailedGuard(index)) => {
                let guard = &self.guards[index as usize];
                let value = self.register_of(&guard.source).map_or(ptr::null_mut(), |r| registers.raw(r as usize));
                let place =
                    guard.user_line.as_ref().map(|(file, line)| format!(" ({file}:{line})")).unwrap_or_default();
                let what = match &guard.kind {
                    // SAFETY: attached (explain is called by the driver); the register is live or NULL.
                    GuardKind::Tensor(tensor) => unsafe { tensor::difference(self.torch, tensor, value) },
                    kind => format!("expected {kind:?}"),
                };
                vec![format!("{}: {what}{place}", guard.source)]
            }
        }
    }
}

/// # Safety
/// Attached; `dict` is live.
unsafe fn dict_has_keys(dict: *mut PyObject, keys: &[crate::PyObj]) -> bool {
    // SAFETY: the caller's promise; PyDict_Next gives borrowed pairs of an unchanged dict.
    unsafe {
        if ffi::PyDict_Check(dict) == 0 || ffi::PyDict_Size(dict) != keys.len() as isize {
            return false;
        }
        let (mut position, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        for expected in keys {
            if ffi::PyDict_Next(dict, &mut position, &mut key, &mut value) == 0 {
                return false;
            }
            if key != expected.as_ptr() && !read::equals(key, expected.as_ptr()) {
                return false;
            }
        }
        true
    }
}

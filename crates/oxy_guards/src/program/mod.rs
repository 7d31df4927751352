//! Guard programs: all guards of a segment, evaluated without allocating.
//!
//! A program is a list of steps over registers, one register a source: reads, checks, and *stable sections* (`stable`)
//! that stand for reads and checks whose outcome changes only when something that can be watched changes.
//!
//! Promises: a source is read once; a read whose base is not there fails the program, so that nothing is read from
//! nothing; the order is the plan's (`plan`): cheap and likely to fail first. After success the inputs are in
//! the first registers.

mod env;
mod explain;
mod plan;

pub(crate) use env::Raw;
pub use env::{Env, Registers};

use crate::{
    Exit, Guard, GuardKind, Recipe, Source,
    kinds::{
        Check, GlobalState,
        no_overlap::OverlapCheck,
        tensor::{TensorCheck, TensorTable},
    },
    sources::read::{Read, read},
    stable::Section,
    tensor_impl::{ImplLayout, verified_torch},
};
use oxy_torch::Torch;
use pyo3::{ffi, prelude::*};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ptr;

/// The position of the guard that failed, in the list the program was made from; of a value that isn't there, the
/// first guard that needed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedGuard(pub u32);

/// No register, no guard.
pub(crate) const NONE: u32 = u32::MAX;

/// A read into a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadStep {
    pub register: u32,
    /// The base's register, or `NONE`.
    pub base: u32,
    pub read: Read,
    pub may_miss: bool,
    /// The guard that first needed it, or `NONE`.
    pub guard: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Read(ReadStep),
    /// A guard on a register.
    Check {
        register: u32,
        guard: u32,
    },
    /// A stable section.
    Section(u32),
    Copy {
        from: u32,
        to: u32,
    },
    /// Rows of the tensor table.
    Tensors {
        start: u32,
        end: u32,
    },
}

/// Guards with what checking them needs.
pub(crate) struct Checks {
    pub guards: Vec<Guard>,
    pub checks: Vec<Check>,
    pub tensors: Option<TensorTable>,
}

impl Checks {
    /// # Safety
    /// Attached; the registers are NULL or live.
    #[inline]
    pub unsafe fn holds(&self, guard: u32, register: u32, registers: &[Raw]) -> bool {
        let value = registers.get(register as usize).copied().unwrap_or(ptr::null_mut());
        // SAFETY: the caller's promise; guards and checks are parallel.
        unsafe { self.guards[guard as usize].kind.holds(&self.checks[guard as usize], value, registers) }
    }

    /// # Safety
    /// Attached; the registers are NULL or live.
    #[inline]
    unsafe fn tensors_hold(&self, start: u32, end: u32, registers: &[Raw]) -> Result<(), FailedGuard> {
        let Some(table) = &self.tensors else { return Ok(()) };
        // SAFETY: the caller's promise. A guard's value is what it is asked about.
        unsafe {
            let ask = |guard: u32, value: Raw| {
                self.guards[guard as usize].kind.holds(&self.checks[guard as usize], value, registers)
            };
            table.check(start..end, registers, ask).map_err(FailedGuard)
        }
    }
}

/// The guards of a segment, ready to run.
pub struct GuardProgram {
    checks: Checks,
    steps: Vec<Step>,
    sections: Vec<Section>,
    registers: FxHashMap<Source, u32>,
    register_count: usize,
    input_count: usize,
    /// Registers of the exit's recipes that are sources, by recipe.
    exit_registers: Vec<u32>,
    /// Some step may run Python code, which may drop what registers borrow: then they own.
    runs_code: bool,
}

impl GuardProgram {
    /// Prepares guards. `inputs` get the first registers, in order; what the exit's recipes read is read, too. torch's
    /// global state is guarded as it is now, if no guard says what it must be.
    pub fn compile(
        py: Python<'_>,
        mut guards: Vec<Guard>,
        inputs: Vec<Source>,
        exit: &Exit,
    ) -> Result<GuardProgram, String> {
        let torch = verified_torch(py)?;
        if torch.is_some()
            && !guards.iter().any(|guard| matches!(guard.kind, GuardKind::GlobalState(_)))
            && let Some(source) = guards.first().map(|guard| &guard.source).or(inputs.first()).cloned()
        {
            let state = GlobalState::current(py).map_err(|error| error.to_string())?;
            guards.push(Guard::global_state(&source, state));
        }
        let plan = plan::Planner::new(&guards, &inputs, exit).plan();
        let checks = checks(py, &guards, torch, &plan.registers)?;
        let mut tensors = torch.and_then(|torch| ImplLayout::get(py, torch)).map(TensorTable::new);
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in plan.steps {
            let Step::Tensors { start, end } = step else {
                steps.push(step);
                continue;
            };
            // Guards that the table can't check are checked one by one.
            let first = tensors.as_ref().map_or(0, TensorTable::len);
            for &(register, guard) in &plan.tensors[start as usize..end as usize] {
                let GuardKind::Tensor(metadata) = &guards[guard as usize].kind else { continue };
                if !tensors.as_mut().is_some_and(|table| table.add(metadata, register, guard)) {
                    steps.push(Step::Check { register, guard });
                }
            }
            steps.push(Step::Tensors { start: first, end: tensors.as_ref().map_or(0, TensorTable::len) });
        }
        let exit_registers = exit
            .recipes
            .iter()
            .map(|recipe| match recipe {
                Recipe::Source(source) => plan.registers.get(source).copied().unwrap_or(NONE),
                _ => NONE,
            })
            .collect();
        let runs_code = guards.iter().any(|guard| matches!(guard.kind, GuardKind::Predicate(_)))
            || steps.iter().any(|step| matches!(step, Step::Read(step) if step.read.may_run_code()));
        Ok(GuardProgram {
            checks: Checks { guards, checks, tensors },
            steps,
            sections: plan.sections,
            register_count: plan.register_count,
            registers: plan.registers,
            input_count: inputs.len(),
            exit_registers,
            runs_code,
        })
    }

    /// Empty registers for this program.
    pub fn registers(&self) -> Registers {
        Registers::new(self.register_count)
    }

    /// Checks all guards. Afterwards the registers hold the values of inputs and of the exit's sources: borrowed, and
    /// live until Python code runs or the interpreter lock is let go (see [`Registers::hold`]).
    ///
    /// The calling thread must be attached, as it is while an [`Env`] is valid.
    pub fn run(&self, env: &Env, registers: &mut Registers) -> Result<(), FailedGuard> {
        if registers.values.len() != self.register_count {
            *registers = self.registers();
        }
        if self.runs_code {
            return self.run_owning(env, registers);
        }
        for step in &self.steps {
            // SAFETY: attached, by the promise that the environment was made with; registers hold what was read.
            unsafe {
                match step {
                    Step::Read(step) => {
                        let base = registers.values.get(step.base as usize).copied().unwrap_or(ptr::null_mut());
                        let value = read(step.read, env, base, &mut registers.owned);
                        if value.is_null() && !step.may_miss {
                            return Err(FailedGuard(step.guard));
                        }
                        registers.values[step.register as usize] = value;
                    }
                    Step::Check { register, guard } => {
                        if !self.checks.holds(*guard, *register, &registers.values) {
                            return Err(FailedGuard(*guard));
                        }
                    }
                    Step::Section(index) => self.sections[*index as usize].run(&self.checks, env, registers)?,
                    Step::Copy { from, to } => registers.values[*to as usize] = registers.values[*from as usize],
                    Step::Tensors { start, end } => self.checks.tensors_hold(*start, *end, &registers.values)?,
                }
            }
        }
        Ok(())
    }

    /// The same, with every value owned by the registers as soon as it is read.
    #[cold]
    fn run_owning(&self, env: &Env, registers: &mut Registers) -> Result<(), FailedGuard> {
        for step in &self.steps {
            // SAFETY: attached, by the promise that the environment was made with; registers own what was read.
            unsafe {
                match step {
                    Step::Read(step) => {
                        let base = registers.values.get(step.base as usize).copied().unwrap_or(ptr::null_mut());
                        let value = read(step.read, env, base, &mut registers.owned);
                        if value.is_null() && !step.may_miss {
                            return Err(FailedGuard(step.guard));
                        }
                        registers.values[step.register as usize] = value;
                        registers.own(value);
                    }
                    Step::Check { register, guard } => {
                        if !self.checks.holds(*guard, *register, &registers.values) {
                            return Err(FailedGuard(*guard));
                        }
                    }
                    Step::Copy { from, to } => registers.values[*to as usize] = registers.values[*from as usize],
                    Step::Tensors { start, end } => self.checks.tensors_hold(*start, *end, &registers.values)?,
                    Step::Section(index) => {
                        let section = &self.sections[*index as usize];
                        section.run(&self.checks, env, registers)?;
                        for &register in &section.exported {
                            registers.own(registers.values[register as usize]);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The register of a recipe that is a source.
    pub(crate) fn exit_register(&self, recipe: usize, source: &Source) -> Option<u32> {
        match self.exit_registers.get(recipe) {
            Some(&register) if register != NONE => Some(register),
            _ => self.registers.get(source).copied(),
        }
    }

    pub fn guard_count(&self) -> usize {
        self.checks.guards.len()
    }

    pub fn input_count(&self) -> usize {
        self.input_count
    }

    /// How the last calls went, for tests and statistics: (stable sections, of them valid now, runs that had to check
    /// a section in full).
    pub fn section_counts(&self) -> (usize, usize, u64) {
        let valid = self.sections.iter().filter(|section| section.is_valid()).count();
        (self.sections.len(), valid, self.sections.iter().map(Section::full_runs).sum())
    }
}

fn checks(
    py: Python<'_>,
    guards: &[Guard],
    torch: Option<&'static Torch>,
    registers: &FxHashMap<Source, u32>,
) -> Result<Vec<Check>, String> {
    let need_torch = || torch.ok_or_else(|| "a guard on a tensor, but torch is not loaded".to_owned());
    let register = |source: &Source| registers.get(source).copied().unwrap_or(NONE);
    let others = |sources: &[Source]| -> SmallVec<[u32; 4]> { sources.iter().map(register).collect() };
    let mut checks = Vec::with_capacity(guards.len());
    for guard in guards {
        // SAFETY: attached.
        let hash = unsafe { guard.kind.key_hash() };
        checks.push(match (&guard.kind, hash) {
            (_, Some(hash)) => Check::Key(hash),
            (GuardKind::Tensor(_), _) => {
                let torch = need_torch()?;
                Check::Tensor(TensorCheck::new(torch, ImplLayout::get(py, torch)))
            }
            (GuardKind::SameObject(other) | GuardKind::NotSameObject(other), _) => Check::Other(register(other)),
            (GuardKind::AllDistinct(sources), _) => Check::Others(others(sources)),
            (GuardKind::NoOverlap(sources), _) => {
                let has_tensor_guard = |source: &Source| {
                    guards.iter().any(|guard| guard.source == *source && matches!(guard.kind, GuardKind::Tensor(_)))
                };
                if let Some(source) = sources.iter().find(|source| !has_tensor_guard(source)) {
                    return Err(format!("a guard on the memory of {source}, which no guard says is a tensor"));
                }
                Check::Overlap(others(sources), OverlapCheck::new(need_torch()?))
            }
            _ => Check::Plain,
        });
    }
    Ok(checks)
}

impl Registers {
    /// Takes a reference to a value, for as long as the registers live.
    ///
    /// # Safety
    /// Attached; the value is NULL or live.
    unsafe fn own(&mut self, value: Raw) {
        if !value.is_null() {
            // SAFETY: the caller's promise.
            unsafe { ffi::Py_INCREF(value) };
            self.owned.push(value);
        }
    }
}

//! Why guards fail, in sentences.

use super::{Env, GuardProgram, NONE, Registers, Step};
use crate::{kinds::GuardKind, sources::read::read};
use pyo3::prelude::*;
use std::ptr;

/// Sentences of one explanation; a model that changed as a whole fails thousands of guards.
const REASONS_MAX: usize = 12;

impl GuardProgram {
    /// One sentence for each guard that fails now (the first few), or none if all hold, such as
    /// `L['x'].size(0): expected 2, got 3`, with the user's line that made the guard necessary.
    pub fn explain(&self, env: &Env) -> Vec<String> {
        self.explain_named(env, &[])
    }

    /// The same, with the names of the local slots.
    pub fn explain_named(&self, env: &Env, local_names: &[String]) -> Vec<String> {
        Python::attach(|py| {
            let mut registers = self.registers();
            let mut reasons = Vec::new();
            self.visit(py, env, &self.steps, &mut registers, local_names, &mut reasons);
            if reasons.len() > REASONS_MAX {
                let more = reasons.len() - REASONS_MAX;
                reasons.truncate(REASONS_MAX);
                reasons.push(format!("and {more} more"));
            }
            reasons
        })
    }

    /// Reads all that is there and checks all that was read.
    fn visit(
        &self,
        py: Python<'_>,
        env: &Env,
        steps: &[Step],
        registers: &mut Registers,
        local_names: &[String],
        reasons: &mut Vec<String>,
    ) {
        for step in steps {
            match step {
                Step::Copy { from, to } => registers.values[*to as usize] = registers.raw(*from as usize),
                Step::Read(step) => {
                    let base = registers.raw(step.base as usize);
                    // SAFETY: attached; registers own what was read.
                    unsafe {
                        let value = read(step.read, env, base, &mut registers.owned);
                        registers.values[step.register as usize] = value;
                        registers.own(value);
                        let base_is_there = step.base == NONE || !base.is_null();
                        if value.is_null() && !step.may_miss && base_is_there {
                            let place = self.place(step.guard);
                            let source = self.source_of(step.register, local_names);
                            reasons.push(format!("{source}: it is not there{place}"));
                        }
                    }
                }
                Step::Section(index) => {
                    let section = &self.sections[*index as usize];
                    self.visit(py, env, &section.steps, registers, local_names, reasons);
                }
                Step::Tensors { start, end } => {
                    for (register, guard) in self.checks.tensors.iter().flat_map(|table| table.rows(*start..*end)) {
                        self.explain_guard(py, register, guard, registers, local_names, reasons);
                    }
                }
                Step::Check { register, guard } => {
                    self.explain_guard(py, *register, *guard, registers, local_names, reasons)
                }
            }
        }
    }

    fn explain_guard(
        &self,
        py: Python<'_>,
        register: u32,
        index: u32,
        registers: &Registers,
        local_names: &[String],
        reasons: &mut Vec<String>,
    ) {
        let guard = &self.checks.guards[index as usize];
        let needs_value = !matches!(guard.kind, GuardKind::Missing);
        let absent =
            |source| self.registers.get(source).is_none_or(|&register| registers.raw(register as usize).is_null());
        // A missing value was reported where it was read.
        if needs_value && guard.sources().any(absent) {
            return;
        }
        // SAFETY: attached; registers own what was read.
        if unsafe { self.checks.holds(index, register, &registers.values) } {
            return;
        }
        let value = if register == NONE { ptr::null_mut() } else { registers.raw(register as usize) };
        // SAFETY: owned by the registers.
        let value = unsafe { Bound::from_borrowed_ptr_or_opt(py, value) };
        let check = &self.checks.checks[index as usize];
        let mut found = guard.kind.difference(py, check, value.as_ref(), &registers.values);
        if found.is_empty() {
            found.push("its guard failed".to_owned());
        }
        let place = self.place(index);
        for sentence in found {
            reasons.push(match &guard.kind {
                GuardKind::GlobalState(_) | GuardKind::NoOverlap(_) | GuardKind::AllDistinct(_) => {
                    format!("{sentence}{place}")
                }
                GuardKind::Tensor(_) if !sentence.starts_with("type") && !sentence.starts_with("expected") => {
                    format!("{}.{sentence}{place}", guard.source.describe(local_names))
                }
                _ => format!("{}: {sentence}{place}", guard.source.describe(local_names)),
            });
        }
    }

    fn place(&self, guard: u32) -> String {
        match self.checks.guards.get(guard as usize).and_then(|guard| guard.user_line.as_ref()) {
            Some((file, line)) => format!("  ({file}:{line})"),
            None => String::new(),
        }
    }

    fn source_of(&self, register: u32, local_names: &[String]) -> String {
        let source = self.registers.iter().find(|(_, found)| **found == register).map(|(source, _)| source);
        source.map_or_else(|| "a value".to_owned(), |source| source.describe(local_names))
    }
}

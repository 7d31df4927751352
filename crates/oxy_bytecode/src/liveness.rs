//! Live locals: which `localsplus` slots an instruction or what follows it may read.
//!
//! Conservative about exceptions: at an instruction that may raise inside a region, everything its handler
//! reads is live, with the values from before the instruction. What looks at a frame from outside (`locals()`,
//! `sys._getframe().f_locals`, a debugger, a traceback) is not seen here; a caller that must serve it treats
//! every slot as live.

use crate::{
    cfg::Successors,
    code_unit::CodeUnit,
    isa::Instr,
    operand::{InstrId, Var},
};

/// One set of slots per instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveSets {
    words_per_set: usize,
    words: Vec<u64>,
}

impl LiveSets {
    /// Whether a slot is in the set of an instruction.
    pub fn contains(&self, id: InstrId, var: Var) -> bool {
        let word = var.index() / 64;
        word < self.words_per_set && self.set(id).get(word).is_some_and(|bits| bits >> (var.0 % 64) & 1 != 0)
    }

    fn set(&self, id: InstrId) -> &[u64] {
        let start = id.index().saturating_mul(self.words_per_set);
        self.words.get(start..start.saturating_add(self.words_per_set)).unwrap_or(&[])
    }

    /// Computes the slots live before every instruction.
    pub fn of(unit: &CodeUnit) -> LiveSets {
        let words_per_set = unit.local_kinds.len().div_ceil(64);
        let mut sets = LiveSets { words_per_set, words: vec![0; words_per_set * unit.instrs.len()] };
        let mut live = vec![0u64; words_per_set];
        // Sets only grow, so this ends; backwards over the code, most functions need two or three rounds.
        loop {
            let mut changed = false;
            for (id, placed) in unit.iter().rev() {
                live.fill(0);
                let next = Successors::of(unit, id);
                for target in [next.fall_through, next.taken].into_iter().flatten() {
                    union(&mut live, sets.set(target));
                }
                transfer(unit, &placed.instr, &mut live);
                if let Some(handler) = next.handler {
                    union(&mut live, sets.set(handler));
                }
                let start = id.index() * words_per_set;
                let set = &mut sets.words[start..start + words_per_set];
                changed |= set != live.as_slice();
                set.copy_from_slice(&live);
            }
            if !changed {
                return sets;
            }
        }
    }
}

fn union(into: &mut [u64], from: &[u64]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a |= b;
    }
}

fn insert(set: &mut [u64], var: Var) {
    if let Some(word) = set.get_mut(var.index() / 64) {
        *word |= 1 << (var.0 % 64);
    }
}

fn remove(set: &mut [u64], var: Var) {
    if let Some(word) = set.get_mut(var.index() / 64) {
        *word &= !(1 << (var.0 % 64));
    }
}

/// From the slots live after an instruction to those live before it, exceptions aside.
fn transfer(unit: &CodeUnit, instr: &Instr, live: &mut [u64]) {
    match *instr {
        Instr::StoreFast { var } => remove(live, var),
        Instr::CopyFreeVars { .. } => unit.free_vars().for_each(|var| remove(live, var)),
        _ => {
            // The rest read the slot they name: a value, or the cell itself.
            if let Some(var) = crate::decode::variable_of(instr) {
                insert(live, var);
            }
        }
    }
}

//! What is known about a code unit before running it: stack depths, live locals, reachability, loop headers.

use crate::{
    cfg,
    code_unit::CodeUnit,
    liveness::LiveSets,
    operand::{InstrId, Var},
};

/// Why a unit's stack discipline doesn't hold. No compiler of CPython's makes such code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisError {
    /// Two ways to an instruction disagree about the stack.
    #[error("{at}: stack depth {} on one path, {} from {from}", depths.0, depths.1)]
    InconsistentDepth {
        /// Where the paths meet.
        at: InstrId,
        /// Where the second came from.
        from: InstrId,
        /// The depths.
        depths: (u32, u32),
    },
    /// An instruction pops more than there is.
    #[error("{at}: pops {pops} of {depth} values")]
    StackUnderflow {
        /// Where.
        at: InstrId,
        /// The depth there.
        depth: u32,
        /// What it pops.
        pops: u32,
    },
    /// More values than the interpreter allocates room for.
    #[error("{at}: stack depth {depth} exceeds {stacksize}")]
    StackOverflow {
        /// Where.
        at: InstrId,
        /// The depth there.
        depth: u32,
        /// What the code object declares.
        stacksize: u32,
    },
    /// An exception here would have to keep more values than there are.
    #[error("{at}: stack depth {depth}, but its handler keeps {needed}")]
    ShallowRegion {
        /// Where.
        at: InstrId,
        /// The depth there.
        depth: u32,
        /// What the region keeps.
        needed: u32,
    },
    /// Execution would run past the last instruction.
    #[error("{at}: runs off the end")]
    RunsOffEnd {
        /// The instruction before the end (or the start, of empty code).
        at: InstrId,
    },
}

/// The facts about one code unit, by instruction.
#[derive(Clone, Debug)]
pub struct Analysis {
    depths: Vec<Option<u32>>,
    live: LiveSets,
    loop_headers: Vec<bool>,
}

impl Analysis {
    /// Analyses a unit.
    pub fn of(unit: &CodeUnit) -> Result<Analysis, AnalysisError> {
        Ok(Analysis {
            depths: cfg::stack_depths(unit)?,
            live: LiveSets::of(unit),
            loop_headers: cfg::loop_headers(unit),
        })
    }

    /// The value stack's depth before an instruction; `None` if it can't be reached.
    pub fn depth(&self, id: InstrId) -> Option<u32> {
        self.depths.get(id.index()).copied().flatten()
    }

    /// Whether anything leads to an instruction.
    pub fn is_reachable(&self, id: InstrId) -> bool {
        self.depth(id).is_some()
    }

    /// Whether the slot's value before an instruction may still be read, by it or later.
    pub fn is_live(&self, id: InstrId, var: Var) -> bool {
        self.live.contains(id, var)
    }

    /// The slots of `unit` live before an instruction, in order.
    pub fn live_vars<'a>(&'a self, unit: &CodeUnit, id: InstrId) -> impl Iterator<Item = Var> + use<'a> {
        (0..unit.nlocalsplus()).map(Var).filter(move |&var| self.is_live(id, var))
    }

    /// Whether an instruction is the head of a loop.
    pub fn is_loop_header(&self, id: InstrId) -> bool {
        self.loop_headers.get(id.index()).copied().unwrap_or(false)
    }

    /// The greatest depth at any point where the interpreter can be entered.
    pub fn max_depth(&self, unit: &CodeUnit) -> u32 {
        let entries = unit.instrs.iter().zip(&self.depths).filter(|(placed, _)| placed.enterable);
        entries.filter_map(|(_, depth)| *depth).max().unwrap_or(0)
    }
}

//! Control flow: successors, stack depth at every reachable instruction, loop headers.
//!
//! Exceptions are edges: every instruction that may raise inside a region leads to the region's handler.
//! Code that nothing leads to has no depth; CPython leaves some, such as the `end_for` that only an inlined
//! generator reaches.

use crate::{analysis::AnalysisError, code_unit::CodeUnit, isa::StackEffect, operand::InstrId};

/// The places execution can continue after an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Successors {
    /// The next instruction.
    pub fall_through: Option<InstrId>,
    /// The jump target.
    pub taken: Option<InstrId>,
    /// The handler of an exception raised here.
    pub handler: Option<InstrId>,
}

impl Successors {
    /// Of one instruction. The fall-through of the last instruction is past the end of `instrs`.
    pub fn of(unit: &CodeUnit, id: InstrId) -> Successors {
        let Some(placed) = unit.get(id) else {
            return Successors::default();
        };
        Successors {
            fall_through: placed.instr.falls_through().then(|| InstrId(id.0.saturating_add(1))),
            taken: placed.instr.target(),
            handler: unit.region_of(id).filter(|_| placed.instr.may_raise()).map(|region| region.target),
        }
    }
}

/// The stack depth before every reachable instruction.
pub(crate) fn stack_depths(unit: &CodeUnit) -> Result<Vec<Option<u32>>, AnalysisError> {
    let mut walk = DepthWalk { unit, depths: vec![None; unit.instrs.len()], work: Vec::new() };
    walk.arrive(InstrId(0), InstrId(0), 0)?;
    while let Some(id) = walk.work.pop() {
        walk.leave(id)?;
    }
    Ok(walk.depths)
}

struct DepthWalk<'a> {
    unit: &'a CodeUnit,
    depths: Vec<Option<u32>>,
    work: Vec<InstrId>,
}

impl DepthWalk<'_> {
    /// Propagates an instruction's depth to its successors.
    fn leave(&mut self, id: InstrId) -> Result<(), AnalysisError> {
        let (Some(placed), Some(&Some(depth))) = (self.unit.get(id), self.depths.get(id.index())) else {
            return Ok(());
        };
        let next = Successors::of(self.unit, id);
        let after = apply(id, depth, placed.instr.stack_effect())?;
        if let Some(target) = next.fall_through {
            self.arrive(id, target, after)?;
        }
        if let (Some(target), Some(effect)) = (next.taken, placed.instr.taken_effect()) {
            self.arrive(id, target, apply(id, depth, effect)?)?;
        }
        if let (Some(target), Some(region)) = (next.handler, self.unit.region_of(id)) {
            if depth < region.depth {
                return Err(AnalysisError::ShallowRegion { at: id, depth, needed: region.depth });
            }
            self.arrive(id, target, region.handler_depth())?;
        }
        Ok(())
    }

    /// Records the depth at an instruction reached from another.
    fn arrive(&mut self, from: InstrId, id: InstrId, depth: u32) -> Result<(), AnalysisError> {
        let (Some(placed), Some(known)) = (self.unit.get(id), self.depths.get_mut(id.index())) else {
            return Err(AnalysisError::RunsOffEnd { at: from });
        };
        // Between the neutral instructions of one concrete instruction the depth may exceed what the
        // interpreter allocates: no such point exists in its own execution.
        if placed.enterable && depth > self.unit.stacksize {
            return Err(AnalysisError::StackOverflow { at: id, depth, stacksize: self.unit.stacksize });
        }
        match *known {
            None => {
                *known = Some(depth);
                self.work.push(id);
                Ok(())
            }
            Some(depth_before) if depth_before == depth => Ok(()),
            Some(depth_before) => Err(AnalysisError::InconsistentDepth { at: id, from, depths: (depth_before, depth) }),
        }
    }
}

fn apply(id: InstrId, depth: u32, effect: StackEffect) -> Result<u32, AnalysisError> {
    depth
        .checked_sub(effect.pops)
        .and_then(|rest| rest.checked_add(effect.pushes))
        .ok_or(AnalysisError::StackUnderflow { at: id, depth, pops: effect.pops })
}

/// The heads of loops: targets of edges that go back to an instruction still being explored depth-first.
///
/// A backward jump alone is no loop: compilers move rarely run blocks to the end and jump back from them.
pub(crate) fn loop_headers(unit: &CodeUnit) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; unit.instrs.len()];
    let mut headers = vec![false; unit.instrs.len()];
    // Each entry is an open instruction and the successors not yet followed.
    let mut path: Vec<(InstrId, [Option<InstrId>; 3])> = Vec::new();
    let mut entering = (!unit.instrs.is_empty()).then_some(InstrId(0));
    loop {
        if let Some(id) = entering.take() {
            let next = Successors::of(unit, id);
            path.push((id, [next.handler, next.taken, next.fall_through]));
            state[id.index()] = State::Open;
        }
        let Some((id, pending)) = path.last_mut() else {
            return headers;
        };
        match pending.iter_mut().rev().find_map(Option::take) {
            Some(target) => match state.get(target.index()) {
                Some(State::New) => entering = Some(target),
                Some(State::Open) => headers[target.index()] = true,
                Some(State::Done) | None => {}
            },
            None => {
                state[id.index()] = State::Done;
                path.pop();
            }
        }
    }
}

//! Memory planning: where each allocation lives, and when storage is freed.
//!
//! Storage that is returned, or isn't on the CPU, gets memory of its own (`Fresh`). All other allocations share one
//! arena: first fit by address among the ranges that are free at that step. Operators that can write into a given
//! tensor get one from here too. Runs once per plan.

use crate::spec::{Mode, Place, PlanSpec, PlanStep, SlotId};
use oxy_graph::{DeviceType, TensorMeta};
use oxy_torch::shims;

/// Arena addresses are multiples of this: a cache line, and the widest vector.
const ALIGN: u64 = 64;

/// Bytes from a tensor's first to after its last element.
pub fn extent_bytes(meta: &TensorMeta) -> u64 {
    if meta.sizes.contains(&0) {
        return 0;
    }
    let last: i64 = meta.sizes.iter().zip(&meta.strides).map(|(size, stride)| (size - 1) * stride).sum();
    (last.max(0) as u64 + 1) * meta.dtype.itemsize() as u64
}

impl PlanSpec {
    /// Decides every `Undecided` place, inserts `Free` steps and sets `arena_bytes`. The steps hold no `Free` yet.
    pub fn plan_memory(&mut self) {
        if self.mode == Mode::Inference {
            self.give_results_memory();
        }
        let last_use = self.last_uses();
        let kept = self.shown_to_custom_operators();
        let mut arena = Arena::default();
        let mut steps = Vec::with_capacity(self.steps.len() * 2);
        for (i, mut step) in std::mem::take(&mut self.steps).into_iter().enumerate() {
            if let PlanStep::Alloc { slot, place } = &mut step
                && *place == Place::Undecided
            {
                *place = match kept[slot.0 as usize] {
                    true => Place::Fresh,
                    false => self.place(*slot, last_use[slot.0 as usize], &mut arena),
                };
            }
            steps.push(step);
            for (slot, last) in last_use.iter().enumerate() {
                if *last == Last::Step(i) {
                    arena.release(SlotId(slot as u32));
                    steps.push(PlanStep::Free { slot: SlotId(slot as u32) });
                }
            }
        }
        self.steps = steps;
        self.arena_bytes = arena.peak;
    }

    fn place(&self, slot: SlotId, last: Last, arena: &mut Arena) -> Place {
        let Some(meta) = self.meta(slot) else { return Place::Fresh };
        if last == Last::Never || meta.device.kind != DeviceType::Cpu {
            return Place::Fresh;
        }
        Place::Arena { offset: arena.take(slot, extent_bytes(meta).next_multiple_of(ALIGN)) }
    }

    /// Storage that custom operators see. Unlike ATen's, their code may keep a tensor for later, so it can't be in
    /// memory that the next run overwrites.
    fn shown_to_custom_operators(&self) -> Vec<bool> {
        let mut kept = vec![false; self.slots.len()];
        for step in &self.steps {
            if matches!(step, PlanStep::Call { target, .. } if !target.starts_with("aten.")) {
                step.for_each_slot(|slot| {
                    if let Some(entry) = kept.get_mut(self.root(slot).0 as usize) {
                        *entry = true;
                    }
                });
            }
        }
        kept
    }

    /// Gives calls that can write into a tensor one to write into.
    fn give_results_memory(&mut self) {
        let mut steps = Vec::with_capacity(self.steps.len());
        for mut step in std::mem::take(&mut self.steps) {
            if let PlanStep::Call { target, outs, into, .. } = &mut step
                && let ([Some(out)], true) = (outs.as_slice(), shims::takes_out(target))
            {
                let on_cpu = self.meta(*out).is_some_and(|meta| meta.device.kind == DeviceType::Cpu);
                if on_cpu && self.root(*out) == *out && !*into {
                    steps.push(PlanStep::Alloc { slot: *out, place: Place::Undecided });
                    *into = true;
                }
            }
            steps.push(step);
        }
        self.steps = steps;
    }

    /// For each slot that owns storage, the last step that touches the storage.
    fn last_uses(&self) -> Vec<Last> {
        let mut last = vec![Last::Unused; self.slots.len()];
        for (i, step) in self.steps.iter().enumerate() {
            step.for_each_slot(|slot| {
                if let Some(entry) = last.get_mut(self.root(slot).0 as usize) {
                    *entry = Last::Step(i);
                }
            });
        }
        for slot in self.outputs.iter().chain(&self.inputs).chain(&self.constants) {
            if let Some(entry) = last.get_mut(self.root(*slot).0 as usize) {
                *entry = Last::Never;
            }
        }
        last
    }
}

/// When storage is freed.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Unused,
    /// After this step.
    Step(usize),
    /// Not by the plan: it is returned, or belongs to someone else.
    Never,
}

/// Ranges of the arena in use.
#[derive(Default)]
struct Arena {
    /// (offset, bytes, owner), by offset.
    // Invariant: sorted and disjoint.
    taken: Vec<(u64, u64, SlotId)>,
    peak: u64,
}

impl Arena {
    fn take(&mut self, slot: SlotId, bytes: u64) -> u64 {
        let mut offset = 0;
        let mut at = self.taken.len();
        for (i, (start, length, _)) in self.taken.iter().enumerate() {
            if offset + bytes <= *start {
                at = i;
                break;
            }
            offset = start + length;
        }
        self.taken.insert(at, (offset, bytes, slot));
        self.peak = self.peak.max(offset + bytes);
        offset
    }

    fn release(&mut self, slot: SlotId) {
        self.taken.retain(|(_, _, owner)| *owner != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxy_graph::DType;

    fn spec(n: usize) -> PlanSpec {
        PlanSpec {
            slots: vec![TensorMeta::contiguous(DType::F32, &[16]); n],
            storage: (0..n as u32).map(SlotId).collect(),
            ..PlanSpec::default()
        }
    }

    fn alloc(slot: u32) -> PlanStep {
        PlanStep::Alloc { slot: SlotId(slot), place: Place::Undecided }
    }

    fn launch(args: &[u32]) -> PlanStep {
        let args = args.iter().map(|slot| SlotId(*slot)).collect();
        PlanStep::Launch { kernel: crate::KernelId(0), args, range: 1, grain: 1 }
    }

    #[test]
    fn dead_memory_is_reused_and_results_are_fresh() {
        // 0 -> 1 -> 2 -> 3, all kernels; 1 is dead when 3 is made, but 3 is returned.
        let mut plan = spec(5);
        plan.inputs = vec![SlotId(0)];
        plan.outputs = vec![SlotId(4)];
        plan.steps = vec![
            alloc(1),
            launch(&[0, 1]),
            alloc(2),
            launch(&[1, 2]),
            alloc(3),
            launch(&[2, 3]),
            alloc(4),
            launch(&[3, 4]),
        ];
        plan.plan_memory();
        assert_eq!(
            plan.to_string(),
            "plan(%0: f32[16]) arena 128 {\n  %1: f32[16] = alloc arena+0\n  launch k0 ?(%0, %1) range 1 grain 1\n  \
             %2: f32[16] = alloc arena+64\n  launch k0 ?(%1, %2) range 1 grain 1\n  free %1\n  \
             %3: f32[16] = alloc arena+0\n  launch k0 ?(%2, %3) range 1 grain 1\n  free %2\n  \
             %4: f32[16] = alloc fresh\n  launch k0 ?(%3, %4) range 1 grain 1\n  free %3\n  return (%4)\n}\n"
        );
    }

    #[test]
    fn views_keep_storage_alive() {
        let mut plan = spec(4);
        plan.inputs = vec![SlotId(0)];
        plan.storage[2] = SlotId(1);
        plan.steps = vec![
            alloc(1),
            launch(&[0, 1]),
            PlanStep::View { slot: SlotId(2), of: SlotId(1), offset: 0 },
            alloc(3),
            launch(&[2, 3]),
        ];
        plan.outputs = vec![SlotId(3)];
        plan.plan_memory();
        assert_eq!(plan.steps.last(), Some(&PlanStep::Free { slot: SlotId(1) }));
        plan.outputs = vec![SlotId(2)];
        plan.steps.retain(|step| !matches!(step, PlanStep::Free { .. }));
        plan.steps[0] = alloc(1);
        plan.plan_memory();
        assert_eq!(plan.steps[0], PlanStep::Alloc { slot: SlotId(1), place: Place::Fresh });
    }

    #[test]
    fn products_are_written_in_place() {
        let mut plan = spec(3);
        plan.inputs = vec![SlotId(0), SlotId(1)];
        plan.outputs = vec![SlotId(2)];
        let args = vec![PlanArg::Tensor(SlotId(0)), PlanArg::Tensor(SlotId(1))];
        let outs = vec![Some(SlotId(2))];
        plan.steps = vec![PlanStep::Call { target: "aten.mm.default".into(), args, kwargs: vec![], outs, into: false }];
        plan.plan_memory();
        assert!(matches!(
            &plan.steps[..],
            [PlanStep::Alloc { place: Place::Fresh, .. }, PlanStep::Call { into: true, .. }]
        ));
    }

    use crate::spec::PlanArg;

    #[test]
    fn extents() {
        let mut meta = TensorMeta::contiguous(DType::F32, &[2, 3]);
        assert_eq!(extent_bytes(&meta), 24);
        meta.strides = [1, 2].as_slice().into();
        assert_eq!(extent_bytes(&meta), 24);
        meta.strides = [0, 0].as_slice().into();
        assert_eq!(extent_bytes(&meta), 4);
        assert_eq!(extent_bytes(&TensorMeta::contiguous(DType::F32, &[0, 3])), 0);
        assert_eq!(extent_bytes(&TensorMeta::contiguous(DType::F64, &[])), 8);
    }
}

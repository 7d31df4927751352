//! From the plan as data to instructions: what each slot needs at run time, and everything that is the same in each run.
//!
//! A slot needs a pointer if a kernel uses it, and a tensor if a call uses it or it is returned. Slots in the arena
//! have both fixed while the arena stays where it is; the rest is found in each run.

use crate::{
    blocks::BlockCache,
    bounds,
    launch::{Kernel, Workspace},
    memory_plan::extent_bytes,
    spec::{Mode, Place, PlanArg, PlanSpec, PlanStep, SlotId},
};
use oxy_graph::{DeviceType, TensorMeta};
use oxy_torch::{CallSite, Error, Results, Schema, Tensor, TensorRef, Torch, Value};
use parking_lot::Mutex;
use std::{any::Any, sync::Arc};

/// An argument of a call made through the host.
pub type HostArg<'a> = Value<TensorRef<'a>>;

/// The host's own exception, to be raised by the host.
pub type HostError = Box<dyn Any + Send>;

/// Makes the calls that torch's C ABI can't express, and repeats failed ones so that the genuine exception is raised.
pub trait Host {
    /// Calls an ATen operator. Tensor results in order, lists spliced in; `None` for a result that is no tensor.
    fn call_operator(
        &self,
        target: &str,
        args: &[HostArg<'_>],
        kwargs: &[(String, HostArg<'_>)],
    ) -> Result<Results, HostError>;
}

/// Why a plan can't be built. Always a bug of ours; the caller runs eagerly.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("malformed plan: {0}")]
    Malformed(String),
    #[error(transparent)]
    Torch(#[from] Error),
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A call through the host failed: the user's exception.
    #[error("an operator raised an exception")]
    Host(HostError),
    #[error(transparent)]
    Torch(#[from] Error),
    /// A bug of ours, or inputs that the plan wasn't made for.
    #[error("{0}")]
    Internal(String),
}

/// What a plan is built from besides its spec.
pub struct Resources<'a> {
    pub torch: &'static Torch,
    /// One for each kernel of the spec.
    pub kernels: Vec<Kernel>,
    /// One for each constant of the spec.
    pub constants: Vec<Tensor>,
    /// The schema of an operator, as torch prints it. None: call it through the host.
    pub schema: &'a dyn Fn(&str) -> Option<String>,
    pub memory: Arc<BlockCache>,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Instr {
    /// Reads the data pointer of a slot's tensor.
    Pointer { slot: u32 },
    /// Makes the tensor of `fresh[index]`.
    Fresh { slot: u32, index: u32 },
    /// Arguments are `launch_args[first..first + count]`.
    Launch { kernel: u32, first: u32, count: u32, range: i64, grain: i64 },
    /// `calls[index]`.
    Call { index: u32 },
    /// Makes a tensor over another's storage: `views[index]`.
    View { slot: u32, of: u32, index: u32 },
    /// A pointer so many bytes after another.
    ViewPointer { slot: u32, of: u32, bytes: i64 },
    /// A kernel wrote this input.
    Bump { slot: u32 },
    /// Drops the slot's tensor.
    Free { slot: u32 },
}

pub(crate) struct Fresh {
    pub meta: TensorMeta,
    pub bytes: u64,
}

/// A tensor over another's storage.
pub(crate) struct View {
    pub meta: TensorMeta,
    pub offset: i64,
    pub changes_dtype: bool,
}

/// A slot in the arena, or a view of one, made when the arena is placed.
pub(crate) struct Static {
    pub slot: u32,
    /// Bytes from the arena's start.
    pub offset: u64,
    pub meta: TensorMeta,
    pub needs_tensor: bool,
}

pub(crate) struct Call {
    /// None: through the host only.
    pub site: Option<CallSite>,
    pub target: String,
    pub args: Vec<PlanArg>,
    pub kwargs: Vec<(String, PlanArg)>,
    /// The slot that the call writes its result into; then there is one out, and it is dropped.
    pub into: Option<u32>,
    pub outs: Vec<CallOut>,
}

pub(crate) enum CallOut {
    /// Not used, or the same as an argument.
    Drop,
    New {
        slot: u32,
        needs_pointer: bool,
        /// Later steps rely on the metadata.
        expected: Option<TensorMeta>,
        /// An argument lives in the arena, and the result might be a view of it that the plan doesn't know of.
        may_alias_arena: bool,
    },
}

pub(crate) enum Output {
    /// The run's own tensor, handed over.
    Take { slot: u32 },
    /// Another handle on a slot's tensor.
    Share { slot: u32 },
    /// A view, in autograd's sense, of an input or of another output.
    View { of: u32, index: u32 },
}

/// A plan that is ready to run.
pub struct Plan {
    pub(crate) torch: &'static Torch,
    pub(crate) n_slots: usize,
    /// Slot and expected metadata of each input, then of each constant.
    pub(crate) inputs: Vec<(u32, TensorMeta)>,
    pub(crate) n_inputs: usize,
    pub(crate) constants: Vec<Tensor>,
    pub(crate) instrs: Box<[Instr]>,
    pub(crate) launch_args: Box<[u32]>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) calls: Vec<Call>,
    pub(crate) fresh: Vec<Fresh>,
    pub(crate) views: Vec<View>,
    pub(crate) statics: Vec<Static>,
    pub(crate) outputs: Vec<Output>,
    /// Slots whose tensors are dropped once the outputs are made.
    pub(crate) left_over: Vec<u32>,
    pub(crate) arena_bytes: u64,
    pub(crate) memory: Arc<BlockCache>,
    /// Idle workspaces. A run takes one, so runs don't share any.
    pub(crate) workspaces: Mutex<Vec<Workspace>>,
    spec: PlanSpec,
}

impl Plan {
    /// Resolves a spec whose memory is planned.
    pub fn new(spec: PlanSpec, resources: Resources<'_>) -> Result<Plan, BuildError> {
        let needs = Needs::of(&spec)?;
        let mut builder = Builder { spec: &spec, resources: &resources, needs, parts: Parts::default() };
        builder.build()?;
        let parts = builder.parts;
        let bound = |slot: &SlotId| (slot.0, spec.slots[slot.0 as usize].clone());
        Ok(Plan {
            torch: resources.torch,
            n_slots: spec.slots.len(),
            inputs: spec.inputs.iter().chain(&spec.constants).map(bound).collect(),
            n_inputs: spec.inputs.len(),
            constants: resources.constants,
            instrs: parts.instrs.into(),
            launch_args: parts.launch_args.into(),
            kernels: resources.kernels,
            calls: parts.calls,
            fresh: parts.fresh,
            views: parts.views,
            statics: parts.statics,
            outputs: parts.outputs,
            left_over: parts.left_over,
            arena_bytes: spec.arena_bytes,
            memory: resources.memory,
            workspaces: Mutex::new(Vec::new()),
            spec,
        })
    }

    /// The plan as data.
    pub fn spec(&self) -> &PlanSpec {
        &self.spec
    }

    /// Operators that go through the host, for reports.
    pub fn host_calls(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().filter(|call| call.site.is_none()).map(|call| call.target.as_str())
    }

    /// Bytes that the kernels' and calls' results take: a measure of how long a run is. Callers that hold a global
    /// lock may want to let it go for plans above a few hundred KiB.
    pub fn work_bytes(&self) -> u64 {
        self.spec.slots.iter().map(extent_bytes).sum()
    }

    /// Drops idle workspaces and the memory they keep.
    pub fn release_memory(&self) {
        self.workspaces.lock().clear();
    }
}

/// What each slot needs at run time.
struct Needs {
    pointer: Vec<bool>,
    tensor: Vec<bool>,
    /// Where the slot is defined.
    origin: Vec<Origin>,
}

#[derive(Clone, Copy, PartialEq)]
enum Origin {
    Undefined,
    /// Input or constant.
    Bound,
    Arena {
        offset: u64,
    },
    Fresh,
    /// A result that the operator allocates.
    Result,
    View {
        of: SlotId,
        offset: i64,
    },
}

fn malformed(text: impl Into<String>) -> BuildError {
    BuildError::Malformed(text.into())
}

impl Needs {
    fn of(spec: &PlanSpec) -> Result<Needs, BuildError> {
        let n = spec.slots.len();
        if spec.storage.len() != n {
            return Err(malformed("storage is not given for every slot"));
        }
        let mut needs = Needs { pointer: vec![false; n], tensor: vec![false; n], origin: vec![Origin::Undefined; n] };
        let check =
            |slot: SlotId| if (slot.0 as usize) < n { Ok(slot.0 as usize) } else { Err(malformed("unknown slot")) };
        for slot in spec.inputs.iter().chain(&spec.constants) {
            needs.origin[check(*slot)?] = Origin::Bound;
        }
        for step in &spec.steps {
            let mut unknown = false;
            step.for_each_slot(|slot| unknown |= check(slot).is_err());
            if unknown {
                return Err(malformed("unknown slot"));
            }
            needs.define(step)?;
        }
        for slot in &spec.outputs {
            if needs.origin[check(*slot)?] == Origin::Undefined {
                return Err(malformed(format!("output %{} is not defined", slot.0)));
            }
            needs.tensor[slot.0 as usize] = true;
        }
        for step in spec.steps.iter().rev() {
            needs.require(step);
        }
        Ok(needs)
    }

    fn define(&mut self, step: &PlanStep) -> Result<(), BuildError> {
        let mut undefined = None;
        let mut check = |origin: &[Origin], slot: SlotId| {
            if origin[slot.0 as usize] == Origin::Undefined {
                undefined.get_or_insert(slot);
            }
        };
        match step {
            PlanStep::Alloc { slot, place } => {
                self.origin[slot.0 as usize] = match place {
                    Place::Undecided => return Err(malformed("memory is not planned")),
                    Place::Arena { offset } => Origin::Arena { offset: *offset },
                    Place::Fresh => Origin::Fresh,
                }
            }
            PlanStep::Launch { args, .. } => args.iter().for_each(|slot| check(&self.origin, *slot)),
            PlanStep::Call { args, kwargs, outs, into, .. } => {
                let all = args.iter().chain(kwargs.iter().map(|(_, arg)| arg));
                all.for_each(|arg| arg.for_each_tensor(&mut |slot| check(&self.origin, *slot)));
                for slot in outs.iter().flatten() {
                    let origin = &mut self.origin[slot.0 as usize];
                    if *into && !matches!(origin, Origin::Arena { .. } | Origin::Fresh) {
                        return Err(malformed(format!("%{} is written into but not allocated", slot.0)));
                    }
                    if *origin == Origin::Undefined {
                        *origin = Origin::Result; // else it repeats an argument
                    }
                }
            }
            PlanStep::View { slot, of, offset } => {
                check(&self.origin, *of);
                self.origin[slot.0 as usize] = Origin::View { of: *of, offset: *offset };
            }
            PlanStep::Free { .. } => {}
        }
        match undefined {
            Some(slot) => Err(malformed(format!("%{} is used before it is defined", slot.0))),
            None => Ok(()),
        }
    }

    fn require(&mut self, step: &PlanStep) {
        match step {
            PlanStep::Launch { args, .. } => args.iter().for_each(|slot| self.pointer[slot.0 as usize] = true),
            PlanStep::Call { args, kwargs, outs, into, .. } => {
                let all = args.iter().chain(kwargs.iter().map(|(_, arg)| arg));
                all.for_each(|arg| arg.for_each_tensor(&mut |slot| self.tensor[slot.0 as usize] = true));
                if *into {
                    outs.iter().flatten().for_each(|slot| self.tensor[slot.0 as usize] = true);
                }
            }
            PlanStep::View { slot, of, .. } => {
                self.tensor[of.0 as usize] |= self.tensor[slot.0 as usize];
                self.pointer[of.0 as usize] |= self.pointer[slot.0 as usize];
            }
            PlanStep::Alloc { .. } | PlanStep::Free { .. } => {}
        }
    }

    /// Bytes from the arena's start, for slots in it.
    fn arena_offset(&self, spec: &PlanSpec, slot: SlotId) -> Option<u64> {
        match self.origin[slot.0 as usize] {
            Origin::Arena { offset } => Some(offset),
            Origin::View { of, offset } => {
                let base = self.arena_offset(spec, of)?;
                base.checked_add_signed(offset * spec.slots[of.0 as usize].dtype.itemsize() as i64)
            }
            Origin::Undefined | Origin::Bound | Origin::Fresh | Origin::Result => None,
        }
    }
}

#[derive(Default)]
struct Parts {
    instrs: Vec<Instr>,
    launch_args: Vec<u32>,
    calls: Vec<Call>,
    fresh: Vec<Fresh>,
    views: Vec<View>,
    statics: Vec<Static>,
    outputs: Vec<Output>,
    left_over: Vec<u32>,
}

struct Builder<'a> {
    spec: &'a PlanSpec,
    resources: &'a Resources<'a>,
    needs: Needs,
    parts: Parts,
}

impl Builder<'_> {
    fn build(&mut self) -> Result<(), BuildError> {
        let spec = self.spec;
        if self.resources.kernels.len() != spec.kernels.len() {
            return Err(malformed("a kernel for each of the plan's kernels is needed"));
        }
        if self.resources.constants.len() != spec.constants.len() {
            return Err(malformed("a tensor for each of the plan's constants is needed"));
        }
        for slot in spec.inputs.iter().chain(&spec.constants) {
            self.pointer(*slot);
        }
        for step in &spec.steps {
            self.step(step)?;
        }
        for (i, slot) in spec.outputs.iter().enumerate() {
            self.output(i, *slot)?;
        }
        self.parts.left_over = (0..spec.slots.len() as u32).filter(|slot| self.is_left_over(*slot)).collect();
        Ok(())
    }

    /// The run makes a tensor for the slot, and neither frees it nor hands it over.
    fn is_left_over(&self, slot: u32) -> bool {
        let freed = self.parts.instrs.contains(&Instr::Free { slot });
        let taken = self.parts.outputs.iter().any(|output| matches!(output, Output::Take { slot: s } if *s == slot));
        self.owns_tensor(SlotId(slot)) && !freed && !taken
    }

    /// Whether the run makes a tensor for the slot.
    fn owns_tensor(&self, slot: SlotId) -> bool {
        match self.needs.origin[slot.0 as usize] {
            Origin::Fresh | Origin::Result => true,
            Origin::View { .. } => {
                self.needs.tensor[slot.0 as usize] && self.needs.arena_offset(self.spec, slot).is_none()
            }
            Origin::Undefined | Origin::Bound | Origin::Arena { .. } => false,
        }
    }

    fn meta(&self, slot: SlotId) -> &TensorMeta {
        &self.spec.slots[slot.0 as usize]
    }

    fn pointer(&mut self, slot: SlotId) {
        if self.needs.pointer[slot.0 as usize] {
            self.parts.instrs.push(Instr::Pointer { slot: slot.0 });
        }
    }

    fn step(&mut self, step: &PlanStep) -> Result<(), BuildError> {
        if self.spec.mode == Mode::Autograd
            && !matches!(step, PlanStep::Call { into: false, .. } | PlanStep::Free { .. })
        {
            return Err(malformed("a plan under autograd consists of calls"));
        }
        match step {
            PlanStep::Alloc { slot, place: Place::Arena { offset } } => self.arena_slot(*slot, *offset)?,
            PlanStep::Alloc { slot, place: _ } => {
                let meta = self.meta(*slot).clone();
                let bytes = extent_bytes(&meta);
                self.parts.fresh.push(Fresh { meta, bytes });
                self.parts.instrs.push(Instr::Fresh { slot: slot.0, index: self.parts.fresh.len() as u32 - 1 });
            }
            PlanStep::Launch { kernel, args, range, grain } => self.launch(kernel.0, args, *range, *grain)?,
            PlanStep::Call { target, args, kwargs, outs, into } => self.call(target, args, kwargs, outs, *into)?,
            PlanStep::View { slot, of, offset } => self.view(*slot, *of, *offset)?,
            PlanStep::Free { slot } => self.free(*slot),
        }
        Ok(())
    }

    fn arena_slot(&mut self, slot: SlotId, offset: u64) -> Result<(), BuildError> {
        let meta = self.meta(slot).clone();
        if meta.device.kind != DeviceType::Cpu || offset + extent_bytes(&meta) > self.spec.arena_bytes {
            return Err(malformed(format!("%{} is not inside the arena", slot.0)));
        }
        let needs_tensor = self.needs.tensor[slot.0 as usize];
        self.parts.statics.push(Static { slot: slot.0, offset, meta, needs_tensor });
        Ok(())
    }

    fn launch(&mut self, kernel: u32, args: &[SlotId], range: i64, grain: i64) -> Result<(), BuildError> {
        let spec = self.spec;
        let description = spec.kernels.get(kernel as usize).ok_or_else(|| malformed("unknown kernel"))?;
        let metas: Vec<&TensorMeta> = args.iter().map(|slot| self.meta(*slot)).collect();
        if let Some(problem) = bounds::check_launch(description, &metas) {
            return Err(malformed(problem));
        }
        if metas.iter().any(|meta| meta.device.kind != DeviceType::Cpu) {
            return Err(malformed(format!("kernel {} is launched on memory of another device", description.name)));
        }
        if range < 0 || range > description.range() {
            return Err(malformed(format!("kernel {} has a range of {}", description.name, description.range())));
        }
        if range == 0 {
            return Ok(());
        }
        let first = self.parts.launch_args.len() as u32;
        self.parts.launch_args.extend(args.iter().map(|slot| slot.0));
        let count = args.len() as u32;
        self.parts.instrs.push(Instr::Launch { kernel, first, count, range, grain: grain.max(1) });
        let mut bumped = Vec::new();
        for (param, slot) in description.params.iter().zip(args) {
            let root = spec.root(*slot);
            if param.written && self.needs.origin[root.0 as usize] == Origin::Bound && !bumped.contains(&root) {
                bumped.push(root);
                self.parts.instrs.push(Instr::Bump { slot: root.0 });
            }
        }
        Ok(())
    }

    fn view(&mut self, slot: SlotId, of: SlotId, offset: i64) -> Result<(), BuildError> {
        let (meta, base) = (self.meta(slot).clone(), self.meta(of).clone());
        let itemsize = base.dtype.itemsize() as i64;
        if meta.dtype.itemsize() as i64 != itemsize {
            return Err(malformed(format!("%{} views elements of another size", slot.0)));
        }
        let (needs_pointer, needs_tensor) = (self.needs.pointer[slot.0 as usize], self.needs.tensor[slot.0 as usize]);
        if let Some(offset) = self.needs.arena_offset(self.spec, slot) {
            if offset + extent_bytes(&meta) > self.spec.arena_bytes {
                return Err(malformed(format!("%{} is not inside the arena", slot.0)));
            }
            self.parts.statics.push(Static { slot: slot.0, offset, meta, needs_tensor });
            return Ok(());
        }
        if needs_pointer {
            self.parts.instrs.push(Instr::ViewPointer { slot: slot.0, of: of.0, bytes: offset * itemsize });
        }
        if needs_tensor {
            let index = self.add_view(meta, offset, base.dtype);
            self.parts.instrs.push(Instr::View { slot: slot.0, of: of.0, index });
        }
        Ok(())
    }

    fn add_view(&mut self, meta: TensorMeta, offset: i64, base: oxy_graph::DType) -> u32 {
        let changes_dtype = meta.dtype != base;
        self.parts.views.push(View { meta, offset, changes_dtype });
        self.parts.views.len() as u32 - 1
    }

    fn call(
        &mut self,
        target: &str,
        args: &[PlanArg],
        kwargs: &[(String, PlanArg)],
        outs: &[Option<SlotId>],
        into: bool,
    ) -> Result<(), BuildError> {
        let mut arguments = Vec::new();
        let all = args.iter().chain(kwargs.iter().map(|(_, arg)| arg));
        all.for_each(|arg| arg.for_each_tensor(&mut |slot| arguments.push(*slot)));
        let into = match outs {
            _ if !into => None,
            [Some(slot)] => Some(slot.0),
            _ => return Err(malformed(format!("{target} can't write into its results"))),
        };
        let reads_arena = arguments.iter().any(|slot| self.needs.arena_offset(self.spec, *slot).is_some());
        let new = |slot: &SlotId| {
            let relied_on = self.needs.pointer[slot.0 as usize] || self.is_viewed(*slot);
            CallOut::New {
                slot: slot.0,
                needs_pointer: self.needs.pointer[slot.0 as usize],
                expected: relied_on.then(|| self.meta(*slot).clone()),
                may_alias_arena: reads_arena && self.spec.root(*slot) == *slot,
            }
        };
        let out = |out: &Option<SlotId>| match out {
            Some(slot) if into.is_none() && !arguments.contains(slot) => new(slot),
            _ => CallOut::Drop,
        };
        let call = Call {
            site: self.call_site(target, args, kwargs, into)?,
            target: target.to_owned(),
            args: args.to_vec(),
            kwargs: kwargs.to_vec(),
            into,
            outs: outs.iter().map(out).collect(),
        };
        self.parts.calls.push(call);
        self.parts.instrs.push(Instr::Call { index: self.parts.calls.len() as u32 - 1 });
        Ok(())
    }

    fn is_viewed(&self, slot: SlotId) -> bool {
        self.spec.steps.iter().any(|step| matches!(step, PlanStep::View { of, .. } if *of == slot))
    }

    /// None: the call goes through the host.
    fn call_site(
        &self,
        target: &str,
        args: &[PlanArg],
        kwargs: &[(String, PlanArg)],
        into: Option<u32>,
    ) -> Result<Option<CallSite>, BuildError> {
        let Some(schema) = (self.resources.schema)(target).and_then(|text| Schema::parse(&text).ok()) else {
            return Ok(None);
        };
        if schema.target() != target {
            return Err(malformed(format!("{target} was given the schema of {}", schema.target())));
        }
        let args: Vec<Value<u32>> = args.iter().map(|arg| arg.map(&mut |slot| slot.0)).collect();
        let kwargs: Vec<_> = kwargs.iter().map(|(name, arg)| (name.clone(), arg.map(&mut |slot| slot.0))).collect();
        let (torch, metas) = (self.resources.torch, self.spec.slots.as_slice());
        if let Some(out) = into
            && let Some(site) = CallSite::into_out(torch, &schema, &args, &kwargs, metas, out)
        {
            return Ok(Some(site));
        }
        let site = match self.spec.mode {
            Mode::Inference => CallSite::direct(torch, &schema, &args, &kwargs, metas),
            Mode::Autograd => CallSite::dispatched(torch, &schema, &args, &kwargs),
        };
        match site {
            Ok(site) => Ok(Some(site)),
            Err(Error::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Frees a storage: every slot in it that holds a tensor of the run.
    fn free(&mut self, root: SlotId) {
        for slot in (0..self.spec.slots.len() as u32).map(SlotId) {
            if self.spec.root(slot) == root && self.owns_tensor(slot) {
                self.parts.instrs.push(Instr::Free { slot: slot.0 });
            }
        }
    }

    fn output(&mut self, position: usize, slot: SlotId) -> Result<(), BuildError> {
        let spec = self.spec;
        if self.needs.arena_offset(spec, slot).is_some() {
            return Err(malformed(format!("output %{} lives in the arena", slot.0)));
        }
        let root = spec.root(slot);
        if let (Origin::View { .. }, Some(offset)) = (self.needs.origin[slot.0 as usize], self.offset_in(slot, root))
            && (self.needs.origin[root.0 as usize] == Origin::Bound || spec.outputs.contains(&root))
        {
            let index = self.add_view(self.meta(slot).clone(), offset, self.meta(slot).dtype);
            self.parts.outputs.push(Output::View { of: root.0, index });
            return Ok(());
        }
        let is_last = !spec.outputs[position + 1..].contains(&slot);
        let viewed_later = spec.outputs[position + 1..].iter().any(|other| spec.root(*other) == slot);
        let owned = !matches!(self.needs.origin[slot.0 as usize], Origin::Bound);
        self.parts.outputs.push(if owned && is_last && !viewed_later {
            Output::Take { slot: slot.0 }
        } else {
            Output::Share { slot: slot.0 }
        });
        Ok(())
    }

    /// Elements from the root's first element to a view's, if both have the same dtype.
    fn offset_in(&self, slot: SlotId, root: SlotId) -> Option<i64> {
        if self.meta(slot).dtype != self.meta(root).dtype {
            return None;
        }
        match self.needs.origin[slot.0 as usize] {
            _ if slot == root => Some(0),
            Origin::View { of, offset } => Some(offset + self.offset_in(of, root)?),
            Origin::Undefined | Origin::Bound | Origin::Arena { .. } | Origin::Fresh | Origin::Result => None,
        }
    }
}

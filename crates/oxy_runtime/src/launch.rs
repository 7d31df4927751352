//! Running a plan: workspaces, kernels, calls, results. The crate's unsafe room.
//!
//! What makes the raw pointers here right: `Plan::new` has checked that every slot is defined before use, that kernels
//! stay inside the metadata of their buffers, and that arena slots stay inside the arena; inputs have the metadata that
//! the plan was made for (`run` checks, `run_unchecked`'s caller has checked); results of calls are checked here.

use crate::{
    blocks::Lease,
    plan::{Call, CallOut, Fresh, Host, HostArg, Instr, Output, Plan, RunError, View},
    spec::PlanArg,
};
use libc::c_void;
use oxy_graph::{DeviceType, TensorMeta};
use oxy_torch::{Error, Results, Tensor, TensorRef, Torch, as_strided, sys::AtenTensorHandle};
use smallvec::SmallVec;
use std::{any::Any, sync::Arc};

/// Machine code of a kernel: `(buffers, lo, hi)` runs items lo..hi of its range.
pub type KernelEntry = unsafe extern "C" fn(buffers: *const *mut u8, lo: i64, hi: i64);

/// A kernel in memory, with what keeps it there.
#[derive(Clone)]
pub struct Kernel {
    entry: KernelEntry,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Kernel {
    /// # Safety
    /// `entry` is the code of the `oxy_loops::Kernel` that the plan names at this kernel's position: it touches only
    /// what that kernel's accesses describe, may run in several threads at once on disjoint ranges, doesn't unwind, and
    /// is valid while `owner` lives.
    pub unsafe fn new(entry: KernelEntry, owner: Arc<dyn Any + Send + Sync>) -> Kernel {
        Kernel { entry, _owner: owner }
    }
}

/// Results smaller than this come from torch's allocator, where making a tensor is quickest; larger ones from the
/// block cache, where pages are warm.
const MIN_CACHED_BYTES: u64 = 128 << 10;

/// An arena up to this size stays with its workspace; a larger one goes back to the block cache after each run.
const MAX_KEPT_ARENA: u64 = 256 << 10;

/// Idle workspaces that a plan keeps.
const MAX_IDLE_WORKSPACES: usize = 4;

/// Blocks from this size on are worth asking for large pages.
const MIN_LARGE_PAGES: u64 = 4 << 20;

/// The state of one run; kept between runs for what doesn't change.
pub struct Workspace {
    /// By slot: address of the first element.
    pointers: Box<[*mut u8]>,
    /// By slot: a borrowed handle, or null.
    handles: Box<[AtenTensorHandle]>,
    /// By slot: tensors that the run made.
    owned: Box<[Option<Tensor>]>,
    /// Tensors in the arena. Invariant: their memory is `base..base + arena_bytes`.
    statics: Vec<Tensor>,
    base: *mut u8,
    /// Whether the tensors in the arena were made in inference mode.
    made_in_inference_mode: bool,
    arena: Option<Lease>,
}

// SAFETY: the pointers are the run's own, valid in any thread.
unsafe impl Send for Workspace {}

impl Workspace {
    fn new(n_slots: usize) -> Workspace {
        Workspace {
            pointers: vec![std::ptr::null_mut(); n_slots].into(),
            handles: vec![std::ptr::null_mut(); n_slots].into(),
            owned: std::iter::repeat_with(|| None).take(n_slots).collect(),
            statics: Vec::new(),
            base: std::ptr::null_mut(),
            made_in_inference_mode: false,
            arena: None,
        }
    }

    fn own(&mut self, slot: u32, tensor: Tensor) {
        self.handles[slot as usize] = tensor.as_ref().as_raw();
        self.owned[slot as usize] = Some(tensor);
    }

    fn tensor(&self, torch: &'static Torch, slot: u32) -> Result<TensorRef<'_>, RunError> {
        // SAFETY: handles are null or alive until the slot is freed, which needs `&mut self`.
        unsafe { TensorRef::from_raw(torch, self.handles[slot as usize]) }
            .ok_or_else(|| RunError::Internal(format!("%{slot} has no tensor")))
    }
}

impl Plan {
    /// Runs the plan on inputs that are checked against the plan's metadata first.
    pub fn run(&self, inputs: &[TensorRef<'_>], host: &dyn Host) -> Result<Vec<Tensor>, RunError> {
        let given = inputs.iter().copied().chain(self.constants.iter().map(Tensor::as_ref));
        for (i, (tensor, (_, meta))) in given.zip(&self.inputs).enumerate() {
            let fits = tensor.dtype_code() == meta.dtype as i32
                && tensor.has_layout(&meta.sizes, &meta.strides)
                && tensor.device().is_some_and(|device| device.kind == meta.device.kind);
            if !fits {
                return Err(RunError::Internal(format!("input {i} is {tensor:?}, the plan was made for {meta}")));
            }
        }
        let mut outputs = SmallVec::<[Tensor; 4]>::new();
        // SAFETY: checked above.
        unsafe { self.run_unchecked(inputs, host, &mut outputs) }?;
        Ok(outputs.into_vec())
    }

    /// Runs the plan and appends its outputs.
    ///
    /// # Safety
    /// Inputs and constants have the plan's dtypes, sizes, strides and devices (guards have checked them).
    pub unsafe fn run_unchecked(
        &self,
        inputs: &[TensorRef<'_>],
        host: &dyn Host,
        outputs: &mut SmallVec<[Tensor; 4]>,
    ) -> Result<(), RunError> {
        if inputs.len() != self.n_inputs {
            return Err(RunError::Internal(format!("{} inputs, not {}", self.n_inputs, inputs.len())));
        }
        let kept = self.workspaces.lock().pop();
        let mut workspace = kept.unwrap_or_else(|| Workspace::new(self.n_slots));
        let given = inputs.iter().copied().chain(self.constants.iter().map(Tensor::as_ref));
        for ((slot, _), tensor) in self.inputs.iter().zip(given) {
            workspace.handles[*slot as usize] = tensor.as_raw();
        }
        let n_before = outputs.len();
        // SAFETY: the caller's promise about inputs, whose handles are set.
        let result = unsafe { self.run_in(&mut workspace, host, outputs) };
        if result.is_err() {
            outputs.truncate(n_before);
            workspace.owned.iter_mut().for_each(|tensor| *tensor = None);
        }
        if self.arena_bytes > MAX_KEPT_ARENA {
            workspace.arena = None;
        }
        let mut idle = self.workspaces.lock();
        if idle.len() < MAX_IDLE_WORKSPACES {
            idle.push(workspace);
        }
        result
    }

    /// # Safety
    /// As for `run_unchecked`, and the handles of inputs and constants are set.
    unsafe fn run_in(
        &self,
        workspace: &mut Workspace,
        host: &dyn Host,
        outputs: &mut SmallVec<[Tensor; 4]>,
    ) -> Result<(), RunError> {
        self.place_arena(workspace)?;
        {
            // The graph's casts are explicit already. Kernels don't look at modes, and reading one takes a good part of
            // a small plan's time.
            let _modes = (!self.calls.is_empty()).then(|| self.torch.no_autocast(DeviceType::Cpu));
            for instr in &self.instrs {
                // SAFETY: the caller's promise; instructions are in the plan's order.
                unsafe { self.execute(workspace, host, instr) }?;
            }
        }
        for output in &self.outputs {
            outputs.push(self.output(workspace, output)?);
        }
        for slot in &self.left_over {
            workspace.owned[*slot as usize] = None;
        }
        Ok(())
    }

    /// Makes sure that the workspace has an arena, and that the tensors in it are where it is.
    fn place_arena(&self, workspace: &mut Workspace) -> Result<(), RunError> {
        if self.statics.is_empty() {
            return Ok(());
        }
        let mut arena = match workspace.arena.take() {
            Some(arena) => arena,
            None => Lease::take(&self.memory, self.arena_bytes).ok_or_else(out_of_memory)?,
        };
        let base = arena.as_ptr();
        workspace.arena = Some(arena);
        let has_tensors = !self.calls.is_empty();
        let inference_mode = has_tensors && self.torch.is_inference_mode_enabled() == Some(true);
        if workspace.base == base && workspace.made_in_inference_mode == inference_mode {
            return Ok(());
        }
        workspace.base = std::ptr::null_mut();
        workspace.statics.clear();
        for part in &self.statics {
            // SAFETY: `Plan::new` has checked that the slot is inside the arena.
            let address = unsafe { base.add(part.offset as usize) };
            workspace.pointers[part.slot as usize] = address;
            if part.needs_tensor {
                let (sizes, strides) = (&part.meta.sizes, &part.meta.strides);
                // SAFETY: the memory is valid for the tensor's extent while the workspace has this arena; results that
                // share it are copied before they leave the run.
                let tensor =
                    unsafe { Tensor::from_blob(self.torch, address.cast(), sizes, strides, part.meta.dtype, None) }?;
                workspace.handles[part.slot as usize] = tensor.as_ref().as_raw();
                workspace.statics.push(tensor);
            }
        }
        workspace.base = base;
        workspace.made_in_inference_mode = inference_mode;
        Ok(())
    }

    /// # Safety
    /// All earlier instructions of the run have been executed.
    #[inline]
    unsafe fn execute(&self, workspace: &mut Workspace, host: &dyn Host, instr: &Instr) -> Result<(), RunError> {
        match *instr {
            Instr::Pointer { slot } => {
                let pointer = workspace.tensor(self.torch, slot)?.data_ptr();
                workspace.pointers[slot as usize] = pointer;
            }
            Instr::Fresh { slot, index } => {
                let (tensor, pointer) = self.allocate(&self.fresh[index as usize])?;
                workspace.pointers[slot as usize] = pointer;
                workspace.own(slot, tensor);
            }
            Instr::Launch { kernel, first, count, range, grain } => {
                let slots = &self.launch_args[first as usize..(first + count) as usize];
                let buffers: SmallVec<[*mut u8; 16]> =
                    slots.iter().map(|slot| workspace.pointers[*slot as usize]).collect();
                // SAFETY: every buffer's pointer is set, for memory with the metadata that the kernel was checked
                // against.
                unsafe { self.launch(&self.kernels[kernel as usize], &buffers, range, grain) }?;
            }
            Instr::Call { index } => {
                // SAFETY: every argument's handle is set.
                unsafe { self.call(workspace, host, &self.calls[index as usize]) }?;
            }
            Instr::View { slot, of, index } => {
                let tensor = make_view(workspace.tensor(self.torch, of)?, &self.views[index as usize])?;
                workspace.own(slot, tensor);
            }
            Instr::ViewPointer { slot, of, bytes } => {
                workspace.pointers[slot as usize] = workspace.pointers[of as usize].wrapping_offset(bytes as isize);
            }
            Instr::Bump { slot } => workspace.tensor(self.torch, slot)?.bump_version()?,
            Instr::Free { slot } => {
                workspace.handles[slot as usize] = std::ptr::null_mut();
                workspace.owned[slot as usize] = None;
            }
        }
        Ok(())
    }

    /// Runs a kernel over its range: in this thread if the range is small, else on torch's threads.
    ///
    /// # Safety
    /// The buffers are what the kernel was checked against.
    #[inline]
    unsafe fn launch(&self, kernel: &Kernel, buffers: &[*mut u8], range: i64, grain: i64) -> Result<(), RunError> {
        if range <= grain {
            // SAFETY: the caller's promise, and `Kernel::new`'s.
            unsafe { (kernel.entry)(buffers.as_ptr(), 0, range) };
            return Ok(());
        }
        struct Shared(KernelEntry, *const *mut u8);
        // SAFETY: the buffers' array is only read.
        unsafe impl Sync for Shared {}
        let shared = Shared(kernel.entry, buffers.as_ptr());
        let shared = &shared;
        self.torch.parallel_for(0, range, grain, &move |lo, hi| {
            let Shared(entry, buffers) = shared;
            // SAFETY: as above; parts are disjoint.
            unsafe { entry(*buffers, lo, hi) };
        })?;
        Ok(())
    }

    /// A new tensor and its data pointer.
    fn allocate(&self, fresh: &Fresh) -> Result<(Tensor, *mut u8), RunError> {
        let meta = &fresh.meta;
        if fresh.bytes < MIN_CACHED_BYTES || meta.device.kind != DeviceType::Cpu {
            let tensor = Tensor::empty_strided(self.torch, &meta.sizes, &meta.strides, meta.dtype, meta.device)?;
            let pointer = tensor.as_ref().data_ptr();
            return Ok((tensor, pointer));
        }
        let mut lease = Box::new(Lease::take(&self.memory, fresh.bytes).ok_or_else(out_of_memory)?);
        let pointer = lease.as_ptr();
        let lease = Box::into_raw(lease);
        // SAFETY: the block holds the tensor's extent and lives until the deleter gives it back. Should making the
        // tensor fail, the lease leaks: torch may or may not have called the deleter.
        let tensor = unsafe {
            Tensor::from_blob(
                self.torch,
                pointer.cast(),
                &meta.sizes,
                &meta.strides,
                meta.dtype,
                Some((give_back, lease.cast())),
            )
        }?;
        Ok((tensor, pointer))
    }

    /// # Safety
    /// The handles of the call's arguments are set and have their slots' metadata.
    unsafe fn call(&self, workspace: &mut Workspace, host: &dyn Host, call: &Call) -> Result<(), RunError> {
        let made = match &call.site {
            // SAFETY: the caller's promise.
            Some(site) => unsafe { site.call_raw(&workspace.handles) },
            None => Ok(self.call_host(workspace, host, call)?),
        };
        let mut results = match made {
            Ok(results) => results,
            // Again through the host, which raises the genuine exception; arguments are checked before anything is
            // written, so a call that failed has done nothing.
            Err(Error::Operator { .. }) => self.call_host(workspace, host, call)?,
            Err(error) => return Err(error.into()),
        };
        if let Some(slot) = call.into {
            // Written already by a shim; else copied.
            if let Some(result) = results.first_mut().and_then(Option::take) {
                workspace.tensor(self.torch, slot)?.copy_from(result.as_ref())?;
            }
            return Ok(());
        }
        if results.len() < call.outs.len() {
            return Err(RunError::Internal(format!("{} gave {} results", call.target, results.len())));
        }
        for (out, result) in call.outs.iter().zip(&mut results) {
            let CallOut::New { slot, needs_pointer, expected, may_alias_arena } = out else { continue };
            let undefined = || RunError::Internal(format!("{} gave no tensor for %{slot}", call.target));
            let mut tensor = result.take().ok_or_else(undefined)?;
            if *may_alias_arena && self.is_in_arena(workspace, tensor.as_ref()) {
                tensor = tensor.as_ref().clone_preserve_strides()?;
            }
            if let Some(meta) = expected {
                tensor = self.with_layout(tensor, meta, call)?;
            }
            if *needs_pointer {
                workspace.pointers[*slot as usize] = tensor.as_ref().data_ptr();
            }
            workspace.own(*slot, tensor);
        }
        Ok(())
    }

    fn is_in_arena(&self, workspace: &Workspace, tensor: TensorRef<'_>) -> bool {
        let (start, address) = (workspace.base as usize, tensor.data_ptr() as usize);
        (start..start + self.arena_bytes as usize).contains(&address)
    }

    /// A result with the layout that later steps were compiled for. Operators choose strides themselves.
    fn with_layout(&self, tensor: Tensor, meta: &TensorMeta, call: &Call) -> Result<Tensor, RunError> {
        let result = tensor.as_ref();
        if result.dtype_code() == meta.dtype as i32 && result.has_layout(&meta.sizes, &meta.strides) {
            return Ok(tensor);
        }
        if result.dtype() != Some(meta.dtype) || result.sizes() != meta.sizes {
            return Err(RunError::Internal(format!("{} gave {result:?} instead of {meta}", call.target)));
        }
        let copy = Tensor::empty_strided(self.torch, &meta.sizes, &meta.strides, meta.dtype, meta.device)?;
        copy.as_ref().copy_from(result)?;
        Ok(copy)
    }

    fn call_host(&self, workspace: &Workspace, host: &dyn Host, call: &Call) -> Result<Results, RunError> {
        let resolve = |arg: &PlanArg| self.host_arg(workspace, arg);
        let args = call.args.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let kwargs = call
            .kwargs
            .iter()
            .map(|(name, arg)| Ok((name.clone(), resolve(arg)?)))
            .collect::<Result<Vec<_>, RunError>>()?;
        host.call_operator(&call.target, &args, &kwargs).map_err(RunError::Host)
    }

    fn host_arg<'w>(&self, workspace: &'w Workspace, arg: &PlanArg) -> Result<HostArg<'w>, RunError> {
        arg.try_map(&mut |slot| workspace.tensor(self.torch, slot.0))
    }

    fn output(&self, workspace: &mut Workspace, output: &Output) -> Result<Tensor, RunError> {
        match *output {
            Output::Take { slot } => {
                workspace.handles[slot as usize] = std::ptr::null_mut();
                workspace.owned[slot as usize]
                    .take()
                    .ok_or_else(|| RunError::Internal(format!("output %{slot} has no tensor")))
            }
            Output::Share { slot } => Ok(workspace.tensor(self.torch, slot)?.to_tensor()?),
            Output::View { of, index } => {
                let (of, view) = (workspace.tensor(self.torch, of)?, &self.views[index as usize]);
                let offset = of.storage_offset() + view.offset;
                Ok(as_strided(of, &view.meta.sizes, &view.meta.strides, offset)?)
            }
        }
    }
}

fn out_of_memory() -> RunError {
    RunError::Internal("out of memory".into())
}

fn make_view(of: TensorRef<'_>, view: &View) -> Result<Tensor, Error> {
    let (sizes, strides) = (&view.meta.sizes, &view.meta.strides);
    if view.changes_dtype {
        return of.view_dtype(view.meta.dtype)?.as_ref().reinterpret(sizes, strides, view.offset);
    }
    of.reinterpret(sizes, strides, view.offset)
}

/// The deleter of results: runs in whatever thread drops the last reference.
unsafe extern "C" fn give_back(_data: *mut c_void, lease: *mut c_void) {
    // SAFETY: the lease that `allocate` made for this tensor; torch calls the deleter once.
    drop(unsafe { Box::from_raw(lease.cast::<Lease>()) });
}

/// Asks for large pages under a new block: faulting it in takes a fraction of the time.
pub(crate) fn prefer_large_pages(start: *mut u8, bytes: u64) {
    if bytes < MIN_LARGE_PAGES {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let first = (start as usize).next_multiple_of(PAGE);
        let end = (start as usize + bytes as usize) / PAGE * PAGE;
        // SAFETY: the range is inside the block; the advice changes no contents. Failure is of no consequence.
        unsafe { libc::madvise(first as *mut c_void, end - first, libc::MADV_HUGEPAGE) };
    }
}

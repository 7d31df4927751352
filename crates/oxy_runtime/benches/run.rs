//! What running a plan costs beyond its kernels, in nanoseconds. `cargo bench -p oxy_runtime`.
#![allow(clippy::print_stdout, reason = "a report")]

#[path = "../../oxy_torch/tests/common/mod.rs"]
mod common;

use common::{floats, torch};
use oxy_graph::{DType, Device, TensorMeta};
use oxy_loops::{Dim, DimKind, Param, Split};
use oxy_runtime::*;
use oxy_torch::{CallSite, Results, Tensor, TensorRef, Value};
use smallvec::SmallVec;
use std::{sync::Arc, time::Instant};

struct NoHost;

impl Host for NoHost {
    fn call_operator(
        &self,
        target: &str,
        _: &[HostArg<'_>],
        _: &[(String, HostArg<'_>)],
    ) -> Result<Results, HostError> {
        Err(Box::new(target.to_owned()))
    }
}

unsafe extern "C" fn nothing(_: *const *mut u8, _: i64, _: i64) {}

unsafe extern "C" fn fill(buffers: *const *mut u8, lo: i64, hi: i64) {
    // SAFETY: the last of two buffers holds `hi` floats.
    unsafe { std::slice::from_raw_parts_mut((*buffers.add(1)).cast::<f32>().add(lo as usize), (hi - lo) as usize) }
        .fill(1.0);
}

fn time(name: &str, n: u32, mut f: impl FnMut()) {
    // Many short batches: on a busy machine some of them run undisturbed.
    let batch = (n / 100).max(1);
    let best = (0..200)
        .map(|_| {
            let start = Instant::now();
            (0..batch).for_each(|_| f());
            start.elapsed().as_nanos() as f64 / f64::from(batch)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:55} {best:12.1} ns");
}

fn chain(n_kernels: usize, elements: i64, entry: KernelEntry) -> Plan {
    let meta = TensorMeta::contiguous(DType::F32, &[elements]);
    let mut spec = PlanSpec { inputs: vec![SlotId(0)], outputs: vec![SlotId(n_kernels as u32)], ..PlanSpec::default() };
    let param = |written| Param { dtype: DType::F32, written };
    for slot in 0..=n_kernels as u32 {
        spec.slots.push(meta.clone());
        spec.storage.push(SlotId(slot));
        if slot > 0 {
            let args = vec![SlotId(slot - 1), SlotId(slot)];
            spec.steps.push(PlanStep::Alloc { slot: SlotId(slot), place: Place::Undecided });
            spec.steps.push(PlanStep::Launch { kernel: KernelId(0), args, range: elements, grain: 32768 });
        }
    }
    spec.kernels.push(oxy_loops::Kernel {
        name: "k".into(),
        params: vec![param(false), param(true)],
        dims: vec![Dim { extent: elements, kind: DimKind::Parallel }],
        vector_dim: Some(0),
        phases: vec![],
        slots: vec![],
        split: Split::Vector,
    });
    spec.plan_memory();
    let resources = Resources {
        torch: torch(),
        // SAFETY: both entries write at most the elements of their last buffer.
        kernels: vec![unsafe { Kernel::new(entry, Arc::new(())) }],
        constants: vec![],
        schema: &|_| None,
        memory: Arc::new(BlockCache::new(BlockCache::default_bound())),
    };
    Plan::new(spec, resources).expect("a plan")
}

fn time_plan(name: &str, n: u32, plan: &Plan, input: &Tensor) {
    let inputs = [input.as_ref()];
    time(name, n, || {
        let mut outputs = SmallVec::new();
        // SAFETY: the input has the plan's metadata.
        unsafe { plan.run_unchecked(&inputs, &NoHost, &mut outputs) }.expect("it runs");
    });
}

fn main() {
    let small = floats(&[1024], &[1.0; 1024]);
    time("empty_strided 4 KiB + drop", 100_000, || {
        drop(Tensor::empty_strided(torch(), &[1024], &[1], DType::F32, Device::CPU));
    });
    {
        let _guard = torch().no_grad();
        time("empty_strided 4 KiB + drop, no grad", 100_000, || {
            drop(Tensor::empty_strided(torch(), &[1024], &[1], DType::F32, Device::CPU));
        });
    }
    let mut memory = vec![0f32; 1024];
    time("from_blob without deleter + drop", 100_000, || {
        // SAFETY: the memory outlives the tensor.
        drop(unsafe { Tensor::from_blob(torch(), memory.as_mut_ptr().cast(), &[1024], &[1], DType::F32, None) });
    });
    time("new handle + drop", 100_000, || drop(small.as_ref().to_tensor()));
    time("data_ptr", 100_000, || {
        std::hint::black_box(small.as_ref().data_ptr());
    });
    time("reinterpret + drop", 100_000, || drop(small.as_ref().reinterpret(&[512], &[1], 0)));
    time("as_strided + drop", 100_000, || drop(oxy_torch::as_strided(small.as_ref(), &[512], &[1], 0)));
    time("no_grad", 100_000, || drop(torch().no_grad()));
    for n in [1, 2, 10] {
        let plan = chain(n, 1024, nothing);
        time_plan(&format!("plan: {n} empty kernels, 4 KiB result"), 100_000, &plan, &small);
    }
    let plan = chain(1, 1024, nothing);
    time("plan: 1 empty kernel, checked inputs", 100_000, || drop(plan.run(&[small.as_ref()], &NoHost)));
    for kib in [32, 64, 128, 256, 1024, 4096, 65536] {
        let elements = kib * 256;
        let input = floats(&[elements], &vec![1.0; elements as usize]);
        let n = (200_000_000 / (elements as u32 + 4000)).clamp(10, 20_000);
        time_plan(&format!("plan: fill {kib} KiB"), n, &chain(1, elements, fill), &input);
        time("  the same into empty_strided, one thread", n, || {
            let out = Tensor::empty_strided(torch(), &[elements], &[1], DType::F32, Device::CPU).expect("a tensor");
            let buffers = [std::ptr::null_mut(), out.as_ref().data_ptr()];
            // SAFETY: the tensor has that many elements.
            unsafe { fill(buffers.as_ptr(), 0, elements) };
        });
    }
    let metas = vec![TensorMeta::contiguous(DType::F32, &[1024]); 2];
    let text = common::schema("mul.Tensor(Tensor self, Tensor other) -> Tensor");
    let args = [Value::Tensor(0), Value::Tensor(1)];
    let tensors: [TensorRef<'_>; 2] = [small.as_ref(), small.as_ref()];
    let shim = CallSite::direct(torch(), &text, &args, &[], &metas).expect("a call");
    let boxed = CallSite::dispatched(torch(), &text, &args, &[]).expect("a call");
    time("mul.Tensor by shim", 20_000, || drop(shim.call(&tensors)));
    time("mul.Tensor by dispatcher", 20_000, || drop(boxed.call(&tensors)));
    let _guard = torch().no_grad();
    time("mul.Tensor by dispatcher, no grad", 20_000, || drop(boxed.call(&tensors)));
}

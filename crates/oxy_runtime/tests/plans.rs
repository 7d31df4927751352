//! Plans on a real torch, with kernels written in Rust.

#[path = "../../oxy_torch/tests/common/mod.rs"]
mod common;

use common::{close, floats, ints, schema, torch, values};
use oxy_graph::{DType, TensorMeta};
use oxy_loops::{Dim, DimKind, Param, Split};
use oxy_runtime::{
    BlockCache, BuildError, Host, HostArg, HostError, Kernel, KernelEntry, KernelId, Mode, Place, Plan, PlanArg,
    PlanSpec, PlanStep, Resources, RunError, SlotId,
};
use oxy_torch::{Results, Tensor, TensorRef, Value, call_dispatcher};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// relu(x * 2 + y), elementwise.
unsafe extern "C" fn fused(buffers: *const *mut u8, lo: i64, hi: i64) {
    // SAFETY: three buffers of at least `hi` floats.
    unsafe {
        let (x, y, out) = (*buffers as *const f32, *buffers.add(1) as *const f32, *buffers.add(2) as *mut f32);
        for i in lo as usize..hi as usize {
            *out.add(i) = (*x.add(i) * 2.0 + *y.add(i)).max(0.0);
        }
    }
}

/// out = in + 1, elementwise.
unsafe extern "C" fn increment(buffers: *const *mut u8, lo: i64, hi: i64) {
    // SAFETY: two buffers of at least `hi` floats.
    unsafe {
        let (x, out) = (*buffers as *const f32, *buffers.add(1) as *mut f32);
        for i in lo as usize..hi as usize {
            *out.add(i) = *x.add(i) + 1.0;
        }
    }
}

fn description(name: &str, n_inputs: usize, n: i64) -> oxy_loops::Kernel {
    let param = |written| Param { dtype: DType::F32, written };
    oxy_loops::Kernel {
        name: name.into(),
        params: (0..n_inputs).map(|_| param(false)).chain([param(true)]).collect(),
        dims: vec![Dim { extent: n, kind: DimKind::Parallel }],
        vector_dim: Some(0),
        phases: vec![],
        slots: vec![],
        split: Split::Vector,
    }
}

/// A host that records what it is asked for, and knows a few operators.
#[derive(Default)]
struct TestHost {
    calls: Mutex<Vec<String>>,
    kept: Mutex<Vec<Tensor>>,
}

impl Host for TestHost {
    fn call_operator(
        &self,
        target: &str,
        args: &[HostArg<'_>],
        kwargs: &[(String, HostArg<'_>)],
    ) -> Result<Results, HostError> {
        self.calls.lock().unwrap().push(target.to_owned());
        match (target, args) {
            ("aten.add.Tensor", [a, b]) => {
                assert_eq!(kwargs.len(), 1);
                let text = "mul.Tensor(Tensor self, Tensor other) -> Tensor"; // good enough to tell
                Ok(call_dispatcher(torch(), &schema(text), &[a.clone(), b.clone()], &[]).unwrap())
            }
            ("lib.keep.default", [Value::Tensor(x)]) => {
                self.kept.lock().unwrap().push(x.to_tensor().unwrap());
                Ok([Some(floats(&[2], &[0.0; 2]))].into_iter().collect())
            }
            ("lib.identity.default", [Value::Tensor(x)]) => Ok([Some(x.to_tensor().unwrap())].into_iter().collect()),
            _ => Err(Box::new(format!("no {target}"))),
        }
    }
}

struct Builder {
    spec: PlanSpec,
    entries: Vec<KernelEntry>,
    constants: Vec<Tensor>,
    memory: Arc<BlockCache>,
}

impl Builder {
    fn new() -> Builder {
        Builder {
            spec: PlanSpec::default(),
            entries: Vec::new(),
            constants: Vec::new(),
            memory: Arc::new(BlockCache::new(64 << 20)),
        }
    }

    fn slot(&mut self, meta: TensorMeta) -> SlotId {
        self.spec.slots.push(meta);
        let id = SlotId(self.spec.slots.len() as u32 - 1);
        self.spec.storage.push(id);
        id
    }

    fn floats(&mut self, sizes: &[i64]) -> SlotId {
        self.slot(TensorMeta::contiguous(DType::F32, sizes))
    }

    fn input(&mut self, sizes: &[i64]) -> SlotId {
        let slot = self.floats(sizes);
        self.spec.inputs.push(slot);
        slot
    }

    fn launch(&mut self, entry: KernelEntry, args: &[SlotId], grain: i64) {
        let n = self.spec.slots[args[0].0 as usize].numel();
        self.spec.kernels.push(description("k", args.len() - 1, n));
        self.entries.push(entry);
        let kernel = KernelId(self.entries.len() as u32 - 1);
        self.spec.steps.push(PlanStep::Launch { kernel, args: args.to_vec(), range: n, grain });
    }

    /// A new slot, made by a kernel.
    fn kernel(&mut self, entry: KernelEntry, inputs: &[SlotId]) -> SlotId {
        let meta = self.spec.slots[inputs[0].0 as usize].clone();
        let slot = self.slot(meta);
        self.spec.steps.push(PlanStep::Alloc { slot, place: Place::Undecided });
        let args: Vec<SlotId> = inputs.iter().copied().chain([slot]).collect();
        self.launch(entry, &args, 1 << 20);
        slot
    }

    fn call(&mut self, target: &str, args: Vec<PlanArg>, sizes: &[i64]) -> SlotId {
        let slot = self.floats(sizes);
        self.push_call(target, args, vec![Some(slot)]);
        slot
    }

    fn push_call(&mut self, target: &str, args: Vec<PlanArg>, outs: Vec<Option<SlotId>>) {
        self.spec.steps.push(PlanStep::Call { target: target.into(), args, kwargs: vec![], outs, into: false });
    }

    fn view(&mut self, of: SlotId, sizes: &[i64], strides: &[i64], offset: i64) -> SlotId {
        let mut meta = TensorMeta::contiguous(DType::F32, sizes);
        meta.strides = strides.into();
        let slot = self.slot(meta);
        self.spec.storage[slot.0 as usize] = self.spec.root(of);
        self.spec.steps.push(PlanStep::View { slot, of, offset });
        slot
    }

    fn build(mut self, outputs: &[SlotId]) -> Result<Plan, BuildError> {
        self.spec.outputs = outputs.to_vec();
        self.spec.plan_memory();
        self.build_as_is()
    }

    fn build_as_is(self) -> Result<Plan, BuildError> {
        // SAFETY: the entries do what their descriptions say.
        let kernels = self.entries.iter().map(|entry| unsafe { Kernel::new(*entry, Arc::new(())) }).collect();
        let resources = Resources {
            torch: torch(),
            kernels,
            constants: self.constants,
            schema: &known_schema,
            memory: self.memory,
        };
        Plan::new(self.spec, resources)
    }
}

fn known_schema(target: &str) -> Option<String> {
    let text = match target {
        "aten.add.Tensor" => "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "aten.mm.default" => "aten::mm(Tensor self, Tensor mat2) -> Tensor",
        "aten.clone.default" => "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
        "aten.view.default" => "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
        "aten.t.default" => "aten::t(Tensor(a) self) -> Tensor(a)",
        "aten.relu_.default" => "aten::relu_(Tensor(a!) self) -> Tensor(a!)",
        "aten.relu.default" => "aten::relu(Tensor self) -> Tensor",
        "aten.cat.default" => "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
        "aten.max.dim" => "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        _ => return None,
    };
    Some(text.into())
}

fn t(slot: SlotId) -> PlanArg {
    Value::Tensor(slot)
}

fn run(plan: &Plan, inputs: &[&Tensor]) -> Vec<Tensor> {
    let inputs: Vec<TensorRef<'_>> = inputs.iter().map(|tensor| tensor.as_ref()).collect();
    plan.run(&inputs, &TestHost::default()).unwrap()
}

#[test]
fn one_kernel() {
    let mut b = Builder::new();
    let (x, y) = (b.input(&[2, 2]), b.input(&[2, 2]));
    let out = b.kernel(fused, &[x, y]);
    let plan = b.build(&[out]).unwrap();
    assert_eq!(
        plan.spec().to_string(),
        "plan(%0: f32[2, 2], %1: f32[2, 2]) {\n  %2: f32[2, 2] = alloc fresh\n  \
         launch k0 k(%0, %1, %2) range 4 grain 1048576\n  return (%2)\n}\n"
    );
    let (x, y) = (floats(&[2, 2], &[1., -2., 3., -4.]), floats(&[2, 2], &[1., 1., 1., 10.]));
    let first = run(&plan, &[&x, &y]);
    let second = run(&plan, &[&y, &x]);
    assert_eq!(values(first[0].as_ref()), [3., 0., 7., 2.]);
    assert_eq!(values(second[0].as_ref()), [3., 0., 5., 16.]);
    let error = plan.run(&[x.as_ref()], &TestHost::default()).unwrap_err();
    assert!(error.to_string().contains("2 inputs, not 1"), "{error}");
    let z = floats(&[4], &[0.; 4]);
    let error = plan.run(&[x.as_ref(), z.as_ref()], &TestHost::default()).unwrap_err();
    assert!(error.to_string().contains("input 1 is Tensor(f32[4])"), "{error}");
}

#[test]
fn intermediates_share_an_arena() {
    let mut b = Builder::new();
    let x = b.input(&[2, 3]);
    let a = b.kernel(increment, &[x]); // arena
    let transposed = b.view(a, &[3, 2], &[1, 3], 0); // a static view
    let product = b.call("aten.mm.default", vec![t(a), t(transposed)], &[2, 2]); // written into the arena
    let c = b.kernel(increment, &[product]);
    let result = b.call("aten.clone.default", vec![t(c)], &[2, 2]);
    let row = b.view(result, &[2], &[1], 2);
    let plan = b.build(&[row]).unwrap();
    let text = plan.spec().to_string();
    assert!(text.contains("%3: f32[2, 2] <- aten.mm.default(%1, %2)"), "{text}");
    assert!(text.starts_with("plan(%0: f32[2, 3]) arena 128 {"), "{text}");
    let x = floats(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
    let first = run(&plan, &[&x]);
    // [[1, 2, 3], [4, 5, 6]] times its transpose is [[14, 32], [32, 77]]
    assert_eq!(values(first[0].as_ref()), [33., 78.]);
    let other = run(&plan, &[&floats(&[2, 3], &[0.; 6])]);
    assert_eq!(values(other[0].as_ref()), [4., 4.]);
    assert_eq!(values(first[0].as_ref()), [33., 78.]);
}

#[test]
fn results_never_lie_in_the_arena() {
    // An operator returns a view of its argument, and the plan doesn't know.
    let mut b = Builder::new();
    let x = b.input(&[2, 2]);
    let a = b.kernel(increment, &[x]);
    let result = b.call("aten.view.default", vec![t(a), Value::List(vec![Value::Int(4)])], &[4]);
    let plan = b.build(&[result]).unwrap();
    assert!(plan.spec().arena_bytes > 0);
    let first = run(&plan, &[&floats(&[2, 2], &[0., 1., 2., 3.])]);
    let second = run(&plan, &[&floats(&[2, 2], &[9.; 4])]);
    assert_eq!((values(first[0].as_ref()), values(second[0].as_ref())), (vec![1., 2., 3., 4.], vec![10.; 4]));
    // Known, it shares memory that is its own.
    let mut b = Builder::new();
    let x = b.input(&[2, 2]);
    let a = b.kernel(increment, &[x]);
    let result = b.call("aten.view.default", vec![t(a), Value::List(vec![Value::Int(4)])], &[4]);
    b.spec.storage[result.0 as usize] = a;
    let plan = b.build(&[a, result]).unwrap();
    let outputs = run(&plan, &[&floats(&[2, 2], &[0., 1., 2., 3.])]);
    assert_eq!(outputs[0].as_ref().data_ptr(), outputs[1].as_ref().data_ptr());
    let mut b = Builder::new();
    let x = b.input(&[2]);
    let a = b.kernel(increment, &[x]);
    let same = b.call("lib.identity.default", vec![t(a)], &[2]);
    let plan = b.build(&[same]).unwrap();
    assert_eq!(plan.host_calls().collect::<Vec<_>>(), ["lib.identity.default"]);
    let first = run(&plan, &[&floats(&[2], &[1., 2.])]);
    run(&plan, &[&floats(&[2], &[5., 5.])]);
    assert_eq!(values(first[0].as_ref()), [2., 3.]);
}

#[test]
fn custom_operators_may_keep_their_arguments() {
    let mut b = Builder::new();
    let x = b.input(&[2]);
    let a = b.kernel(increment, &[x]);
    let out = b.call("lib.keep.default", vec![t(a)], &[2]);
    let plan = b.build(&[out]).unwrap();
    let host = TestHost::default();
    for value in [1., 2.] {
        plan.run(&[floats(&[2], &[value; 2]).as_ref()], &host).unwrap();
    }
    let kept: Vec<f32> = host.kept.lock().unwrap().iter().map(|kept| values(kept.as_ref())[0]).collect();
    assert_eq!(kept, [2., 3.]);
}

#[test]
fn large_arenas_may_move() {
    const N: i64 = 1 << 17;
    let mut b = Builder::new();
    let memory = b.memory.clone();
    let x = b.input(&[N]);
    let a = b.kernel(increment, &[x]);
    let c = b.call("aten.relu.default", vec![t(a)], &[N]);
    let plan = b.build(&[c]).unwrap();
    let bytes = plan.spec().arena_bytes;
    let first = run(&plan, &[&floats(&[N], &vec![1.0; N as usize])]);
    // Somebody else gets the block now; the next run must leave it alone.
    let mut block = memory.take(bytes).unwrap();
    let pointer = block.as_ptr();
    // SAFETY: the block has that many bytes.
    unsafe { pointer.write_bytes(0x7f, bytes as usize) };
    let second = run(&plan, &[&floats(&[N], &vec![2.0; N as usize])]);
    // SAFETY: as above, and they are written.
    let bytes = unsafe { std::slice::from_raw_parts(pointer, bytes as usize) };
    assert!(bytes.iter().all(|byte| *byte == 0x7f));
    assert_eq!((values(first[0].as_ref())[1], values(second[0].as_ref())[1]), (2.0, 3.0));
    memory.give(block);
}

#[test]
fn outputs_alias_as_in_eager() {
    let mut b = Builder::new();
    let x = b.input(&[2, 3]);
    let row = b.view(x, &[3], &[1], 3);
    let last = b.view(row, &[2], &[1], 1);
    let a = b.kernel(increment, &[x]);
    let column = b.view(a, &[2], &[3], 2);
    let plan = b.build(&[x, row, last, a, column, a]).unwrap();
    let storage = floats(&[7], &[9., 0., 1., 2., 3., 4., 5.]);
    let x = storage.as_ref().reinterpret(&[2, 3], &[3, 1], 1).unwrap(); // with a storage offset
    let outputs = run(&plan, &[&x]);
    let pointer = |i: usize| outputs[i].as_ref().data_ptr() as usize;
    assert_eq!(pointer(0), x.as_ref().data_ptr() as usize);
    assert_eq!((values(outputs[1].as_ref()), pointer(1)), (vec![3., 4., 5.], pointer(0) + 12));
    assert_eq!((outputs[1].as_ref().is_view(), outputs[1].as_ref().storage_offset()), (Some(true), 4));
    assert_eq!((values(outputs[2].as_ref()), pointer(2)), (vec![4., 5.], pointer(0) + 16));
    assert_eq!(values(outputs[3].as_ref()), [1., 2., 3., 4., 5., 6.]);
    assert_eq!((values(outputs[4].as_ref()), pointer(4)), (vec![3., 6.], pointer(3) + 8));
    assert_eq!((outputs[4].as_ref().is_view(), pointer(5)), (Some(true), pointer(3)));
}

#[test]
fn inputs_are_mutated_in_place() {
    let mut b = Builder::new();
    let x = b.input(&[4]);
    let tail = b.view(x, &[2], &[1], 2);
    let y = b.input(&[2]);
    b.launch(increment, &[y, tail], 100);
    b.push_call("aten.relu_.default", vec![t(x)], vec![Some(x)]);
    let plan = b.build(&[x]).unwrap();
    let x = floats(&[4], &[-1., 1., 1., 1.]);
    let outputs = run(&plan, &[&x, &floats(&[2], &[-5., 5.])]);
    assert_eq!(values(x.as_ref()), [0., 1., 0., 6.]);
    assert_eq!(outputs[0].as_ref().data_ptr(), x.as_ref().data_ptr());
}

#[test]
fn several_results_and_unused_ones() {
    let mut b = Builder::new();
    let x = b.input(&[2, 2]);
    let a = b.kernel(increment, &[x]);
    let best = b.floats(&[2]);
    b.push_call("aten.max.dim", vec![t(a), Value::Int(1)], vec![Some(best), None]);
    let joined = b.call("aten.cat.default", vec![Value::List(vec![t(best), t(best)])], &[4]);
    let plan = b.build(&[joined]).unwrap();
    let outputs = run(&plan, &[&floats(&[2, 2], &[0., 4., 2., 1.])]);
    assert_eq!(values(outputs[0].as_ref()), [5., 3., 5., 3.]);
}

#[test]
fn constants_are_bound() {
    let mut b = Builder::new();
    let x = b.input(&[2]);
    let c = b.floats(&[2]);
    b.spec.constants.push(c);
    b.constants.push(floats(&[2], &[10., -100.]));
    let out = b.kernel(fused, &[x, c]);
    let plan = b.build(&[out, c]).unwrap();
    let outputs = run(&plan, &[&floats(&[2], &[1., 2.])]);
    assert_eq!((values(outputs[0].as_ref()), values(outputs[1].as_ref())), (vec![12., 0.], vec![10., -100.]));
}

#[test]
fn the_host_makes_inexpressible_and_failing_calls() {
    // Integer tensors with a Scalar argument: neither shim nor dispatcher can.
    let mut b = Builder::new();
    let meta = TensorMeta::contiguous(DType::I64, &[2]);
    let x = b.slot(meta.clone());
    b.spec.inputs.push(x);
    let out = b.slot(meta);
    let kwargs = vec![("alpha".to_owned(), Value::Int(3))];
    let args = vec![t(x), t(x)];
    b.spec.steps.push(PlanStep::Call {
        target: "aten.add.Tensor".into(),
        args,
        kwargs,
        outs: vec![Some(out)],
        into: false,
    });
    let plan = b.build(&[out]).unwrap();
    assert_eq!(plan.host_calls().collect::<Vec<_>>(), ["aten.add.Tensor"]);
    let host = TestHost::default();
    let x = ints(&[2], &[3, 4]);
    let outputs = plan.run(&[x.as_ref()], &host).unwrap();
    assert_eq!(outputs[0].as_ref().dtype(), Some(DType::I64));
    assert_eq!(*host.calls.lock().unwrap(), ["aten.add.Tensor"]);
    // A call that fails is repeated through the host, whose exception is the user's.
    let mut b = Builder::new();
    let (x, y) = (b.input(&[2, 3]), b.input(&[2, 3]));
    let a = b.kernel(increment, &[x]);
    let out = b.call("aten.mm.default", vec![t(a), t(y)], &[2, 3]);
    let plan = b.build(&[out]).unwrap();
    let x = floats(&[2, 3], &[0.; 6]);
    for _ in 0..2 {
        let host = TestHost::default();
        let Err(RunError::Host(error)) = plan.run(&[x.as_ref(), x.as_ref()], &host) else { panic!("it fails") };
        assert_eq!(error.downcast_ref::<String>().map(String::as_str), Some("no aten.mm.default"));
    }
    assert!(torch().is_grad_enabled());
}

#[test]
fn results_get_the_layout_that_was_planned() {
    let build = |sizes: &[i64], strides: &[i64]| {
        let mut b = Builder::new();
        let x = b.input(&[2, 3]);
        let mut meta = TensorMeta::contiguous(DType::F32, sizes);
        meta.strides = strides.into();
        let result = b.slot(meta);
        b.push_call("aten.relu.default", vec![t(x)], vec![Some(result)]);
        let out = b.floats(&[6]);
        b.spec.steps.push(PlanStep::Alloc { slot: out, place: Place::Undecided });
        b.launch(increment, &[result, out], 100);
        b.build(&[out]).unwrap()
    };
    let x = floats(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
    let outputs = run(&build(&[2, 3], &[3, 1]), &[&x]);
    assert_eq!(values(outputs[0].as_ref()), [1., 2., 3., 4., 5., 6.]);
    let outputs = run(&build(&[2, 3], &[1, 2]), &[&x]); // copied to column-major
    assert_eq!(values(outputs[0].as_ref()), [1., 4., 2., 5., 3., 6.]);
    let error = build(&[3, 2], &[2, 1]).run(&[x.as_ref()], &TestHost::default()).unwrap_err();
    assert!(error.to_string().contains("aten.relu.default gave Tensor(f32[2, 3]) instead of f32[3, 2]"), "{error}");
}

#[test]
fn large_results_reuse_memory() {
    const N: i64 = 1 << 20;
    let mut b = Builder::new();
    let memory = b.memory.clone();
    let x = b.input(&[N]);
    let a = b.kernel(increment, &[x]);
    let out = b.kernel(increment, &[a]);
    let plan = b.build(&[out]).unwrap();
    let x = floats(&[N], &vec![1.0; N as usize]);
    let first = run(&plan, &[&x]).remove(0);
    let address = first.as_ref().data_ptr() as usize;
    assert_eq!(values(first.as_ref())[N as usize - 1], 3.0);
    let in_use = memory.stats().in_use;
    assert!(in_use >= 4 << 20, "{:?}", memory.stats());
    let second = run(&plan, &[&x]).remove(0);
    assert_ne!(second.as_ref().data_ptr() as usize, address); // the first is alive
    std::thread::spawn(move || drop(first)).join().unwrap();
    drop(second);
    assert_eq!(memory.stats().in_use, 0);
    for _ in 0..10 {
        run(&plan, &[&x]);
    }
    let stats = memory.stats();
    assert_eq!((stats.in_use, stats.misses), (0, 3), "{stats:?}");
    assert!(stats.peak <= 16 << 20, "{stats:?}");
    // A result outlives its plan and its cache.
    let last = run(&plan, &[&x]).remove(0);
    drop((plan, memory));
    assert_eq!(values(last.as_ref())[0], 3.0);
}

#[test]
fn runs_keep_no_results() {
    const N: i64 = 1 << 16;
    let mut b = Builder::new();
    let memory = b.memory.clone();
    let x = b.input(&[N]);
    let a = b.kernel(increment, &[x]);
    let part = b.view(a, &[4], &[1], 4);
    let c = b.kernel(increment, &[x]);
    let hidden = b.view(c, &[4], &[1], 0); // `c` itself is not returned
    let copied = b.call("aten.clone.default", vec![t(hidden)], &[4]);
    let row = b.view(copied, &[2], &[1], 1);
    let plan = b.build(&[a, part, a, hidden, row]).unwrap();
    let outputs = run(&plan, &[&floats(&[N], &vec![0.5; N as usize])]);
    let read: Vec<f32> = outputs.iter().map(|output| values(output.as_ref())[1]).collect();
    assert_eq!((read, memory.stats().in_use), (vec![1.5; 5], 2 * 4 * N as u64));
    drop(outputs);
    assert_eq!(memory.stats().in_use, 0);
}

/// Plans of random kernels, views and calls give what each step gives by itself.
#[test]
fn random_plans() {
    let mut state = 1u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for _ in 0..200 {
        let mut b = Builder::new();
        let input: Vec<f32> = (0..8).map(|i| i as f32 - 3.0).collect();
        let mut slots = vec![(b.input(&[8]), input.clone())];
        for _ in 0..1 + random(14) {
            let (first, second) = (slots[random(slots.len())].clone(), slots[random(slots.len())].clone());
            let made = match random(5) {
                0 => (b.kernel(increment, &[first.0]), first.1.iter().map(|x| x + 1.0).collect()),
                1 => {
                    // Swaps the halves by kernels that write views.
                    let slot = b.floats(&[8]);
                    b.spec.steps.push(PlanStep::Alloc { slot, place: Place::Undecided });
                    for (from, to) in [(0, 4), (4, 0)] {
                        let (source, target) = (b.view(first.0, &[4], &[1], from), b.view(slot, &[4], &[1], to));
                        b.launch(increment, &[source, target], 100);
                    }
                    (slot, first.1[4..].iter().chain(&first.1[..4]).map(|x| x + 1.0).collect())
                }
                2 => {
                    let relu = first.1.iter().map(|x: &f32| x.max(0.0)).collect();
                    (b.call("aten.relu.default", vec![t(first.0)], &[8]), relu)
                }
                3 => {
                    let list = Value::List(vec![Value::Int(8)]);
                    (b.call("aten.view.default", vec![t(first.0), list], &[8]), first.1)
                }
                _ => {
                    let fused_values = first.1.iter().zip(&second.1).map(|(x, y)| (x * 2.0 + y).max(0.0)).collect();
                    (b.kernel(fused, &[first.0, second.0]), fused_values)
                }
            };
            slots.push(made);
        }
        let outputs: Vec<_> = (0..1 + random(3)).map(|_| slots[random(slots.len())].clone()).collect();
        let ids: Vec<SlotId> = outputs.iter().map(|(slot, _)| *slot).collect();
        let plan = b.build(&ids).unwrap();
        let x = floats(&[8], &input);
        let first = run(&plan, &[&x]);
        run(&plan, &[&floats(&[8], &[1e6; 8])]);
        for (result, (_, expected)) in first.iter().zip(&outputs) {
            assert_eq!(&values(result.as_ref()), expected, "{}", plan.spec());
        }
    }
}

#[test]
fn small_arenas_stay_with_their_plan() {
    let mut b = Builder::new();
    let memory = b.memory.clone();
    let x = b.input(&[8]);
    let a = b.kernel(increment, &[x]);
    let out = b.kernel(increment, &[a]);
    let plan = b.build(&[out]).unwrap();
    let x = floats(&[8], &[0.; 8]);
    run(&plan, &[&x]);
    run(&plan, &[&x]);
    assert_eq!((memory.stats().in_use, memory.stats().misses), (4096, 1));
    plan.release_memory();
    assert_eq!((memory.stats().in_use, memory.stats().held), (0, 4096));
    run(&plan, &[&x]);
    drop(plan);
    memory.clear();
    assert_eq!((memory.stats().in_use, memory.stats().held), (0, 0));
}

#[test]
fn one_plan_runs_in_many_threads() {
    let mut b = Builder::new();
    let x = b.input(&[64]);
    let a = b.kernel(increment, &[x]);
    let doubled = b.call("aten.relu.default", vec![t(a)], &[64]);
    let c = b.kernel(increment, &[doubled]);
    let out = b.kernel(fused, &[c, a]);
    let plan = b.build(&[out]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let plan = &plan;
            scope.spawn(move || {
                let value = thread as f32;
                let x = floats(&[64], &[value; 64]);
                for _ in 0..300 {
                    let outputs = run(plan, &[&x]);
                    assert_eq!(values(outputs[0].as_ref()), [(value + 2.0) * 2.0 + value + 1.0; 64]);
                }
            });
        }
    });
}

#[test]
fn large_ranges_are_split() {
    static PARTS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn counted(buffers: *const *mut u8, lo: i64, hi: i64) {
        PARTS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as for `increment`.
        unsafe { increment(buffers, lo, hi) }
    }
    let parts = |grain: i64| {
        let mut b = Builder::new();
        let (x, out) = (b.input(&[1000]), b.floats(&[1000]));
        b.spec.steps.push(PlanStep::Alloc { slot: out, place: Place::Undecided });
        b.launch(counted, &[x, out], grain);
        let plan = b.build(&[out]).unwrap();
        PARTS.store(0, Ordering::Relaxed);
        let outputs = run(&plan, &[&floats(&[1000], &[1.0; 1000])]);
        assert_eq!(values(outputs[0].as_ref()), [2.0; 1000]);
        PARTS.load(Ordering::Relaxed)
    };
    assert_eq!(parts(1000), 1);
    assert_eq!(parts(10), torch().num_threads().min(100));
}

#[test]
fn autograd_records_a_plan_of_calls() {
    let build = |mode| {
        let mut b = Builder::new();
        b.spec.mode = mode;
        let x = b.input(&[2, 2]);
        let y = b.call("aten.relu.default", vec![t(x)], &[2, 2]);
        let z = b.call("aten.mm.default", vec![t(y), t(x)], &[2, 2]);
        b.build(&[z]).unwrap()
    };
    let x = floats(&[2, 2], &[1., 2., 3., 4.]);
    x.as_ref().set_requires_grad(true).unwrap();
    let recorded = run(&build(Mode::Autograd), &[&x]);
    assert_eq!(recorded[0].as_ref().requires_grad(), Some(true));
    close(&values(recorded[0].as_ref()), &[7., 10., 15., 22.]);
    let _guard = torch().no_grad();
    let plain = run(&build(Mode::Inference), &[&x]);
    assert_eq!(plain[0].as_ref().requires_grad(), Some(false));
    close(&values(plain[0].as_ref()), &[7., 10., 15., 22.]);
}

#[test]
fn malformed_plans_are_refused() {
    let refuse = |result: Result<Plan, BuildError>| match result {
        Err(BuildError::Malformed(text)) => text,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was built"),
    };
    let mut b = Builder::new();
    let (x, y) = (b.input(&[2]), b.floats(&[2]));
    b.launch(increment, &[x, y], 1);
    assert!(refuse(b.build(&[x])).contains("%1 is used before it is defined"));

    let mut b = Builder::new();
    let y = b.floats(&[2]);
    assert!(refuse(b.build(&[y])).contains("output %0 is not defined"));

    let mut b = Builder::new();
    let x = b.input(&[2]);
    let y = b.kernel(increment, &[x]);
    b.spec.outputs = vec![y];
    b.spec.plan_memory();
    for step in &mut b.spec.steps {
        if let PlanStep::Alloc { place, .. } = step {
            *place = Place::Arena { offset: 0 };
        }
    }
    b.spec.arena_bytes = 64;
    assert!(refuse(b.build_as_is()).contains("output %1 lives in the arena"));

    let mut b = Builder::new();
    let x = b.input(&[2]);
    let y = b.kernel(increment, &[x]);
    b.spec.kernels[0].params[1].dtype = DType::F64;
    assert!(refuse(b.build(&[y])).contains("parameter 1 of kernel k is f64"));

    let mut b = Builder::new();
    let x = b.input(&[2]);
    let y = b.kernel(increment, &[x]);
    b.spec.mode = Mode::Autograd;
    assert!(refuse(b.build(&[y])).contains("under autograd"));
}

//! The native backend: an ATen graph to a running plan.

use crate::engine::Engine;
use crate::record::PyGraph;
use oxy_codegen::{HostTarget, Linker};
use oxy_graph::{Arg, ValueId};
use oxy_guards::Registers;
use oxy_lower::{Options, Program, Step};
use oxy_runtime::{
    ArtifactCache, BlockCache, Host, HostArg, HostError, Kernel, KernelEntry, KernelId, Key, Mode, Place, Plan,
    PlanArg, PlanSpec, PlanStep, Resources, RunError, SlotId,
};
use oxy_torch::{KnownTensor, Tensor, TensorRef, Torch, Value};
use oxy_tracer::Segment;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

/// What all native graphs of the process share.
pub struct NativeState {
    pub torch: &'static Torch,
    pub linker: Linker,
    pub target: HostTarget,
    pub artifacts: ArtifactCache,
    pub memory: Arc<BlockCache>,
}

impl NativeState {
    /// Loads torch's C ABI, checks that Python's tensors look as expected, and finds the host.
    pub fn new(py: Python<'_>) -> Result<NativeState, String> {
        let torch = Torch::load().map_err(|e| e.to_string())?;
        verify(py, torch)?;
        Ok(NativeState {
            torch,
            linker: Linker::new().map_err(|e| e.to_string())?,
            target: HostTarget::detect(),
            artifacts: ArtifactCache::from_env(),
            memory: Arc::new(BlockCache::new(BlockCache::default_bound())),
        })
    }
}

/// Compares a tensor's facts as Python tells them with what the ABI reads.
pub fn verify(py: Python<'_>, torch: &'static Torch) -> Result<(), String> {
    let text = |e: PyErr| e.to_string();
    let module = py.import("torch").map_err(text)?;
    let tensor = module.call_method1("empty", ((3, 5),)).and_then(|t| t.getattr("mT")).map_err(text)?;
    let data_ptr: usize = tensor.call_method0("data_ptr").and_then(|p| p.extract()).map_err(text)?;
    let dtype = tensor.getattr("dtype").and_then(|d| d.str().map(|s| s.to_string())).map_err(text)?;
    let dtype = oxy_graph::DType::from_torch_name(dtype.trim_start_matches("torch.")).ok_or("unknown default dtype")?;
    let object = NonNull::new(tensor.as_ptr()).ok_or("no tensor")?.cast();
    let known = KnownTensor { object, dtype, sizes: &[5, 3], strides: &[1, 5], data_ptr };
    // SAFETY: attached, and the object is a live torch.Tensor.
    unsafe { oxy_torch::verify_layout(torch, &known) }.map_err(|e| e.to_string())
}

/// A graph compiled to native code.
pub struct NativeGraph {
    plan: Plan,
    torch: &'static Torch,
    /// An input requires a gradient, though no output does: grad mode is off while the plan runs.
    without_grad: bool,
    runs_python: bool,
}

/// Compiles a segment's ATen graph. `None`: torch's operators have to run it.
pub fn compile<'py>(py: Python<'py>, engine: &Engine, segment: &Segment<'py>) -> Result<Option<NativeGraph>, String> {
    let text = |e: PyErr| e.to_string();
    let outputs = PyList::new(py, segment.outputs.iter().map(|&n| &segment.graph.fakes[n as usize])).map_err(text)?;
    let capture = &segment.graph.capture;
    let graph = capture.call_method1("finish", (outputs,)).map_err(text)?;
    let constants = capture.getattr("constants").and_then(|c| c.extract::<Vec<Bound<'py, PyAny>>>()).map_err(text)?;
    let graph = graph.cast::<PyGraph>().map_err(|e| e.to_string())?;
    let mut requires_grad = Vec::with_capacity(segment.graph.inputs.len());
    for input in &segment.graph.inputs {
        requires_grad.push(input.object.getattr("requires_grad").and_then(|flag| flag.is_truthy()).map_err(text)?);
    }
    let without_grad = requires_grad.contains(&true);
    let program = lower(engine, graph.get())?;
    if without_grad && returns_view_of(&program, &requires_grad) {
        return Ok(None);
    }
    let mut native = compile_program(py, engine, program, &constants)?;
    native.without_grad = without_grad;
    Ok(Some(native))
}

/// Whether an output is a view of an input that requires a gradient: what such a view says of gradients depends on
/// how it was made (`detach`, `no_grad`), which a plan's views don't know.
fn returns_view_of(program: &Program, requires_grad: &[bool]) -> bool {
    let is_root = |root: &ValueId| program.inputs.iter().zip(requires_grad).any(|(input, grad)| *grad && input == root);
    program
        .outputs
        .iter()
        .any(|output| program.storage.get(output.0 as usize).is_some_and(|root| root != output && is_root(root)))
}

/// Compiles an ATen graph; constants are its last inputs.
pub fn compile_graph(
    py: Python<'_>,
    engine: &Engine,
    graph: &PyGraph,
    constants: &[Bound<'_, PyAny>],
) -> Result<NativeGraph, String> {
    let program = lower(engine, graph)?;
    compile_program(py, engine, program, constants)
}

fn lower(engine: &Engine, graph: &PyGraph) -> Result<Program, String> {
    if let Some(text) = engine.dump_text(&graph.graph) {
        crate::log::line(&text);
    }
    let started = Instant::now();
    let program = oxy_lower::lower(&graph.graph, &Options::default()).map_err(|e| e.to_string())?;
    engine.stats.phase("lower", started.elapsed());
    Ok(program)
}

fn compile_program(
    py: Python<'_>,
    engine: &Engine,
    program: Program,
    constants: &[Bound<'_, PyAny>],
) -> Result<NativeGraph, String> {
    let native = engine.native(py)?;
    let started = Instant::now();
    let kernels = compile_kernels(native, &program)?;
    engine.stats.phase("codegen", started.elapsed());
    let started = Instant::now();
    let spec = plan_spec(program, constants.len())?;
    let tensors = constants.iter().map(|constant| owned(native.torch, constant)).collect::<Result<Vec<_>, _>>()?;
    let resources = Resources {
        torch: native.torch,
        kernels,
        constants: tensors,
        schema: &|target| schema(py, target),
        memory: native.memory.clone(),
    };
    let plan = Plan::new(spec, resources).map_err(|e| e.to_string())?;
    engine.stats.phase("plan", started.elapsed());
    let runs_python = plan.host_calls().next().is_some();
    Ok(NativeGraph { plan, torch: native.torch, without_grad: true, runs_python })
}

/// The text of an operator's schema; none for unknown operators.
fn schema(py: Python<'_>, target: &str) -> Option<String> {
    resolve(py, target).ok()?.getattr("_schema").ok()?.str().ok().map(|s| s.to_string())
}

/// `aten.add.Tensor` → the overload in `torch.ops`.
fn resolve<'py>(py: Python<'py>, target: &str) -> PyResult<Bound<'py, PyAny>> {
    let ops = py.import("torch")?.getattr("ops")?;
    target.split('.').try_fold(ops, |object, part| object.getattr(part))
}

fn owned(torch: &'static Torch, tensor: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    let object = NonNull::new(tensor.as_ptr()).ok_or("no tensor")?.cast();
    // SAFETY: attached; constants are live torch tensors, and the layout was verified when the state was made.
    unsafe { TensorRef::from_pyobject(torch, object) }.to_tensor().map_err(|e| e.to_string())
}

/// Machine code of a program's kernels, from the artifact cache if it is there.
fn compile_kernels(native: &NativeState, program: &Program) -> Result<Vec<Kernel>, String> {
    if program.kernels.is_empty() {
        return Ok(Vec::new());
    }
    let text: String = program.kernels.iter().map(|kernel| kernel.to_string()).collect();
    let key = Key::of(&[text.as_bytes(), native.target.key().as_bytes()]);
    let symbols: Vec<&str> = program.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let stored = native.artifacts.load(&key).and_then(|bytes| native.linker.link(&bytes, &symbols).ok());
    let linked = match stored {
        Some(linked) => linked,
        None => {
            let kernels: Vec<&oxy_loops::Kernel> = program.kernels.iter().collect();
            let object = oxy_codegen::compile(&kernels, &native.target).map_err(|e| e.to_string())?;
            native.artifacts.store(&key, object.as_bytes());
            native.linker.link(object.as_bytes(), &symbols).map_err(|e| e.to_string())?
        }
    };
    let addresses = linked.addresses().to_vec();
    let owner = Arc::new(linked);
    Ok(addresses
        .into_iter()
        .map(|address| {
            // SAFETY: the address is the entry of the kernel at this position, compiled from it; `owner` keeps it mapped.
            unsafe {
                let entry = std::mem::transmute::<usize, KernelEntry>(address);
                Kernel::new(entry, owner.clone())
            }
        })
        .collect())
}

/// The plan of a program; the last `constant_count` inputs are constants.
fn plan_spec(program: Program, constant_count: usize) -> Result<PlanSpec, String> {
    let slot = |id: ValueId| SlotId(id.0);
    let arg = |arg: &Arg| -> Result<PlanArg, String> {
        oxy_runtime::spec::plan_arg(arg, &mut |id| slot(id))
            .ok_or_else(|| "an argument that no operator takes".to_owned())
    };
    let mut steps = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        steps.push(match step {
            Step::Allocate { value } => PlanStep::Alloc { slot: slot(*value), place: Place::Undecided },
            Step::Launch { kernel, buffers } => {
                let code = program.kernels.get(*kernel as usize).ok_or("a launch of no kernel")?;
                PlanStep::Launch {
                    kernel: KernelId(*kernel),
                    args: buffers.iter().map(|id| slot(*id)).collect(),
                    range: code.range(),
                    grain: oxy_runtime::bounds::default_grain(code),
                }
            }
            Step::Call { target, args, kwargs, outputs } => PlanStep::Call {
                target: target.clone(),
                args: args.iter().map(arg).collect::<Result<_, _>>()?,
                kwargs: kwargs
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), arg(value)?)))
                    .collect::<Result<_, String>>()?,
                outs: outputs.iter().map(|out| out.map(slot)).collect(),
                into: false,
            },
            Step::View { out, of, offset } => PlanStep::View { slot: slot(*out), of: slot(*of), offset: *offset },
        });
    }
    let inputs: Vec<SlotId> = program.inputs.iter().map(|id| slot(*id)).collect();
    let split = inputs.len().checked_sub(constant_count).ok_or("fewer inputs than constants")?;
    let mut spec = PlanSpec {
        slots: program.values,
        storage: program.storage.iter().map(|id| slot(*id)).collect(),
        kernels: program.kernels,
        inputs: inputs[..split].to_vec(),
        constants: inputs[split..].to_vec(),
        steps,
        outputs: program.outputs.iter().map(|id| slot(*id)).collect(),
        arena_bytes: 0,
        mode: Mode::Inference,
    };
    spec.plan_memory();
    Ok(spec)
}

impl NativeGraph {
    /// Whether an operator is called through Python.
    pub fn runs_python(&self) -> bool {
        self.runs_python
    }

    pub fn kernel_count(&self) -> usize {
        self.plan.spec().kernels.len()
    }

    /// Runs on the tensors in the first registers, for all outputs.
    pub fn run(&self, py: Python<'_>, registers: &Registers, input_count: usize) -> PyResult<Vec<Py<PyAny>>> {
        self.run_on_registers(py, registers, input_count)?.into_iter().map(|tensor| wrap(py, tensor)).collect()
    }

    /// Runs on the tensors in the first registers, for one of the outputs.
    pub fn run_for_one(
        &self,
        py: Python<'_>,
        registers: &Registers,
        input_count: usize,
        output: u32,
    ) -> PyResult<Py<PyAny>> {
        let mut outputs = self.run_on_registers(py, registers, input_count)?;
        if output as usize >= outputs.len() {
            return Err(pyo3::exceptions::PySystemError::new_err("oxyfuel: the graph returned too few tensors"));
        }
        wrap(py, outputs.swap_remove(output as usize))
    }

    fn run_on_registers(
        &self,
        py: Python<'_>,
        registers: &Registers,
        input_count: usize,
    ) -> PyResult<SmallVec<[Tensor; 4]>> {
        let mut inputs: SmallVec<[TensorRef<'_>; 16]> = SmallVec::with_capacity(input_count);
        for register in 0..input_count {
            // SAFETY: the segment's tensor guards have passed for its inputs, and the registers outlive the run.
            match unsafe { registers.tensor(self.torch, register) } {
                Some(tensor) => inputs.push(tensor),
                None => return Err(pyo3::exceptions::PySystemError::new_err("oxyfuel: an input is missing")),
            }
        }
        let mut outputs = SmallVec::new();
        let host = PythonHost { py, torch: self.torch };
        let _without_grad = (self.without_grad && self.torch.is_grad_enabled()).then(|| self.torch.no_grad());
        // SAFETY: the guards that passed are for the metadata that the plan was made for.
        unsafe { self.plan.run_unchecked(&inputs, &host, &mut outputs) }.map_err(raise)?;
        Ok(outputs)
    }

    /// Runs on Python tensors that have the graph's metadata.
    pub fn run_tensors(&self, py: Python<'_>, tensors: &Bound<'_, PyTuple>) -> PyResult<Vec<Py<PyAny>>> {
        let class = py.import("torch")?.getattr("Tensor")?;
        let mut inputs: SmallVec<[TensorRef<'_>; 16]> = SmallVec::new();
        let items: Vec<Bound<'_, PyAny>> = tensors.iter().collect();
        for item in &items {
            if !item.is_instance(&class)? {
                return Err(pyo3::exceptions::PyTypeError::new_err("a compiled graph takes tensors"));
            }
            let object = NonNull::new(item.as_ptr()).ok_or_else(|| pyo3::exceptions::PySystemError::new_err("NULL"))?;
            // SAFETY: checked to be a torch.Tensor; `items` keeps it alive for the run.
            inputs.push(unsafe { TensorRef::from_pyobject(self.torch, object.cast()) });
        }
        self.run_on(py, &inputs)
    }

    fn run_on(&self, py: Python<'_>, inputs: &[TensorRef<'_>]) -> PyResult<Vec<Py<PyAny>>> {
        let host = PythonHost { py, torch: self.torch };
        let _without_grad = self.without_grad.then(|| self.torch.no_grad());
        self.plan.run(inputs, &host).map_err(raise)?.into_iter().map(|tensor| wrap(py, tensor)).collect()
    }
}

/// The exception for a failed run.
fn raise(error: RunError) -> PyErr {
    match error {
        RunError::Host(error) => match error.downcast::<PyErr>() {
            Ok(error) => *error,
            Err(_) => pyo3::exceptions::PyRuntimeError::new_err("an operator failed"),
        },
        RunError::Torch(error) => pyo3::exceptions::PyRuntimeError::new_err(error.to_string()),
        RunError::Internal(text) => pyo3::exceptions::PySystemError::new_err(format!("oxyfuel: {text}")),
    }
}

fn wrap(py: Python<'_>, tensor: Tensor) -> PyResult<Py<PyAny>> {
    // SAFETY: attached, and no error is set: runs return errors as values.
    let object = unsafe { tensor.into_pyobject() };
    let object = object.map_err(|e| pyo3::exceptions::PyRuntimeError::new_err(e.to_string()))?;
    // SAFETY: a new reference to a Python tensor.
    Ok(unsafe { Bound::from_owned_ptr(py, object.as_ptr().cast()) }.unbind())
}

/// Calls operators through Python where torch's C ABI can't.
struct PythonHost<'py> {
    py: Python<'py>,
    torch: &'static Torch,
}

impl PythonHost<'_> {
    fn call(
        &self,
        target: &str,
        args: &[HostArg<'_>],
        kwargs: &[(String, HostArg<'_>)],
    ) -> PyResult<oxy_torch::call::Results> {
        let py = self.py;
        let operator = resolve(py, target)?;
        let args = args.iter().map(|arg| self.argument(arg)).collect::<PyResult<Vec<_>>>()?;
        let named = PyDict::new(py);
        for (name, value) in kwargs {
            named.set_item(name, self.argument(value)?)?;
        }
        let result = operator.call(PyTuple::new(py, args)?, Some(&named))?;
        let mut results = oxy_torch::call::Results::new();
        self.flatten(&result, &mut results)?;
        Ok(results)
    }

    fn flatten(&self, result: &Bound<'_, PyAny>, into: &mut oxy_torch::call::Results) -> PyResult<()> {
        if result.is_instance_of::<PyTuple>() || result.is_instance_of::<PyList>() {
            for item in result.try_iter()? {
                self.flatten(&item?, into)?;
            }
            return Ok(());
        }
        let class = self.py.import("torch")?.getattr("Tensor")?;
        into.push(if result.is_instance(&class)? {
            Some(owned(self.torch, result).map_err(pyo3::exceptions::PyRuntimeError::new_err)?)
        } else {
            None
        });
        Ok(())
    }

    fn argument(&self, arg: &HostArg<'_>) -> PyResult<Py<PyAny>> {
        let py = self.py;
        let torch = || py.import("torch");
        Ok(match arg {
            Value::Tensor(tensor) => {
                let tensor =
                    tensor.to_tensor().map_err(|e| pyo3::exceptions::PyRuntimeError::new_err(e.to_string()))?;
                wrap(py, tensor)?
            }
            Value::None => py.None(),
            Value::Bool(value) => pyo3::types::PyBool::new(py, *value).to_owned().into_any().unbind(),
            Value::Int(value) => value.into_pyobject(py)?.into_any().unbind(),
            Value::Float(value) => value.into_pyobject(py)?.into_any().unbind(),
            Value::Complex(re, im) => pyo3::types::PyComplex::from_doubles(py, *re, *im).into_any().unbind(),
            Value::Str(value) => value.into_pyobject(py)?.into_any().unbind(),
            Value::DType(value) => torch()?.getattr(value.torch_name())?.unbind(),
            Value::Device(value) => torch()?.call_method1("device", (value.to_string(),))?.unbind(),
            Value::Layout(_) => torch()?.getattr("strided")?.unbind(),
            Value::MemoryFormat(format) => {
                let name = match format {
                    oxy_graph::MemoryFormat::Contiguous => "contiguous_format",
                    oxy_graph::MemoryFormat::Preserve => "preserve_format",
                    oxy_graph::MemoryFormat::ChannelsLast => "channels_last",
                    oxy_graph::MemoryFormat::ChannelsLast3d => "channels_last_3d",
                };
                torch()?.getattr(name)?.unbind()
            }
            Value::List(items) => {
                let items = items.iter().map(|item| self.argument(item)).collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, items)?.into_any().unbind()
            }
        })
    }
}

impl Host for PythonHost<'_> {
    fn call_operator(
        &self,
        target: &str,
        args: &[HostArg<'_>],
        kwargs: &[(String, HostArg<'_>)],
    ) -> Result<oxy_torch::call::Results, HostError> {
        self.call(target, args, kwargs).map_err(|error| Box::new(error) as HostError)
    }
}

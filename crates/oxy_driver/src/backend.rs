//! Turns a segment's graph into something that runs: the native backend, or a Python one.

use crate::compiled::Compiled;
use crate::engine::Engine;
use crate::native::{self, NativeGraph};
use oxy_guards::Registers;
use oxy_tracer::Segment;
use oxy_tracer::torch_graph::{Call, CallArg, Out};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::Arc;

/// Runs a segment's graph.
pub enum Runner {
    /// No tensor work.
    Empty,
    /// A callable from input tensors to a sequence of outputs.
    Python(Py<PyAny>),
    Native(Box<NativeGraph>),
}

impl Runner {
    pub fn is_empty(&self) -> bool {
        matches!(self, Runner::Empty)
    }

    pub fn kernel_count(&self) -> usize {
        match self {
            Runner::Native(graph) => graph.kernel_count(),
            _ => 0,
        }
    }

    /// Runs the graph on the inputs in the first registers: its output tensors.
    pub fn run(&self, py: Python<'_>, registers: &Registers, input_count: usize) -> PyResult<Vec<Py<PyAny>>> {
        match self {
            Runner::Empty => Ok(Vec::new()),
            Runner::Native(graph) => graph.run(py, registers, input_count),
            Runner::Python(callable) => {
                let inputs = (0..input_count).map(|i| registers.object(py, i)).collect::<PyResult<Vec<_>>>()?;
                let result = callable.bind(py).call1(PyTuple::new(py, inputs)?)?;
                result.try_iter()?.map(|item| item.map(Bound::unbind)).collect()
            }
        }
    }
}

/// Compiles a segment's graph with its callable's backend.
pub fn compile<'py>(
    py: Python<'py>,
    engine: &Engine,
    compiled: &Arc<Compiled>,
    segment: &Segment<'py>,
) -> PyResult<Runner> {
    if segment.graph.calls.is_empty() {
        return Ok(Runner::Empty);
    }
    let forced = forced_backend(py)?;
    let backend = forced.as_ref().or(compiled.options.backend.as_ref());
    if backend.is_none() && !needs_grad(segment)? {
        match native::compile(py, engine, segment) {
            Ok(Some(graph)) => return Ok(Runner::Native(Box::new(graph))),
            Ok(None) => {}
            Err(fault) => {
                engine.stats.update(|counts| counts.faults += 1);
                if engine.config.get().strict {
                    return Err(pyo3::exceptions::PySystemError::new_err(format!("oxyfuel: {fault}")));
                }
                crate::log::line(&format!(
                    "oxyfuel: the native backend could not compile a graph ({fault}); torch's operators run it"
                ));
            }
        }
    }
    let module = export(py, segment)?;
    let Some(backend) = backend else {
        return Ok(Runner::Python(module.getattr("forward")?.unbind()));
    };
    let inputs = PyList::new(py, segment.graph.inputs.iter().map(|input| input.object.clone()))?;
    match backend.bind(py).call1((&module, inputs)) {
        Ok(callable) if callable.is_callable() => Ok(Runner::Python(callable.unbind())),
        Ok(other) => {
            let text = format!("the backend returned {}, which can't be called", other.get_type().name()?);
            let inner = pyo3::exceptions::PyTypeError::new_err(text);
            let class = py.import("oxyfuel.exc")?.getattr("BackendCompilerFailed")?;
            Err(PyErr::from_value(class.call1((backend, inner.value(py)))?))
        }
        Err(error) if is_own_error(py, &error) => Err(error),
        Err(error) => {
            let wrapped = py.import("oxyfuel.exc")?.getattr("BackendCompilerFailed")?.call1((backend, error.value(py)));
            match wrapped {
                Ok(wrapped) => {
                    let wrapped = PyErr::from_value(wrapped);
                    wrapped.set_cause(py, Some(error));
                    Err(wrapped)
                }
                Err(_) => Err(error),
            }
        }
    }
}

/// Errors by which a backend speaks to us: no such backend, and "leave this frame alone".
fn is_own_error(py: Python<'_>, error: &PyErr) -> bool {
    let exc = py.import("oxyfuel.exc");
    ["InvalidBackend", "SkipFrame"]
        .iter()
        .any(|name| exc.as_ref().is_ok_and(|exc| exc.getattr(*name).is_ok_and(|class| error.is_instance(py, &class))))
}

/// The backend that the stance puts in place of every other.
fn forced_backend(py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    let stance = py.import("oxyfuel._decorators")?.getattr("_stance")?;
    let backend = stance.getattr("force_backend")?;
    Ok((!backend.is_none()).then(|| backend.unbind()))
}

/// Whether autograd has to see the graph's operators.
fn needs_grad(segment: &Segment<'_>) -> PyResult<bool> {
    for &number in &segment.outputs {
        if segment.graph.fakes[number as usize].getattr("requires_grad")?.extract::<bool>()? {
            return Ok(true);
        }
    }
    // A write to a tensor that requires a gradient is autograd's business, whether the tensor is returned or not.
    let requires_grad = |arg: &CallArg<'_>| -> PyResult<bool> {
        match arg {
            CallArg::Tensor(number) => segment.graph.fakes[*number as usize].getattr("requires_grad")?.extract(),
            _ => Ok(false),
        }
    };
    for call in segment.graph.calls.iter().filter(|call| oxy_tracer::exits::mutates(call)) {
        for arg in call.args.iter().chain(call.kwargs.iter().map(|(_, arg)| arg)) {
            if requires_grad(arg)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The graph as a `torch.fx.GraphModule`.
pub fn export<'py>(py: Python<'py>, segment: &Segment<'py>) -> PyResult<Bound<'py, PyAny>> {
    let fx = py.import("oxyfuel._fx")?;
    let reference = fx.getattr("Ref")?;
    let nodes = PyList::empty(py);
    for call in &segment.graph.calls {
        nodes.append(node(py, &reference, call)?)?;
    }
    let inputs = PyList::empty(py);
    for input in &segment.graph.inputs {
        let fake = &segment.graph.fakes[input.number as usize];
        inputs.append((input.number, input.source.describe(&segment.local_names), fake, &input.object))?;
    }
    let fakes = PyList::new(py, &segment.graph.fakes)?;
    fx.call_method1("export", (nodes, inputs, segment.outputs.clone(), fakes))
}

fn node<'py>(py: Python<'py>, reference: &Bound<'py, PyAny>, call: &Call<'py>) -> PyResult<Bound<'py, PyAny>> {
    let args = call.args.iter().map(|arg| argument(py, reference, arg)).collect::<PyResult<Vec<_>>>()?;
    let kwargs = PyDict::new(py);
    for (name, arg) in &call.kwargs {
        kwargs.set_item(name, argument(py, reference, arg)?)?;
    }
    let trace: String = call
        .places
        .iter()
        .map(|place| format!("  File \"{}\", line {}, in {}\n", place.file, place.line, place.function))
        .collect();
    let items: (_, _, _, _, _) = (call.callable.clone(), PyTuple::new(py, args)?, kwargs, out(py, &call.out)?, trace);
    Ok(items.into_pyobject(py)?.into_any())
}

fn argument<'py>(py: Python<'py>, reference: &Bound<'py, PyAny>, arg: &CallArg<'py>) -> PyResult<Bound<'py, PyAny>> {
    let many =
        |items: &[CallArg<'py>]| items.iter().map(|item| argument(py, reference, item)).collect::<PyResult<Vec<_>>>();
    Ok(match arg {
        CallArg::Tensor(number) => reference.call1((*number,))?,
        CallArg::Object(object) => object.clone(),
        CallArg::Tuple(items) => PyTuple::new(py, many(items)?)?.into_any(),
        CallArg::List(items) => PyList::new(py, many(items)?)?.into_any(),
        CallArg::Slice(parts) => {
            py.get_type::<pyo3::types::PySlice>().call1(PyTuple::new(py, many(parts.as_slice())?)?)?
        }
        CallArg::Dict(items) => {
            let dict = PyDict::new(py);
            for (key, value) in items {
                dict.set_item(key, argument(py, reference, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// Value numbers of a result: an int for a tensor, a list for a sequence, None for anything else.
fn out<'py>(py: Python<'py>, out: &Out) -> PyResult<Bound<'py, PyAny>> {
    Ok(match out {
        Out::Tensor(number) | Out::Same(number) => number.into_pyobject(py)?.into_any(),
        Out::Items(items) => {
            let items = items.iter().map(|item| self::out(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Out::Other => py.None().into_bound(py),
    })
}

//! The torch-level graph of a trace: calls of torch callables on tensors, in program order.
//!
//! Arguments are kept as trees so that containers changed later don't change what was called. The ATen-level
//! graph of the same calls is recorded by the Python capture object in the same pass.

use crate::frame::Place;
use crate::value::Object;
use crate::well_known::WellKnown;
use oxy_graph::{Arg, Graph, Node, TensorMeta};
use oxy_guards::Source;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

/// An argument of a recorded call.
#[derive(Clone)]
pub enum CallArg<'py> {
    /// Tensor by number.
    Tensor(u32),
    Object(Object<'py>),
    Tuple(Vec<CallArg<'py>>),
    List(Vec<CallArg<'py>>),
    Slice(Box<[CallArg<'py>; 3]>),
    Dict(Vec<(Object<'py>, CallArg<'py>)>),
}

/// Where the tensors of a call's result are.
#[derive(Clone, Debug)]
pub enum Out {
    /// A new tensor with this number.
    Tensor(u32),
    /// An argument tensor handed back by an in-place operator.
    Same(u32),
    Items(Vec<Out>),
    Other,
}

pub struct Call<'py> {
    pub callable: Object<'py>,
    pub args: Vec<CallArg<'py>>,
    pub kwargs: Vec<(String, CallArg<'py>)>,
    pub out: Out,
    pub places: Vec<Place>,
}

pub struct Input<'py> {
    pub number: u32,
    pub source: Source,
    pub object: Object<'py>,
}

pub struct TorchGraph<'py> {
    pub inputs: Vec<Input<'py>>,
    pub calls: Vec<Call<'py>>,
    /// Fake of each tensor number.
    pub fakes: Vec<Object<'py>>,
    /// The Python object that makes fakes and records ATen operators.
    pub capture: Object<'py>,
    /// Calls that matter although no output depends on them (mutation, state).
    pub effects: usize,
}

impl<'py> TorchGraph<'py> {
    pub fn new(py: Python<'py>, known: &WellKnown) -> PyResult<TorchGraph<'py>> {
        let capture = known.capture.bind(py).call0()?;
        Ok(TorchGraph { inputs: Vec::new(), calls: Vec::new(), fakes: Vec::new(), capture, effects: 0 })
    }

    /// Adds a real tensor as an input: its number and its fake.
    pub fn input(&mut self, py: Python<'py>, tensor: &Object<'py>, source: Source) -> PyResult<(u32, Object<'py>)> {
        let fake = self.capture.call_method1(pyo3::intern!(py, "input"), (tensor, self.inputs.len()))?;
        let number = self.number(fake.clone());
        self.inputs.push(Input { number, source, object: tensor.clone() });
        Ok((number, fake))
    }

    /// A number for a new tensor.
    pub fn number(&mut self, fake: Object<'py>) -> u32 {
        self.fakes.push(fake);
        self.fakes.len() as u32 - 1
    }

    /// The real Python argument for calling on fakes.
    pub fn argument(&self, py: Python<'py>, arg: &CallArg<'py>) -> PyResult<Object<'py>> {
        Ok(match arg {
            CallArg::Tensor(number) => self.fakes[*number as usize].clone(),
            CallArg::Object(object) => object.clone(),
            CallArg::Tuple(items) => PyTuple::new(py, self.arguments(py, items)?)?.into_any(),
            CallArg::List(items) => PyList::new(py, self.arguments(py, items)?)?.into_any(),
            CallArg::Slice(parts) => {
                let parts = self.arguments(py, parts.as_slice())?;
                py.get_type::<PySlice>().call1(PyTuple::new(py, parts)?)?
            }
            CallArg::Dict(items) => {
                let dict = PyDict::new(py);
                for (key, value) in items {
                    dict.set_item(key, self.argument(py, value)?)?;
                }
                dict.into_any()
            }
        })
    }

    fn arguments(&self, py: Python<'py>, items: &[CallArg<'py>]) -> PyResult<Vec<Object<'py>>> {
        items.iter().map(|item| self.argument(py, item)).collect()
    }

    /// Calls `callable` on fakes under the recorder.
    pub fn call_on_fakes(
        &self,
        py: Python<'py>,
        callable: &Object<'py>,
        args: &[CallArg<'py>],
        kwargs: &[(String, CallArg<'py>)],
    ) -> PyResult<Object<'py>> {
        let args = PyTuple::new(py, self.arguments(py, args)?)?;
        let dict = PyDict::new(py);
        for (name, value) in kwargs {
            dict.set_item(name, self.argument(py, value)?)?;
        }
        self.capture.call_method1(pyo3::intern!(py, "call"), (callable, args, dict))
    }

    /// The graph as plain data: targets by qualified name, metadata from the fakes. For printing.
    pub fn to_graph(&self, known: &WellKnown, outputs: &[u32]) -> Graph {
        let mut graph = Graph::default();
        let unknown = TensorMeta::contiguous(oxy_graph::DType::F32, &[]);
        graph.metas = self.fakes.iter().map(|fake| meta_of(fake, known).unwrap_or_else(|| unknown.clone())).collect();
        graph.inputs = self.inputs.iter().map(|input| oxy_graph::ValueId(input.number)).collect();
        for call in &self.calls {
            let mut results = Vec::new();
            flatten(&call.out, &mut results);
            graph.nodes.push(Node {
                target: name_of(&call.callable),
                args: call.args.iter().map(|arg| plain(arg, known)).collect(),
                kwargs: call.kwargs.iter().map(|(name, arg)| (name.clone(), plain(arg, known))).collect(),
                outputs: results,
                origin: call.places.last().map(|p| format!("{}:{} in {}", p.file, p.line, p.function).into()),
            });
        }
        graph.outputs = outputs.iter().map(|&number| oxy_graph::ValueId(number)).collect();
        graph
    }
}

/// Qualified name of a callable, for texts: `torch.relu`, `Tensor.view`.
pub fn name_of(callable: &Object<'_>) -> String {
    let text = |name: &str| callable.getattr(name).and_then(|v| v.extract::<String>()).ok();
    let name = text("__qualname__").or_else(|| text("__name__")).unwrap_or_else(|| "callable".to_owned());
    let name = name.rsplit("_VariableFunctionsClass.").next().unwrap_or(&name).replace("TensorBase", "Tensor");
    match text("__module__") {
        Some(module) if module == "_operator" => format!("operator.{name}"),
        Some(module) if !name.contains('.') => format!("{module}.{name}"),
        None if !name.contains('.') => format!("torch.{name}"),
        _ => name,
    }
}

fn flatten(out: &Out, into: &mut Vec<Option<oxy_graph::ValueId>>) {
    match out {
        Out::Tensor(number) | Out::Same(number) => into.push(Some(oxy_graph::ValueId(*number))),
        Out::Items(items) => items.iter().for_each(|item| flatten(item, into)),
        Out::Other => {}
    }
}

fn plain(arg: &CallArg<'_>, known: &WellKnown) -> Arg {
    match arg {
        CallArg::Tensor(number) => Arg::Value(oxy_graph::ValueId(*number)),
        CallArg::Tuple(items) => Arg::Tuple(items.iter().map(|item| plain(item, known)).collect()),
        CallArg::List(items) => Arg::List(items.iter().map(|item| plain(item, known)).collect()),
        CallArg::Slice(parts) => Arg::Slice(Box::new([0, 1, 2].map(|i| plain(&parts[i], known)))),
        CallArg::Dict(items) => Arg::Dict(
            items
                .iter()
                .map(|(key, value)| (plain(&CallArg::Object(key.clone()), known), plain(value, known)))
                .collect(),
        ),
        CallArg::Object(object) => literal(object, known),
    }
}

fn literal(object: &Object<'_>, known: &WellKnown) -> Arg {
    if object.is_none() {
        return Arg::None;
    }
    if let Some(dtype) = known.dtype(object) {
        return Arg::DType(dtype);
    }
    if let Ok(value) = object.cast_exact::<pyo3::types::PyBool>() {
        return Arg::Bool(value.is_true());
    }
    if object.cast_exact::<pyo3::types::PyInt>().is_ok()
        && let Ok(value) = object.extract()
    {
        return Arg::Int(value);
    }
    if object.cast_exact::<pyo3::types::PyFloat>().is_ok()
        && let Ok(value) = object.extract()
    {
        return Arg::Float(value);
    }
    Arg::Str(object.repr().map(|r| r.to_string()).unwrap_or_default())
}

fn meta_of(fake: &Object<'_>, known: &WellKnown) -> Option<TensorMeta> {
    let sizes: Vec<i64> = fake.call_method0("size").ok()?.extract().ok()?;
    let strides: Vec<i64> = fake.call_method0("stride").ok()?.extract().ok()?;
    let mut meta = TensorMeta::contiguous(known.dtype(&fake.getattr("dtype").ok()?)?, &sizes);
    meta.strides = strides.as_slice().into();
    meta.requires_grad = fake.getattr("requires_grad").ok()?.extract().ok()?;
    Some(meta)
}

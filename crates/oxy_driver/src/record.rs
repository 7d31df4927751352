//! Recording of operator calls into a graph, and graphs as Python objects.
//!
//! `GraphBuilder` takes one call after another, as `oxyfuel._capture` sees them below autograd: the operator's
//! name, its Python arguments and its results. Tensors are known by identity: the builder keeps every tensor it
//! has numbered alive, so an address stands for one tensor as long as the builder lives.
//!
//! Promises: a finished graph verifies; its inputs are the builder's inputs in order, then its constants; nodes
//! dropped by `rollback` leave nothing in it. `Graph::run` performs the graph by calling torch's operators one by
//! one, which is the meaning of the graph and the fallback of everything faster.

use oxy_graph::{Arg, DType, Device, DeviceType, Layout, MemoryFormat, Node, TensorMeta, ValueId, meta::Dims};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple, PyType};
use std::collections::HashMap;
use std::sync::Arc;

/// Adds the classes to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<GraphBuilder>()?;
    m.add_class::<PyGraph>()
}

/// Builds the graph of one trace.
#[pyclass(module = "oxyfuel._engine")]
pub struct GraphBuilder {
    graph: oxy_graph::Graph,
    /// Value of each known tensor, by address.
    ids: HashMap<usize, ValueId>,
    // Invariant: one entry per value; what `ids` knows by address is kept alive here or in `rebound`.
    tensors: Vec<Py<PyAny>>,
    rebound: Vec<Py<PyAny>>,
    /// Metadata already read, by address of the `Meta` object that tensors of one kind share.
    metas: HashMap<usize, (Py<PyAny>, TensorMeta)>,
    constants: Vec<ValueId>,
    opaque: Vec<Py<PyAny>>,
    origin: Option<Arc<str>>,
}

#[pymethods]
impl GraphBuilder {
    #[new]
    fn new() -> GraphBuilder {
        GraphBuilder {
            graph: oxy_graph::Graph::default(),
            ids: HashMap::new(),
            tensors: Vec::new(),
            rebound: Vec::new(),
            metas: HashMap::new(),
            constants: Vec::new(),
            opaque: Vec::new(),
            origin: None,
        }
    }

    /// Makes a tensor the next input of the graph.
    fn input(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<u32> {
        let id = self.define(tensor)?;
        self.graph.inputs.push(id);
        Ok(id.0)
    }

    /// Makes a tensor stand for a real one that the graph refers to by itself; such inputs follow the others.
    fn constant(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<u32> {
        let id = self.define(tensor)?;
        self.constants.push(id);
        Ok(id.0)
    }

    /// Appends a call. A result that is an argument keeps its value; the results of a tuple are flattened.
    fn add(
        &mut self,
        name: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        results: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let vocabulary = Vocabulary::get(args.py())?;
        let n_opaque = self.opaque.len();
        let node = self.node(vocabulary, name, args, kwargs, results);
        match node {
            Ok(node) => {
                self.graph.nodes.push(node);
                Ok(())
            }
            Err(error) => {
                self.opaque.truncate(n_opaque);
                Err(error)
            }
        }
    }

    /// Lets a tensor stand for the value of another from here on: an in-place change of metadata was recorded
    /// as the operator that returns a new view.
    fn rebind(&mut self, tensor: &Bound<'_, PyAny>, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = self.known(to).ok_or_else(|| PyValueError::new_err("the tensor is not part of this trace"))?;
        self.ids.insert(address(tensor), id);
        self.rebound.push(tensor.clone().unbind());
        Ok(())
    }

    /// The number of a tensor's value, or None.
    fn value(&self, tensor: &Bound<'_, PyAny>) -> Option<u32> {
        self.known(tensor).map(|id| id.0)
    }

    /// The place in the user's code to which the following nodes belong.
    #[pyo3(signature = (origin))]
    fn set_origin(&mut self, origin: Option<&str>) {
        self.origin = origin.map(Arc::from);
    }

    /// A point to which `rollback` returns.
    fn mark(&self) -> usize {
        self.graph.nodes.len()
    }

    /// Drops the nodes added since the mark. Their results must not be used afterwards.
    fn rollback(&mut self, mark: usize) {
        self.graph.nodes.truncate(mark);
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.graph.nodes.len()
    }

    /// Names of the operators recorded since a mark.
    #[pyo3(signature = (mark = 0))]
    fn names(&self, mark: usize) -> Vec<String> {
        self.graph.nodes.iter().skip(mark).map(|node| node.target.clone()).collect()
    }

    /// The graph with these outputs. The builder stays as it is.
    fn finish(&self, py: Python<'_>, outputs: Vec<Bound<'_, PyAny>>) -> PyResult<PyGraph> {
        let mut graph = self.graph.clone();
        graph.inputs.extend(&self.constants);
        for output in &outputs {
            let id = self.known(output);
            let id = id.ok_or_else(|| PyValueError::new_err("an output is not part of this trace"))?;
            graph.outputs.push(id);
        }
        drop_dead_aliases(&mut graph);
        let order = compact(&mut graph);
        for (new, old) in order.iter().enumerate() {
            // Autograd gives a result its history only after the call was recorded.
            let requires_grad = self.tensors[old.0 as usize].bind(py).getattr(intern!(py, "requires_grad"))?;
            graph.metas[new].requires_grad = requires_grad.is_truthy()?;
        }
        oxy_graph::verify(&graph).map_err(|error| PyRuntimeError::new_err(format!("recorded graph: {error}")))?;
        let opaque = self.opaque.iter().map(|object| object.clone_ref(py)).collect();
        Ok(PyGraph { graph, constant_count: self.constants.len(), opaque })
    }
}

impl GraphBuilder {
    fn known(&self, tensor: &Bound<'_, PyAny>) -> Option<ValueId> {
        self.ids.get(&address(tensor)).copied()
    }

    fn define(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<ValueId> {
        let meta = self.meta(tensor)?;
        let id = self.graph.add_value(meta);
        self.tensors.push(tensor.clone().unbind());
        self.ids.insert(address(tensor), id);
        Ok(id)
    }

    fn meta(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<TensorMeta> {
        let vocabulary = Vocabulary::get(tensor.py())?;
        let shared = tensor.getattr_opt(intern!(tensor.py(), "_meta"))?;
        let Some(shared) = shared else { return read_meta(vocabulary, tensor) };
        let key = address(&shared);
        if let Some((_, meta)) = self.metas.get(&key) {
            return Ok(meta.clone());
        }
        let meta = read_meta(vocabulary, tensor)?;
        self.metas.insert(key, (shared.unbind(), meta.clone()));
        Ok(meta)
    }

    fn node(
        &mut self,
        vocabulary: &Vocabulary,
        name: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        results: &Bound<'_, PyAny>,
    ) -> PyResult<Node> {
        let mut node = Node {
            target: name.to_owned(),
            args: Vec::with_capacity(args.len()),
            kwargs: Default::default(),
            outputs: Vec::new(),
            origin: self.origin.clone(),
        };
        for arg in args.iter() {
            node.args.push(self.arg(vocabulary, &arg)?);
        }
        if let Some(kwargs) = kwargs {
            for (key, value) in kwargs.iter() {
                let value = self.arg(vocabulary, &value)?;
                node.kwargs.insert(key.extract()?, value);
            }
        }
        if !results.is_none() {
            self.results(vocabulary, results, &mut node.outputs)?;
        }
        Ok(node)
    }

    fn results(
        &mut self,
        vocabulary: &Vocabulary,
        result: &Bound<'_, PyAny>,
        outputs: &mut Vec<Option<ValueId>>,
    ) -> PyResult<()> {
        if let Some(id) = self.known(result) {
            outputs.push(Some(id));
        } else if result.is_instance_of::<PyList>() || result.is_instance_of::<PyTuple>() {
            for item in result.try_iter()? {
                self.results(vocabulary, &item?, outputs)?;
            }
        } else if result.is_instance(vocabulary.tensor.bind(result.py()))? {
            outputs.push(Some(self.define(result)?));
        } else {
            outputs.push(None);
        }
        Ok(())
    }

    /// A Python argument as data.
    fn arg(&mut self, vocabulary: &Vocabulary, object: &Bound<'_, PyAny>) -> PyResult<Arg> {
        if let Some(id) = self.known(object) {
            return Ok(Arg::Value(id));
        }
        if object.is_none() {
            return Ok(Arg::None);
        }
        if let Ok(value) = object.cast::<PyBool>() {
            return Ok(Arg::Bool(value.is_true()));
        }
        if object.is_instance_of::<PyInt>() {
            return Ok(match object.extract::<i64>() {
                Ok(value) => Arg::Int(value),
                Err(_) => self.opaque(object),
            });
        }
        if let Ok(value) = object.cast::<PyFloat>() {
            return Ok(Arg::Float(value.value()));
        }
        if let Ok(items) = object.cast::<PyList>() {
            return Ok(Arg::List(self.args(vocabulary, items.iter())?));
        }
        if let Ok(items) = object.cast::<PyTuple>() {
            return Ok(Arg::Tuple(self.args(vocabulary, items.iter())?));
        }
        if let Some(arg) = vocabulary.atom(object)? {
            return Ok(arg);
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Arg::Str(text.to_str()?.to_owned()));
        }
        if let Ok(value) = object.cast::<PyComplex>() {
            return Ok(Arg::Complex(value.real(), value.imag()));
        }
        if object.is_instance_of::<PySlice>() {
            let mut part = |name| self.arg(vocabulary, &object.getattr(name)?);
            return Ok(Arg::Slice(Box::new([part("start")?, part("stop")?, part("step")?])));
        }
        if let Ok(items) = object.cast::<PyDict>() {
            let mut pairs = Vec::with_capacity(items.len());
            for (key, value) in items.iter() {
                pairs.push((self.arg(vocabulary, &key)?, self.arg(vocabulary, &value)?));
            }
            return Ok(Arg::Dict(pairs));
        }
        if object.is_instance_of::<PyEllipsis>() {
            return Ok(Arg::Ellipsis);
        }
        if object.is_instance(vocabulary.tensor.bind(object.py()))? {
            return Err(PyValueError::new_err("an argument is a tensor that is not part of this trace"));
        }
        Ok(self.opaque(object))
    }

    fn args<'py>(
        &mut self,
        vocabulary: &Vocabulary,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Arg>> {
        items.map(|item| self.arg(vocabulary, &item)).collect()
    }

    fn opaque(&mut self, object: &Bound<'_, PyAny>) -> Arg {
        self.opaque.push(object.clone().unbind());
        Arg::Opaque(self.opaque.len() as u32 - 1)
    }
}

fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}

/// Drops `detach` and `alias` calls that nothing uses: autograd makes them when it saves a result.
fn drop_dead_aliases(graph: &mut oxy_graph::Graph) {
    let mut used = vec![false; graph.metas.len()];
    graph.outputs.iter().for_each(|id| used[id.0 as usize] = true);
    let mut kept: Vec<Node> = Vec::with_capacity(graph.nodes.len());
    for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        let is_alias = matches!(node.target.as_str(), "aten.detach.default" | "aten.alias.default");
        if is_alias && !node.outputs.iter().flatten().any(|id| used[id.0 as usize]) {
            continue;
        }
        node.for_each_input(|id| used[id.0 as usize] = true);
        kept.push(node);
    }
    kept.reverse();
    graph.nodes = kept;
}

/// Renumbers the values in order of definition and drops those that no node defines. Returns the old ids.
fn compact(graph: &mut oxy_graph::Graph) -> Vec<ValueId> {
    let mut new_ids: Vec<Option<ValueId>> = vec![None; graph.metas.len()];
    let mut order: Vec<ValueId> = Vec::new();
    let defined = graph.inputs.iter().chain(graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten()));
    for id in defined {
        new_ids[id.0 as usize].get_or_insert_with(|| {
            order.push(*id);
            ValueId(order.len() as u32 - 1)
        });
    }
    // A value without definition keeps an id out of range, which the verifier reports.
    let map = |id: &mut ValueId| *id = new_ids[id.0 as usize].unwrap_or(ValueId(u32::MAX));
    graph.inputs.iter_mut().chain(&mut graph.outputs).for_each(&map);
    for node in &mut graph.nodes {
        node.args.iter_mut().chain(node.kwargs.values_mut()).for_each(|arg| renumber(arg, &map));
        node.outputs.iter_mut().flatten().for_each(&map);
    }
    graph.metas = order.iter().map(|id| graph.metas[id.0 as usize].clone()).collect();
    order
}

fn renumber(arg: &mut Arg, map: &impl Fn(&mut ValueId)) {
    match arg {
        Arg::Value(id) => map(id),
        Arg::List(items) | Arg::Tuple(items) => items.iter_mut().for_each(|item| renumber(item, map)),
        Arg::Slice(parts) => parts.iter_mut().for_each(|part| renumber(part, map)),
        Arg::Dict(items) => items.iter_mut().for_each(|(key, value)| {
            renumber(key, map);
            renumber(value, map);
        }),
        Arg::None
        | Arg::Bool(_)
        | Arg::Int(_)
        | Arg::Float(_)
        | Arg::Complex(..)
        | Arg::Str(_)
        | Arg::DType(_)
        | Arg::Device(_)
        | Arg::Layout(_)
        | Arg::MemoryFormat(_)
        | Arg::Ellipsis
        | Arg::Opaque(_) => {}
    }
}

/// A finished graph. `str()` is its text form.
#[pyclass(module = "oxyfuel._engine", name = "Graph", frozen)]
pub struct PyGraph {
    pub graph: oxy_graph::Graph,
    /// How many of the inputs, the last ones, are tensors that the graph refers to by itself.
    pub constant_count: usize,
    /// The objects behind `Arg::Opaque`.
    pub opaque: Vec<Py<PyAny>>,
}

impl PyGraph {
    fn described<'py>(&self, py: Python<'py>, ids: &[ValueId]) -> PyResult<Vec<Bound<'py, PyDict>>> {
        ids.iter().map(|id| describe(py, self.graph.meta(*id))).collect()
    }
}

#[pymethods]
impl PyGraph {
    /// The graph as text.
    fn text(&self) -> String {
        self.graph.to_string()
    }

    fn __str__(&self) -> String {
        self.text()
    }

    fn __repr__(&self) -> String {
        format!("<graph of {} nodes>", self.graph.nodes.len())
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.graph.nodes.len()
    }

    #[getter]
    fn num_constants(&self) -> usize {
        self.constant_count
    }

    /// Metadata of the inputs, constants last: dicts of dtype, device, shape, stride, storage_offset, requires_grad.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.described(py, &self.graph.inputs)
    }

    /// Metadata of the outputs.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.described(py, &self.graph.outputs)
    }

    /// Names of the operators, in order.
    fn names(&self) -> Vec<String> {
        self.graph.nodes.iter().map(|node| node.target.clone()).collect()
    }

    /// Performs the graph on real tensors, constants last, operator by operator, and returns its outputs.
    fn run<'py>(&self, py: Python<'py>, tensors: Vec<Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        if tensors.len() != self.graph.inputs.len() {
            let message = format!("the graph takes {} tensors, got {}", self.graph.inputs.len(), tensors.len());
            return Err(PyTypeError::new_err(message));
        }
        let mut values: Vec<Option<Bound<'py, PyAny>>> = vec![None; self.graph.metas.len()];
        for (id, tensor) in self.graph.inputs.iter().zip(tensors) {
            values[id.0 as usize] = Some(tensor);
        }
        let undefined = || PyRuntimeError::new_err("the graph uses a value before it is defined");
        for node in &self.graph.nodes {
            let value = |id: ValueId| values[id.0 as usize].clone().ok_or_else(undefined);
            let result = call_node(py, node, &value, &self.opaque)?;
            let mut results = Vec::with_capacity(node.outputs.len());
            flatten(&result, &mut results)?;
            for (id, tensor) in node.outputs.iter().zip(results) {
                if let Some(id) = id {
                    values[id.0 as usize] = Some(tensor);
                }
            }
        }
        self.graph.outputs.iter().map(|id| values[id.0 as usize].clone().ok_or_else(undefined)).collect()
    }
}

/// Calls the operator of a node on Python objects.
pub fn call_node<'py>(
    py: Python<'py>,
    node: &Node,
    value: &dyn Fn(ValueId) -> PyResult<Bound<'py, PyAny>>,
    opaque: &[Py<PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let operator = resolve_operator(py, &node.target)?;
    let args = node.args.iter().map(|arg| arg_to_py(py, arg, value, opaque)).collect::<PyResult<Vec<_>>>()?;
    let kwargs = PyDict::new(py);
    for (name, arg) in &node.kwargs {
        kwargs.set_item(name, arg_to_py(py, arg, value, opaque)?)?;
    }
    operator.call(PyTuple::new(py, args)?, Some(&kwargs))
}

/// The callable of an ATen-level target, `aten.add.Tensor`: an attribute path below `torch.ops`.
pub fn resolve_operator<'py>(py: Python<'py>, target: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut object = Vocabulary::get(py)?.ops.bind(py).clone();
    for name in target.split('.') {
        object = object.getattr(name)?;
    }
    Ok(object)
}

/// The tensors of an operator's result, with None for what is not a tensor; the order of `Node::outputs`.
pub fn flatten<'py>(result: &Bound<'py, PyAny>, out: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
    if result.is_instance_of::<PyList>() || result.is_instance_of::<PyTuple>() {
        for item in result.try_iter()? {
            flatten(&item?, out)?;
        }
    } else {
        out.push(result.clone());
    }
    Ok(())
}

/// An argument as the Python object it stands for.
pub fn arg_to_py<'py>(
    py: Python<'py>,
    arg: &Arg,
    value: &dyn Fn(ValueId) -> PyResult<Bound<'py, PyAny>>,
    opaque: &[Py<PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let item = |arg: &Arg| arg_to_py(py, arg, value, opaque);
    let items = |args: &[Arg]| args.iter().map(item).collect::<PyResult<Vec<_>>>();
    Ok(match arg {
        Arg::Value(id) => value(*id)?,
        Arg::None => py.None().into_bound(py),
        Arg::Bool(b) => PyBool::new(py, *b).to_owned().into_any(),
        Arg::Int(i) => PyInt::new(py, *i).into_any(),
        Arg::Float(x) => PyFloat::new(py, *x).into_any(),
        Arg::Complex(re, im) => PyComplex::from_doubles(py, *re, *im).into_any(),
        Arg::Str(text) => PyString::new(py, text).into_any(),
        Arg::DType(dtype) => torch_attribute(py, dtype.torch_name())?,
        Arg::Device(device) => device_to_py(py, *device)?,
        Arg::Layout(layout) => torch_attribute(py, layout_name(*layout))?,
        Arg::MemoryFormat(format) => torch_attribute(py, format_name(*format))?,
        Arg::List(args) => PyList::new(py, items(args)?)?.into_any(),
        Arg::Tuple(args) => PyTuple::new(py, items(args)?)?.into_any(),
        Arg::Slice(parts) => {
            let [start, stop, step] = &**parts;
            let slice = py.get_type::<PySlice>();
            slice.call1((item(start)?, item(stop)?, item(step)?))?
        }
        Arg::Dict(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(item(key)?, item(value)?)?;
            }
            dict.into_any()
        }
        Arg::Ellipsis => py.Ellipsis().into_bound(py),
        Arg::Opaque(n) => {
            let object = opaque.get(*n as usize);
            object.ok_or_else(|| PyRuntimeError::new_err("an opaque argument without object"))?.bind(py).clone()
        }
    })
}

/// Torch's names for things that arguments and metadata are made of. Read once: they never change.
struct Vocabulary {
    tensor: Py<PyAny>,
    device: Py<PyAny>,
    ops: Py<PyAny>,
    /// dtypes, layouts and memory formats, by address; `torch` keeps them alive.
    atoms: HashMap<usize, Arg>,
}

static VOCABULARY: PyOnceLock<Vocabulary> = PyOnceLock::new();

impl Vocabulary {
    fn get(py: Python<'_>) -> PyResult<&'static Vocabulary> {
        VOCABULARY.get_or_try_init(py, || Vocabulary::read(py))
    }

    fn read(py: Python<'_>) -> PyResult<Vocabulary> {
        let torch = py.import("torch")?;
        let mut atoms = HashMap::new();
        for code in 0..64 {
            // A dtype that this torch does not have yet can't be met either.
            let Some(dtype) = DType::from_code(code) else { continue };
            if let Some(object) = torch.getattr_opt(dtype.torch_name())? {
                atoms.insert(address(&object), Arg::DType(dtype));
            }
        }
        for layout in [Layout::Strided, Layout::Sparse] {
            atoms.insert(address(&torch.getattr(layout_name(layout))?), Arg::Layout(layout));
        }
        for format in
            [MemoryFormat::Contiguous, MemoryFormat::Preserve, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d]
        {
            atoms.insert(address(&torch.getattr(format_name(format))?), Arg::MemoryFormat(format));
        }
        Ok(Vocabulary {
            tensor: torch.getattr("Tensor")?.unbind(),
            device: torch.getattr("device")?.unbind(),
            ops: torch.getattr("ops")?.unbind(),
            atoms,
        })
    }

    /// A dtype, device, layout or memory format as an argument.
    fn atom(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<Arg>> {
        if let Some(atom) = self.atoms.get(&address(object)) {
            return Ok(Some(atom.clone()));
        }
        if object.get_type().is(self.device.bind(object.py()).cast::<PyType>()?) {
            return device_from_py(object).map(|device| device.map(Arg::Device));
        }
        Ok(None)
    }

    fn dtype(&self, object: &Bound<'_, PyAny>) -> Option<DType> {
        match self.atoms.get(&address(object)) {
            Some(Arg::DType(dtype)) => Some(*dtype),
            _ => None,
        }
    }
}

fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Strided => "strided",
        Layout::Sparse => "sparse_coo",
    }
}

fn format_name(format: MemoryFormat) -> &'static str {
    match format {
        MemoryFormat::Contiguous => "contiguous_format",
        MemoryFormat::Preserve => "preserve_format",
        MemoryFormat::ChannelsLast => "channels_last",
        MemoryFormat::ChannelsLast3d => "channels_last_3d",
    }
}

fn torch_attribute<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "torch"))?.getattr(name)
}

/// A `torch.device`, or None when its kind is one that graphs don't speak of.
fn device_from_py(object: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    let py = object.py();
    let kind = match object.getattr(intern!(py, "type"))?.extract::<String>()?.as_str() {
        "cpu" => DeviceType::Cpu,
        "cuda" => DeviceType::Cuda,
        "meta" => DeviceType::Meta,
        _ => return Ok(None),
    };
    let index: Option<i16> = object.getattr(intern!(py, "index"))?.extract()?;
    // torch makes no difference between `cpu` and `cpu:0`.
    let index = if kind == DeviceType::Cpu { -1 } else { index.unwrap_or(-1) };
    Ok(Some(Device { kind, index }))
}

fn device_to_py(py: Python<'_>, device: Device) -> PyResult<Bound<'_, PyAny>> {
    Vocabulary::get(py)?.device.bind(py).call1((device.to_string(),))
}

/// Metadata of a strided tensor, from Python attributes.
pub fn tensor_meta(tensor: &Bound<'_, PyAny>) -> PyResult<TensorMeta> {
    read_meta(Vocabulary::get(tensor.py())?, tensor)
}

fn read_meta(vocabulary: &Vocabulary, tensor: &Bound<'_, PyAny>) -> PyResult<TensorMeta> {
    let py = tensor.py();
    let dtype = tensor.getattr(intern!(py, "dtype"))?;
    let dtype = vocabulary.dtype(&dtype).ok_or_else(|| PyValueError::new_err(format!("tensors of {dtype}")))?;
    let device = tensor.getattr(intern!(py, "device"))?;
    let device = device_from_py(&device)?.ok_or_else(|| PyValueError::new_err(format!("tensors on {device}")))?;
    Ok(TensorMeta {
        dtype,
        device,
        sizes: dims(&tensor.getattr(intern!(py, "shape"))?)?,
        strides: dims(&tensor.call_method0(intern!(py, "stride"))?)?,
        storage_offset: tensor.call_method0(intern!(py, "storage_offset"))?.extract()?,
        requires_grad: false,
    })
}

fn dims(object: &Bound<'_, PyAny>) -> PyResult<Dims> {
    object.cast::<PyTuple>()?.iter().map(|item| item.extract::<i64>()).collect()
}

fn describe<'py>(py: Python<'py>, meta: &TensorMeta) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("dtype", torch_attribute(py, meta.dtype.torch_name())?)?;
    dict.set_item("device", device_to_py(py, meta.device)?)?;
    dict.set_item("shape", PyTuple::new(py, &meta.sizes)?)?;
    dict.set_item("stride", PyTuple::new(py, &meta.strides)?)?;
    dict.set_item("storage_offset", meta.storage_offset)?;
    dict.set_item("requires_grad", meta.requires_grad)?;
    Ok(dict)
}

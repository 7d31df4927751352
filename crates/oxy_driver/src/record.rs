//! Recording of ATen graphs: the engine's half of `oxyfuel._capture`.

use oxy_graph::meta::Dims;
use oxy_graph::{Arg, DType, Device, DeviceType, Graph, Layout, MemoryFormat, Node, TensorMeta, ValueId};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple};
use rustc_hash::FxHashMap;

/// Collects operators called on fake tensors.
#[pyclass(module = "oxyfuel._engine")]
#[derive(Default)]
pub struct GraphBuilder {
    graph: Graph,
    /// Values by the address of their fake.
    values: FxHashMap<usize, ValueId>,
    /// Keeps the fakes, whose addresses are keys, alive.
    fakes: Vec<Py<PyAny>>,
    constants: Vec<ValueId>,
    /// Objects that arguments refer to by number.
    opaque: Vec<Py<PyAny>>,
}

/// A captured ATen graph.
#[pyclass(module = "oxyfuel._engine", name = "Graph", frozen)]
pub struct PyGraph {
    pub graph: Graph,
    /// How many of the inputs, the last ones, are constants.
    pub constant_count: usize,
    pub opaque: Vec<Py<PyAny>>,
}

#[pymethods]
impl PyGraph {
    /// The graph's text form.
    fn text(&self) -> String {
        self.graph.to_string()
    }

    fn __str__(&self) -> String {
        self.graph.to_string()
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.graph.nodes.len()
    }
}

#[pymethods]
impl GraphBuilder {
    #[new]
    fn new() -> GraphBuilder {
        GraphBuilder::default()
    }

    /// Adds a fake as the graph's next input.
    fn input(&mut self, fake: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = self.define(fake)?;
        self.graph.inputs.push(id);
        Ok(())
    }

    /// Adds a fake that stands for a constant tensor.
    fn constant(&mut self, fake: &Bound<'_, PyAny>) -> PyResult<()> {
        let id = self.define(fake)?;
        self.constants.push(id);
        Ok(())
    }

    fn mark(&self) -> usize {
        self.graph.nodes.len()
    }

    /// Forgets operators recorded after a mark.
    fn rollback(&mut self, mark: usize) {
        self.graph.nodes.truncate(mark);
    }

    /// Records a call with its results.
    fn add(
        &mut self,
        name: &str,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut node = Node {
            target: name.to_owned(),
            args: args.iter().map(|arg| self.arg(&arg)).collect::<PyResult<_>>()?,
            kwargs: Default::default(),
            outputs: Vec::new(),
            origin: None,
        };
        for (name, value) in kwargs.iter() {
            node.kwargs.insert(name.extract()?, self.arg(&value)?);
        }
        self.results(out, &mut node.outputs)?;
        self.graph.nodes.push(node);
        Ok(())
    }

    /// The graph that gives `outputs`. Constants follow the inputs.
    fn finish(&mut self, py: Python<'_>, outputs: Vec<Bound<'_, PyAny>>) -> PyResult<PyGraph> {
        let mut graph = self.graph.clone();
        graph.inputs.extend(&self.constants);
        for output in &outputs {
            match self.values.get(&(output.as_ptr() as usize)) {
                Some(id) => graph.outputs.push(*id),
                None => return Err(PyTypeError::new_err("an output is not a value of the captured graph")),
            }
        }
        let opaque = self.opaque.iter().map(|object| object.clone_ref(py)).collect();
        Ok(PyGraph { graph, constant_count: self.constants.len(), opaque })
    }
}

impl GraphBuilder {
    fn define(&mut self, fake: &Bound<'_, PyAny>) -> PyResult<ValueId> {
        let address = fake.as_ptr() as usize;
        if let Some(id) = self.values.get(&address) {
            return Ok(*id);
        }
        let id = self.graph.add_value(meta_of(fake)?);
        self.values.insert(address, id);
        self.fakes.push(fake.clone().unbind());
        Ok(id)
    }

    /// Values of a result, flattened.
    fn results(&mut self, out: &Bound<'_, PyAny>, into: &mut Vec<Option<ValueId>>) -> PyResult<()> {
        if is_tensor(out) {
            // A tensor whose metadata an operator changed in place is a value of its own from then on.
            into.push(Some(self.define(out)?));
        } else if let Ok(items) = out.cast::<PyTuple>() {
            for item in items.iter() {
                self.results(&item, into)?;
            }
        } else if let Ok(items) = out.cast::<PyList>() {
            for item in items.iter() {
                self.results(&item, into)?;
            }
        } else {
            into.push(None);
        }
        Ok(())
    }

    fn arg(&mut self, arg: &Bound<'_, PyAny>) -> PyResult<Arg> {
        if let Some(id) = self.values.get(&(arg.as_ptr() as usize)) {
            return Ok(Arg::Value(*id));
        }
        if arg.is_none() {
            return Ok(Arg::None);
        }
        if let Ok(value) = arg.cast::<PyBool>() {
            return Ok(Arg::Bool(value.is_true()));
        }
        if arg.cast::<PyInt>().is_ok()
            && let Ok(value) = arg.extract()
        {
            return Ok(Arg::Int(value));
        }
        if arg.cast::<PyFloat>().is_ok() {
            return Ok(Arg::Float(arg.extract()?));
        }
        if let Ok(value) = arg.cast::<PyString>() {
            return Ok(Arg::Str(value.to_string()));
        }
        if let Ok(items) = arg.cast::<PyTuple>() {
            return Ok(Arg::List(items.iter().map(|item| self.arg(&item)).collect::<PyResult<_>>()?));
        }
        if let Ok(items) = arg.cast::<PyList>() {
            return Ok(Arg::List(items.iter().map(|item| self.arg(&item)).collect::<PyResult<_>>()?));
        }
        if arg.cast::<PyComplex>().is_ok() {
            let real = arg.getattr("real")?.extract()?;
            return Ok(Arg::Complex(real, arg.getattr("imag")?.extract()?));
        }
        if arg.cast::<PyEllipsis>().is_ok() {
            return Ok(Arg::Ellipsis);
        }
        if let Ok(slice) = arg.cast::<PySlice>() {
            let mut part = |name: &str| -> PyResult<Arg> { self.arg(&slice.getattr(name)?) };
            return Ok(Arg::Slice(Box::new([part("start")?, part("stop")?, part("step")?])));
        }
        if is_tensor(arg) {
            return Err(PyTypeError::new_err("a tensor that isn't of this trace"));
        }
        let class = arg.get_type().name()?.to_string();
        let text = arg.str()?.to_string();
        let short = text.strip_prefix("torch.").unwrap_or(&text);
        Ok(match class.as_str() {
            "dtype" => match DType::from_torch_name(short) {
                Some(dtype) => Arg::DType(dtype),
                None => self.opaque(arg),
            },
            "device" => Arg::Device(device_of(arg)?),
            "layout" if short == "strided" => Arg::Layout(Layout::Strided),
            "memory_format" => match short {
                "contiguous_format" => Arg::MemoryFormat(MemoryFormat::Contiguous),
                "preserve_format" => Arg::MemoryFormat(MemoryFormat::Preserve),
                "channels_last" => Arg::MemoryFormat(MemoryFormat::ChannelsLast),
                "channels_last_3d" => Arg::MemoryFormat(MemoryFormat::ChannelsLast3d),
                _ => self.opaque(arg),
            },
            _ => self.opaque(arg),
        })
    }

    fn opaque(&mut self, object: &Bound<'_, PyAny>) -> Arg {
        self.opaque.push(object.clone().unbind());
        Arg::Opaque(self.opaque.len() as u32 - 1)
    }
}

fn is_tensor(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    py.import("torch")
        .and_then(|torch| torch.getattr("Tensor"))
        .and_then(|class| object.is_instance(&class))
        .unwrap_or(false)
}

fn device_of(device: &Bound<'_, PyAny>) -> PyResult<Device> {
    let kind: String = device.getattr("type")?.extract()?;
    let index: Option<i16> = device.getattr("index")?.extract()?;
    let kind = match kind.as_str() {
        "cpu" => DeviceType::Cpu,
        "cuda" => DeviceType::Cuda,
        "meta" => DeviceType::Meta,
        other => return Err(PyTypeError::new_err(format!("the device {other} is not supported"))),
    };
    Ok(Device { kind, index: index.unwrap_or(-1) })
}

fn meta_of(fake: &Bound<'_, PyAny>) -> PyResult<TensorMeta> {
    let dims =
        |method: &str| -> PyResult<Dims> { Ok(Dims::from_vec(fake.call_method0(method)?.extract::<Vec<i64>>()?)) };
    let dtype = fake.getattr("dtype")?.str()?.to_string();
    let dtype = DType::from_torch_name(dtype.trim_start_matches("torch."))
        .ok_or_else(|| PyTypeError::new_err(format!("the dtype {dtype} is not supported")))?;
    Ok(TensorMeta {
        dtype,
        device: device_of(&fake.getattr("fake_device")?)?,
        sizes: dims("size")?,
        strides: dims("stride")?,
        storage_offset: fake.call_method0("storage_offset")?.extract()?,
        requires_grad: false,
    })
}

//! The extension module `oxyfuel._engine`: the PyO3 surface, no decisions.

use oxy_driver::call::{Target, call};
use oxy_driver::compiled::{CompileOptions, Compiled};
use oxy_driver::config::Value;
use oxy_driver::engine::engine;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// A compiled callable. Nothing happens before the first call.
#[pyclass(module = "oxyfuel._engine", dict, weakref, subclass)]
struct CompiledFunction {
    inner: RwLock<Option<Inner>>,
    bind: bool,
}

#[derive(Clone)]
struct Inner {
    compiled: Arc<Compiled>,
    target: Arc<Target>,
    wrapped: Arc<Py<PyAny>>,
}

impl CompiledFunction {
    fn inner(&self) -> PyResult<Inner> {
        let inner = self.inner.read().clone();
        inner.ok_or_else(|| pyo3::exceptions::PyReferenceError::new_err("the compiled callable was cleared by the garbage collector"))
    }
}

#[pymethods]
impl CompiledFunction {
    #[new]
    #[pyo3(signature = (r#fn, *, fullgraph, dynamic, backend, options, name, bind))]
    fn new(
        py: Python<'_>,
        r#fn: Bound<'_, PyAny>,
        fullgraph: bool,
        dynamic: Option<bool>,
        backend: Option<Py<PyAny>>,
        options: Option<Bound<'_, PyDict>>,
        name: Option<String>,
        bind: bool,
    ) -> PyResult<CompiledFunction> {
        let recompile_limit = match &options {
            Some(options) => options.get_item("recompile_limit")?.map(|limit| limit.extract()).transpose()?,
            None => None,
        };
        let target = Target::new(&r#fn)?;
        let compiled =
            Arc::new(Compiled::new(CompileOptions { fullgraph, dynamic, backend, recompile_limit, name }));
        engine(py).register(&compiled);
        let inner = Inner { compiled, target: Arc::new(target), wrapped: Arc::new(r#fn.unbind()) };
        Ok(CompiledFunction { inner: RwLock::new(Some(inner)), bind })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        let inner = self.inner()?;
        call(py, &inner.compiled, &inner.target, args, kwargs)
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.inner()?.wrapped.clone_ref(py))
    }

    fn __get__(slf: &Bound<'_, Self>, instance: Bound<'_, PyAny>, owner: Option<Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        _ = owner;
        let py = slf.py();
        if !slf.borrow().bind || instance.is_none() {
            return Ok(slf.clone().into_any().unbind());
        }
        let method = py.import("types")?.getattr("MethodType")?;
        Ok(method.call1((slf, instance))?.unbind())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let wrapped = slf.borrow().__wrapped__(slf.py())?;
        Ok(format!("<compiled {}>", wrapped.bind(slf.py()).repr()?))
    }
}

/// Drops all compiled code.
#[pyfunction]
fn reset(py: Python<'_>) {
    engine(py).reset();
}

/// Counters since the process began.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counts = engine(py).stats.counts();
    let dict = PyDict::new(py);
    dict.set_item("graphs", counts.graphs)?;
    dict.set_item("graph_breaks", counts.graph_breaks)?;
    dict.set_item("recompiles", counts.recompiles)?;
    dict.set_item("segments", counts.segments)?;
    dict.set_item("operators", counts.operators)?;
    dict.set_item("kernels", counts.kernels)?;
    dict.set_item("faults", counts.faults)?;
    let reasons = PyDict::new(py);
    for (reason, count) in &counts.break_reasons {
        reasons.set_item(reason, count)?;
    }
    dict.set_item("break_reasons", reasons)?;
    let phases = PyDict::new(py);
    for (phase, seconds) in &counts.phases {
        phases.set_item(phase, seconds)?;
    }
    dict.set_item("phases", phases)?;
    Ok(dict)
}

/// Sets an option of the engine; options that only Python reads are ignored.
#[pyfunction]
fn set_config(py: Python<'_>, name: &str, value: Bound<'_, PyAny>) -> PyResult<()> {
    let value = if let Ok(value) = value.cast::<pyo3::types::PyBool>() {
        Value::Bool(value.is_true())
    } else if let Ok(value) = value.extract::<i64>() {
        Value::Int(value)
    } else if let Ok(value) = value.extract::<String>() {
        Value::Text(value)
    } else if let Ok(value) = value.cast::<PyTuple>()
        && let Ok(value) = value.get_item(0).and_then(|first| first.extract::<String>())
    {
        // The stance; what else it says is read in Python.
        Value::Text(value)
    } else {
        return Ok(());
    };
    engine(py).config.set(name, value).map(|_| ()).map_err(pyo3::exceptions::PyTypeError::new_err)
}

/// A graph compiled to native code: called with its input tensors, gives a tuple of outputs.
#[pyclass(module = "oxyfuel._engine", frozen)]
struct CompiledGraph(oxy_driver::native::NativeGraph);

#[pymethods]
impl CompiledGraph {
    #[pyo3(signature = (*tensors))]
    fn __call__<'py>(&self, py: Python<'py>, tensors: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.run_tensors(py, tensors)?)
    }
}

/// Compiles a captured graph; `constants` are its last inputs.
#[pyfunction]
fn compile_graph(
    py: Python<'_>,
    graph: &Bound<'_, oxy_driver::record::PyGraph>,
    constants: Vec<Bound<'_, PyAny>>,
) -> PyResult<CompiledGraph> {
    oxy_driver::native::compile_graph(py, engine(py), graph.get(), &constants)
        .map(CompiledGraph)
        .map_err(pyo3::exceptions::PyRuntimeError::new_err)
}

#[pymodule]
fn _engine(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("version", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<CompiledFunction>()?;
    m.add_class::<CompiledGraph>()?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(reset, m)?)?;
    m.add_function(wrap_pyfunction!(stats, m)?)?;
    m.add_function(wrap_pyfunction!(set_config, m)?)?;
    m.add_class::<oxy_driver::record::GraphBuilder>()?;
    m.add_class::<oxy_driver::record::PyGraph>()?;
    Ok(())
}

//! The extension module `oxyfuel._engine`: the PyO3 surface, no decisions.

mod function;

use oxy_driver::config::Value;
use oxy_driver::engine::engine;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

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
    function::register(m)?;
    m.add_class::<CompiledGraph>()?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(reset, m)?)?;
    m.add_function(wrap_pyfunction!(stats, m)?)?;
    m.add_function(wrap_pyfunction!(set_config, m)?)?;
    oxy_driver::record::register(m)?;
    Ok(())
}

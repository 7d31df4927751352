//! A Python object held by guards, sources and recipes.
//!
//! Cloning needs no interpreter; comparing and hashing are by identity. Not for values that differ per call.

use pyo3::{ffi, prelude::*};
use std::{
    fmt::{self, Debug, Formatter},
    hash::{Hash, Hasher},
    sync::Arc,
};

/// A strong reference to an object, shared by its clones.
#[derive(Clone)]
pub struct PyObj(Arc<Py<PyAny>>);

impl PyObj {
    pub fn new(object: &Bound<'_, PyAny>) -> PyObj {
        PyObj(Arc::new(object.clone().unbind()))
    }

    pub fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }

    /// The object's address; it lives as long as this.
    pub fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// `repr()`, shortened; runs the object's own `__repr__`.
    pub(crate) fn repr(&self) -> String {
        Python::attach(|py| short_repr(self.bind(py)))
    }

    /// `str()`, for objects that are names.
    pub(crate) fn name(&self) -> String {
        Python::attach(|py| self.bind(py).str().map(|text| text.to_string()).unwrap_or_else(|_| "?".to_owned()))
    }
}

/// `repr()` cut to the length of a sentence; an object whose `__repr__` raises is named by its type.
pub(crate) fn short_repr(object: &Bound<'_, PyAny>) -> String {
    const LENGTH_MAX: usize = 120;
    let Ok(text) = object.repr() else { return format!("<{}>", type_name(&object.get_type().into_any())) };
    let text = text.to_string();
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A truth value as Python writes it.
pub(crate) fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A type's qualified name with its module, without running user code where CPython has the name at hand.
pub(crate) fn type_name(class: &Bound<'_, PyAny>) -> String {
    match class.cast::<pyo3::types::PyType>().map_err(PyErr::from).and_then(|class| class.fully_qualified_name()) {
        Ok(name) => name.to_string(),
        Err(_) => "?".to_owned(),
    }
}

impl PartialEq for PyObj {
    fn eq(&self, other: &PyObj) -> bool {
        self.as_ptr() == other.as_ptr()
    }
}

impl Eq for PyObj {}

impl Hash for PyObj {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.as_ptr() as usize).hash(state);
    }
}

impl Debug for PyObj {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repr())
    }
}

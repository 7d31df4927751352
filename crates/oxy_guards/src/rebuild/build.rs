//! Making objects from recipes.
//!
//! Containers that can be changed are made empty and filled later, so that they may contain themselves; a call is made
//! when everything made so far has been filled.

use super::{Exit, Recipe, RecipeId};
use crate::{GuardProgram, PyObj, Registers};
use pyo3::{
    exceptions::PySystemError,
    ffi, intern,
    prelude::*,
    types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple},
};
use smallvec::SmallVec;
use std::ptr;

type Object<'py> = Bound<'py, PyAny>;

/// Where a recipe stands.
#[derive(Clone)]
enum State<'py> {
    NotMade,
    /// Its parts are being made.
    Making,
    Made(Object<'py>),
}

/// Why something can't be made.
pub(super) enum Stop {
    Error(PyErr),
    /// It needs an object whose parts are being made.
    Cycle,
}

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Stop {
        Stop::Error(error)
    }
}

impl From<Stop> for PyErr {
    fn from(stop: Stop) -> PyErr {
        match stop {
            Stop::Error(error) => error,
            Stop::Cycle => internal("a recipe needs itself"),
        }
    }
}

type Made<T> = Result<T, Stop>;

fn internal(text: &str) -> PyErr {
    PySystemError::new_err(format!("oxyfuel: {text}"))
}

/// One evaluation of an exit's recipes.
pub(super) struct Builder<'py, 'a> {
    pub py: Python<'py>,
    exit: &'a Exit,
    outputs: &'a [Py<PyAny>],
    states: SmallVec<[State<'py>; 16]>,
    /// Containers that have been made and not filled.
    unfilled: Vec<RecipeId>,
}

impl<'py, 'a> Builder<'py, 'a> {
    /// Takes references to what sources read, before anything runs that could drop them.
    pub fn new(
        py: Python<'py>,
        exit: &'a Exit,
        program: &GuardProgram,
        registers: &Registers,
        outputs: &'a [Py<PyAny>],
    ) -> PyResult<Builder<'py, 'a>> {
        let mut states = SmallVec::with_capacity(exit.recipes.len());
        for (index, recipe) in exit.recipes.iter().enumerate() {
            states.push(match recipe {
                Recipe::Source(source) => match program.exit_register(index, source) {
                    Some(register) => State::Made(registers.object(py, register as usize)?.into_bound(py)),
                    None => return Err(internal(&format!("{source} was not read"))),
                },
                _ => State::NotMade,
            });
        }
        Ok(Builder { py, exit, outputs, states, unfilled: Vec::new() })
    }

    /// The object of a recipe; `None` for NULL. Containers in it may still be empty until `fill_all`.
    pub fn make(&mut self, id: RecipeId) -> Made<Option<Object<'py>>> {
        let index = id.0 as usize;
        match self.states.get(index) {
            Some(State::Made(object)) => return Ok(Some(object.clone())),
            Some(State::Making) => return Err(Stop::Cycle),
            Some(State::NotMade) => {}
            None => return Err(internal("no such recipe").into()),
        }
        let exit = self.exit;
        if matches!(exit.recipes[index], Recipe::Null) {
            return Ok(None);
        }
        self.states[index] = State::Making;
        match self.make_new(id, &exit.recipes[index]) {
            Ok(object) => {
                self.states[index] = State::Made(object.clone());
                Ok(Some(object))
            }
            Err(stop) => {
                self.states[index] = State::NotMade;
                Err(stop)
            }
        }
    }

    /// The object of a recipe that isn't NULL.
    pub fn object(&mut self, id: RecipeId) -> Made<Object<'py>> {
        self.make(id)?.ok_or_else(|| internal("an empty value inside of an object").into())
    }

    pub fn objects(&mut self, ids: &[RecipeId]) -> Made<Vec<Object<'py>>> {
        ids.iter().map(|&id| self.object(id)).collect()
    }

    fn optional(&mut self, id: Option<RecipeId>) -> Made<Option<Object<'py>>> {
        id.map(|id| self.object(id)).transpose()
    }

    pub fn pairs(&mut self, ids: &[(RecipeId, RecipeId)]) -> Made<Vec<(Object<'py>, Object<'py>)>> {
        ids.iter().map(|&(key, value)| Ok((self.object(key)?, self.object(value)?))).collect()
    }

    fn make_new(&mut self, id: RecipeId, recipe: &Recipe) -> Made<Object<'py>> {
        let py = self.py;
        let unfilled = |this: &mut Self, object: Object<'py>| {
            this.unfilled.push(id);
            object
        };
        Ok(match recipe {
            Recipe::Null | Recipe::Source(_) => return Err(internal("not an object to be made").into()),
            Recipe::Output(index) => match self.outputs.get(*index as usize) {
                Some(output) => output.bind(py).clone(),
                None => return Err(internal("the graph returned too few tensors").into()),
            },
            Recipe::Object(object) => object.bind(py).clone(),
            Recipe::Tuple(items) => PyTuple::new(py, self.objects(items)?)?.into_any(),
            Recipe::FrozenSet(items) => {
                let items = self.objects(items)?;
                self.fill_what_can_be()?;
                PyFrozenSet::new(py, items)?.into_any()
            }
            Recipe::Slice(parts) => {
                let parts = self.objects(parts)?;
                let [start, stop, step] = parts.as_slice() else {
                    return Err(internal("a slice of other parts").into());
                };
                // SAFETY: attached; three live objects, a new reference or NULL with an exception.
                unsafe {
                    let slice = ffi::PySlice_New(start.as_ptr(), stop.as_ptr(), step.as_ptr());
                    Bound::from_owned_ptr_or_err(py, slice)?
                }
            }
            Recipe::List(items) => {
                let list = PyList::empty(py).into_any();
                if items.is_empty() { list } else { unfilled(self, list) }
            }
            Recipe::Dict(items) => {
                let dict = PyDict::new(py).into_any();
                if items.is_empty() { dict } else { unfilled(self, dict) }
            }
            Recipe::Set(_) => unfilled(self, PySet::empty(py)?.into_any()),
            Recipe::Cell(_) => {
                // SAFETY: attached; a new reference or NULL with an exception.
                let cell = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCell_New(ptr::null_mut()))? };
                unfilled(self, cell)
            }
            Recipe::Instance { class, .. } => {
                let new = py.get_type::<PyAny>().getattr(intern!(py, "__new__"))?;
                unfilled(self, new.call1((class.bind(py),))?)
            }
            Recipe::Function { code, globals, name, closure, .. } => {
                let globals = self.object(*globals)?;
                let closure = self.optional(*closure)?;
                let class = py.import(intern!(py, "types"))?.getattr(intern!(py, "FunctionType"))?;
                let function = class.call1((code.bind(py), globals, name.bind(py), py.None(), closure))?;
                unfilled(self, function)
            }
            Recipe::Method { function, receiver } => {
                let (function, receiver) = (self.object(*function)?, self.object(*receiver)?);
                // SAFETY: attached; two live objects, a new reference or NULL with an exception.
                unsafe { Bound::from_owned_ptr_or_err(py, PyMethod_New(function.as_ptr(), receiver.as_ptr()))? }
            }
            Recipe::Call { callable, args, kwargs } => {
                let callable = self.object(*callable)?;
                let args = PyTuple::new(py, self.objects(args)?)?;
                let named = PyDict::new(py);
                for (name, value) in kwargs {
                    named.set_item(name.bind(py), self.object(*value)?)?;
                }
                self.fill_what_can_be()?;
                callable.call(args, (!kwargs.is_empty()).then_some(&named))?
            }
        })
    }

    /// Fills everything.
    pub fn fill_all(&mut self) -> Made<()> {
        self.fill_what_can_be()?;
        if self.unfilled.is_empty() { Ok(()) } else { Err(Stop::Cycle) }
    }

    /// Fills all containers but those that need an object whose parts are being made; these wait.
    fn fill_what_can_be(&mut self) -> Made<()> {
        let mut waiting = Vec::new();
        while !self.unfilled.is_empty() {
            for id in std::mem::take(&mut self.unfilled) {
                match self.fill(id) {
                    Ok(()) => {}
                    Err(Stop::Cycle) => waiting.push(id),
                    Err(error) => return Err(error),
                }
            }
        }
        self.unfilled = waiting;
        Ok(())
    }

    /// Fills a container. Its parts are made first, so that nothing has happened if they can't be.
    fn fill(&mut self, id: RecipeId) -> Made<()> {
        let py = self.py;
        let exit = self.exit;
        let Some(State::Made(object)) = self.states.get(id.0 as usize).cloned() else {
            // Taken back: what it was made for failed.
            return Ok(());
        };
        match &exit.recipes[id.0 as usize] {
            Recipe::List(items) => {
                let items = self.objects(items)?;
                let list = object.cast::<PyList>().map_err(PyErr::from)?;
                for item in items {
                    list.append(item)?;
                }
            }
            Recipe::Dict(items) => {
                let items = self.pairs(items)?;
                let dict = object.cast::<PyDict>().map_err(PyErr::from)?;
                for (key, value) in items {
                    dict.set_item(key, value)?;
                }
            }
            Recipe::Set(items) => {
                let items = self.objects(items)?;
                let set = object.cast::<PySet>().map_err(PyErr::from)?;
                for item in items {
                    set.add(item)?;
                }
            }
            Recipe::Cell(contents) => {
                if let Some(contents) = self.optional(*contents)? {
                    set_cell(&object, Some(&contents))?;
                }
            }
            Recipe::Instance { attrs, .. } => {
                let attrs = self.named(attrs)?;
                for (name, value) in attrs {
                    set_own_attr(&object, name.bind(py), Some(&value))?;
                }
            }
            Recipe::Function { qualname, defaults, kwdefaults, annotations, dict, .. } => {
                let (defaults, kwdefaults) = (self.optional(*defaults)?, self.optional(*kwdefaults)?);
                let annotations = self.optional(*annotations)?;
                let attrs = self.named(dict)?;
                object.setattr(intern!(py, "__qualname__"), qualname.bind(py))?;
                if let Some(defaults) = defaults {
                    object.setattr(intern!(py, "__defaults__"), defaults)?;
                }
                if let Some(kwdefaults) = kwdefaults {
                    object.setattr(intern!(py, "__kwdefaults__"), kwdefaults)?;
                }
                if let Some(annotations) = annotations {
                    object.setattr(intern!(py, "__annotations__"), annotations_dict(annotations)?)?;
                }
                for (name, value) in attrs {
                    set_own_attr(&object, name.bind(py), Some(&value))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn named<'b>(&mut self, attrs: &'b [(PyObj, RecipeId)]) -> Made<Vec<(&'b PyObj, Object<'py>)>> {
        attrs.iter().map(|(name, value)| Ok((name, self.object(*value)?))).collect()
    }
}

unsafe extern "C" {
    fn PyMethod_New(function: *mut ffi::PyObject, receiver: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// Annotations as a function takes them: the interpreter builds a flat tuple of names and values.
fn annotations_dict(annotations: Object<'_>) -> PyResult<Object<'_>> {
    let Ok(flat) = annotations.cast_exact::<PyTuple>() else { return Ok(annotations) };
    let dict = PyDict::new(annotations.py());
    for index in (0..flat.len()).step_by(2) {
        dict.set_item(flat.get_item(index)?, flat.get_item(index + 1)?)?;
    }
    Ok(dict.into_any())
}

/// `cell.cell_contents = value`, or `del`.
pub(super) fn set_cell(cell: &Object<'_>, value: Option<&Object<'_>>) -> PyResult<()> {
    let value = value.map_or(ptr::null_mut(), |value| value.as_ptr());
    // SAFETY: attached; PyCell_Set refuses anything but cells, and takes its own reference to the value.
    match unsafe { ffi::PyCell_Set(cell.as_ptr(), value) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(cell.py())),
    }
}

/// `object.__setattr__`, or `object.__delattr__`.
pub(super) fn set_own_attr(object: &Object<'_>, name: &Object<'_>, value: Option<&Object<'_>>) -> PyResult<()> {
    let value = value.map_or(ptr::null_mut(), |value| value.as_ptr());
    // SAFETY: attached; live objects. It refuses names that aren't strings.
    match unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(object.py())),
    }
}

//! Exits applied: rebuilding live values and applying effects.

use super::{GuardProgram, Registers};
use crate::sources::Source;
use crate::{Built, Effect, Exit, Recipe, RecipeId};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple};

impl Exit {
    /// Sources that the recipes read.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.recipes.iter().filter_map(|recipe| match recipe {
            Recipe::Source(source) => Some(source),
            _ => None,
        })
    }

    /// Makes all values, then applies the effects in order.
    pub fn apply(&self, py: Python<'_>, program: &GuardProgram, registers: &Registers, outputs: &[Py<PyAny>]) -> PyResult<Built> {
        let mut builder = Builder { py, exit: self, program, registers, outputs, made: vec![None; self.recipes.len()] };
        // Sources first: effects may free what they are borrowed from.
        for (index, recipe) in self.recipes.iter().enumerate() {
            if let Recipe::Source(_) = recipe {
                builder.make(RecipeId(index as u32))?;
            }
        }
        let mut slots = Vec::with_capacity(self.slots.len());
        for (slot, recipe) in &self.slots {
            slots.push((*slot, builder.make(*recipe)?.map(Bound::unbind)));
        }
        let mut stack = Vec::with_capacity(self.stack.len());
        for recipe in &self.stack {
            stack.push(builder.make(*recipe)?.map(Bound::unbind));
        }
        let value = match self.value {
            Some(recipe) => builder.make(recipe)?.map(Bound::unbind),
            None => None,
        };
        for effect in &self.effects {
            builder.apply(effect)?;
        }
        Ok(Built { slots, stack, value })
    }
}

struct Builder<'py, 'a> {
    py: Python<'py>,
    exit: &'a Exit,
    program: &'a GuardProgram,
    registers: &'a Registers,
    outputs: &'a [Py<PyAny>],
    made: Vec<Option<Bound<'py, PyAny>>>,
}

type Object<'py> = Bound<'py, PyAny>;

impl<'py> Builder<'py, '_> {
    fn object(&mut self, id: RecipeId) -> PyResult<Object<'py>> {
        match self.make(id)? {
            Some(object) => Ok(object),
            None => Err(pyo3::exceptions::PySystemError::new_err("oxyfuel: an empty value inside a rebuilt object")),
        }
    }

    fn objects(&mut self, ids: &[RecipeId]) -> PyResult<Vec<Object<'py>>> {
        ids.iter().map(|&id| self.object(id)).collect()
    }

    fn remember(&mut self, id: RecipeId, object: &Object<'py>) {
        self.made[id.0 as usize] = Some(object.clone());
    }

    /// The object of a recipe, made once; containers are remembered before they are filled.
    fn make(&mut self, id: RecipeId) -> PyResult<Option<Object<'py>>> {
        if let Some(object) = &self.made[id.0 as usize] {
            return Ok(Some(object.clone()));
        }
        let py = self.py;
        let exit = self.exit;
        let object = match &exit.recipes[id.0 as usize] {
            Recipe::Null => return Ok(None),
            Recipe::Source(source) => {
                let register = self.program.register_of(source).unwrap_or(u32::MAX);
                self.registers.object(py, register as usize)?.into_bound(py)
            }
            Recipe::Output(index) => match self.outputs.get(*index as usize) {
                Some(output) => output.bind(py).clone(),
                None => return Err(pyo3::exceptions::PySystemError::new_err("oxyfuel: the graph returned too few tensors")),
            },
            Recipe::Object(object) => object.bind(py).clone(),
            Recipe::Tuple(items) => PyTuple::new(py, self.objects(items)?)?.into_any(),
            Recipe::List(items) => {
                let list = PyList::empty(py);
                self.remember(id, list.as_any());
                for item in items {
                    list.append(self.object(*item)?)?;
                }
                list.into_any()
            }
            Recipe::Set(items) => {
                let set = PySet::empty(py)?;
                for item in items {
                    set.add(self.object(*item)?)?;
                }
                set.into_any()
            }
            Recipe::FrozenSet(items) => PyFrozenSet::new(py, self.objects(items)?)?.into_any(),
            Recipe::Dict(items) => {
                let dict = PyDict::new(py);
                self.remember(id, dict.as_any());
                for (key, value) in items {
                    dict.set_item(self.object(*key)?, self.object(*value)?)?;
                }
                dict.into_any()
            }
            Recipe::Slice(parts) => {
                let parts = self.objects(parts)?;
                py.get_type::<pyo3::types::PySlice>().call1(PyTuple::new(py, parts)?)?
            }
            Recipe::Cell(contents) => {
                let class = py.import("types")?.getattr("CellType")?;
                let cell = class.call0()?;
                self.remember(id, &cell);
                if let Some(contents) = contents {
                    cell.setattr("cell_contents", self.object(*contents)?)?;
                }
                cell
            }
            Recipe::Function { code, globals, name, qualname, defaults, kwdefaults, closure, annotations, dict } => {
                let class = py.import("types")?.getattr("FunctionType")?;
                let globals = self.object(*globals)?;
                let closure = match closure {
                    Some(closure) => self.object(*closure)?,
                    None => py.None().into_bound(py),
                };
                let function = class.call1((code.bind(py), globals, name.bind(py), py.None(), closure))?;
                self.remember(id, &function);
                function.setattr("__qualname__", qualname.bind(py))?;
                if let Some(defaults) = defaults {
                    function.setattr("__defaults__", self.object(*defaults)?)?;
                }
                if let Some(kwdefaults) = kwdefaults {
                    function.setattr("__kwdefaults__", self.object(*kwdefaults)?)?;
                }
                if let Some(annotations) = annotations {
                    let annotations = self.object(*annotations)?;
                    // The interpreter stores them as a flat tuple of names and values.
                    let annotations = match annotations.cast::<PyTuple>() {
                        Ok(flat) => {
                            let dict = PyDict::new(py);
                            for index in (0..flat.len()).step_by(2) {
                                dict.set_item(flat.get_item(index)?, flat.get_item(index + 1)?)?;
                            }
                            dict.into_any()
                        }
                        Err(_) => annotations.clone(),
                    };
                    function.setattr("__annotations__", annotations)?;
                }
                for (name, value) in dict {
                    let name = name.bind(py).cast::<pyo3::types::PyString>()?.clone();
                    function.setattr(name, self.object(*value)?)?;
                }
                function
            }
            Recipe::Method { function, receiver } => {
                let class = py.import("types")?.getattr("MethodType")?;
                class.call1((self.object(*function)?, self.object(*receiver)?))?
            }
            Recipe::Instance { class, attrs } => {
                let object_class = py.get_type::<PyAny>();
                let instance = object_class.call_method1("__new__", (class.bind(py),))?;
                self.remember(id, &instance);
                for (name, value) in attrs {
                    let value = self.object(*value)?;
                    object_class.call_method1("__setattr__", (&instance, name.bind(py), value))?;
                }
                instance
            }
            Recipe::Call { callable, args, kwargs } => {
                let callable = self.object(*callable)?;
                let args = PyTuple::new(py, self.objects(args)?)?;
                let named = PyDict::new(py);
                for (name, value) in kwargs {
                    named.set_item(name.bind(py), self.object(*value)?)?;
                }
                callable.call(args, Some(&named))?
            }
        };
        self.remember(id, &object);
        Ok(Some(object))
    }

    fn apply(&mut self, effect: &Effect) -> PyResult<()> {
        let py = self.py;
        match effect {
            Effect::SetInstanceAttr { object, name, value } => {
                let (object, value) = (self.object(*object)?, self.object(*value)?);
                py.get_type::<PyAny>().call_method1("__setattr__", (object, name.bind(py), value))?;
            }
            Effect::SetAttr { object, name, value } => {
                let (object, value) = (self.object(*object)?, self.object(*value)?);
                object.setattr(name.bind(py).cast::<pyo3::types::PyString>()?.clone(), value)?;
            }
            Effect::DelAttr { object, name } => {
                self.object(*object)?.delattr(name.bind(py).cast::<pyo3::types::PyString>()?.clone())?;
            }
            Effect::DelInstanceAttr { object, name } => {
                let object = self.object(*object)?;
                py.get_type::<PyAny>().call_method1("__delattr__", (object, name.bind(py)))?;
            }
            Effect::SetItem { object, key, value } => {
                let (object, key, value) = (self.object(*object)?, self.object(*key)?, self.object(*value)?);
                object.set_item(key, value)?;
            }
            Effect::DelItem { object, key } => {
                let (object, key) = (self.object(*object)?, self.object(*key)?);
                object.del_item(key)?;
            }
            Effect::CallMethod { object, name, args } => {
                let object = self.object(*object)?;
                let args = PyTuple::new(py, self.objects(args)?)?;
                object.getattr(name.bind(py).cast::<pyo3::types::PyString>()?.clone())?.call1(args)?;
            }
            Effect::ListReplace { list, items } => {
                let (list, items) = (self.object(*list)?, self.objects(items)?);
                let list = list.cast::<PyList>()?;
                list.set_slice(0, list.len(), PyList::new(py, items)?.as_any())?;
            }
            Effect::DictReplace { dict, items } => {
                let dict = self.object(*dict)?;
                let mut entries = Vec::with_capacity(items.len());
                for (key, value) in items {
                    entries.push((self.object(*key)?, self.object(*value)?));
                }
                dict.call_method0("clear")?;
                for (key, value) in entries {
                    dict.set_item(key, value)?;
                }
            }
            Effect::SetReplace { set, items } => {
                let (set, items) = (self.object(*set)?, self.objects(items)?);
                set.call_method0("clear")?;
                for item in items {
                    set.call_method1("add", (item,))?;
                }
            }
            Effect::SetCell { cell, value } => {
                let cell = self.object(*cell)?;
                match value {
                    Some(value) => cell.setattr("cell_contents", self.object(*value)?)?,
                    None => cell.delattr("cell_contents")?,
                }
            }
        }
        Ok(())
    }
}

//! What `oxyfuel._decorators` and `oxyfuel.config` say about functions: allowed in graph, substituted, constant,
//! nonstrict, ignored, reordered; and the scopes that make breaks errors.
//!
//! Scopes are fields of one thread-local object. A trace reads them once, keeps writes to itself and leaves the last
//! values to the exit.

use crate::breaks::{self, R, Stop};
use crate::calls::Kwargs;
use crate::tracer::Tracer;
use crate::value::{Kind, Object, Val};
use oxy_guards::PyObj;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Fields of `SCOPE`.
pub const SCOPE_FIELDS: [&str; 2] = ["error_on_graph_break", "nested_graph_breaks"];

/// The Python objects that hold markings.
pub struct Markers<'py> {
    allowed: Bound<'py, PyDict>,
    substitutes: Bound<'py, PyDict>,
    pub scope: Object<'py>,
    ignored: Object<'py>,
    reorderable: Object<'py>,
    has_logging: bool,
}

impl<'py> Markers<'py> {
    pub fn load(py: Python<'py>) -> PyResult<Markers<'py>> {
        let decorators = py.import("oxyfuel._decorators")?;
        let config = py.import("oxyfuel")?.getattr("config")?;
        let ignored = config.getattr("ignore_logging_functions")?;
        let reorderable = config.getattr("reorderable_logging_functions")?;
        Ok(Markers {
            allowed: decorators.getattr("ALLOWED_IN_GRAPH")?.cast_into()?,
            substitutes: decorators.getattr("SUBSTITUTES")?.cast_into()?,
            scope: decorators.getattr("SCOPE")?,
            has_logging: ignored.is_truthy()? || reorderable.is_truthy()?,
            ignored,
            reorderable,
        })
    }

    /// Whether a marking by identity is about this object.
    pub fn knows(&self, object: &Object<'py>) -> PyResult<bool> {
        Ok(Self::find(&self.allowed, object)?.is_some()
            || Self::find(&self.substitutes, object)?.is_some()
            || self.has_logging && (self.ignored.contains(object)? || self.reorderable.contains(object)?))
    }

    fn find(dict: &Bound<'py, PyDict>, object: &Object<'py>) -> PyResult<Option<Object<'py>>> {
        if dict.is_empty() { Ok(None) } else { dict.get_item(object.as_ptr() as usize) }
    }
}

/// The value of each scope field.
pub type Scope<'py> = [Object<'py>; 2];

pub fn read_scope<'py>(scope: &Object<'py>) -> PyResult<Scope<'py>> {
    Ok([scope.getattr(SCOPE_FIELDS[0])?, scope.getattr(SCOPE_FIELDS[1])?])
}

impl<'py> Tracer<'py, '_> {
    /// Whether breaks are errors here: `None` if no scope says so.
    pub fn breaks_are_errors(&self) -> Option<bool> {
        self.scope[0].extract::<Option<bool>>().ok().flatten()
    }

    pub fn scope_field(&self, object: &Object<'py>, name: &str) -> Option<usize> {
        if !object.is(&self.markers.scope) {
            return None;
        }
        SCOPE_FIELDS.iter().position(|field| *field == name)
    }

    /// A call of an object that carries a mark. `None`: it carries none.
    pub fn call_marked(&mut self, object: &Object<'py>, args: &[Val], kwargs: &Kwargs) -> R<Option<Val>> {
        if Markers::find(&self.markers.allowed, object)?.is_some() {
            return self.call_torch_kw(object, args.to_vec(), kwargs.clone()).map(Some);
        }
        if let Some(substitute) = Markers::find(&self.markers.substitutes, object)? {
            let traceable = self.existing(substitute.getattr("traceable")?);
            return self.call(traceable, args.to_vec(), kwargs.clone()).map(Some);
        }
        if self.markers.has_logging {
            if self.markers.ignored.contains(object).unwrap_or(false) {
                return Ok(Some(self.none()));
            }
            // A bound method, called with its receiver as first argument.
            if let Some(&receiver) = args.first()
                && let Kind::Object(receiver) = self.kind(receiver)?.clone_object()
            {
                let method = self.known.types(self.py, "MethodType")?.call1((object, receiver))?;
                if self.markers.ignored.contains(&method).unwrap_or(false) {
                    return Ok(Some(self.none()));
                }
            }
            if self.markers.reorderable.contains(object).unwrap_or(false) {
                return self.reorder(object, args, kwargs).map(Some);
            }
        }
        Ok(None)
    }

    /// A call of a real bound method that a logging set names.
    pub fn call_marked_method(&mut self, function: Val, receiver: Val) -> R<Option<Val>> {
        if !self.markers.has_logging {
            return Ok(None);
        }
        let (Kind::Object(function), Kind::Object(receiver)) =
            (self.kind(function)?.clone_object(), self.kind(receiver)?.clone_object())
        else {
            return Ok(None);
        };
        let method = self.known.types(self.py, "MethodType")?.call1((function, receiver))?;
        match self.markers.ignored.contains(&method).unwrap_or(false) {
            true => Ok(Some(self.none())),
            false => Ok(None),
        }
    }

    /// A logging call that happens at the end of the segment.
    fn reorder(&mut self, object: &Object<'py>, args: &[Val], kwargs: &Kwargs) -> R<Val> {
        for &val in args.iter().chain(kwargs.iter().map(|(_, val)| val)) {
            if !matches!(self.kind(val)?, Kind::Const(_) | Kind::Tensor(_)) {
                let what = self.describe(val);
                return self.stop(
                    breaks::UNSUPPORTED_CALL,
                    format!("a call that is to be reordered takes tensors and constants only, not {what}"),
                );
            }
        }
        self.late_calls.push((object.clone(), args.to_vec(), kwargs.clone()));
        Ok(self.none())
    }

    /// `_oxyfuel_constant_result`: called for real, now.
    pub fn call_constant(&mut self, function: &Object<'py>, args: &[Val], kwargs: &Kwargs) -> R<Val> {
        let name = crate::torch_graph::name_of(function);
        let Some(arguments) = self.all_to_python(args)? else {
            return self.stop(breaks::UNSUPPORTED_CALL, format!("{name} (assume_constant_result) with tensors"));
        };
        let named = PyDict::new(self.py);
        for (key, val) in kwargs {
            match self.to_python(*val)? {
                Some(value) => named.set_item(key, value)?,
                None => {
                    return self
                        .stop(breaks::UNSUPPORTED_CALL, format!("{name} (assume_constant_result) with tensors"));
                }
            }
        }
        let result = self.outside(|t| Ok(function.call(PyTuple::new(t.py, arguments)?, Some(&named))))?;
        match result {
            Ok(result) => self.fresh(result),
            Err(error) => self.raise_py(error),
        }
    }

    /// Runs real Python with the thread's own modes in force.
    fn outside<T>(&mut self, work: impl FnOnce(&Self) -> R<T>) -> R<T> {
        let capture = self.graph.capture.clone();
        let mode = self.known.grad_enabled(self.py)?;
        let set = self.known.torch.bind(self.py).getattr("_C")?.getattr("_set_grad_enabled")?;
        _ = capture;
        set.call1((self.entry_grad_mode,))?;
        let result = work(self);
        set.call1((mode,))?;
        result
    }

    /// `_oxyfuel_nonstrict`: run for real on fakes; its tensor operations are the graph's.
    pub fn call_nonstrict(&mut self, wrapped: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let py = self.py;
        let name: String = wrapped
            .getattr("__name__")
            .and_then(|n| n.extract())
            .unwrap_or_else(|_| crate::torch_graph::name_of(wrapped));
        let mut real = Vec::with_capacity(args.len());
        for &arg in &args {
            real.push(self.nonstrict_input(arg, &name)?);
        }
        let named = PyDict::new(py);
        for (key, val) in &kwargs {
            named.set_item(key, self.nonstrict_input(*val, &name)?)?;
        }
        let helper = py.import("oxyfuel.polyfills.nonstrict")?;
        let known = PyDict::new(py);
        for input in &self.graph.inputs {
            known.set_item(input.object.as_ptr() as usize, &self.graph.fakes[input.number as usize])?;
        }
        let ran = helper.call_method1("run", (&self.graph.capture, wrapped, PyTuple::new(py, real)?, named, known))?;
        let (result, calls, lifted, error): (Object<'py>, Object<'py>, Object<'py>, Object<'py>) = ran.extract()?;
        if !error.is_none() {
            let text = error.str()?.to_string();
            if error.is_instance(self.known.data_dependent.bind(py))? {
                return self.stop(
                    breaks::DATA_DEPENDENT_BRANCH,
                    format!("a data-dependent value in nonstrict_trace of {name}: {text}"),
                );
            }
            return self.stop(breaks::FAKE_CALL, format!("nonstrict_trace of {name}: {text}"));
        }
        for pair in lifted.try_iter()? {
            let (tensor, fake): (Object<'py>, Object<'py>) = pair?.extract()?;
            let source = self.src(oxy_guards::SourceKind::Object(PyObj::new(&tensor)));
            let number = self.graph.number(fake.clone());
            let class = tensor.get_type().into_any();
            self.graph.inputs.push(crate::torch_graph::Input {
                number,
                source: source.clone(),
                object: tensor.clone(),
            });
            let tensor_val = crate::value::TensorVal { fake: fake.clone(), class, number };
            let val = self.add_external(Kind::Tensor(tensor_val), source, &tensor);
            self.externals.entry(tensor.as_ptr() as usize).or_insert(val);
            self.fakes.insert(fake.as_ptr() as usize, val);
        }
        for call in calls.try_iter()? {
            let (function, args, kwargs, result): (Object<'py>, Object<'py>, Object<'py>, Object<'py>) =
                call?.extract()?;
            self.record_call(&function, &args, &kwargs, &result)?;
        }
        self.nonstrict_output(&result, &name)
    }

    /// The real argument for a nonstrict function: fakes for tensors.
    fn nonstrict_input(&mut self, val: Val, name: &str) -> R<Object<'py>> {
        let py = self.py;
        if let Kind::Tensor(tensor) = self.kind(val)? {
            return Ok(tensor.fake.clone());
        }
        if let Some(object) = self.nonstrict_leaf(val)? {
            return Ok(object);
        }
        match self.peek(val) {
            Kind::Tuple { items, class } => {
                let (items, class) = (items.clone(), class.clone());
                let items = items.into_iter().map(|item| self.nonstrict_input(item, name)).collect::<R<Vec<_>>>()?;
                let tuple = PyTuple::new(py, items)?;
                match class {
                    Some(class) => Ok(class.call_method1("_make", (tuple,))?),
                    None => Ok(tuple.into_any()),
                }
            }
            Kind::List(items) => {
                let items = items.clone();
                let items = items.into_iter().map(|item| self.nonstrict_input(item, name)).collect::<R<Vec<_>>>()?;
                Ok(pyo3::types::PyList::new(py, items)?.into_any())
            }
            Kind::Dict { items, .. } => {
                let pairs: Vec<(Val, Val)> = items.values().copied().collect();
                let dict = PyDict::new(py);
                for (key, value) in pairs {
                    let (key, value) = (self.nonstrict_input(key, name)?, self.nonstrict_input(value, name)?);
                    dict.set_item(key, value)?;
                }
                Ok(dict.into_any())
            }
            Kind::Object(_) | Kind::Instance(_) => {
                let class = self.type_of(val)?;
                let Some((flatten, unflatten)) = self.registered(&class)? else {
                    return self.stop(
                        breaks::UNSUPPORTED_CALL,
                        format!(
                            "nonstrict_trace of {name}: an argument of type {} is not registered with torch.utils._pytree",
                            class.getattr("__name__")?
                        ),
                    );
                };
                let flatten = self.existing(flatten);
                let pair = self.call(flatten, vec![val], Vec::new())?;
                let pair = self.iterate(pair)?;
                let [children, context] = pair[..] else {
                    return self.stop(breaks::UNSUPPORTED_CALL, "a pytree flattening function of an unknown kind");
                };
                let children = self.iterate(children)?;
                let children = children.into_iter().map(|c| self.nonstrict_input(c, name)).collect::<R<Vec<_>>>()?;
                let context = self.nonstrict_input(context, name)?;
                Ok(unflatten.call1((pyo3::types::PyList::new(py, children)?, context))?)
            }
            _ => {
                let what = self.describe(val);
                self.stop(breaks::UNSUPPORTED_CALL, format!("nonstrict_trace of {name}: an argument of type {what}"))
            }
        }
    }

    /// Constants, and objects used by what they are (functions, modules).
    fn nonstrict_leaf(&mut self, val: Val) -> R<Option<Object<'py>>> {
        let py = self.py;
        Ok(match self.kind(val)? {
            Kind::Const(object) => Some(object.clone()),
            Kind::Object(object) => {
                let object = object.clone();
                let module = object.is_instance(self.known.module.bind(py))?;
                if module {
                    // What the function reads of a module is read while tracing: the module is the one that was traced.
                    let source = self.source_of(val);
                    let source = self.source_or_object(source, &object);
                    self.guard_identity(&source, &object);
                }
                let leaf = module || self.known.is_used_by_identity(py, &object, object.get_type().as_any())?;
                leaf.then_some(object)
            }
            _ => None,
        })
    }

    /// torch.utils._pytree's functions for a class.
    fn registered(&self, class: &Object<'py>) -> R<Option<(Object<'py>, Object<'py>)>> {
        let table = self.py.import("torch.utils._pytree")?.getattr("SUPPORTED_NODES")?;
        match table.get_item(class) {
            Ok(node) => Ok(Some((node.getattr("flatten_fn")?, node.getattr("unflatten_fn")?))),
            Err(_) => Ok(None),
        }
    }

    /// A traced value for what a nonstrict function returned.
    fn nonstrict_output(&mut self, result: &Object<'py>, name: &str) -> R<Val> {
        if result.is_instance(self.known.tensor.bind(self.py))? {
            return match self.fakes.get(&(result.as_ptr() as usize)) {
                Some(&val) => Ok(val),
                None => {
                    let tensor = self.record_result(result)?;
                    Ok(tensor)
                }
            };
        }
        let class = result.get_type().into_any();
        if self.known.is_literal_type(&class) || self.known.is_size_type(&class) {
            return Ok(self.constant(result.clone()));
        }
        if let Ok(tuple) = result.cast::<PyTuple>() {
            let items = tuple.iter().map(|item| self.nonstrict_output(&item, name)).collect::<R<Vec<_>>>()?;
            let exact = result.cast_exact::<PyTuple>().is_ok();
            return Ok(self.add(Kind::Tuple { items, class: (!exact).then_some(class) }));
        }
        if let Ok(list) = result.cast_exact::<pyo3::types::PyList>() {
            let items = list.iter().map(|item| self.nonstrict_output(&item, name)).collect::<R<Vec<_>>>()?;
            return Ok(self.list(items));
        }
        if let Ok(dict) = result.cast_exact::<PyDict>() {
            let made = self.dict(Default::default());
            for (key, value) in dict.iter() {
                let (key, value) = (self.nonstrict_output(&key, name)?, self.nonstrict_output(&value, name)?);
                self.dict_insert(made, key, value)?;
            }
            return Ok(made);
        }
        if self.known.is_used_by_identity(self.py, result, &class)? {
            return Ok(self.existing(result.clone()));
        }
        let Some((flatten, unflatten)) = self.registered(&class)? else {
            return self.stop(
                breaks::UNSUPPORTED_CALL,
                format!(
                    "nonstrict_trace of {name}: its result of type {} is not registered with torch.utils._pytree",
                    class.getattr("__name__")?
                ),
            );
        };
        let (children, context): (Object<'py>, Object<'py>) = flatten.call1((result,))?.extract()?;
        let mut items = Vec::new();
        for child in children.try_iter()? {
            items.push(self.nonstrict_output(&child?, name)?);
        }
        let (children, context) = (self.list(items), self.nonstrict_output(&context, name)?);
        let unflatten = self.existing(unflatten);
        self.call(unflatten, vec![children, context], Vec::new())
    }

    /// A tensor that reached us without a recorded call (a constant made inside).
    fn record_result(&mut self, result: &Object<'py>) -> R<Val> {
        self.stop(breaks::UNSUPPORTED_CALL, format!("a tensor of unknown origin: {}", result.get_type().repr()?))
    }

    /// Writes of the trace to scope fields, as `(field, value)`.
    pub fn scope_writes(&self) -> Vec<(&'static str, Object<'py>)> {
        (0..2)
            .filter(|&i| !self.scope[i].is(&self.entry_scope[i]))
            .map(|i| (SCOPE_FIELDS[i], self.scope[i].clone()))
            .collect()
    }

    pub fn write_scope(&mut self, field: usize, val: Val) -> R<()> {
        match self.as_const(val)? {
            Some(value) => {
                self.scope[field] = value;
                Ok(())
            }
            None => Err(Stop::Bug("a scope field isn't a constant".to_owned())),
        }
    }
}

impl<'py> Kind<'py> {
    /// The real object of `Kind::Object`, as a kind of its own.
    fn clone_object(&self) -> Kind<'py> {
        match self {
            Kind::Object(object) => Kind::Object(object.clone()),
            _ => Kind::Null,
        }
    }
}

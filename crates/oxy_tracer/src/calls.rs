//! Calls: what calling a traced value means.

use crate::breaks::{self, R, Stop};
use crate::builtins::Action;
use crate::interp::Callee;
use crate::tracer::Tracer;
use crate::value::{InstanceVal, Kind, Object, Val};
use indexmap::IndexMap;
use oxy_guards::{PyObj, SourceKind};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyType};

pub type Kwargs = Vec<(String, Val)>;

impl<'py> Tracer<'py, '_> {
    pub fn call(&mut self, callee: Val, mut args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        self.realize(callee)?;
        match self.peek(callee) {
            Kind::Method { function, receiver } => {
                let (function, receiver) = (*function, *receiver);
                if let Some(val) = self.call_marked_method(function, receiver)? {
                    return Ok(val);
                }
                args.insert(0, receiver);
                self.call(function, args, kwargs)
            }
            Kind::Function(data) => {
                let data = data.clone();
                if let Some(val) = self.call_marked_function(&data, &args, &kwargs)? {
                    return Ok(val);
                }
                let globals_source = self.src(SourceKind::Object(PyObj::new(&data.globals)));
                let callee = Callee {
                    code: data.code.clone(),
                    globals: data.globals.clone(),
                    globals_source,
                    defaults: data.defaults,
                    kwdefaults: data.kwdefaults,
                    closure: data.closure.clone(),
                };
                self.inline(callee, args, kwargs)
            }
            Kind::Object(object) => {
                let object = object.clone();
                self.call_object(callee, &object, args, kwargs)
            }
            Kind::Instance(instance) => {
                let class = instance.class.clone();
                match self.holder_class(&class)? {
                    Some(holder) => self.call_new_holder(callee, holder, args, kwargs),
                    None => self.call_dunder(callee, args, kwargs),
                }
            }
            Kind::Const(object) => {
                let name: String = object.get_type().getattr("__name__")?.extract()?;
                self.raise("TypeError", &format!("'{name}' object is not callable"))
            }
            _ => {
                let what = self.describe(callee);
                self.stop(breaks::UNSUPPORTED_CALL, format!("a {what}"))
            }
        }
    }

    fn call_object(&mut self, callee: Val, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let py = self.py;
        if let Some(val) = self.call_marked(object, &args, &kwargs)? {
            return Ok(val);
        }
        if let Some(handler) = self.known.handlers.get(&(object.as_ptr() as usize)) {
            return self.act(&handler.action, object, args, kwargs);
        }
        let kind = object.get_type().into_any();
        if kind.is(&self.known.types(py, "FunctionType")?) {
            return self.call_function(callee, object, args, kwargs);
        }
        if object.is_instance_of::<PyType>() {
            return self.call_class(callee, object, args, kwargs);
        }
        if object.is_instance(self.known.op_overload.bind(py))? || object.is_instance(self.known.op_packet.bind(py))? {
            return self.call_torch_kw(object, args, kwargs);
        }
        if kind.is(&self.known.types(py, "MethodDescriptorType")?)
            || kind.is(&self.known.types(py, "WrapperDescriptorType")?)
        {
            return self.call_method_descriptor(object, args, kwargs);
        }
        if object.is_instance_of::<PyCFunction>() || kind.is(&self.known.types(py, "BuiltinFunctionType")?) {
            return self.call_c_function(object, args, kwargs);
        }
        match self.holder_class(&kind)? {
            Some(crate::partials::Holder::Partial) => return self.call_partial(callee, object, args, kwargs),
            Some(holder) => return self.call_real_holder(callee, object, holder, args, kwargs),
            None => {}
        }
        if kind.getattr("__name__")?.extract::<String>()? == "_lru_cache_wrapper" {
            return self
                .stop(breaks::UNSUPPORTED_CALL, "a functools cache: whether it is hit depends on earlier calls");
        }
        if kind.is(&py.import("weakref")?.getattr("ref")?) && args.is_empty() {
            let source = self.source_of(callee);
            let source = self.source_or_object(source, object);
            let target = self.src(SourceKind::WeakrefTarget(source));
            return Ok(self.external(object.call0()?, target));
        }
        if kind.is(&self.known.types(py, "MethodWrapperType")?) {
            return self.stop(breaks::UNSUPPORTED_CALL, object.repr()?.to_string());
        }
        self.call_dunder(callee, args, kwargs)
    }

    /// `type(callee).__call__`
    fn call_dunder(&mut self, callee: Val, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let class = self.type_of(callee)?;
        if self.is_compiled_callable(&class)? {
            return self.call_compiled(callee, args, kwargs);
        }
        let function_type = self.known.types(self.py, "FunctionType")?;
        match self.guarded_type_lookup(&class, "__call__")? {
            Some(found) if found.get_type().is(&function_type) => {
                let function = self.existing(found);
                let args = std::iter::once(callee).chain(args).collect();
                self.call(function, args, kwargs)
            }
            Some(_) => self.stop(breaks::UNSUPPORTED_CALL, format!("an instance of {}", class.repr()?)),
            None => {
                let name: String = class.getattr("__name__")?.extract()?;
                self.raise("TypeError", &format!("'{name}' object is not callable"))
            }
        }
    }

    fn is_compiled_callable(&self, class: &Object<'py>) -> R<bool> {
        Ok(class.getattr("__name__")?.extract::<String>()? == "CompiledFunction")
    }

    /// A compiled callable met in traced code: the function it wraps is inlined.
    fn call_compiled(&mut self, callee: Val, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let Kind::Object(object) = self.peek(callee) else {
            return Err(Stop::Bug("a compiled callable made in the trace".to_owned()));
        };
        let wrapped = object.getattr("__wrapped__")?;
        let wrapped = self.existing(wrapped);
        self.call(wrapped, args, kwargs)
    }

    /// A function made by the trace that a decorator called in the trace has marked.
    fn call_marked_function(
        &mut self,
        data: &crate::value::FunctionVal<'py>,
        args: &[Val],
        kwargs: &Kwargs,
    ) -> R<Option<Val>> {
        let Some(wrapped) = data.attrs.get("__wrapped__").copied() else { return Ok(None) };
        if data.attrs.contains_key("_oxyfuel_disable") {
            let what = match self.as_const(data.qualname)? {
                Some(name) => name.extract()?,
                None => data.code.name.clone(),
            };
            return self.stop(breaks::DISABLED_CALL, what);
        }
        if data.attrs.contains_key("_oxyfuel_nonstrict") && data.code.name == "nonstrict" {
            return match self.kind(wrapped)? {
                Kind::Object(object) => {
                    let object = object.clone();
                    self.call_nonstrict(&object, args.to_vec(), kwargs.clone()).map(Some)
                }
                _ => {
                    let what = match self.as_const(data.name)? {
                        Some(name) => name.extract()?,
                        None => data.code.name.clone(),
                    };
                    self.stop(
                        breaks::UNSUPPORTED_CALL,
                        format!("nonstrict_trace of {what}, a function made in the compiled region: define it outside"),
                    )
                }
            };
        }
        Ok(None)
    }

    fn call_function(&mut self, callee: Val, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        if let Some(reason) = crate::builtins::marked_disabled(object)? {
            return self.stop(breaks::DISABLED_CALL, reason);
        }
        if crate::builtins::has_mark(object, "_oxyfuel_nonstrict")?
            && object.getattr("__code__")?.getattr("co_name")?.extract::<String>()? == "nonstrict"
        {
            let wrapped = object.getattr("__wrapped__")?;
            return self.call_nonstrict(&wrapped, args, kwargs);
        }
        if crate::builtins::has_mark(object, "_oxyfuel_constant_result")? {
            return self.call_constant(object, &args, &kwargs);
        }
        if crate::builtins::is_torch_leaf_function(object)? {
            return self.call_torch_kw(object, args, kwargs);
        }
        let source = self.source_of(callee);
        let callee = self.callee_of(object, source)?;
        self.inline(callee, args, kwargs)
    }

    /// Does what the table of known callables says.
    pub fn act(&mut self, action: &Action, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        match action {
            Action::Native(function) => function(self, &args, &kwargs),
            Action::Pure => self.call_pure(object, &args, &kwargs),
            Action::Torch => self.call_torch_kw(object, args, kwargs),
            Action::Break(reason) => {
                let mut detail = crate::torch_graph::name_of(object);
                if let Some(&first) = args.first()
                    && let Ok(Some(text)) = self.as_const(first)
                {
                    detail += &format!("({})", text.repr()?);
                }
                self.stop(reason, detail)
            }
            Action::Constant(value) => match value {
                crate::builtins::Literal::None => Ok(self.none()),
                crate::builtins::Literal::Bool(value) => Ok(self.bool(*value)),
            },
            Action::State => self.call_state(object, args, kwargs),
            Action::Polyfill(name) => {
                let function = self.py.import("oxyfuel.polyfills")?.getattr(*name)?;
                let function = self.existing(function);
                self.call(function, args, kwargs)
            }
            Action::Inline => {
                let source = self.src(SourceKind::Object(PyObj::new(object)));
                let callee = self.callee_of(object, Some(source))?;
                self.inline(callee, args, kwargs)
            }
        }
    }

    /// A setter of the thread's state.
    fn call_state(&mut self, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let name = crate::torch_graph::name_of(object);
        let arguments = match self.all_to_python(&args)? {
            Some(arguments)
                if kwargs.is_empty()
                    && arguments
                        .iter()
                        .all(|a| a.extract::<&str>().map_or(true, |device| device == "cpu" || device == "cuda")) =>
            {
                arguments
            }
            _ => return self.stop(breaks::BACKEND_STATE, name),
        };
        let result = match object.call1(PyTuple::new(self.py, &arguments)?) {
            Ok(result) => result,
            Err(error) => return self.raise_py(error),
        };
        let places = self.places();
        self.graph.calls.push(crate::torch_graph::Call {
            callable: object.clone(),
            args: arguments.into_iter().map(crate::torch_graph::CallArg::Object).collect(),
            kwargs: Vec::new(),
            out: crate::torch_graph::Out::Other,
            places,
        });
        self.fresh(result)
    }

    /// A pure function on constants: called for real.
    pub fn call_pure(&mut self, function: &Object<'py>, args: &[Val], kwargs: &Kwargs) -> R<Val> {
        let Some(arguments) = self.all_to_python(args)? else {
            return self.stop(breaks::UNSUPPORTED_CALL, crate::torch_graph::name_of(function));
        };
        let named = PyDict::new(self.py);
        for (name, val) in kwargs {
            match self.to_python(*val)? {
                Some(value) => named.set_item(name, value)?,
                None => return self.stop(breaks::UNSUPPORTED_CALL, crate::torch_graph::name_of(function)),
            }
        }
        match function.call(PyTuple::new(self.py, arguments)?, Some(&named)) {
            Ok(result) => self.fresh(result),
            Err(error) => self.raise_py(error),
        }
    }

    fn call_partial(&mut self, callee: Val, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let source = self.source_of(callee);
        let source = self.source_or_object(source, object);
        let part = |this: &mut Self, name: &str, kind: SourceKind| -> R<Val> {
            let value = object.getattr(name)?;
            let source = this.src(kind);
            Ok(this.external(value, source))
        };
        let function = part(self, "func", SourceKind::PartialFunc(source.clone()))?;
        let first = part(self, "args", SourceKind::PartialArgs(source.clone()))?;
        let named = part(self, "keywords", SourceKind::PartialKeywords(source))?;
        let mut all = self.iterate(first)?;
        all.extend(args);
        let mut all_named: IndexMap<String, Val> = IndexMap::new();
        for (key, val) in self.mapping_items(named)? {
            if let Some(key) = self.as_const(key)? {
                all_named.insert(key.extract()?, val);
            }
        }
        all_named.extend(kwargs);
        self.call(function, all, all_named.into_iter().collect())
    }

    /// A C function that no table knows.
    fn call_c_function(&mut self, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        if self.known.operators.contains(&(object.as_ptr() as usize)) {
            return self.call_torch_kw(object, args, kwargs);
        }
        let module = object.getattr("__module__").and_then(|m| m.extract::<String>()).unwrap_or_default();
        let receiver = object.getattr("__self__").ok();
        if let Some(base) = &receiver
            && base.is_instance_of::<PyType>()
            && object.getattr("__name__")?.extract::<String>()? == "__new__"
        {
            return self.call_c_new(object, base, args, kwargs);
        }
        if crate::builtins::PURE_MODULES.contains(&module.as_str()) {
            return self.call_pure(object, &args, &kwargs);
        }
        if let Some(receiver) = receiver {
            // A bound C method of a literal or a class (`int.from_bytes`, `dict.fromkeys`).
            let literal = self.known.is_literal_type(receiver.get_type().as_any());
            let literal_class = receiver.is_instance_of::<PyType>() && self.known.is_literal_type(&receiver);
            let name: String = object.getattr("__name__")?.extract()?;
            if name == "fromkeys" && receiver.is(self.py.get_type::<PyDict>()) && !args.is_empty() {
                let none = self.none();
                let (dict, val) = (self.dict(Default::default()), args.get(1).copied().unwrap_or(none));
                for key in self.iterate(args[0])? {
                    self.dict_insert(dict, key, val)?;
                }
                return Ok(dict);
            }
            // These read the clock or the time zone.
            let reads_clock = matches!(name.as_str(), "today" | "now" | "utcnow" | "fromtimestamp");
            if (literal || literal_class) && !reads_clock {
                return self.call_pure(object, &args, &kwargs);
            }
        }
        self.stop(breaks::UNSUPPORTED_CALL, crate::torch_graph::name_of(object))
    }

    /// `descriptor(receiver, …)` for methods written in C.
    fn call_method_descriptor(&mut self, object: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let class = object.getattr("__objclass__")?;
        let name: String = object.getattr("__name__")?.extract()?;
        if class.getattr("__name__")?.extract::<String>()? == "TensorBase" {
            return self.call_torch_kw(object, args, kwargs);
        }
        let Some(&receiver) = args.first() else {
            return self.raise("TypeError", &format!("unbound method {name}() needs an argument"));
        };
        if let Some(base) = self.deque_items(receiver) {
            return self.deque_method(receiver, base, &name, &args[1..], &kwargs);
        }
        if name == "__get__" && class.is(&self.known.types(self.py, "FunctionType")?) {
            let none = match args.get(1) {
                Some(&owner) => matches!(self.kind(owner)?, Kind::Const(object) if object.is_none()),
                None => true,
            };
            return Ok(if none { receiver } else { self.add(Kind::Method { function: receiver, receiver: args[1] }) });
        }
        if name == "add_note" && matches!(self.kind(receiver)?, Kind::Instance(_)) && args.len() == 2 {
            return self.add_note(receiver, args[1]);
        }
        let of_dict = class.is(self.py.get_type::<PyDict>()) || self.known.is_dict_class(&class);
        let container = match of_dict {
            true => self.container_part(receiver)?.unwrap_or(receiver),
            false => receiver,
        };
        if container != receiver
            && name == "__getitem__"
            && args.len() == 2
            && self.dict_get(container, args[1])?.is_none()
        {
            // A class derived from dict may say what a missing key gives.
            let of = self.type_of(receiver)?;
            if self.guarded_type_lookup(&of, "__missing__")?.is_some() {
                let method = self.get_attr(receiver, "__missing__")?;
                return self.call(method, vec![args[1]], Vec::new());
            }
        }
        if let Some(val) = self.container_method(container, &name, &args[1..], &kwargs)? {
            return Ok(val);
        }
        if class.is(self.py.get_type::<PyAny>()) {
            return self.object_method(receiver, &name, &args[1..]);
        }
        self.realize(receiver)?;
        let by_identity = self.used_by_identity(receiver)?;
        match self.peek(receiver) {
            Kind::Const(_) | Kind::Tuple { .. } | Kind::Set { frozen: true, .. } => {
                self.call_pure(object, &args, &kwargs)
            }
            Kind::Instance(instance) if name == "__init__" => {
                // BaseException.__init__ stores its arguments.
                _ = instance;
                if let Kind::Instance(instance) = self.kind_mut(receiver) {
                    instance.args = args[1..].to_vec();
                }
                Ok(self.none())
            }
            Kind::Instance(_) if name == "with_traceback" => Ok(receiver),
            // A member of an enum derived from int or str.
            Kind::Object(_) if by_identity && self.known.is_literal_type(&class) => {
                self.call_pure(object, &args, &kwargs)
            }
            Kind::Object(object) if object.is_instance_of::<PyType>() && name == "__subclasses__" => {
                self.stop(breaks::UNSUPPORTED_CALL, name)
            }
            Kind::Object(inner)
                if object.getattr("__objclass__")?.is(self.py.get_type::<PyType>()) && name == "__call__" =>
            {
                let inner = inner.clone();
                self.type_call(receiver, &inner, args[1..].to_vec(), kwargs)
            }
            _ => {
                let what = self.describe(receiver);
                self.stop(breaks::UNSUPPORTED_CALL, format!("{what}.{name}"))
            }
        }
    }

    /// `exception.add_note(note)`
    fn add_note(&mut self, exception: Val, note: Val) -> R<Val> {
        let Kind::Instance(instance) = self.peek(exception) else {
            return Err(Stop::Bug("not an exception".to_owned()));
        };
        let notes = match instance.attrs.get("__notes__").copied() {
            Some(notes) => notes,
            None => {
                let notes = self.list(Vec::new());
                self.set_attr(exception, "__notes__", notes)?;
                notes
            }
        };
        self.list_push(notes, note)?;
        Ok(self.none())
    }

    /// Methods of `object` itself.
    fn object_method(&mut self, receiver: Val, name: &str, args: &[Val]) -> R<Val> {
        let attr = |t: &mut Self, val: Val| -> R<String> {
            match t.as_const(val)? {
                Some(name) => Ok(name.extract()?),
                None => t.stop(breaks::UNSUPPORTED_ATTRIBUTE, "a name that isn't a constant"),
            }
        };
        match (name, args) {
            ("__init__", _) => Ok(self.none()),
            ("__setattr__", [attribute, val]) => {
                let attribute = attr(self, *attribute)?;
                let class = self.type_of(receiver)?;
                self.set_attr_generic(receiver, &class, &attribute, *val)?;
                Ok(self.none())
            }
            ("__getattribute__", [attribute]) => {
                let attribute = attr(self, *attribute)?;
                let class = self.type_of(receiver)?;
                match self.plain_attr(receiver, &class, &attribute)? {
                    Some(val) => Ok(val),
                    None => self.no_attribute(receiver, &attribute),
                }
            }
            ("__init_subclass__", _) => Ok(self.none()),
            ("__eq__", [other]) => {
                let same = self.is_same(receiver, *other)?;
                if same {
                    Ok(self.bool(true))
                } else {
                    let object = self.known.builtin(self.py, "NotImplemented")?;
                    Ok(self.constant(object))
                }
            }
            ("__ne__", [other]) => {
                let same = self.is_same(receiver, *other)?;
                Ok(self.bool(!same))
            }
            ("__format__", [spec]) => {
                let function = self.known.builtin(self.py, "str")?;
                let function = self.existing(function);
                let text = self.call(function, vec![receiver], Vec::new())?;
                self.format(text, Some(*spec))
            }
            _ => self.stop(breaks::UNSUPPORTED_CALL, format!("object.{name}")),
        }
    }

    // ---- classes ----

    fn call_class(&mut self, callee: Val, class: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let py = self.py;
        let class_type = class.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?.clone();
        if self.known.is_literal_type(class) || self.known.is_size_type(class) {
            return self.call_pure(class, &args, &kwargs);
        }
        if let Some(holder) = self.holder_class(class)? {
            return self.new_holder(class, holder, args, kwargs);
        }
        if class_type.is_subclass(self.known.tensor.bind(py))? {
            // The legacy constructor tells sizes from data by the argument's type, which recording doesn't keep.
            if let [only] = args[..]
                && class.is(self.known.tensor.bind(py))
                && self.as_const(only)?.is_some_and(|size| self.known.is_size_type(size.get_type().as_any()))
            {
                return self.stop(breaks::UNSUPPORTED_CALL, "torch.Tensor(size)");
            }
            return self.call_torch_kw(class, args, kwargs);
        }
        // A metaclass with its own __call__.
        let meta = class.get_type().into_any();
        if !meta.is(py.get_type::<PyType>())
            && let Some(found) = self.guarded_type_lookup(&meta, "__call__")?
            && found.get_type().is(&self.known.types(py, "FunctionType")?)
        {
            if meta.getattr("__name__")?.extract::<String>()? == "EnumType"
                || meta.getattr("__name__")?.extract::<String>()? == "EnumMeta"
            {
                return match self.all_to_python(&args)? {
                    Some(values) => match class.call1(PyTuple::new(py, values)?) {
                        Ok(member) => Ok(self.existing(member)),
                        Err(error) => self.raise_py(error),
                    },
                    None => self.stop(breaks::UNSUPPORTED_CALL, class.repr()?.to_string()),
                };
            }
            let function = self.existing(found);
            let args = std::iter::once(callee).chain(args).collect();
            return self.call(function, args, kwargs);
        }
        self.type_call(callee, class, args, kwargs)
    }

    /// `type.__call__(class, …)`
    fn type_call(&mut self, callee: Val, class: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let py = self.py;
        let new = self.guarded_type_lookup(class, "__new__")?;
        let object_new = py.get_type::<PyAny>().getattr("__new__")?;
        let instance = match new {
            Some(new) if new.is(&object_new) => self.new_instance(class)?,
            Some(new) => {
                let inner = if new.get_type().is(&self.known.builtin(py, "staticmethod")?) {
                    new.getattr("__func__")?
                } else {
                    new.clone()
                };
                if inner.get_type().is(&self.known.types(py, "FunctionType")?) {
                    let function = self.existing(inner);
                    let all = std::iter::once(callee).chain(args.iter().copied()).collect();
                    self.call(function, all, kwargs.clone())?
                } else if self.derives_from_dict(class)? {
                    self.new_mapping_instance(class)
                } else {
                    return self.call_builtin_base(class, args, kwargs);
                }
            }
            None => return Err(Stop::Bug("a class without __new__".to_owned())),
        };
        let made = self.type_of(instance)?;
        if !made.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?.is_subclass(class)? {
            return Ok(instance);
        }
        self.init_instance(instance, &made, args, kwargs)?;
        Ok(instance)
    }

    /// `base.__new__(class, …)` of a class written in C.
    fn call_c_new(&mut self, object: &Object<'py>, base: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let py = self.py;
        let Some(&first) = args.first() else {
            return self.raise("TypeError", "__new__(): not enough arguments");
        };
        let Kind::Object(class) = self.kind(first)? else {
            return self.stop(breaks::UNSUPPORTED_CALL, "__new__ of a class made in the trace");
        };
        let class = class.clone();
        let Ok(class_type) = class.cast::<PyType>() else {
            return self.raise("TypeError", "__new__(X): X is not a type object");
        };
        if base.is(py.get_type::<PyAny>()) {
            return self.new_instance(&class);
        }
        if base.is(py.get_type::<PyTuple>()) {
            let items = match args.get(1) {
                Some(&items) => self.iterate(items)?,
                None => Vec::new(),
            };
            let exact = class.is(py.get_type::<PyTuple>());
            return Ok(self.add(Kind::Tuple { items, class: (!exact).then_some(class) }));
        }
        if base.is(py.get_type::<PyDict>()) && self.derives_from_dict(&class)? {
            return Ok(self.new_mapping_instance(&class));
        }
        if class_type.is_subclass_of::<pyo3::exceptions::PyBaseException>()? {
            let args = args[1..].to_vec();
            return Ok(self.add(Kind::Instance(InstanceVal { class, attrs: IndexMap::new(), args, base: None })));
        }
        if self.known.is_literal_type(&class) {
            return self.call_pure(object, &args, &kwargs);
        }
        self.stop(breaks::UNSUPPORTED_CALL, crate::torch_graph::name_of(object))
    }

    pub fn new_instance(&mut self, class: &Object<'py>) -> R<Val> {
        // A class whose instances have a C layout of their own can't be rebuilt from attributes.
        let basic: isize = class.getattr("__basicsize__")?.extract()?;
        let pointer = std::mem::size_of::<usize>() as isize;
        let heap = self.type_has_flag(class, 1 << 9)?;
        if !heap || basic < 2 * pointer {
            return self.stop(breaks::UNSUPPORTED_CALL, class.repr()?.to_string());
        }
        Ok(self.add(Kind::Instance(InstanceVal {
            class: class.clone(),
            attrs: IndexMap::new(),
            args: Vec::new(),
            base: None,
        })))
    }

    fn init_instance(&mut self, instance: Val, class: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<()> {
        match self.guarded_type_lookup(class, "__init__")? {
            Some(init)
                if init.get_type().is(&self.known.types(self.py, "FunctionType")?)
                    || self.container_part(instance)?.is_some() =>
            {
                let function = self.existing(init);
                let all = std::iter::once(instance).chain(args).collect();
                self.call(function, all, kwargs)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Classes made by C code: exceptions, namedtuples and the like; anything else is a break.
    fn call_builtin_base(&mut self, class: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let class_type = class.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?.clone();
        if class_type.is_subclass_of::<pyo3::exceptions::PyBaseException>()? {
            let instance = self.add(Kind::Instance(InstanceVal {
                class: class.clone(),
                attrs: IndexMap::new(),
                args: args.clone(),
                base: None,
            }));
            let init = self.type_lookup(class, "__init__")?;
            let traced =
                init.is_some_and(|i| i.get_type().is(self.known.types(self.py, "FunctionType").unwrap_or(i.clone())));
            if !traced && !kwargs.is_empty() {
                return self.stop(breaks::UNSUPPORTED_CALL, format!("{} with keyword arguments", class.repr()?));
            }
            if traced {
                self.init_instance(instance, class, args, kwargs)?;
            } else if let Some(first) = args.first()
                && class_type.is_subclass_of::<pyo3::exceptions::PyStopIteration>()?
                && let Kind::Instance(data) = self.kind_mut(instance)
            {
                data.attrs.insert("value".to_owned(), *first);
            }
            return Ok(instance);
        }
        if kwargs.is_empty() && self.known.is_used_by_identity(self.py, class, class.get_type().as_any())? {
            let module: String = class.getattr("__module__").and_then(|m| m.extract()).unwrap_or_default();
            if crate::builtins::PURE_MODULES.contains(&module.as_str()) {
                return self.call_pure(class, &args, &kwargs);
            }
        }
        self.stop(breaks::UNSUPPORTED_CALL, class.repr()?.to_string())
    }

    /// `format(value, spec)`
    pub fn format(&mut self, val: Val, spec: Option<Val>) -> R<Val> {
        let function = self.known.builtin(self.py, "format")?;
        self.realize(val)?;
        match self.peek(val) {
            Kind::Const(_) | Kind::Tuple { .. } | Kind::List(_) | Kind::Dict { .. } | Kind::Set { .. } => {
                let args: Vec<Val> = std::iter::once(val).chain(spec).collect();
                self.call_pure(&function, &args, &Vec::new())
            }
            Kind::Object(object) if object.is_instance_of::<PyType>() => {
                let args: Vec<Val> = std::iter::once(val).chain(spec).collect();
                self.call_pure(&function, &args, &Vec::new())
            }
            Kind::Tensor(_) => self.stop(breaks::DATA_DEPENDENT_VALUE, "the text of a tensor"),
            _ => {
                let spec = match spec {
                    Some(spec) => spec,
                    None => self.str(""),
                };
                match self.special_method(val, "__format__")? {
                    Some(method) => self.call(method, vec![spec], Vec::new()),
                    None => self.stop(breaks::UNSUPPORTED_OPERATION, "format of this value"),
                }
            }
        }
    }
}

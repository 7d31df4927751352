//! Attributes: CPython's `object.__getattribute__`, `type.__getattribute__` and module lookup on traced values,
//! without running user code except by tracing it.

use crate::breaks::{self, R, Stop};
use crate::tracer::Tracer;
use crate::value::{Kind, Object, Val};
use oxy_guards::{PyObj, Source, SourceKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

impl<'py> Tracer<'py, '_> {
    /// `type.__mro__` lookup: the attribute as stored in a class's dictionary.
    pub fn type_lookup(&self, class: &Object<'py>, name: &str) -> R<Option<Object<'py>>> {
        let class = class.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?;
        let name = self.interned(name);
        for base in class.mro().iter() {
            let dict = base.getattr(pyo3::intern!(self.py, "__dict__"))?;
            if dict.contains(&name)? {
                return Ok(Some(dict.get_item(&name)?));
            }
        }
        Ok(None)
    }

    /// `type_lookup` of a class that later calls must answer the same way.
    pub fn guarded_type_lookup(&mut self, class: &Object<'py>, name: &str) -> R<Option<Object<'py>>> {
        let found = self.type_lookup(class, name)?;
        match &found {
            Some(object) => {
                let source = self.type_attr_source(class, name);
                self.guard_identity(&source, object);
            }
            None => self.guard_type_lacks(class, name),
        }
        Ok(found)
    }

    fn type_attr_source(&mut self, class: &Object<'py>, name: &str) -> Source {
        let class_source = self.src(SourceKind::Object(PyObj::new(class)));
        let name = self.interned(name);
        self.src(SourceKind::TypeAttr(class_source, PyObj::new(&name)))
    }

    pub fn get_attr(&mut self, owner: Val, name: &str) -> R<Val> {
        match self.try_attr(owner, name)? {
            Some(val) => Ok(val),
            None => self.no_attribute(owner, name),
        }
    }

    pub fn no_attribute(&mut self, owner: Val, name: &str) -> R<Val> {
        let class = self.type_of(owner)?;
        if let Kind::Object(object) = self.peek(owner) {
            if let Ok(class) = object.cast::<PyType>() {
                let message = format!("type object '{}' has no attribute '{name}'", class.name()?);
                return self.raise("AttributeError", &message);
            }
            if object.is_instance_of::<pyo3::types::PyModule>() {
                let module: String = object.getattr("__name__")?.extract()?;
                return self.raise("AttributeError", &format!("module '{module}' has no attribute '{name}'"));
            }
        }
        let class_name: String = class.getattr("__name__")?.extract()?;
        self.raise("AttributeError", &format!("'{class_name}' object has no attribute '{name}'"))
    }

    /// The attribute, or `None` where Python raises AttributeError.
    pub fn try_attr(&mut self, owner: Val, name: &str) -> R<Option<Val>> {
        self.realize(owner)?;
        match self.peek(owner) {
            Kind::Tensor(_) => return self.tensor_attr(owner, name).map(Some),
            Kind::Super { class, receiver } => {
                let (class, receiver) = (class.clone(), *receiver);
                return self.super_attr(&class, receiver, name);
            }
            Kind::Object(object) => {
                let object = object.clone();
                if let Some(field) = self.scope_field(&object, name) {
                    let value = self.scope[field].clone();
                    return Ok(Some(self.constant(value)));
                }
                if object.is_instance_of::<PyType>() {
                    return self.class_attr(owner, &object, name);
                }
                if object.is_instance_of::<pyo3::types::PyModule>() {
                    return self.module_attr(owner, &object, name);
                }
            }
            Kind::Function(_) => return self.function_attr(owner, name),
            Kind::Instance(instance)
                if self.known.holders.iter().any(|(class, _)| *class == instance.class.as_ptr() as usize) =>
            {
                if let Some(val) = self.holder_attr(owner, name)? {
                    return Ok(Some(val));
                }
            }
            Kind::Method { function, receiver } => {
                let (function, receiver) = (*function, *receiver);
                return match name {
                    "__func__" => Ok(Some(function)),
                    "__self__" => Ok(Some(receiver)),
                    _ => self.try_attr(function, name),
                };
            }
            _ => {}
        }
        let class = self.type_of(owner)?;
        self.generic_attr(owner, &class, name)
    }

    fn generic_attr(&mut self, owner: Val, class: &Object<'py>, name: &str) -> R<Option<Val>> {
        if name == "__class__" {
            return Ok(Some(self.existing(class.clone())));
        }
        let getattribute = self.guarded_type_lookup(class, "__getattribute__")?;
        let plain = self.py.get_type::<PyAny>().getattr("__getattribute__")?;
        if let Some(getattribute) = getattribute.filter(|g| !g.is(&plain)) {
            if getattribute.get_type().is(&self.known.types(self.py, "FunctionType")?) {
                let function = self.existing(getattribute);
                let name = self.str(name);
                return self.catch_attribute_error(function, vec![owner, name]);
            }
            // Static C types have a slot wrapper of their own over the generic lookup.
            let definer = getattribute.getattr("__objclass__").unwrap_or_else(|_| class.clone());
            if self.type_has_flag(&definer, 1 << 9)? {
                return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, format!("__getattribute__ of {}", class.repr()?));
            }
        }
        self.plain_attr(owner, class, name)
    }

    /// `object.__getattribute__`
    pub fn plain_attr(&mut self, owner: Val, class: &Object<'py>, name: &str) -> R<Option<Val>> {
        let on_type = self.type_lookup(class, name)?;
        if let Some(descriptor) = &on_type
            && self.is_data_descriptor(descriptor)?
        {
            let descriptor = self.guarded_type_lookup(class, name)?.unwrap_or_else(|| descriptor.clone());
            return self.descriptor_get(owner, class, &descriptor, name);
        }
        if let Some(val) = self.instance_attr(owner, name)? {
            return Ok(Some(val));
        }
        // The guard on the class attribute also stands for its absence.
        match self.guarded_type_lookup(class, name)? {
            Some(descriptor) => self.descriptor_get(owner, class, &descriptor, name),
            None => self.fallback_attr(owner, class, name),
        }
    }

    /// `__getattr__` of the class.
    fn fallback_attr(&mut self, owner: Val, class: &Object<'py>, name: &str) -> R<Option<Val>> {
        let Some(getattr) = self.guarded_type_lookup(class, "__getattr__")? else { return Ok(None) };
        if getattr.as_ptr() as usize == self.known.module_getattr {
            return self.nn_module_attr(owner, name);
        }
        let function = self.existing(getattr);
        let name = self.str(name);
        self.catch_attribute_error(function, vec![owner, name])
    }

    /// The result of a call, or `None` if it raises AttributeError.
    fn catch_attribute_error(&mut self, function: Val, args: Vec<Val>) -> R<Option<Val>> {
        match self.call(function, args, Vec::new()) {
            Ok(val) => Ok(Some(val)),
            Err(Stop::Raise(exception)) => {
                let class = self.known.builtin(self.py, "AttributeError")?;
                let class = self.existing(class);
                if self.is_instance(exception, class)? { Ok(None) } else { Err(Stop::Raise(exception)) }
            }
            Err(stop) => Err(stop),
        }
    }

    /// `nn.Module.__getattr__`: parameters, buffers, submodules.
    fn nn_module_attr(&mut self, owner: Val, name: &str) -> R<Option<Val>> {
        for table in ["_parameters", "_buffers", "_modules"] {
            let Some(dict) = self.instance_attr(owner, table)? else { continue };
            if let Some(val) = self.dict_get_str(dict, name)? {
                return Ok(Some(val));
            }
        }
        Ok(None)
    }

    /// One key of a dictionary, looked at by itself: a dictionary nobody changed isn't tracked as a whole.
    fn dict_get_str(&mut self, dict: Val, name: &str) -> R<Option<Val>> {
        let key = self.interned(name);
        if let Kind::Lazy(object) = self.peek(dict)
            && let Ok(real) = object.clone().cast_into_exact::<PyDict>()
            && let Some(source) = self.source_of(dict)
        {
            return match real.get_item(&key)? {
                Some(value) => {
                    let item = self.src(SourceKind::DictItem(source, PyObj::new(&key)));
                    Ok(Some(self.external(value, item)))
                }
                None => {
                    self.guard_dict_lacks(&source, &key);
                    Ok(None)
                }
            };
        }
        let key = self.constant(key);
        self.dict_get(dict, key)
    }

    /// An entry of the instance's own dictionary (or a pending write to it).
    pub fn instance_attr(&mut self, owner: Val, name: &str) -> R<Option<Val>> {
        if let Some(written) = self.attr_writes.get(&(owner, name.to_owned())) {
            return Ok(*written);
        }
        match self.peek(owner) {
            Kind::Instance(instance) => {
                if let Some(&val) = instance.attrs.get(name) {
                    return Ok(Some(val));
                }
                let args = instance.args.clone();
                if name == "args" && self.is_exception_class(owner)? {
                    return Ok(Some(self.tuple(args)));
                }
                Ok(None)
            }
            Kind::Object(_) | Kind::Tensor(_) => {
                let object = match (self.peek(owner), &self.entry(owner).external) {
                    (_, Some(object)) | (Kind::Object(object), None) => object.clone(),
                    _ => return Ok(None),
                };
                let Ok(dict) = object.getattr(pyo3::intern!(self.py, "__dict__")) else { return Ok(None) };
                let source = self.source_of(owner);
                let source = self.source_or_object(source, &object);
                let key = self.interned(name);
                match dict.cast::<PyDict>() {
                    Ok(dict) => match dict.get_item(&key)? {
                        Some(value) => {
                            let item = self.src(SourceKind::InstanceAttr(source, PyObj::new(&key)));
                            Ok(Some(self.external(value, item)))
                        }
                        None => {
                            self.guard_lacks_attr(&source, name);
                            Ok(None)
                        }
                    },
                    Err(_) => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn is_exception_class(&mut self, owner: Val) -> R<bool> {
        let class = self.type_of(owner)?;
        Ok(class
            .cast::<PyType>()
            .map_err(|e| Stop::Bug(e.to_string()))?
            .is_subclass_of::<pyo3::exceptions::PyBaseException>()?)
    }

    fn is_data_descriptor(&self, descriptor: &Object<'py>) -> R<bool> {
        let class = descriptor.get_type().into_any();
        Ok(self.type_lookup(&class, "__set__")?.is_some() || self.type_lookup(&class, "__delete__")?.is_some())
    }

    /// `descriptor.__get__(owner, class)` for what a class dictionary holds.
    fn descriptor_get(
        &mut self,
        owner: Val,
        class: &Object<'py>,
        descriptor: &Object<'py>,
        name: &str,
    ) -> R<Option<Val>> {
        let py = self.py;
        let kind = descriptor.get_type().into_any();
        let is = |this: &Self, type_name: &str| -> PyResult<bool> { Ok(kind.is(&this.known.types(py, type_name)?)) };
        let source = self.type_attr_source(class, name);
        if is(self, "FunctionType")? || is(self, "MethodDescriptorType")? || is(self, "WrapperDescriptorType")? {
            let function = self.external(descriptor.clone(), source);
            return Ok(Some(self.add(Kind::Method { function, receiver: owner })));
        }
        if kind.is(&self.known.builtin(py, "property")?) {
            let getter = descriptor.getattr("fget")?;
            let getter = self.existing(getter);
            return self.call(getter, vec![owner], Vec::new()).map(Some);
        }
        if kind.is(&self.known.builtin(py, "staticmethod")?) {
            let function = self.existing(descriptor.getattr("__func__")?);
            return Ok(Some(function));
        }
        if kind.is(&self.known.builtin(py, "classmethod")?) {
            let function = self.existing(descriptor.getattr("__func__")?);
            let receiver = self.existing(class.clone());
            return Ok(Some(self.add(Kind::Method { function, receiver })));
        }
        if is(self, "MemberDescriptorType")? {
            return self.member_attr(owner, name);
        }
        if is(self, "GetSetDescriptorType")? {
            return self.getset_attr(owner, descriptor, name);
        }
        if is(self, "ClassMethodDescriptorType")? {
            let bound = descriptor.call_method1("__get__", (py.None(), class))?;
            return Ok(Some(self.existing(bound)));
        }
        if kind.as_ptr() as usize == self.known.cached_property {
            let function = self.existing(descriptor.getattr("func")?);
            let val = self.call(function, vec![owner], Vec::new())?;
            self.set_attr_generic(owner, class, name, val)?;
            return Ok(Some(val));
        }
        if kind.getattr("__name__")?.extract::<String>()? == "_tuplegetter"
            && let Kind::Tuple { items, .. } = self.peek(owner)
        {
            let (_, (index, _)): (Object<'py>, (usize, Object<'py>)) =
                descriptor.call_method0("__reduce__")?.extract()?;
            return Ok(items.get(index).copied());
        }
        let getter = self.type_lookup(&kind, "__get__")?;
        match getter {
            None => Ok(Some(self.external(descriptor.clone(), source))),
            Some(getter) if getter.get_type().is(&self.known.types(py, "FunctionType")?) => {
                let getter = self.existing(getter);
                let descriptor = self.external(descriptor.clone(), source);
                let class = self.existing(class.clone());
                self.call(getter, vec![descriptor, owner, class], Vec::new()).map(Some)
            }
            Some(_) => self.stop(breaks::UNSUPPORTED_ATTRIBUTE, format!("descriptor {} of {}", name, class.repr()?)),
        }
    }

    /// A `__slots__` member.
    fn member_attr(&mut self, owner: Val, name: &str) -> R<Option<Val>> {
        if let Some(written) = self.attr_writes.get(&(owner, name.to_owned())) {
            return Ok(*written);
        }
        match self.peek(owner) {
            Kind::Instance(instance) => Ok(instance.attrs.get(name).copied()),
            Kind::Object(object) => {
                let object = object.clone();
                let source = self.source_of(owner);
                let source = self.source_or_object(source, &object);
                let name_object = self.interned(name);
                let member = self.src(SourceKind::Member(source, PyObj::new(&name_object)));
                match object.getattr(name) {
                    Ok(value) => Ok(Some(self.external(value, member))),
                    Err(_) => {
                        self.guard(&member, oxy_guards::GuardKind::Missing);
                        Ok(None)
                    }
                }
            }
            Kind::Const(object) => {
                let value = object.getattr(name)?;
                self.fresh(value).map(Some)
            }
            Kind::Tuple { items, class: Some(class) } => {
                // A structure sequence (`torch.return_types`).
                let (items, class) = (items.clone(), class.clone());
                let fields: Vec<String> = class.getattr("__match_args__").and_then(|f| f.extract()).unwrap_or_default();
                match fields.iter().position(|field| field == name).and_then(|index| items.get(index)) {
                    Some(&val) => Ok(Some(val)),
                    None => self.stop(breaks::UNSUPPORTED_ATTRIBUTE, name),
                }
            }
            _ => self.stop(breaks::UNSUPPORTED_ATTRIBUTE, name),
        }
    }

    /// A C-level attribute (`__dict__`, `__name__`, …).
    fn getset_attr(&mut self, owner: Val, _descriptor: &Object<'py>, name: &str) -> R<Option<Val>> {
        match self.peek(owner) {
            Kind::Const(object) => {
                let value = object.getattr(name)?;
                self.fresh(value).map(Some)
            }
            Kind::Object(object) if name == "__dict__" => {
                let object = object.clone();
                let dict = object.getattr("__dict__")?;
                let dict = if dict.cast_exact::<PyDict>().is_ok() {
                    dict
                } else {
                    return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, "__dict__ of an unusual object");
                };
                if self.attr_writes.keys().any(|(written, _)| *written == owner) {
                    return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, "__dict__ of an object that was written to");
                }
                let source = self.source_of(owner);
                let source = self.source_or_object(source, &object);
                let dict_source = self.src(SourceKind::InstanceDict(source));
                Ok(Some(self.external(dict, dict_source)))
            }
            Kind::Object(object) => {
                let object = object.clone();
                let by_identity = self.known.is_used_by_identity(self.py, &object, object.get_type().as_any())?;
                let value = match object.getattr(name) {
                    Ok(value) => value,
                    Err(_) => return Ok(None),
                };
                let source = self.source_of(owner);
                let source = self.source_or_object(source, &object);
                let name_object = self.interned(name);
                if by_identity || self.known.is_literal_type(value.get_type().as_any()) {
                    let source = self.src(SourceKind::Attr(source, PyObj::new(&name_object)));
                    return Ok(Some(self.external(value, source)));
                }
                self.stop(breaks::UNSUPPORTED_ATTRIBUTE, format!("attribute {name} of {}", object.get_type().repr()?))
            }
            Kind::Instance(instance) if name == "__dict__" => {
                let items = instance.attrs.clone();
                let dict = self.dict(Default::default());
                for (key, val) in items {
                    let key = self.str(&key);
                    self.dict_insert(dict, key, val)?;
                }
                Ok(Some(dict))
            }
            Kind::Instance(instance) => {
                let val = match name {
                    "args" => {
                        let args = instance.args.clone();
                        self.tuple(args)
                    }
                    _ => match instance.attrs.get(name) {
                        Some(&val) => val,
                        None if name == "__suppress_context__" => self.bool(false),
                        None => self.none(),
                    },
                };
                Ok(Some(val))
            }
            _ => self.stop(breaks::UNSUPPORTED_ATTRIBUTE, name),
        }
    }

    /// An attribute of a class.
    fn class_attr(&mut self, owner: Val, class: &Object<'py>, name: &str) -> R<Option<Val>> {
        let py = self.py;
        let meta = class.get_type().into_any();
        let type_type = py.get_type::<PyType>().into_any();
        if name == "__class__" {
            return Ok(Some(self.existing(meta)));
        }
        if let Some(descriptor) = self.type_lookup(&meta, name)?
            && self.is_data_descriptor(&descriptor)?
        {
            if descriptor.get_type().is(&self.known.builtin(py, "property")?) {
                let getter = self.existing(descriptor.getattr("fget")?);
                return self.call(getter, vec![owner], Vec::new()).map(Some);
            }
            let value = class.getattr(name)?;
            if name == "__dict__" {
                return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, "__dict__ of a class");
            }
            let source = self.src(SourceKind::Object(PyObj::new(class)));
            let name_object = self.interned(name);
            let source = self.src(SourceKind::Attr(source, PyObj::new(&name_object)));
            return Ok(Some(self.external(value, source)));
        }
        if let Some(found) = self.guarded_type_lookup(class, name)? {
            let source = self.type_attr_source(class, name);
            let kind = found.get_type().into_any();
            if kind.is(&self.known.builtin(py, "staticmethod")?) {
                return Ok(Some(self.existing(found.getattr("__func__")?)));
            }
            if kind.is(&self.known.builtin(py, "classmethod")?) {
                let function = self.existing(found.getattr("__func__")?);
                return Ok(Some(self.add(Kind::Method { function, receiver: owner })));
            }
            if kind.is(&self.known.types(py, "ClassMethodDescriptorType")?)
                || found.is_instance_of::<pyo3::types::PyCFunction>()
                || kind.is(&self.known.types(py, "BuiltinFunctionType")?)
            {
                let bound = class.getattr(name)?;
                return Ok(Some(self.existing(bound)));
            }
            if let Some(getter) = self.type_lookup(&kind, "__get__")?
                && getter.get_type().is(&self.known.types(py, "FunctionType")?)
            {
                let (getter, none) = (self.existing(getter), self.none());
                let descriptor = self.external(found, source);
                return self.call(getter, vec![descriptor, none, owner], Vec::new()).map(Some);
            }
            return Ok(Some(self.external(found, source)));
        }
        if let Some(found) = self.guarded_type_lookup(&meta, name)? {
            if meta.is(&type_type) || found.get_type().is(&self.known.types(py, "FunctionType")?) {
                return self.descriptor_get(owner, &meta, &found, name);
            }
            let value = class.getattr(name)?;
            return Ok(Some(self.existing(value)));
        }
        match class.getattr(name) {
            // A metaclass's __getattr__ (enums of some versions).
            Ok(value) => Ok(Some(self.existing(value))),
            Err(_) => Ok(None),
        }
    }

    /// An attribute of a module.
    fn module_attr(&mut self, owner: Val, module: &Object<'py>, name: &str) -> R<Option<Val>> {
        let dict = module.getattr("__dict__")?;
        if let Some((_, written)) = self.global_writes.get(&(dict.as_ptr() as usize, name.to_owned())) {
            return Ok(*written);
        }
        let source = self.source_of(owner);
        let source = self.source_or_object(source, module);
        let key = self.interned(name);
        let dict_source = self.src(SourceKind::InstanceDict(source.clone()));
        if let Ok(value) = dict.get_item(&key) {
            let item = self.src(SourceKind::DictItem(dict_source, PyObj::new(&key)));
            return Ok(Some(self.external(value, item)));
        }
        match module.getattr(name) {
            // The module's own __getattr__ (a lazy import), or an attribute of the module type.
            Ok(value) => {
                let attr = self.src(SourceKind::Attr(source, PyObj::new(&key)));
                Ok(Some(self.external(value, attr)))
            }
            Err(_) => {
                self.guard_dict_lacks(&dict_source, &key);
                Ok(None)
            }
        }
    }

    /// An attribute of a function made by the trace.
    fn function_attr(&mut self, owner: Val, name: &str) -> R<Option<Val>> {
        let Kind::Function(data) = self.peek(owner) else { return Ok(None) };
        let data = data.clone();
        Ok(match name {
            "__name__" => Some(data.name),
            "__qualname__" => Some(data.qualname),
            "__defaults__" => Some(match data.defaults {
                Some(val) => val,
                None => self.none(),
            }),
            "__kwdefaults__" => Some(match data.kwdefaults {
                Some(val) => val,
                None => self.none(),
            }),
            "__code__" => Some(self.existing(data.code.object.clone())),
            "__doc__" if !data.attrs.contains_key(name) => {
                let doc = data.code.consts.get_item(0).ok().filter(|doc| doc.is_instance_of::<pyo3::types::PyString>());
                Some(match doc {
                    Some(doc) => self.existing(doc),
                    None => self.none(),
                })
            }
            "__module__" if !data.attrs.contains_key(name) => {
                let module = data.globals.get_item("__name__")?;
                Some(self.existing(module))
            }
            "__dict__" => {
                let dict = self.dict(Default::default());
                for (key, val) in &data.attrs {
                    let key = self.str(key);
                    self.dict_insert(dict, key, *val)?;
                }
                Some(dict)
            }
            "__get__" | "__call__" => return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, name),
            _ => data.attrs.get(name).copied(),
        })
    }

    /// `super(class, receiver).name`
    fn super_attr(&mut self, class: &Object<'py>, receiver: Val, name: &str) -> R<Option<Val>> {
        // For classmethods the receiver is the class itself.
        let (start, owner_is_class) = match self.kind(receiver)? {
            Kind::Object(object)
                if object.cast::<PyType>().is_ok_and(|class_of| class_of.mro().iter().any(|base| base.is(class))) =>
            {
                (object.clone(), true)
            }
            _ => (self.type_of(receiver)?, false),
        };
        let mro = start.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?.mro();
        let mut after = false;
        for base in mro.iter() {
            if after {
                let dict = base.getattr("__dict__")?;
                if dict.contains(name)? {
                    let found = dict.get_item(name)?;
                    let base_source = self.src(SourceKind::Object(PyObj::new(&base)));
                    let key = self.interned(name);
                    let source = self.src(SourceKind::TypeAttr(base_source, PyObj::new(&key)));
                    self.guard_identity(&source, &found);
                    if owner_is_class {
                        let kind = found.get_type().into_any();
                        if kind.is(&self.known.builtin(self.py, "classmethod")?) {
                            let function = self.existing(found.getattr("__func__")?);
                            return Ok(Some(self.add(Kind::Method { function, receiver })));
                        }
                        if kind.is(&self.known.builtin(self.py, "staticmethod")?) {
                            return Ok(Some(self.existing(found.getattr("__func__")?)));
                        }
                        return Ok(Some(self.external(found, source)));
                    }
                    return self.descriptor_get(receiver, &base, &found, name);
                }
            } else if base.is(class) {
                after = true;
            }
        }
        let class_name: String = class.getattr("__name__")?.extract()?;
        _ = class_name;
        self.raise("AttributeError", &format!("'super' object has no attribute '{name}'"))
    }

    pub fn make_super(&mut self, class: Val, receiver: Val) -> R<Val> {
        match self.kind(class)? {
            Kind::Object(class) => {
                let class = class.clone();
                Ok(self.add(Kind::Super { class, receiver }))
            }
            _ => self.stop(breaks::UNSUPPORTED_OPERATION, "super() of a class made in the trace"),
        }
    }

    /// A special method looked up on the type, bound to the value; `None` if the type lacks it.
    pub fn special_method(&mut self, owner: Val, name: &str) -> R<Option<Val>> {
        let class = self.type_of(owner)?;
        match self.guarded_type_lookup(&class, name)? {
            Some(descriptor) if !descriptor.is_none() => self.descriptor_get(owner, &class, &descriptor, name),
            _ => Ok(None),
        }
    }

    /// Whether a class has a `tp_flags` bit.
    pub fn type_has_flag(&self, class: &Object<'py>, flag: u64) -> R<bool> {
        let flags: u64 = class.getattr("__flags__")?.extract()?;
        Ok(flags & flag != 0)
    }

    // ---- writing ----

    pub fn set_attr(&mut self, owner: Val, name: &str, val: Val) -> R<()> {
        self.realize(owner)?;
        match self.peek(owner) {
            Kind::Function(data) => {
                let mut copy = crate::value::FunctionVal::clone(data);
                match name {
                    "__name__" => copy.name = val,
                    "__qualname__" => copy.qualname = val,
                    "__defaults__" | "__kwdefaults__" => {
                        let none = matches!(self.kind(val)?, Kind::Const(object) if object.is_none());
                        let val = (!none).then_some(val);
                        if name == "__defaults__" { copy.defaults = val } else { copy.kwdefaults = val }
                    }
                    "__annotations__" => copy.annotations = Some(val),
                    "__code__" | "__closure__" | "__globals__" | "__dict__" => {
                        return self.stop(breaks::UNSUPPORTED_MUTATION, format!("attribute {name} of a function"));
                    }
                    _ => {
                        copy.attrs.insert(name.to_owned(), val);
                    }
                }
                *self.kind_mut(owner) = Kind::Function(std::rc::Rc::new(copy));
                return Ok(());
            }
            Kind::Instance(_) => {}
            Kind::Object(object) => {
                let object = object.clone();
                if let Some(field) = self.scope_field(&object, name) {
                    return self.write_scope(field, val);
                }
                if object.is_instance_of::<PyType>()
                    || self.known.is_used_by_identity(self.py, &object, object.get_type().as_any())?
                {
                    return self.stop(breaks::UNSUPPORTED_MUTATION, format!("attribute {name} of {}", object.repr()?));
                }
            }
            _ => {
                let what = self.describe(owner);
                return self.stop(breaks::UNSUPPORTED_MUTATION, format!("attribute {name} of a {what}"));
            }
        }
        let class = self.type_of(owner)?;
        let setattr = self.guarded_type_lookup(&class, "__setattr__")?;
        let plain = self.py.get_type::<PyAny>().getattr("__setattr__")?;
        match setattr {
            Some(setattr)
                if !setattr.is(&plain) && setattr.get_type().is(&self.known.types(self.py, "FunctionType")?) =>
            {
                let is_module = class
                    .cast::<PyType>()
                    .map_err(|e| Stop::Bug(e.to_string()))?
                    .is_subclass(self.known.module.bind(self.py))?;
                if is_module
                    && matches!(self.peek(owner), Kind::Object(_))
                    && self.is_plain_module_write(owner, name, val)?
                {
                    return self.set_attr_generic(owner, &class, name, val);
                }
                let setter = self.existing(setattr);
                let name = self.str(name);
                self.call(setter, vec![owner, name, val], Vec::new())?;
                Ok(())
            }
            _ => self.set_attr_generic(owner, &class, name, val),
        }
    }

    /// `nn.Module.__setattr__` is `object.__setattr__` for values and names that aren't parameters, modules, buffers.
    fn is_plain_module_write(&mut self, owner: Val, name: &str, val: Val) -> R<bool> {
        self.realize(val)?;
        match self.peek(val) {
            Kind::Const(_) | Kind::Tuple { .. } | Kind::List(_) | Kind::Dict { .. } | Kind::Set { .. } => {}
            Kind::Tensor(tensor) if !tensor.class.is(self.known.parameter.bind(self.py)) => {}
            _ => return Ok(false),
        }
        for table in ["_parameters", "_buffers", "_modules"] {
            if let Some(dict) = self.instance_attr(owner, table)?
                && self.dict_get_str(dict, name)?.is_some()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `object.__setattr__`
    pub fn set_attr_generic(&mut self, owner: Val, class: &Object<'py>, name: &str, val: Val) -> R<()> {
        if let Some(descriptor) = self.guarded_type_lookup(class, name)?
            && self.is_data_descriptor(&descriptor)?
        {
            let kind = descriptor.get_type().into_any();
            if kind.is(&self.known.builtin(self.py, "property")?) {
                let setter = descriptor.getattr("fset")?;
                if setter.is_none() {
                    return self.stop(breaks::EXCEPTION_ESCAPES, format!("property {name} has no setter"));
                }
                let setter = self.existing(setter);
                self.call(setter, vec![owner, val], Vec::new())?;
                return Ok(());
            }
            if !kind.is(&self.known.types(self.py, "MemberDescriptorType")?) {
                let setter = self.type_lookup(&kind, "__set__")?;
                return match setter {
                    Some(setter) if setter.get_type().is(&self.known.types(self.py, "FunctionType")?) => {
                        let (setter, descriptor) = (self.existing(setter), self.existing(descriptor));
                        self.call(setter, vec![descriptor, owner, val], Vec::new())?;
                        Ok(())
                    }
                    _ => self.stop(breaks::UNSUPPORTED_MUTATION, format!("attribute {name}")),
                };
            }
        }
        if let Kind::Instance(instance) = self.kind_mut(owner) {
            instance.attrs.insert(name.to_owned(), val);
            return Ok(());
        }
        self.attr_writes.insert((owner, name.to_owned()), Some(val));
        Ok(())
    }

    pub fn del_attr(&mut self, owner: Val, name: &str) -> R<()> {
        self.realize(owner)?;
        let class = self.type_of(owner)?;
        let plain = self.py.get_type::<PyAny>().getattr("__delattr__")?;
        let delattr = self.guarded_type_lookup(&class, "__delattr__")?;
        if delattr.is_some_and(|d| !d.is(&plain)) {
            return self.stop(breaks::UNSUPPORTED_MUTATION, format!("del of attribute {name}"));
        }
        if self.instance_attr(owner, name)?.is_none() {
            self.no_attribute(owner, name)?;
        }
        match self.kind_mut(owner) {
            Kind::Instance(instance) => {
                instance.attrs.shift_remove(name);
            }
            Kind::Object(_) => {
                self.attr_writes.insert((owner, name.to_owned()), None);
            }
            _ => return self.stop(breaks::UNSUPPORTED_MUTATION, format!("del of attribute {name}")),
        }
        Ok(())
    }
}

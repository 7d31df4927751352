//! The trace in progress: arena, guards, graph and effects, and the making of values from real objects.

use crate::breaks::{self, Break, R, Reason, Stop};
use crate::code::{Code, Decoded};
use crate::markers::{Markers, Scope};
use crate::torch_graph::TorchGraph;
use crate::value::{Entry, InstanceVal, Key, Kind, Object, TensorVal, Val};
use crate::well_known::WellKnown;
use indexmap::IndexMap;
use oxy_bytecode::InstrId;
use oxy_guards::{Guard, GuardKind, PyObj, Source, SourceKind, SourceTable};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Gives the decoded form of a code object; the driver caches it.
pub type DecodeFn<'a> = dyn Fn(&Object<'_>) -> Result<Arc<Decoded>, String> + 'a;

/// Limits and switches of one trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Inlined calls nested deeper end the trace.
    pub depth_max: u32,
    /// Traced instructions, inlined ones included; more end the trace.
    pub steps_max: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { depth_max: 120, steps_max: 4_000_000 }
    }
}

/// A pending write to an attribute of an external object; `None` deletes it.
pub struct AttrWrite {
    pub object: Val,
    pub name: String,
    pub value: Option<Val>,
}

pub struct Tracer<'py, 'a> {
    pub py: Python<'py>,
    pub options: Options,
    pub decode: &'a DecodeFn<'a>,
    pub known: &'a WellKnown,
    pub entries: Vec<Entry<'py>>,
    pub sources: SourceTable,
    pub guards: Vec<Guard>,
    seen: FxHashSet<(u8, usize, usize)>,
    /// External objects already tracked, by address: two routes to one object give one value.
    pub externals: FxHashMap<usize, Val>,
    /// Further sources of values nobody has looked at yet.
    routes: FxHashMap<Val, Vec<Source>>,
    /// Container parts of external instances of classes derived from dict.
    pub parts: FxHashMap<Val, Val>,
    /// The dict or set behind an iterator of the trace, and its size when the iteration began.
    pub iterated: FxHashMap<Val, (Val, usize)>,
    /// Pending attribute writes by (object, name), in order of first write.
    pub attr_writes: IndexMap<(Val, String), Option<Val>>,
    /// Pending writes to globals dictionaries by (dictionary address, name).
    pub global_writes: IndexMap<(usize, String), (Object<'py>, Option<Val>)>,
    pub graph: TorchGraph<'py>,
    /// Tensors by the address of their fake.
    pub fakes: FxHashMap<usize, Val>,
    pub codes: FxHashMap<usize, Rc<Code<'py>>>,
    /// The running frames' code and current instruction, outermost first.
    pub here: Vec<(Rc<Code<'py>>, InstrId)>,
    pub steps: u64,
    /// Instructions of the outermost frame executed so far, and where to stop before executing one.
    pub outer_steps: u64,
    /// The last instruction of the outermost frame at which the interpreter could be entered: count, position.
    pub outer_enterable: (u64, InstrId),
    /// Where the outermost frame was when an exception that it handles was raised: no later point can be resumed
    /// at while a handler runs.
    pub raised_at: Option<(u64, InstrId)>,
    /// The exception being handled.
    pub handled: Option<Val>,
    pub stop_at: Option<u64>,
    /// A guard that compares tensors' identity is needed among inputs.
    pub identity_matters: bool,
    /// Grad mode when the segment was entered.
    pub entry_grad_mode: bool,
    /// The thread's grad mode and autocast state at the entry and at the end of the trace.
    pub thread_state: Option<(Object<'py>, Object<'py>)>,
    pub markers: Markers<'py>,
    /// Scope fields now, and when the segment was entered.
    pub scope: Scope<'py>,
    pub entry_scope: Scope<'py>,
    /// Calls put off to the segment's end: function, arguments.
    pub late_calls: Vec<(Object<'py>, Vec<Val>, crate::calls::Kwargs)>,
}

impl<'py, 'a> Tracer<'py, 'a> {
    pub fn new(
        py: Python<'py>,
        options: Options,
        decode: &'a DecodeFn<'a>,
        known: &'a WellKnown,
        stop_at: Option<u64>,
    ) -> PyResult<Tracer<'py, 'a>> {
        let markers = Markers::load(py)?;
        let scope = crate::markers::read_scope(&markers.scope)?;
        Ok(Tracer {
            markers,
            entry_scope: scope.clone(),
            scope,
            late_calls: Vec::new(),
            thread_state: None,
            py,
            options,
            decode,
            entries: Vec::with_capacity(256),
            sources: SourceTable::default(),
            guards: Vec::new(),
            seen: FxHashSet::default(),
            externals: FxHashMap::default(),
            routes: FxHashMap::default(),
            parts: FxHashMap::default(),
            iterated: FxHashMap::default(),
            attr_writes: IndexMap::new(),
            global_writes: IndexMap::new(),
            graph: TorchGraph::new(py, known)?,
            fakes: FxHashMap::default(),
            codes: FxHashMap::default(),
            here: Vec::new(),
            steps: 0,
            outer_steps: 0,
            outer_enterable: (0, InstrId(0)),
            raised_at: None,
            handled: None,
            stop_at,
            identity_matters: false,
            entry_grad_mode: known.grad_enabled(py)?,
            known,
        })
    }

    // ---- stops ----

    pub fn stop<T>(&self, reason: &'static Reason, detail: impl Into<String>) -> R<T> {
        Err(Stop::Break(Box::new(Break { reason, detail: detail.into(), stack: Vec::new(), strict: None })))
    }

    // ---- arena ----

    pub fn add(&mut self, kind: Kind<'py>) -> Val {
        self.entries.push(Entry { kind, source: None, external: None, dirty: false });
        Val(self.entries.len() as u32 - 1)
    }

    pub fn add_external(&mut self, kind: Kind<'py>, source: Source, object: &Object<'py>) -> Val {
        self.entries.push(Entry { kind, source: Some(source), external: Some(object.clone()), dirty: false });
        Val(self.entries.len() as u32 - 1)
    }

    pub fn entry(&self, val: Val) -> &Entry<'py> {
        &self.entries[val.0 as usize]
    }

    /// The kind of a value, looked at (realised) first.
    pub fn kind(&mut self, val: Val) -> R<&Kind<'py>> {
        self.realize(val)?;
        Ok(&self.entries[val.0 as usize].kind)
    }

    /// The kind of a value already looked at.
    pub fn peek(&self, val: Val) -> &Kind<'py> {
        &self.entries[val.0 as usize].kind
    }

    pub fn kind_mut(&mut self, val: Val) -> &mut Kind<'py> {
        &mut self.entries[val.0 as usize].kind
    }

    /// Marks a container as changed by the trace.
    pub fn touch(&mut self, val: Val) {
        self.entries[val.0 as usize].dirty = true;
    }

    pub fn source_of(&self, val: Val) -> Option<Source> {
        self.entry(val).source.clone()
    }

    pub fn constant(&mut self, object: Object<'py>) -> Val {
        self.add(Kind::Const(object))
    }

    pub fn none(&mut self) -> Val {
        let none = self.py.None().into_bound(self.py);
        self.constant(none)
    }

    pub fn bool(&mut self, value: bool) -> Val {
        let object = pyo3::types::PyBool::new(self.py, value).to_owned().into_any();
        self.constant(object)
    }

    pub fn int(&mut self, value: i64) -> R<Val> {
        let object = value.into_pyobject(self.py).map_err(|e| Stop::Bug(e.to_string()))?.into_any();
        Ok(self.constant(object))
    }

    pub fn str(&mut self, value: &str) -> Val {
        let object = pyo3::types::PyString::new(self.py, value).into_any();
        self.constant(object)
    }

    pub fn tuple(&mut self, items: Vec<Val>) -> Val {
        self.add(Kind::Tuple { items, class: None })
    }

    pub fn list(&mut self, items: Vec<Val>) -> Val {
        self.add(Kind::List(items))
    }

    pub fn dict(&mut self, items: IndexMap<Key<'py>, (Val, Val)>) -> Val {
        let class = self.py.get_type::<PyDict>().into_any();
        self.add(Kind::Dict { items, class, default_factory: None })
    }

    // ---- sources and guards ----

    pub fn src(&mut self, kind: SourceKind) -> Source {
        self.sources.intern(kind)
    }

    /// The source of a value used by identity; objects without one are held by the program itself.
    pub fn source_or_object(&mut self, source: Option<Source>, object: &Object<'py>) -> Source {
        match source {
            Some(source) => source,
            None => self.src(SourceKind::Object(PyObj::new(object))),
        }
    }

    pub fn guard(&mut self, source: &Source, kind: GuardKind) {
        let place = self.here.last().map(|(code, pc)| {
            let line = code.unit().line_of(*pc).unwrap_or(0);
            (Arc::<str>::from(code.filename.as_str()), line)
        });
        self.guards.push(Guard { source: source.clone(), kind, user_line: place });
    }

    /// Adds a guard once; `tag` and the addresses identify it.
    fn guard_once(&mut self, tag: u8, source: &Source, other: usize, kind: impl FnOnce() -> GuardKind) {
        if self.seen.insert((tag, source.address(), other)) {
            self.guard(source, kind());
        }
    }

    pub fn guard_type(&mut self, source: &Source, class: &Object<'py>) {
        self.guard_once(0, source, class.as_ptr() as usize, || GuardKind::TypeIs(PyObj::new(class)));
    }

    pub fn guard_identity(&mut self, source: &Source, object: &Object<'py>) {
        if source.is_object() {
            return;
        }
        self.guard_once(1, source, object.as_ptr() as usize, || GuardKind::IsObject(PyObj::new(object)));
    }

    /// What was found out depends on which object a value is.
    pub fn guard_itself(&mut self, val: Val, object: &Object<'py>) {
        if let Some(source) = self.source_of(val) {
            self.guard_identity(&source, object);
        }
    }

    pub fn guard_equals(&mut self, source: &Source, object: &Object<'py>) {
        if source.is_object() {
            return;
        }
        self.guard_once(2, source, object.as_ptr() as usize, || GuardKind::Equals(PyObj::new(object)));
    }

    pub fn guard_lacks_attr(&mut self, source: &Source, name: &str) {
        let name_object = pyo3::types::PyString::intern(self.py, name).into_any();
        self.guard_once(3, source, name_object.as_ptr() as usize, || {
            GuardKind::InstanceLacks(PyObj::new(&name_object))
        });
    }

    pub fn guard_type_lacks(&mut self, class: &Object<'py>, name: &str) {
        let source = self.src(SourceKind::Object(PyObj::new(class)));
        let name_object = pyo3::types::PyString::intern(self.py, name).into_any();
        self.guard_once(4, &source, name_object.as_ptr() as usize, || GuardKind::TypeLacks(PyObj::new(&name_object)));
    }

    pub fn guard_dict_lacks(&mut self, source: &Source, key: &Object<'py>) {
        self.guard_once(5, source, key.as_ptr() as usize, || GuardKind::DictLacksKey(PyObj::new(key)));
    }

    pub fn guard_length(&mut self, tag: u8, source: &Source, kind: GuardKind) {
        self.guard_once(tag, source, 0, || kind);
    }

    pub fn interned(&self, name: &str) -> Object<'py> {
        pyo3::types::PyString::intern(self.py, name).into_any()
    }

    // ---- real objects become values ----

    /// A value for an external object; nothing is guarded until it is looked at.
    pub fn external(&mut self, object: Object<'py>, source: Source) -> Val {
        let literal = self.known.is_literal_type(&object.get_type().into_any());
        if !literal && let Some(&val) = self.externals.get(&(object.as_ptr() as usize)) {
            match self.peek(val) {
                Kind::Lazy(_) => self.routes.entry(val).or_default().push(source),
                _ => self.guard_same(val, &source, &object),
            }
            return val;
        }
        let address = object.as_ptr() as usize;
        let entry =
            Entry { kind: Kind::Lazy(object.clone()), source: Some(source), external: Some(object), dirty: false };
        self.entries.push(entry);
        let val = Val(self.entries.len() as u32 - 1);
        if !literal {
            self.externals.insert(address, val);
        }
        val
    }

    /// A second route to an object already tracked: later calls must see one object there, too.
    fn guard_same(&mut self, val: Val, source: &Source, object: &Object<'py>) {
        let Some(first) = self.source_of(val) else { return };
        if first == *source || source.is_object() {
            return;
        }
        if self.seen.insert((6, source.address(), first.address())) {
            if first.is_object() {
                self.guard(source, GuardKind::IsObject(PyObj::new(object)));
            } else {
                self.guard(source, GuardKind::SameObject(first));
            }
        }
    }

    /// Looks at an external object: decides its kind and adds the guards that make the decision hold.
    pub fn realize(&mut self, val: Val) -> R<()> {
        let Kind::Lazy(object) = &self.entries[val.0 as usize].kind else { return Ok(()) };
        let object = object.clone();
        let Some(source) = self.source_of(val) else {
            return Err(Stop::Bug("a lazy value has no source".to_owned()));
        };
        let kind = self.classify(&object, &source)?;
        self.entries[val.0 as usize].kind = kind;
        for route in self.routes.remove(&val).unwrap_or_default() {
            self.guard_same(val, &route, &object);
        }
        if let Kind::Tensor(tensor) = &self.entries[val.0 as usize].kind {
            self.fakes.insert(tensor.fake.as_ptr() as usize, val);
        }
        Ok(())
    }

    fn classify(&mut self, object: &Object<'py>, source: &Source) -> R<Kind<'py>> {
        let class = object.get_type().into_any();
        if self.known.is_literal_type(&class) {
            if self.known.is_singleton_type(&class) {
                self.guard_identity(source, object);
            } else {
                self.guard_equals(source, object);
            }
            return Ok(Kind::Const(object.clone()));
        }
        if self.known.is_tensor_class(&class) {
            return self.classify_tensor(object, source, class);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            if self.known.is_size_type(&class) {
                self.guard_equals(source, object);
                return Ok(Kind::Const(object.clone()));
            }
            self.guard_type(source, &class);
            self.guard_length(10, source, GuardKind::TupleLength(tuple.len() as u32));
            let items = (0..tuple.len())
                .map(|i| {
                    let item_source = self.src(SourceKind::TupleItem(source.clone(), i as u32));
                    Ok(self.external(tuple.get_item(i)?, item_source))
                })
                .collect::<R<Vec<_>>>()?;
            let exact = object.cast_exact::<PyTuple>().is_ok();
            return Ok(Kind::Tuple { items, class: (!exact).then_some(class) });
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            self.guard_type(source, &class);
            self.guard_length(11, source, GuardKind::ListLength(list.len() as u32));
            let items = (0..list.len())
                .map(|i| {
                    let item_source = self.src(SourceKind::ListItem(source.clone(), i as u32));
                    Ok(self.external(list.get_item(i)?, item_source))
                })
                .collect::<R<Vec<_>>>()?;
            return Ok(Kind::List(items));
        }
        if self.known.is_dict_class(&class) {
            return self.classify_dict(object, source, class);
        }
        if object.cast_exact::<PySet>().is_ok() || object.cast_exact::<PyFrozenSet>().is_ok() {
            return self.classify_set(object, source, class);
        }
        if class.is(self.known.cell_type(self.py)) {
            self.guard_type(source, &class);
            let contents = object.getattr("cell_contents").ok();
            let inner = self.src(SourceKind::CellContents(source.clone()));
            let contents = match contents {
                Some(value) => Some(self.external(value, inner)),
                None => {
                    self.guard(&inner, GuardKind::Missing);
                    None
                }
            };
            return Ok(Kind::Cell(contents));
        }
        if class.is(&self.known.types(self.py, "MappingProxyType")?) {
            // What it shows can't be reached from it: the proxy object itself stands for its contents.
            self.guard_identity(source, object);
            let mut items = IndexMap::new();
            for pair in object.call_method0("items")?.try_iter()? {
                let (key, value): (Object<'py>, Object<'py>) = pair?.extract()?;
                let (key_val, value) = (self.existing(key.clone()), self.existing(value));
                items.insert(Key::object(key)?, (key_val, value));
            }
            return Ok(Kind::MappingProxy(self.dict(items)));
        }
        if class.is(&self.known.types(self.py, "MethodType")?) {
            self.guard_type(source, &class);
            let function_source = self.src(SourceKind::MethodFunction(source.clone()));
            let receiver_source = self.src(SourceKind::MethodSelf(source.clone()));
            let function = self.external(object.getattr("__func__")?, function_source);
            let receiver = self.external(object.getattr("__self__")?, receiver_source);
            return Ok(Kind::Method { function, receiver });
        }
        if class.is(&self.known.types(self.py, "FunctionType")?) && self.is_local_function(object, source)? {
            // Made anew by each call of what encloses it: its code and globals say what it does.
            self.guard_type(source, &class);
            let code = self.src(SourceKind::FunctionCode(source.clone()));
            self.guard_identity(&code, &object.getattr("__code__")?);
            let globals = self.src(SourceKind::FunctionGlobals(source.clone()));
            self.guard_identity(&globals, &object.getattr("__globals__")?);
            return Ok(Kind::Object(object.clone()));
        }
        if self.known.is_used_by_identity(self.py, object, &class)? {
            self.guard_identity(source, object);
        } else {
            self.guard_type(source, &class);
        }
        Ok(Kind::Object(object.clone()))
    }

    /// A function defined in a function, without attributes or marks, that a local variable, the stack or a cell holds.
    fn is_local_function(&self, object: &Object<'py>, source: &Source) -> R<bool> {
        let held = matches!(source.kind(), SourceKind::Local(_) | SourceKind::Stack(_) | SourceKind::CellContents(_));
        if !held || self.markers.knows(object)? {
            return Ok(false);
        }
        let name: String = object.getattr(pyo3::intern!(self.py, "__qualname__"))?.extract()?;
        let plain = object.getattr(pyo3::intern!(self.py, "__dict__"))?.is_empty()?;
        Ok(plain && name.contains("<locals>"))
    }

    fn classify_dict(&mut self, object: &Object<'py>, source: &Source, class: Object<'py>) -> R<Kind<'py>> {
        self.guard_type(source, &class);
        let items = self.dict_items(object, source)?;
        let default_factory = match self.known.is_defaultdict(&class) {
            false => None,
            true => {
                let factory = object.getattr("default_factory")?;
                let factory_source =
                    self.src(SourceKind::Member(source.clone(), PyObj::new(&self.interned("default_factory"))));
                Some(self.external(factory, factory_source))
            }
        };
        Ok(Kind::Dict { items, class, default_factory })
    }

    /// Items of a real dict (or of an instance derived from it), with guards on its keys.
    pub fn dict_items(&mut self, object: &Object<'py>, source: &Source) -> R<IndexMap<Key<'py>, (Val, Val)>> {
        let dict = object.cast::<PyDict>().map_err(|e| Stop::Bug(e.to_string()))?.clone();
        let mut items = IndexMap::with_capacity(dict.len());
        let mut keys = Vec::with_capacity(dict.len());
        for (key, value) in dict.iter() {
            if !self.known.has_builtin_hash(self.py, &key)? {
                return self.stop(breaks::UNSUPPORTED_OPERATION, "a dict whose keys define their own __hash__");
            }
            keys.push(PyObj::new(&key));
            let value_source = self.src(SourceKind::DictItem(source.clone(), PyObj::new(&key)));
            let value = self.external(value, value_source);
            let key_val = self.existing(key.clone());
            items.insert(Key::object(key)?, (key_val, value));
        }
        self.guard_length(12, source, GuardKind::DictKeys(keys));
        Ok(items)
    }

    fn classify_set(&mut self, object: &Object<'py>, source: &Source, class: Object<'py>) -> R<Kind<'py>> {
        let mut items = IndexMap::new();
        let mut members = Vec::new();
        for member in object.try_iter()? {
            let member = member?;
            if !self.known.has_builtin_hash(self.py, &member)? {
                return self.stop(breaks::UNSUPPORTED_OPERATION, "a set whose members define their own __hash__");
            }
            members.push(PyObj::new(&member));
            let val = self.existing(member.clone());
            items.insert(Key::object(member)?, val);
        }
        self.guard_type(source, &class);
        self.guard_length(13, source, GuardKind::SetItems(members));
        Ok(Kind::Set { items, frozen: object.cast_exact::<PyFrozenSet>().is_ok() })
    }

    fn classify_tensor(&mut self, object: &Object<'py>, source: &Source, class: Object<'py>) -> R<Kind<'py>> {
        let guard = self.known.tensor_guard(object).map_err(|e| match e {
            None => Stop::Break(Box::new(Break {
                reason: breaks::UNSUPPORTED_OPERATION,
                detail: "a tensor that is not strided (sparse, nested, quantized)".to_owned(),
                stack: Vec::new(),
                strict: None,
            })),
            Some(error) => Stop::Bug(error),
        })?;
        self.guard(source, GuardKind::Tensor(guard));
        let (number, fake) = self.graph.input(self.py, object, source.clone())?;
        Ok(Kind::Tensor(TensorVal { fake, class, number }))
    }

    /// A value for an object the trace holds by itself (a constant of the code, a dict key, a class), used by
    /// identity without a guard.
    pub fn existing(&mut self, object: Object<'py>) -> Val {
        let class = object.get_type().into_any();
        if self.known.is_literal_type(&class) || self.known.is_size_type(&class) {
            return self.constant(object);
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>()
            && self.known.is_constant_tree(object.as_any())
        {
            let items = tuple.iter().map(|item| self.existing(item)).collect();
            return self.tuple(items);
        }
        let source = self.src(SourceKind::Object(PyObj::new(&object)));
        self.external(object, source)
    }

    /// A value for the fresh result of a pure function: containers are new ones of the trace.
    pub fn fresh(&mut self, object: Object<'py>) -> R<Val> {
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            let items = tuple.iter().map(|item| self.fresh(item)).collect::<R<Vec<_>>>()?;
            return Ok(self.tuple(items));
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            let items = list.iter().map(|item| self.fresh(item)).collect::<R<Vec<_>>>()?;
            return Ok(self.list(items));
        }
        if let Ok(dict) = object.cast_exact::<PyDict>() {
            let mut items = IndexMap::new();
            for (key, value) in dict.iter() {
                let (key_val, value) = (self.fresh(key.clone())?, self.fresh(value)?);
                items.insert(Key::object(key)?, (key_val, value));
            }
            return Ok(self.dict(items));
        }
        if object.cast_exact::<PySet>().is_ok() || object.cast_exact::<PyFrozenSet>().is_ok() {
            let mut items = IndexMap::new();
            for member in object.try_iter()? {
                let member = member?;
                let val = self.fresh(member.clone())?;
                items.insert(Key::object(member)?, val);
            }
            return Ok(self.add(Kind::Set { items, frozen: object.cast_exact::<PyFrozenSet>().is_ok() }));
        }
        Ok(self.existing(object))
    }

    /// The real object a value stands for, when it is made of constants and external objects only (containers
    /// are built anew: for passing to pure functions).
    pub fn to_python(&mut self, val: Val) -> R<Option<Object<'py>>> {
        self.realize(val)?;
        let py = self.py;
        Ok(match self.peek(val) {
            Kind::Const(object) => Some(object.clone()),
            Kind::Object(object) => {
                let object = object.clone();
                self.guard_itself(val, &object);
                Some(object)
            }
            Kind::Tuple { items, class } => {
                let (items, class) = (items.clone(), class.clone());
                let Some(items) = self.all_to_python(&items)? else { return Ok(None) };
                let tuple = PyTuple::new(py, items)?.into_any();
                match class {
                    None => Some(tuple),
                    Some(_) => self.entry(val).external.clone(),
                }
            }
            Kind::List(items) => {
                let items = items.clone();
                self.all_to_python(&items)?.map(|items| PyList::new(py, items).map(|l| l.into_any())).transpose()?
            }
            Kind::Set { items, frozen } => {
                let (items, frozen): (Vec<Val>, bool) = (items.values().copied().collect(), *frozen);
                let Some(items) = self.all_to_python(&items)? else { return Ok(None) };
                Some(if frozen { PyFrozenSet::new(py, items)?.into_any() } else { PySet::new(py, items)?.into_any() })
            }
            Kind::Dict { items, class, .. } if class.is(py.get_type::<PyDict>()) => {
                let pairs: Vec<(Val, Val)> = items.values().copied().collect();
                let dict = PyDict::new(py);
                for (key, value) in pairs {
                    let (Some(key), Some(value)) = (self.to_python(key)?, self.to_python(value)?) else {
                        return Ok(None);
                    };
                    dict.set_item(key, value)?;
                }
                Some(dict.into_any())
            }
            Kind::Slice(parts) => {
                let parts = *parts;
                let Some(parts) = self.all_to_python(&parts)? else { return Ok(None) };
                Some(self.known.slice_type(py).call1(PyTuple::new(py, parts)?)?)
            }
            _ => None,
        })
    }

    pub fn all_to_python(&mut self, vals: &[Val]) -> R<Option<Vec<Object<'py>>>> {
        vals.iter().map(|&val| self.to_python(val)).collect()
    }

    /// The constant a value is, if it is one.
    pub fn as_const(&mut self, val: Val) -> R<Option<Object<'py>>> {
        Ok(match self.kind(val)? {
            Kind::Const(object) => Some(object.clone()),
            _ => None,
        })
    }

    /// What `type(value)` is.
    pub fn type_of(&mut self, val: Val) -> R<Object<'py>> {
        self.realize(val)?;
        let py = self.py;
        Ok(match self.peek(val) {
            Kind::Null | Kind::Lazy(_) => return Err(Stop::Bug("type of NULL".to_owned())),
            Kind::Const(object) | Kind::Object(object) => object.get_type().into_any(),
            Kind::Tensor(tensor) => tensor.class.clone(),
            Kind::Tuple { class: Some(class), .. } | Kind::Dict { class, .. } => class.clone(),
            Kind::Tuple { class: None, .. } => py.get_type::<PyTuple>().into_any(),
            Kind::List(_) => py.get_type::<PyList>().into_any(),
            Kind::Set { frozen: false, .. } => py.get_type::<PySet>().into_any(),
            Kind::Set { frozen: true, .. } => py.get_type::<PyFrozenSet>().into_any(),
            Kind::Slice(_) => self.known.slice_type(py),
            Kind::Instance(InstanceVal { class, .. }) => class.clone(),
            Kind::Function(_) => self.known.types(py, "FunctionType")?,
            Kind::Method { .. } => self.known.types(py, "MethodType")?,
            Kind::Cell(_) => self.known.cell_type(py),
            Kind::Generator(_) => self.known.types(py, "GeneratorType")?,
            Kind::Super { .. } => self.known.builtin(py, "super")?,
            Kind::MappingProxy(_) => self.known.types(py, "MappingProxyType")?,
            Kind::Iter(_) | Kind::DictView { .. } => {
                return self.stop(breaks::UNSUPPORTED_OPERATION, "the type of an iterator or view");
            }
        })
    }

    /// The traced form of a code object.
    pub fn code(&mut self, object: &Object<'py>) -> R<Rc<Code<'py>>> {
        let address = object.as_ptr() as usize;
        if let Some(code) = self.codes.get(&address) {
            return Ok(code.clone());
        }
        let decoded = (self.decode)(object).map_err(Stop::Bug)?;
        let code = Rc::new(Code::new(object.clone(), decoded)?);
        self.codes.insert(address, code.clone());
        Ok(code)
    }

    /// Turns a Python error raised by an operation of the traced program into a traced exception.
    pub fn raise_py<T>(&mut self, error: PyErr) -> R<T> {
        let value = error.value(self.py).clone().into_any();
        let class = value.get_type().into_any();
        let mut args = Vec::new();
        for arg in value.getattr("args")?.try_iter()? {
            let arg = self.fresh(arg?)?;
            args.push(arg);
        }
        let val = self.add(Kind::Instance(InstanceVal { class, attrs: IndexMap::new(), args, base: None }));
        Err(Stop::Raise(val))
    }

    /// Raises an exception of a builtin class with one message.
    pub fn raise<T>(&mut self, class: &str, message: &str) -> R<T> {
        let class = self.known.builtin(self.py, class)?;
        let message = self.str(message);
        let val =
            self.add(Kind::Instance(InstanceVal { class, attrs: IndexMap::new(), args: vec![message], base: None }));
        Err(Stop::Raise(val))
    }

    /// Short description of a value, for messages.
    pub fn describe(&mut self, val: Val) -> String {
        match self.type_of(val) {
            Ok(class) => class.cast::<PyType>().ok().and_then(|t| t.name().ok()).map(|n| n.to_string()),
            Err(_) => None,
        }
        .unwrap_or_else(|| "value".to_owned())
    }
}

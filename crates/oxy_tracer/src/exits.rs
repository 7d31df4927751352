//! The end of a segment: recipes that rebuild live values from sources and graph outputs, and the effects that
//! write the trace's mutations back to the user's objects.

use crate::breaks::{self, R, Stop};
use crate::frame::Frame;
use crate::tracer::Tracer;
use crate::value::{IterVal, Kind, Object, Val, View};
use oxy_bytecode::{InstrId, Var};
use oxy_guards::{Effect, Exit, GuardKind, PyObj, Recipe, RecipeId, SlotIndex, SourceKind};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

/// Builds one exit.
pub struct ExitBuilder<'t, 'py, 'a> {
    t: &'t mut Tracer<'py, 'a>,
    recipes: Vec<Recipe>,
    memo: FxHashMap<Val, RecipeId>,
    /// Tensor numbers the graph must return, in order.
    pub outputs: Vec<u32>,
    effects: Vec<Effect>,
}

impl<'t, 'py, 'a> ExitBuilder<'t, 'py, 'a> {
    pub fn new(t: &'t mut Tracer<'py, 'a>) -> Self {
        ExitBuilder { t, recipes: Vec::new(), memo: FxHashMap::default(), outputs: Vec::new(), effects: Vec::new() }
    }

    /// The exit of a segment that returns.
    pub fn returning(mut self, val: Val) -> R<(Exit, Vec<u32>)> {
        let value = self.recipe(val)?;
        self.effects()?;
        Ok(self.finish(Vec::new(), Vec::new(), Some(value)))
    }

    /// The exit of a segment after which the frame goes on at `pc`.
    pub fn resuming(mut self, frame: &Frame<'py>, pc: InstrId, entry_locals: &[Option<Val>]) -> R<(Exit, Vec<u32>)> {
        let code = frame.code.clone();
        let keep_all = inspects_frames(&code.names.extract::<Vec<String>>()?);
        let mut slots = Vec::new();
        for (slot, val) in frame.locals.iter().enumerate() {
            if *val == entry_locals[slot] {
                continue;
            }
            let kind = code.unit().local_kinds[slot];
            let live =
                keep_all || kind.is_cell() || kind.is_free() || code.decoded.analysis.is_live(pc, Var(slot as u32));
            let recipe = match val {
                Some(val) if live => self.recipe(*val)?,
                _ => self.push(Recipe::Null),
            };
            slots.push((SlotIndex(slot as u32), recipe));
        }
        let stack = frame.stack.iter().map(|&val| self.recipe(val)).collect::<R<Vec<_>>>()?;
        self.effects()?;
        Ok(self.finish(slots, stack, None))
    }

    fn finish(
        self,
        slots: Vec<(SlotIndex, RecipeId)>,
        stack: Vec<RecipeId>,
        value: Option<RecipeId>,
    ) -> (Exit, Vec<u32>) {
        let exit = Exit { recipes: self.recipes, slots, stack, value, effects: self.effects };
        (exit, self.outputs)
    }

    fn push(&mut self, recipe: Recipe) -> RecipeId {
        self.recipes.push(recipe);
        RecipeId(self.recipes.len() as u32 - 1)
    }

    fn object(&mut self, object: &Object<'py>) -> RecipeId {
        self.push(Recipe::Object(PyObj::new(object)))
    }

    fn builtin(&mut self, name: &str) -> R<RecipeId> {
        let object = self.t.known.builtin(self.t.py, name)?;
        Ok(self.object(&object))
    }

    fn all(&mut self, vals: &[Val]) -> R<Vec<RecipeId>> {
        vals.iter().map(|&val| self.recipe(val)).collect()
    }

    /// The recipe of a value; each value is built once.
    pub fn recipe(&mut self, val: Val) -> R<RecipeId> {
        if let Some(&id) = self.memo.get(&val) {
            return Ok(id);
        }
        if let Some(source) = self.t.source_of(val)
            && !matches!(self.t.peek(val), Kind::Null)
        {
            let id = match source.as_object() {
                Some(object) => self.push(Recipe::Object(object.clone())),
                None => self.push(Recipe::Source(source)),
            };
            self.memo.insert(val, id);
            return Ok(id);
        }
        // Containers may contain themselves: the identifier exists before the contents are built.
        let id = self.push(Recipe::Null);
        self.memo.insert(val, id);
        let recipe = self.new_recipe(val)?;
        self.recipes[id.0 as usize] = recipe;
        Ok(id)
    }

    fn new_recipe(&mut self, val: Val) -> R<Recipe> {
        let py = self.t.py;
        Ok(match self.t.peek(val) {
            Kind::Null => Recipe::Null,
            Kind::Lazy(_) => return Err(Stop::Bug("a lazy value without a source".to_owned())),
            Kind::Const(object) | Kind::Object(object) => Recipe::Object(PyObj::new(object)),
            Kind::Tensor(tensor) => {
                let number = tensor.number;
                let index = match self.outputs.iter().position(|&n| n == number) {
                    Some(index) => index,
                    None => {
                        self.outputs.push(number);
                        self.outputs.len() - 1
                    }
                };
                Recipe::Output(index as u32)
            }
            Kind::Tuple { items, class: None } => {
                let items = items.clone();
                Recipe::Tuple(self.all(&items)?)
            }
            Kind::Tuple { items, class: Some(class) } => {
                let (items, class) = (items.clone(), class.clone());
                let items = self.all(&items)?;
                let tuple = self.push(Recipe::Tuple(items));
                let class_recipe = self.object(&class);
                if class.hasattr("n_sequence_fields")? {
                    Recipe::Call { callable: class_recipe, args: vec![tuple], kwargs: Vec::new() }
                } else {
                    let new = py.get_type::<pyo3::types::PyTuple>().getattr("__new__")?;
                    let new = self.object(&new);
                    Recipe::Call { callable: new, args: vec![class_recipe, tuple], kwargs: Vec::new() }
                }
            }
            Kind::List(items) => {
                let items = items.clone();
                Recipe::List(self.all(&items)?)
            }
            Kind::Dict { items, class, default_factory } => {
                let pairs: Vec<(Val, Val)> = items.values().copied().collect();
                let (class, factory) = (class.clone(), *default_factory);
                let mut entries = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    entries.push((self.recipe(key)?, self.recipe(value)?));
                }
                if class.is(py.get_type::<pyo3::types::PyDict>()) {
                    Recipe::Dict(entries)
                } else {
                    let dict = self.push(Recipe::Dict(entries));
                    let callable = self.object(&class);
                    let mut args = Vec::new();
                    if let Some(factory) = factory {
                        args.push(self.recipe(factory)?);
                    }
                    args.push(dict);
                    Recipe::Call { callable, args, kwargs: Vec::new() }
                }
            }
            Kind::Set { items, frozen } => {
                let (items, frozen): (Vec<Val>, bool) = (items.values().copied().collect(), *frozen);
                let items = self.all(&items)?;
                if frozen { Recipe::FrozenSet(items) } else { Recipe::Set(items) }
            }
            Kind::Slice(parts) => {
                let parts = *parts;
                Recipe::Slice([self.recipe(parts[0])?, self.recipe(parts[1])?, self.recipe(parts[2])?])
            }
            Kind::Cell(contents) => {
                let contents = *contents;
                Recipe::Cell(contents.map(|val| self.recipe(val)).transpose()?)
            }
            Kind::Method { function, receiver } => {
                let (function, receiver) = (*function, *receiver);
                self.method(function, receiver)?
            }
            Kind::Function(data) => {
                let data = data.clone();
                let optional = |this: &mut Self, val: Option<Val>| val.map(|v| this.recipe(v)).transpose();
                let defaults = optional(self, data.defaults)?;
                let kwdefaults = optional(self, data.kwdefaults)?;
                let annotations = optional(self, data.annotations)?;
                let closure = if data.closure.is_empty() {
                    None
                } else {
                    let cells = self.all(&data.closure)?;
                    Some(self.push(Recipe::Tuple(cells)))
                };
                let globals = self.object(&data.globals);
                let mut dict = Vec::new();
                for (name, val) in &data.attrs {
                    dict.push((PyObj::new(&self.t.interned(name)), self.recipe(*val)?));
                }
                let text = |t: &mut Tracer<'py, '_>, val: Val| -> R<PyObj> {
                    match t.as_const(val)? {
                        Some(object) => Ok(PyObj::new(&object)),
                        None => Err(Stop::Bug("a function's name isn't constant".to_owned())),
                    }
                };
                Recipe::Function {
                    code: PyObj::new(&data.code.object),
                    globals,
                    name: text(self.t, data.name)?,
                    qualname: text(self.t, data.qualname)?,
                    defaults,
                    kwdefaults,
                    closure,
                    annotations,
                    dict,
                }
            }
            Kind::Instance(instance) => {
                let (class, args, attrs) = (instance.class.clone(), instance.args.clone(), instance.attrs.clone());
                let base = instance.base;
                if self.t.holder_class(&class)?.is_some() {
                    let args = self.all(&args)?;
                    let mut kwargs = Vec::new();
                    if let Some(&keywords) = attrs.get(crate::partials::KEYWORDS) {
                        for (name, val) in self.t.string_items(keywords)? {
                            kwargs.push((PyObj::new(&self.t.interned(&name)), self.recipe(val)?));
                        }
                    }
                    let callable = self.object(&class);
                    return Ok(Recipe::Call { callable, args, kwargs });
                }
                let is_exception = class
                    .cast::<pyo3::types::PyType>()
                    .map_err(|e| Stop::Bug(e.to_string()))?
                    .is_subclass_of::<pyo3::exceptions::PyBaseException>()?;
                if self.t.is_deque_class(&class)
                    && let Some(base) = base
                {
                    let maxlen = match attrs.get(crate::deques::MAXLEN) {
                        Some(&maxlen) => maxlen,
                        None => self.t.none(),
                    };
                    let args = vec![self.recipe(base)?, self.recipe(maxlen)?];
                    let callable = self.object(&class);
                    return Ok(Recipe::Call { callable, args, kwargs: Vec::new() });
                }
                if let Some(base) = base {
                    let items = self.recipe(base)?;
                    let mut entries = Vec::new();
                    for (name, val) in &attrs {
                        let key = self.t.interned(name);
                        entries.push((self.object(&key), self.recipe(*val)?));
                    }
                    let attributes = self.push(Recipe::Dict(entries));
                    let make = py.import("oxyfuel.polyfills")?.getattr("rebuild_mapping")?;
                    let args = vec![self.object(&class), items, attributes];
                    let callable = self.object(&make);
                    Recipe::Call { callable, args, kwargs: Vec::new() }
                } else if is_exception {
                    let args = self.all(&args)?;
                    let callable = self.object(&class);
                    if attrs.keys().all(|name| name == "value") {
                        return Ok(Recipe::Call { callable, args, kwargs: Vec::new() });
                    }
                    let mut entries = Vec::new();
                    for (name, val) in attrs.iter().filter(|(name, _)| *name != "value") {
                        let key = self.t.interned(name);
                        entries.push((self.object(&key), self.recipe(*val)?));
                    }
                    let attributes = self.push(Recipe::Dict(entries));
                    let args = self.push(Recipe::Tuple(args));
                    let make = py.import("oxyfuel.polyfills")?.getattr("rebuild_exception")?;
                    let make = self.object(&make);
                    Recipe::Call { callable: make, args: vec![callable, args, attributes], kwargs: Vec::new() }
                } else {
                    let mut items = Vec::new();
                    for (name, val) in &attrs {
                        items.push((PyObj::new(&self.t.interned(name)), self.recipe(*val)?));
                    }
                    Recipe::Instance { class: PyObj::new(&class), attrs: items }
                }
            }
            Kind::Iter(_) => return self.iterator(val),
            Kind::Generator(_) => return self.t.stop(breaks::GENERATOR, "a generator made in the segment"),
            Kind::Super { class, receiver } => {
                let (class, receiver) = (class.clone(), *receiver);
                let args = vec![self.object(&class), self.recipe(receiver)?];
                let callable = self.builtin("super")?;
                Recipe::Call { callable, args, kwargs: Vec::new() }
            }
            Kind::DictView { dict, view } => {
                let (dict, name) = (
                    *dict,
                    match view {
                        View::Keys => "keys",
                        View::Values => "values",
                        View::Items => "items",
                    },
                );
                let method = py.get_type::<pyo3::types::PyDict>().getattr(name)?;
                let args = vec![self.recipe(dict)?];
                let callable = self.object(&method);
                Recipe::Call { callable, args, kwargs: Vec::new() }
            }
            Kind::MappingProxy(inner) => {
                let inner = *inner;
                let args = vec![self.recipe(inner)?];
                let class = self.t.known.types(py, "MappingProxyType")?;
                let callable = self.object(&class);
                Recipe::Call { callable, args, kwargs: Vec::new() }
            }
        })
    }

    fn method(&mut self, function: Val, receiver: Val) -> R<Recipe> {
        let receiver_recipe = self.recipe(receiver)?;
        if let Kind::Object(object) = self.t.kind(function)? {
            let object = object.clone();
            let kind: String = object.get_type().getattr("__name__")?.extract()?;
            if kind == "method_descriptor" || kind == "wrapper_descriptor" {
                // Binding a C descriptor gives a builtin method, not a types.MethodType.
                let get = object.getattr("__get__")?;
                let callable = self.object(&get);
                return Ok(Recipe::Call { callable, args: vec![receiver_recipe], kwargs: Vec::new() });
            }
        }
        let function = self.recipe(function)?;
        Ok(Recipe::Method { function, receiver: receiver_recipe })
    }

    fn iterator(&mut self, val: Val) -> R<Recipe> {
        let py = self.t.py;
        let Kind::Iter(iter) = self.t.peek(val) else { return Err(Stop::Bug("not an iterator".to_owned())) };
        let (callable, args) = match iter {
            IterVal::Sequence { items, index } => {
                let (items, index) = (*items, *index);
                let callable = py.import("oxyfuel.polyfills")?.getattr("iter_at")?;
                let index = self.t.int(index as i64)?;
                (self.object(&callable), vec![self.recipe(items)?, self.recipe(index)?])
            }
            IterVal::Snapshot { items, index } => {
                let rest = items[*index..].to_vec();
                let rest = self.all(&rest)?;
                let tuple = self.push(Recipe::Tuple(rest));
                (self.builtin("iter")?, vec![tuple])
            }
            IterVal::Range { range, index, .. } => {
                let (range, index) = (range.clone(), *index);
                let slice = pyo3::types::PySlice::new(py, index as isize, isize::MAX, 1);
                let rest = range.get_item(slice)?;
                let rest = self.object(&rest);
                (self.builtin("iter")?, vec![rest])
            }
            IterVal::Enumerate { inner, next } => {
                let (inner, next) = (*inner, *next);
                let next = self.t.int(next)?;
                (self.builtin("enumerate")?, vec![self.recipe(inner)?, self.recipe(next)?])
            }
            IterVal::Zip { inners, strict: false } => {
                let inners = inners.clone();
                (self.builtin("zip")?, self.all(&inners)?)
            }
            IterVal::Map { function, inners } => {
                let (function, inners) = (*function, inners.clone());
                let mut args = vec![self.recipe(function)?];
                args.extend(self.all(&inners)?);
                (self.builtin("map")?, args)
            }
            IterVal::Filter { function, inner } => {
                let (function, inner) = (*function, *inner);
                (self.builtin("filter")?, vec![self.recipe(function)?, self.recipe(inner)?])
            }
            IterVal::Count { next, step } => {
                let (next, step) = (next.clone(), step.clone());
                let count = py.import("itertools")?.getattr("count")?;
                (self.object(&count), vec![self.object(&next), self.object(&step)])
            }
            IterVal::Zip { strict: true, .. } | IterVal::Chain { .. } => {
                return self.t.stop(breaks::REBUILD, "an iterator in use");
            }
        };
        Ok(Recipe::Call { callable, args, kwargs: Vec::new() })
    }

    /// The trace's mutations of external objects, in the order in which the objects were first seen.
    fn effects(&mut self) -> R<()> {
        let dirty: Vec<Val> = (0..self.t.entries.len() as u32)
            .map(Val)
            .filter(|&val| self.t.entry(val).dirty && self.t.entry(val).source.is_some())
            .collect();
        for &val in &dirty {
            self.guard_distinct_from_others(val);
            let target = self.recipe(val)?;
            let effect = match self.t.peek(val) {
                Kind::List(items) => {
                    let items = items.clone();
                    Effect::ListReplace { list: target, items: self.all(&items)? }
                }
                Kind::Dict { items, .. } => {
                    let pairs: Vec<(Val, Val)> = items.values().copied().collect();
                    let mut entries = Vec::new();
                    for (key, value) in pairs {
                        entries.push((self.recipe(key)?, self.recipe(value)?));
                    }
                    Effect::DictReplace { dict: target, items: entries }
                }
                Kind::Set { items, .. } => {
                    let items: Vec<Val> = items.values().copied().collect();
                    Effect::SetReplace { set: target, items: self.all(&items)? }
                }
                Kind::Cell(contents) => {
                    let contents = *contents;
                    Effect::SetCell { cell: target, value: contents.map(|v| self.recipe(v)).transpose()? }
                }
                _ => {
                    return self.t.stop(breaks::UNSUPPORTED_MUTATION, "an object of a kind that can't be written back");
                }
            };
            self.effects.push(effect);
        }
        let writes: Vec<(Val, String, Option<Val>)> =
            self.t.attr_writes.iter().map(|((object, name), val)| (*object, name.clone(), *val)).collect();
        for (object, name, val) in writes {
            let object = self.recipe(object)?;
            let name = PyObj::new(&self.t.interned(&name));
            let effect = match val {
                Some(val) => Effect::SetInstanceAttr { object, name, value: self.recipe(val)? },
                None => Effect::DelInstanceAttr { object, name },
            };
            self.effects.push(effect);
        }
        let globals: Vec<(Object<'py>, String, Option<Val>)> =
            self.t.global_writes.iter().map(|((_, name), (dict, val))| (dict.clone(), name.clone(), *val)).collect();
        for (dict, name, val) in globals {
            let dict = self.object(&dict);
            let key = self.t.interned(&name);
            let key = self.object(&key);
            let effect = match val {
                Some(val) => Effect::SetItem { object: dict, key, value: self.recipe(val)? },
                None => Effect::DelItem { object: dict, key },
            };
            self.effects.push(effect);
        }
        for (field, value) in self.t.scope_writes() {
            let scope = self.t.markers.scope.clone();
            let (object, value) = (self.object(&scope), self.object(&value));
            self.effects.push(Effect::SetAttr { object, name: PyObj::new(&self.t.interned(field)), value });
        }
        if let Some((before, after)) = self.t.thread_state.clone()
            && !before.eq(&after)?
        {
            let polyfills = self.t.py.import("oxyfuel.polyfills")?.into_any();
            let (object, state) = (self.object(&polyfills), self.object(&after));
            let name = PyObj::new(&self.t.interned("set_thread_state"));
            self.effects.push(Effect::CallMethod { object, name, args: vec![state] });
        }
        for (function, args, kwargs) in std::mem::take(&mut self.t.late_calls) {
            let mut object = self.object(&function);
            let args = self.all(&args)?;
            if !kwargs.is_empty() {
                let partial = self.t.py.import("functools")?.getattr("partial")?;
                let callable = self.object(&partial);
                let mut named = Vec::new();
                for (name, val) in kwargs {
                    named.push((PyObj::new(&self.t.interned(&name)), self.recipe(val)?));
                }
                object = self.push(Recipe::Call { callable, args: vec![object], kwargs: named });
            }
            self.effects.push(Effect::CallMethod { object, name: PyObj::new(&self.t.interned("__call__")), args });
        }
        Ok(())
    }

    /// A container written to must not be another tracked container on a later call.
    fn guard_distinct_from_others(&mut self, val: Val) {
        let same_kind = |a: &Kind<'py>, b: &Kind<'py>| {
            matches!(
                (a, b),
                (Kind::List(_), Kind::List(_))
                    | (Kind::Dict { .. }, Kind::Dict { .. })
                    | (Kind::Set { .. }, Kind::Set { .. })
            )
        };
        let others: Vec<Val> = (0..self.t.entries.len() as u32)
            .map(Val)
            .filter(|&other| {
                other != val && self.t.entry(other).source.is_some() && same_kind(self.t.peek(val), self.t.peek(other))
            })
            .collect();
        for other in others {
            self.t.guard_distinct(val, other);
        }
    }
}

/// Functions that may look at the frame's variables by name: every slot is kept for them.
fn inspects_frames(names: &[String]) -> bool {
    const NAMES: &[&str] =
        &["locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "breakpoint", "set_trace"];
    names.iter().any(|name| NAMES.contains(&name.as_str()))
}

/// Whether a call changes one of its tensors in place.
pub fn mutates(call: &crate::torch_graph::Call<'_>) -> bool {
    let name: String = call.callable.getattr("__name__").and_then(|n| n.extract()).unwrap_or_default();
    let in_place = name.ends_with('_')
        && !name.ends_with("__")
        && !matches!(name.as_str(), "and_" | "or_" | "is_" | "not_" | "requires_grad_");
    let operator = crate::operators::binary_of_name(&name).is_some_and(|(_, inplace)| inplace);
    in_place || operator || name == "setitem" || call.kwargs.iter().any(|(name, _)| name == "out" || name == "inplace")
}

impl<'py> Tracer<'py, '_> {
    /// Inputs that overlap in memory matter when the graph writes to one.
    pub fn guard_overlap(&mut self) -> R<()> {
        if !self.graph.calls.iter().any(mutates) || self.graph.inputs.len() < 2 {
            return Ok(());
        }
        let storage = |object: &Object<'py>| -> R<usize> {
            Ok(object.call_method0("untyped_storage")?.call_method0("data_ptr")?.extract()?)
        };
        let mut seen = Vec::new();
        for input in &self.graph.inputs {
            let address = storage(&input.object)?;
            if address != 0 && seen.contains(&address) {
                return self.stop(breaks::UNSUPPORTED_MUTATION, "inputs that share memory, one of which is written to");
            }
            seen.push(address);
        }
        let sources: Vec<_> = self.graph.inputs.iter().map(|input| input.source.clone()).collect();
        let first = sources[0].clone();
        self.guard(&first, GuardKind::NoOverlap(sources));
        Ok(())
    }

    /// A source for a frame's stack slot.
    pub fn stack_source(&mut self, index: u32) -> oxy_guards::Source {
        self.src(SourceKind::Stack(index))
    }
}

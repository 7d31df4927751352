//! Lists, tuples, dicts, sets, slices: subscripts, insertion, iteration.

use crate::breaks::{self, R, Stop};
use crate::tracer::Tracer;
use crate::value::{InstanceVal, IterVal, Key, Kind, Object, Val, View};
use indexmap::IndexMap;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// What a subscript selects.
enum Selection {
    One(usize),
    /// start, step, length, as `slice.indices` gives them.
    Many(i64, i64, i64),
}

impl<'py> Tracer<'py, '_> {
    /// The key a value is in dicts and sets.
    pub fn key(&mut self, val: Val) -> R<Key<'py>> {
        self.realize(val)?;
        match self.peek(val) {
            Kind::Const(object) => Ok(Key::object(object.clone())?),
            Kind::Object(object) => {
                let object = object.clone();
                if self.known.has_builtin_hash(self.py, &object)? {
                    self.guard_itself(val, &object);
                    Ok(Key::object(object)?)
                } else {
                    self.stop(breaks::UNSUPPORTED_OPERATION, "a dict key that defines its own __hash__")
                }
            }
            Kind::Tuple { .. } => match self.to_python(val)? {
                Some(object) => Ok(Key::object(object)?),
                None => self.stop(breaks::UNSUPPORTED_OPERATION, "a tuple of tensors as a dict key"),
            },
            Kind::Set { frozen: true, .. } => match self.to_python(val)? {
                Some(object) => Ok(Key::object(object)?),
                None => self.stop(breaks::UNSUPPORTED_OPERATION, "a frozenset as a dict key"),
            },
            Kind::Tensor(_) | Kind::Function(_) => Ok(Key::identity(val)),
            Kind::Instance(instance) => {
                let class = instance.class.clone();
                let plain = self.py.get_type::<PyAny>().getattr("__hash__")?;
                match self.guarded_type_lookup(&class, "__hash__")? {
                    Some(hash) if hash.is(&plain) => Ok(Key::identity(val)),
                    _ => self.stop(breaks::UNSUPPORTED_OPERATION, "a dict key that defines its own __hash__"),
                }
            }
            Kind::List(_) | Kind::Dict { .. } | Kind::Set { .. } => {
                let what = self.describe(val);
                self.raise("TypeError", &format!("unhashable type: '{what}'"))
            }
            _ => self.stop(breaks::UNSUPPORTED_OPERATION, "this value as a dict key"),
        }
    }

    pub fn dict_get(&mut self, dict: Val, key: Val) -> R<Option<Val>> {
        let key = self.key(key)?;
        let dict = self.unproxy(dict)?;
        match self.kind(dict)? {
            Kind::Dict { items, .. } => Ok(items.get(&key).map(|(_, val)| *val)),
            _ => Err(Stop::Bug("dict_get of something else".to_owned())),
        }
    }

    fn unproxy(&mut self, val: Val) -> R<Val> {
        Ok(match self.kind(val)? {
            Kind::MappingProxy(inner) => *inner,
            _ => self.container_part(val)?.unwrap_or(val),
        })
    }

    pub fn dict_insert(&mut self, dict: Val, key_val: Val, value: Val) -> R<()> {
        let key = self.key(key_val)?;
        let dict = self.unproxy(dict)?;
        match self.kind_mut(dict) {
            Kind::Dict { items, .. } => {
                // An equal key keeps the first key object.
                match items.get_mut(&key) {
                    Some(entry) => entry.1 = value,
                    None => {
                        items.insert(key, (key_val, value));
                    }
                }
            }
            _ => return Err(Stop::Bug("dict_insert into something else".to_owned())),
        }
        self.touch(dict);
        Ok(())
    }

    pub fn dict_remove(&mut self, dict: Val, key: Val) -> R<Option<Val>> {
        let key = self.key(key)?;
        let removed = match self.kind_mut(dict) {
            Kind::Dict { items, .. } => items.shift_remove(&key).map(|(_, val)| val),
            _ => None,
        };
        if removed.is_some() {
            self.touch(dict);
        }
        Ok(removed)
    }

    pub fn copy_dict(&mut self, dict: Val) -> R<Val> {
        match self.kind(dict)? {
            Kind::Dict { items, class, default_factory } => {
                let copy = Kind::Dict { items: items.clone(), class: class.clone(), default_factory: *default_factory };
                Ok(self.add(copy))
            }
            _ => Err(Stop::Bug("copy of something that isn't a dict".to_owned())),
        }
    }

    /// Key, value pairs of a mapping, in order.
    pub fn mapping_items(&mut self, mapping: Val) -> R<Vec<(Val, Val)>> {
        let mapping = self.unproxy(mapping)?;
        if let Kind::Dict { items, .. } = self.kind(mapping)? {
            return Ok(items.values().copied().collect());
        }
        let Some(keys) = self.try_attr(mapping, "keys")? else {
            let what = self.describe(mapping);
            return self.raise("TypeError", &format!("'{what}' object is not a mapping"));
        };
        let keys = self.call(keys, Vec::new(), Vec::new())?;
        let keys = self.iterate(keys)?;
        keys.into_iter().map(|key| Ok((key, self.get_item(mapping, key)?))).collect()
    }

    pub fn list_push(&mut self, list: Val, item: Val) -> R<()> {
        self.realize(list)?;
        match self.kind_mut(list) {
            Kind::List(items) => items.push(item),
            _ => return Err(Stop::Bug("append to something that isn't a list".to_owned())),
        }
        self.touch(list);
        Ok(())
    }

    pub fn set_insert(&mut self, set: Val, item: Val) -> R<()> {
        let key = self.key(item)?;
        self.realize(set)?;
        match self.kind_mut(set) {
            Kind::Set { items, .. } => {
                items.entry(key).or_insert(item);
            }
            _ => return Err(Stop::Bug("add to something that isn't a set".to_owned())),
        }
        self.touch(set);
        Ok(())
    }

    pub fn new_set(&mut self, members: &[Val], frozen: bool) -> R<Val> {
        let mut items = IndexMap::new();
        for &member in members {
            items.entry(self.key(member)?).or_insert(member);
        }
        Ok(self.add(Kind::Set { items, frozen }))
    }

    fn select(&mut self, length: usize, key: Val, what: &str) -> R<Selection> {
        self.realize(key)?;
        let object = match self.peek(key) {
            Kind::Slice(_) => {
                let Some(slice) = self.to_python(key)? else {
                    return self.stop(breaks::UNSUPPORTED_OPERATION, "a slice with tensor bounds");
                };
                slice
            }
            Kind::Const(object) => object.clone(),
            Kind::Tensor(_) => return self.stop(breaks::DATA_DEPENDENT_VALUE, "a tensor used as an index"),
            _ => return self.stop(breaks::UNSUPPORTED_OPERATION, format!("{what} index")),
        };
        if object.get_type().is(self.known.slice_type(self.py)) {
            let (start, stop, step): (i64, i64, i64) = match object.call_method1("indices", (length,)) {
                Ok(indices) => indices.extract()?,
                Err(error) => return self.raise_py(error),
            };
            let count = if step > 0 {
                (stop - start + step - 1).div_euclid(step)
            } else {
                (start - stop - step - 1).div_euclid(-step)
            };
            return Ok(Selection::Many(start, step, count.max(0)));
        }
        let Ok(index) = object.extract::<i64>() else {
            let name: String = object.get_type().getattr("__name__")?.extract()?;
            return self.raise("TypeError", &format!("{what} indices must be integers or slices, not {name}"));
        };
        let index = if index < 0 { index + length as i64 } else { index };
        if index < 0 || index >= length as i64 {
            return self.raise("IndexError", &format!("{what} index out of range"));
        }
        Ok(Selection::One(index as usize))
    }

    pub fn get_item(&mut self, container: Val, key: Val) -> R<Val> {
        self.realize(container)?;
        self.realize(key)?;
        let container = match self.peek(container) {
            Kind::MappingProxy(inner) => *inner,
            _ => container,
        };
        match self.peek(container) {
            Kind::Tensor(_) => {
                let function = self.known.operator(self.py, "getitem")?;
                self.call_torch(&function, vec![container, key], Vec::new())
            }
            Kind::List(items) => {
                let length = items.len();
                let selection = self.select(length, key, "list")?;
                let Kind::List(items) = self.peek(container) else { return Err(Stop::Bug("list changed".to_owned())) };
                match selection {
                    Selection::One(index) => Ok(items[index]),
                    Selection::Many(start, step, count) => {
                        let chosen = (0..count).map(|i| items[(start + i * step) as usize]).collect();
                        Ok(self.list(chosen))
                    }
                }
            }
            Kind::Tuple { items, .. } => {
                let items = items.clone();
                match self.select(items.len(), key, "tuple")? {
                    Selection::One(index) => Ok(items[index]),
                    Selection::Many(start, step, count) => {
                        let chosen = (0..count).map(|i| items[(start + i * step) as usize]).collect();
                        Ok(self.tuple(chosen))
                    }
                }
            }
            Kind::Dict { .. } => match self.dict_get(container, key)? {
                Some(val) => Ok(val),
                None => self.missing_key(container, key),
            },
            Kind::Const(_) => {
                let Some(operands) = self.all_to_python(&[container, key])? else {
                    return self.stop(breaks::UNSUPPORTED_OPERATION, "a subscript");
                };
                match operands[0].get_item(&operands[1]) {
                    Ok(value) => self.fresh(value),
                    Err(error) => self.raise_py(error),
                }
            }
            Kind::Object(object) if object.is_instance_of::<PyType>() => {
                // A generic alias such as `list[int]`, or an enum member by name.
                let object = object.clone();
                match self.to_python(key)? {
                    Some(key) => match object.get_item(key) {
                        Ok(value) => Ok(self.existing(value)),
                        Err(error) => self.raise_py(error),
                    },
                    None => self.stop(breaks::UNSUPPORTED_OPERATION, "a subscript of a class"),
                }
            }
            _ => match self.special_method(container, "__getitem__")? {
                Some(method) => self.call(method, vec![key], Vec::new()),
                None => {
                    let what = self.describe(container);
                    self.raise("TypeError", &format!("'{what}' object is not subscriptable"))
                }
            },
        }
    }

    fn missing_key(&mut self, dict: Val, key: Val) -> R<Val> {
        let factory = match self.peek(dict) {
            Kind::Dict { default_factory, .. } => *default_factory,
            _ => None,
        };
        if let Some(factory) = factory
            && !matches!(self.kind(factory)?, Kind::Const(_))
        {
            let val = self.call(factory, Vec::new(), Vec::new())?;
            self.dict_insert(dict, key, val)?;
            return Ok(val);
        }
        let class = self.known.builtin(self.py, "KeyError")?;
        let val = self.add(Kind::Instance(InstanceVal { class, attrs: IndexMap::new(), args: vec![key], base: None }));
        Err(Stop::Raise(val))
    }

    pub fn set_item(&mut self, container: Val, key: Val, val: Val) -> R<()> {
        self.realize(container)?;
        self.realize(key)?;
        match self.peek(container) {
            Kind::Tensor(_) => {
                let function = self.known.operator(self.py, "setitem")?;
                self.call_torch(&function, vec![container, key, val], Vec::new())?;
                Ok(())
            }
            Kind::List(items) => {
                let length = items.len();
                match self.select(length, key, "list")? {
                    Selection::One(index) => {
                        if let Kind::List(items) = self.kind_mut(container) {
                            items[index] = val;
                        }
                    }
                    Selection::Many(start, 1, count) => {
                        let new = self.iterate(val)?;
                        if let Kind::List(items) = self.kind_mut(container) {
                            items.splice(start as usize..(start + count) as usize, new);
                        }
                    }
                    Selection::Many(..) => {
                        return self.stop(breaks::UNSUPPORTED_MUTATION, "assignment to a stepped slice");
                    }
                }
                self.touch(container);
                Ok(())
            }
            Kind::Dict { .. } => self.dict_insert(container, key, val),
            _ => match self.special_method(container, "__setitem__")? {
                Some(method) => self.call(method, vec![key, val], Vec::new()).map(|_| ()),
                None => {
                    let what = self.describe(container);
                    self.raise("TypeError", &format!("'{what}' object does not support item assignment"))
                }
            },
        }
    }

    pub fn del_item(&mut self, container: Val, key: Val) -> R<()> {
        self.realize(container)?;
        match self.peek(container) {
            Kind::List(items) => {
                let length = items.len();
                let selection = self.select(length, key, "list")?;
                if let Kind::List(items) = self.kind_mut(container) {
                    match selection {
                        Selection::One(index) => {
                            items.remove(index);
                        }
                        Selection::Many(start, step, count) => {
                            let gone: Vec<usize> = (0..count).map(|i| (start + i * step) as usize).collect();
                            let mut index = 0;
                            items.retain(|_| {
                                index += 1;
                                !gone.contains(&(index - 1))
                            });
                        }
                    }
                }
                self.touch(container);
                Ok(())
            }
            Kind::Dict { .. } => match self.dict_remove(container, key)? {
                Some(_) => Ok(()),
                None => {
                    let class = self.known.builtin(self.py, "KeyError")?;
                    let val = self.add(Kind::Instance(InstanceVal {
                        class,
                        attrs: IndexMap::new(),
                        args: vec![key],
                        base: None,
                    }));
                    Err(Stop::Raise(val))
                }
            },
            _ => match self.special_method(container, "__delitem__")? {
                Some(method) => self.call(method, vec![key], Vec::new()).map(|_| ()),
                None => self.stop(breaks::UNSUPPORTED_MUTATION, "del of a subscript"),
            },
        }
    }

    pub fn length(&mut self, val: Val) -> R<usize> {
        self.realize(val)?;
        match self.peek(val) {
            Kind::Tuple { items, .. } | Kind::List(items) => Ok(items.len()),
            Kind::Dict { items, .. } => Ok(items.len()),
            Kind::Set { items, .. } => Ok(items.len()),
            Kind::MappingProxy(inner) => {
                let inner = *inner;
                self.length(inner)
            }
            Kind::DictView { dict, .. } => {
                let dict = *dict;
                self.length(dict)
            }
            Kind::Const(object) => match object.len() {
                Ok(length) => Ok(length),
                Err(error) => self.raise_py(error),
            },
            Kind::Tensor(tensor) => match tensor.fake.len() {
                Ok(length) => Ok(length),
                Err(error) => self.raise_py(error),
            },
            _ => match self.special_method(val, "__len__")? {
                Some(method) => {
                    let length = self.call(method, Vec::new(), Vec::new())?;
                    match self.as_const(length)? {
                        Some(length) => Ok(length.extract()?),
                        None => self.stop(breaks::UNSUPPORTED_OPERATION, "a length that isn't a constant"),
                    }
                }
                None => {
                    let what = self.describe(val);
                    self.raise("TypeError", &format!("object of type '{what}' has no len()"))
                }
            },
        }
    }

    // ---- iteration ----

    /// `iter(value)`
    pub fn get_iter(&mut self, val: Val) -> R<Val> {
        self.realize(val)?;
        let iter = match self.peek(val) {
            Kind::Iter(_) | Kind::Generator(_) => return Ok(val),
            Kind::List(_) | Kind::Tuple { .. } => IterVal::Sequence { items: val, index: 0 },
            Kind::Dict { items, .. } => IterVal::Snapshot { items: items.values().map(|v| v.0).collect(), index: 0 },
            Kind::Set { items, .. } => IterVal::Snapshot { items: items.values().copied().collect(), index: 0 },
            Kind::MappingProxy(inner) => {
                let inner = *inner;
                return self.get_iter(inner);
            }
            Kind::DictView { dict, view } => {
                let (dict, view) = (*dict, *view);
                let pairs = self.mapping_items(dict)?;
                let items = pairs
                    .into_iter()
                    .map(|(key, value)| match view {
                        View::Keys => key,
                        View::Values => value,
                        View::Items => self.tuple(vec![key, value]),
                    })
                    .collect();
                IterVal::Snapshot { items, index: 0 }
            }
            Kind::Const(object) => {
                let object = object.clone();
                let class: String = object.get_type().getattr("__name__")?.extract()?;
                if class == "range" {
                    let part = |name: &str| -> PyResult<i64> { object.getattr(name)?.extract() };
                    let (start, step, length) = (part("start")?, part("step")?, object.len()? as i64);
                    IterVal::Range { start, step, length, index: 0, range: object }
                } else if object.is_instance_of::<PyString>() || class == "bytes" || class == "Size" {
                    let mut items = Vec::new();
                    for item in object.try_iter()? {
                        items.push(self.fresh(item?)?);
                    }
                    IterVal::Snapshot { items, index: 0 }
                } else {
                    return self.raise("TypeError", &format!("'{class}' object is not iterable"));
                }
            }
            Kind::Tensor(tensor) => {
                if tensor.fake.getattr("ndim")?.extract::<i64>()? == 0 {
                    return self.raise("TypeError", "iteration over a 0-d tensor");
                }
                let unbind = self.known.tensor.bind(self.py).getattr("unbind")?;
                let zero = self.int(0)?;
                let items = self.call_torch(&unbind, vec![val, zero], Vec::new())?;
                IterVal::Sequence { items, index: 0 }
            }
            Kind::Object(object) if object.is_instance_of::<PyType>() => {
                let object = object.clone();
                let mut items = Vec::new();
                for item in object.try_iter()? {
                    items.push(self.existing(item?));
                }
                IterVal::Snapshot { items, index: 0 }
            }
            _ => {
                if let Some(method) = self.special_method(val, "__iter__")? {
                    let iterator = self.call(method, Vec::new(), Vec::new())?;
                    return Ok(iterator);
                }
                if self.special_method(val, "__getitem__")?.is_some() {
                    return self.stop(breaks::UNKNOWN_ITERATOR, "iteration through __getitem__");
                }
                let what = self.describe(val);
                return self.raise("TypeError", &format!("'{what}' object is not iterable"));
            }
        };
        let iterated = match self.peek(val) {
            Kind::Dict { .. } | Kind::Set { .. } => Some(val),
            Kind::DictView { dict, .. } => Some(*dict),
            _ => None,
        };
        let iterator = self.add(Kind::Iter(iter));
        if let Some(iterated) = iterated {
            let length = self.length(iterated)?;
            self.iterated.insert(iterator, (iterated, length));
        }
        Ok(iterator)
    }

    /// A dict or set that changed its size under an iterator.
    fn check_iterated(&mut self, iterator: Val) -> R<()> {
        let Some(&(container, length)) = self.iterated.get(&iterator) else { return Ok(()) };
        if self.length(container)? == length {
            return Ok(());
        }
        let message = match self.peek(container) {
            Kind::Set { .. } => "Set changed size during iteration",
            Kind::Dict { class, .. } if class.is(self.py.get_type::<pyo3::types::PyDict>()) => {
                "dictionary changed size during iteration"
            }
            _ => "OrderedDict mutated during iteration",
        };
        self.raise("RuntimeError", message)
    }

    /// `next(iterator)`; `None` at its end.
    pub fn next_item(&mut self, iterator: Val) -> R<Option<Val>> {
        self.realize(iterator)?;
        self.check_iterated(iterator)?;
        match self.peek(iterator) {
            Kind::Generator(_) => {
                let none = self.none();
                return Ok(self.resume(iterator, none)?.ok());
            }
            Kind::Iter(_) => {}
            Kind::Instance(_) | Kind::Object(_) => return self.next_of_object(iterator),
            _ => {
                let what = self.describe(iterator);
                return self.stop(breaks::UNKNOWN_ITERATOR, what);
            }
        }
        let Kind::Iter(iter) = self.kind_mut(iterator) else { return Ok(None) };
        match iter {
            IterVal::Sequence { items, index } => {
                let (items, at) = (*items, *index);
                let item = match self.peek(items) {
                    Kind::List(items) | Kind::Tuple { items, .. } => items.get(at).copied(),
                    _ => None,
                };
                if let Kind::Iter(IterVal::Sequence { index, .. }) = self.kind_mut(iterator)
                    && item.is_some()
                {
                    *index += 1;
                }
                Ok(item)
            }
            IterVal::Snapshot { items, index } => {
                let item = items.get(*index).copied();
                *index += item.is_some() as usize;
                Ok(item)
            }
            IterVal::Range { start, step, length, index, .. } => {
                if *index >= *length {
                    return Ok(None);
                }
                let value = *start + *step * *index;
                *index += 1;
                self.int(value).map(Some)
            }
            IterVal::Enumerate { inner, next } => {
                let (inner, number) = (*inner, *next);
                *next += 1;
                match self.next_item(inner)? {
                    Some(item) => {
                        let number = self.int(number)?;
                        Ok(Some(self.tuple(vec![number, item])))
                    }
                    None => Ok(None),
                }
            }
            IterVal::Zip { inners, strict } => {
                let (inners, strict) = (inners.clone(), *strict);
                let mut items = Vec::with_capacity(inners.len());
                for (i, inner) in inners.iter().enumerate() {
                    match self.next_item(*inner)? {
                        Some(item) => items.push(item),
                        None if strict && i > 0 => {
                            return self.raise(
                                "ValueError",
                                &format!("zip() argument {} is shorter than argument {i}", i + 1),
                            );
                        }
                        None => {
                            if strict {
                                for (k, other) in inners.iter().enumerate().skip(1) {
                                    if self.next_item(*other)?.is_some() {
                                        return self.raise(
                                            "ValueError",
                                            &format!("zip() argument {} is longer than argument {k}", k + 1),
                                        );
                                    }
                                }
                            }
                            return Ok(None);
                        }
                    }
                }
                Ok(if items.is_empty() { None } else { Some(self.tuple(items)) })
            }
            IterVal::Map { function, inners } => {
                let (function, inners) = (*function, inners.clone());
                let mut args = Vec::with_capacity(inners.len());
                for inner in inners {
                    match self.next_item(inner)? {
                        Some(item) => args.push(item),
                        None => return Ok(None),
                    }
                }
                self.call(function, args, Vec::new()).map(Some)
            }
            IterVal::Filter { function, inner } => {
                let (function, inner) = (*function, *inner);
                while let Some(item) = self.next_item(inner)? {
                    let is_none = matches!(self.kind(function)?, Kind::Const(object) if object.is_none());
                    let verdict = if is_none { item } else { self.call(function, vec![item], Vec::new())? };
                    if self.truth(verdict)? {
                        return Ok(Some(item));
                    }
                }
                Ok(None)
            }
            IterVal::Count { next, step } => {
                let current = next.clone();
                *next = next.add(&*step)?;
                self.fresh(current).map(Some)
            }
            IterVal::Chain { outer, current } => {
                let (outer, mut current) = (*outer, *current);
                loop {
                    if let Some(inner) = current
                        && let Some(item) = self.next_item(inner)?
                    {
                        return Ok(Some(item));
                    }
                    let Some(next) = self.next_item(outer)? else { return Ok(None) };
                    let next = self.get_iter(next)?;
                    current = Some(next);
                    if let Kind::Iter(IterVal::Chain { current, .. }) = self.kind_mut(iterator) {
                        *current = Some(next);
                    }
                }
            }
        }
    }

    /// `__next__` of a user's iterator class; a StopIteration ends it.
    fn next_of_object(&mut self, iterator: Val) -> R<Option<Val>> {
        let class = self.type_of(iterator)?;
        let found = self.guarded_type_lookup(&class, "__next__")?;
        let function_type = self.known.types(self.py, "FunctionType")?;
        match found {
            Some(found) if found.get_type().is(&function_type) => {
                let function = self.existing(found);
                match self.call(function, vec![iterator], Vec::new()) {
                    Ok(val) => Ok(Some(val)),
                    Err(Stop::Raise(exception)) => {
                        let stop = self.known.builtin(self.py, "StopIteration")?;
                        let stop = self.existing(stop);
                        if self.is_instance(exception, stop)? { Ok(None) } else { Err(Stop::Raise(exception)) }
                    }
                    Err(stop) => Err(stop),
                }
            }
            Some(_) => self.stop(breaks::UNKNOWN_ITERATOR, format!("{}", class.repr()?)),
            None => {
                let what = self.describe(iterator);
                self.raise("TypeError", &format!("'{what}' object is not an iterator"))
            }
        }
    }

    /// All items of an iterable.
    pub fn iterate(&mut self, val: Val) -> R<Vec<Val>> {
        match self.kind(val)? {
            Kind::List(items) | Kind::Tuple { items, .. } => return Ok(items.clone()),
            _ => {}
        }
        let iterator = self.get_iter(val)?;
        let mut items = Vec::new();
        while let Some(item) = self.next_item(iterator)? {
            items.push(item);
            if items.len() as u64 > self.options.steps_max {
                return self.stop(breaks::TOO_LONG, "an iterable without end");
            }
        }
        Ok(items)
    }

    // ---- classes ----

    /// `isinstance(value, class)`, for classes and tuples of them.
    pub fn is_instance(&mut self, val: Val, class: Val) -> R<bool> {
        if let Kind::Tuple { items, .. } = self.kind(class)? {
            for item in items.clone() {
                if self.is_instance(val, item)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let Kind::Object(class) = self.kind(class)? else {
            return self.stop(breaks::UNSUPPORTED_OPERATION, "isinstance with a class made in the trace");
        };
        let class = class.clone();
        let actual = self.type_of(val)?;
        self.is_subclass(&actual, &class)
    }

    pub fn is_subclass(&mut self, actual: &Object<'py>, class: &Object<'py>) -> R<bool> {
        // torch's metaclasses answer for tensors by flags the class alone doesn't show; the trace knows the class.
        if class.is(self.known.parameter.bind(self.py)) || class.is(self.known.tensor.bind(self.py)) {
            let actual = actual.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?;
            return Ok(actual.mro().iter().any(|base| base.is(class)));
        }
        let subclass = self.known.builtin(self.py, "issubclass")?;
        match subclass.call1((actual, class)) {
            Ok(answer) => Ok(answer.is_truthy()?),
            Err(error) => self.raise_py(error),
        }
    }

    /// An exception instance from what `raise` was given (a class is called).
    pub fn as_exception(&mut self, raised: Val) -> R<Val> {
        match self.kind(raised)? {
            Kind::Instance(_) => Ok(raised),
            Kind::Object(object) if object.is_instance_of::<PyType>() => self.call(raised, Vec::new(), Vec::new()),
            _ => self.stop(breaks::UNSUPPORTED_OPERATION, "raising an exception made outside"),
        }
    }
}

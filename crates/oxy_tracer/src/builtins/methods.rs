//! Methods of lists, dicts, sets, tuples and generators of the trace.

use super::functions as f;
use crate::breaks::{self, R, Stop};
use crate::tracer::Tracer;
use crate::value::{Kind, Val, View};
use oxy_bytecode::{BinaryOp, CompareOp};
use pyo3::prelude::*;

type Kwargs = Vec<(String, Val)>;

impl<'py> Tracer<'py, '_> {
    /// A method of a container of the trace; `None` if the receiver is something else or the method isn't one
    /// that changes or reads it as a container.
    pub fn container_method(&mut self, receiver: Val, name: &str, args: &[Val], kwargs: &Kwargs) -> R<Option<Val>> {
        self.realize(receiver)?;
        match self.peek(receiver) {
            Kind::List(_) => self.list_method(receiver, name, args, kwargs),
            Kind::Dict { .. } => self.dict_method(receiver, name, args, kwargs),
            Kind::Set { .. } => self.set_method(receiver, name, args),
            Kind::Tuple { .. } => self.tuple_method(receiver, name, args),
            Kind::Generator(_) => self.generator_method(receiver, name, args),
            Kind::MappingProxy(inner) => {
                let inner = *inner;
                self.dict_method(inner, name, args, kwargs)
            }
            Kind::DictView { dict, view: View::Keys }
                if matches!(name, "__and__" | "__or__" | "__sub__" | "isdisjoint") =>
            {
                let dict = *dict;
                let keys: Vec<Val> = self.mapping_items(dict)?.into_iter().map(|(key, _)| key).collect();
                let set = self.new_set(&keys, false)?;
                let method = self.get_attr(set, name)?;
                self.call(method, args.to_vec(), Vec::new()).map(Some)
            }
            Kind::Iter(_) => match name {
                "__next__" => f::next(self, &[receiver], &[]).map(Some),
                "__iter__" => Ok(Some(receiver)),
                _ => Ok(None),
            },
            Kind::Const(object) if name == "join" && object.is_instance_of::<pyo3::types::PyString>() => {
                let Some(&parts) = args.first() else { return Ok(None) };
                let parts = self.iterate(parts)?;
                let list = self.list(parts);
                let function = self.known.builtin(self.py, "str")?.getattr("join")?;
                self.call_pure(&function, &[receiver, list], &Vec::new()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn items_mut(&mut self, list: Val) -> R<&mut Vec<Val>> {
        self.touch(list);
        match self.kind_mut(list) {
            Kind::List(items) => Ok(items),
            _ => Err(Stop::Bug("a list changed its kind".to_owned())),
        }
    }

    fn position(&mut self, val: Option<&Val>, default: i64) -> R<i64> {
        match val {
            None => Ok(default),
            Some(&val) => match self.as_const(val)?.and_then(|v| v.extract().ok()) {
                Some(position) => Ok(position),
                None => self.stop(breaks::UNSUPPORTED_OPERATION, "a position that isn't an integer constant"),
            },
        }
    }

    fn find(&mut self, items: &[Val], wanted: Val) -> R<Option<usize>> {
        for (index, &item) in items.iter().enumerate() {
            if self.is_same(item, wanted)? {
                return Ok(Some(index));
            }
            let equal = self.compare(CompareOp::Eq, item, wanted)?;
            if self.truth(equal)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn list_method(&mut self, list: Val, name: &str, args: &[Val], kwargs: &Kwargs) -> R<Option<Val>> {
        let none = self.none();
        let length = self.items_len(list);
        match (name, args) {
            ("append", [item]) => self.list_push(list, *item)?,
            ("extend" | "__iadd__", [items]) => {
                let items = self.iterate(*items)?;
                self.items_mut(list)?.extend(items);
                if name == "__iadd__" {
                    return Ok(Some(list));
                }
            }
            ("insert", [position, item]) => {
                let position = self.position(Some(position), 0)?;
                let position = if position < 0 { (position + length).max(0) } else { position.min(length) };
                self.items_mut(list)?.insert(position as usize, *item);
            }
            ("pop", []) | ("pop", [_]) => {
                if length == 0 {
                    return self.raise("IndexError", "pop from empty list");
                }
                let position = self.position(args.first(), -1)?;
                let position = if position < 0 { position + length } else { position };
                if position < 0 || position >= length {
                    return self.raise("IndexError", "pop index out of range");
                }
                return Ok(Some(self.items_mut(list)?.remove(position as usize)));
            }
            ("remove" | "index", [wanted, ..]) => {
                let items = self.iterate(list)?;
                let Some(index) = self.find(&items, *wanted)? else {
                    let what = if name == "remove" { "list.remove(x): x not in list" } else { "value is not in list" };
                    return self.raise("ValueError", what);
                };
                if name == "index" {
                    return self.int(index as i64).map(Some);
                }
                self.items_mut(list)?.remove(index);
            }
            ("count", [wanted]) => return self.count_of(list, *wanted).map(Some),
            ("clear", []) => self.items_mut(list)?.clear(),
            ("reverse", []) => self.items_mut(list)?.reverse(),
            ("copy", []) => {
                let items = self.iterate(list)?;
                return Ok(Some(self.list(items)));
            }
            ("sort", []) => {
                let get = |name: &str| kwargs.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
                let items = self.iterate(list)?;
                let sorted = f::sort(self, items, get("key"), get("reverse"))?;
                *self.items_mut(list)? = sorted;
            }
            ("__len__", []) => return self.int(length).map(Some),
            ("__getitem__", [key]) => return self.get_item(list, *key).map(Some),
            ("__setitem__", [key, val]) => self.set_item(list, *key, *val)?,
            ("__delitem__", [key]) => self.del_item(list, *key)?,
            ("__contains__", [item]) => {
                let found = self.contains(list, *item)?;
                return Ok(Some(self.bool(found)));
            }
            ("__iter__", []) => return self.get_iter(list).map(Some),
            ("__init__", _) => {}
            _ => return self.stop(breaks::UNSUPPORTED_CALL, format!("list.{name}")),
        }
        Ok(Some(none))
    }

    fn items_len(&self, list: Val) -> i64 {
        match self.peek(list) {
            Kind::List(items) => items.len() as i64,
            _ => 0,
        }
    }

    fn count_of(&mut self, container: Val, wanted: Val) -> R<Val> {
        let mut count = 0;
        for item in self.iterate(container)? {
            if self.find(&[item], wanted)?.is_some() {
                count += 1;
            }
        }
        self.int(count)
    }

    fn dict_method(&mut self, dict: Val, name: &str, args: &[Val], kwargs: &Kwargs) -> R<Option<Val>> {
        let none = self.none();
        match (name, args) {
            ("get", [key]) => return Ok(Some(self.dict_get(dict, *key)?.unwrap_or(none))),
            ("get", [key, default]) => return Ok(Some(self.dict_get(dict, *key)?.unwrap_or(*default))),
            ("keys", []) => return Ok(Some(self.add(Kind::DictView { dict, view: View::Keys }))),
            ("values", []) => return Ok(Some(self.add(Kind::DictView { dict, view: View::Values }))),
            ("items", []) => return Ok(Some(self.add(Kind::DictView { dict, view: View::Items }))),
            ("pop", [key]) | ("pop", [key, _]) => {
                return match (self.dict_remove(dict, *key)?, args.get(1)) {
                    (Some(val), _) => Ok(Some(val)),
                    (None, Some(&default)) => Ok(Some(default)),
                    (None, None) => {
                        self.del_item(dict, *key)?;
                        Ok(None)
                    }
                };
            }
            ("popitem", [] | [_]) => {
                let flag = args.first().copied().or(kwargs.iter().find(|(n, _)| n == "last").map(|(_, v)| *v));
                let from_end = match flag {
                    Some(flag) => self.truth(flag)?,
                    None => true,
                };
                let last = match self.kind_mut(dict) {
                    Kind::Dict { items, .. } if from_end => items.pop().map(|(_, pair)| pair),
                    Kind::Dict { items, .. } => items.shift_remove_index(0).map(|(_, pair)| pair),
                    _ => None,
                };
                self.touch(dict);
                return match last {
                    Some((key, val)) => Ok(Some(self.tuple(vec![key, val]))),
                    None => self.raise("KeyError", "popitem(): dictionary is empty"),
                };
            }
            ("setdefault", [key, ..]) => {
                if let Some(val) = self.dict_get(dict, *key)? {
                    return Ok(Some(val));
                }
                let val = args.get(1).copied().unwrap_or(none);
                self.dict_insert(dict, *key, val)?;
                return Ok(Some(val));
            }
            ("update" | "__init__", _) => f::fill_dict(self, dict, args, kwargs)?,
            ("clear", []) => {
                if let Kind::Dict { items, .. } = self.kind_mut(dict) {
                    items.clear();
                }
                self.touch(dict);
            }
            ("copy", []) => return self.copy_dict(dict).map(Some),
            ("move_to_end", [key, ..]) => {
                let flag = args.get(1).copied().or(kwargs.iter().find(|(n, _)| n == "last").map(|(_, v)| *v));
                let last = match flag {
                    Some(flag) => self.truth(flag)?,
                    None => true,
                };
                let key = self.key(*key)?;
                let moved = match self.kind_mut(dict) {
                    Kind::Dict { items, .. } => match items.get_index_of(&key) {
                        Some(index) => {
                            let target = if last { items.len() - 1 } else { 0 };
                            items.move_index(index, target);
                            true
                        }
                        None => false,
                    },
                    _ => false,
                };
                if !moved {
                    self.del_item(dict, args[0])?;
                }
                self.touch(dict);
            }
            ("__len__", []) => {
                let length = self.length(dict)? as i64;
                return self.int(length).map(Some);
            }
            ("__getitem__", [key]) => return self.get_item(dict, *key).map(Some),
            ("__setitem__", [key, val]) => self.dict_insert(dict, *key, *val)?,
            ("__delitem__", [key]) => self.del_item(dict, *key)?,
            ("__contains__", [key]) => {
                let found = self.dict_get(dict, *key)?.is_some();
                return Ok(Some(self.bool(found)));
            }
            ("__iter__", []) => return self.get_iter(dict).map(Some),
            ("__or__", [other]) => return self.binary_op(BinaryOp::Or, false, dict, *other).map(Some),
            _ => return self.stop(breaks::UNSUPPORTED_CALL, format!("dict.{name}")),
        }
        Ok(Some(none))
    }

    fn set_method(&mut self, set: Val, name: &str, args: &[Val]) -> R<Option<Val>> {
        let none = self.none();
        let operand = |t: &mut Self, val: Val| -> R<Val> {
            let items = t.iterate(val)?;
            t.new_set(&items, false)
        };
        match (name, args) {
            ("add", [item]) => self.set_insert(set, *item)?,
            ("discard" | "remove", [item]) => {
                let key = self.key(*item)?;
                let removed = match self.kind_mut(set) {
                    Kind::Set { items, .. } => items.shift_remove(&key).is_some(),
                    _ => false,
                };
                self.touch(set);
                if !removed && name == "remove" {
                    let empty = self.dict(Default::default());
                    self.del_item(empty, *item)?;
                }
            }
            ("update", others) => {
                for &other in others {
                    for item in self.iterate(other)? {
                        self.set_insert(set, item)?;
                    }
                }
            }
            ("clear", []) => {
                if let Kind::Set { items, .. } = self.kind_mut(set) {
                    items.clear();
                }
                self.touch(set);
            }
            ("copy", []) => {
                let items = self.iterate(set)?;
                return self.new_set(&items, false).map(Some);
            }
            ("union" | "__or__", [other]) => {
                let other = operand(self, *other)?;
                return self.binary_op(BinaryOp::Or, false, set, other).map(Some);
            }
            ("intersection" | "__and__", [other]) => {
                let other = operand(self, *other)?;
                return self.binary_op(BinaryOp::And, false, set, other).map(Some);
            }
            ("difference" | "__sub__", [other]) => {
                let other = operand(self, *other)?;
                return self.binary_op(BinaryOp::Subtract, false, set, other).map(Some);
            }
            ("symmetric_difference" | "__xor__", [other]) => {
                let other = operand(self, *other)?;
                return self.binary_op(BinaryOp::Xor, false, set, other).map(Some);
            }
            ("issubset", [other]) => {
                for item in self.iterate(set)? {
                    if !self.contains(*other, item)? {
                        return Ok(Some(self.bool(false)));
                    }
                }
                return Ok(Some(self.bool(true)));
            }
            ("issuperset", [other]) => {
                for item in self.iterate(*other)? {
                    if !self.contains(set, item)? {
                        return Ok(Some(self.bool(false)));
                    }
                }
                return Ok(Some(self.bool(true)));
            }
            ("isdisjoint", [other]) => {
                for item in self.iterate(*other)? {
                    if self.contains(set, item)? {
                        return Ok(Some(self.bool(false)));
                    }
                }
                return Ok(Some(self.bool(true)));
            }
            ("__len__", []) => {
                let length = self.length(set)? as i64;
                return self.int(length).map(Some);
            }
            ("__contains__", [item]) => {
                let found = self.contains(set, *item)?;
                return Ok(Some(self.bool(found)));
            }
            ("__iter__", []) => return self.get_iter(set).map(Some),
            _ => return self.stop(breaks::UNSUPPORTED_CALL, format!("set.{name}")),
        }
        Ok(Some(none))
    }

    fn tuple_method(&mut self, tuple: Val, name: &str, args: &[Val]) -> R<Option<Val>> {
        match (name, args) {
            ("index", [wanted]) => {
                let items = self.iterate(tuple)?;
                match self.find(&items, *wanted)? {
                    Some(index) => self.int(index as i64).map(Some),
                    None => self.raise("ValueError", "tuple.index(x): x not in tuple"),
                }
            }
            ("count", [wanted]) => self.count_of(tuple, *wanted).map(Some),
            ("__len__", []) => {
                let length = self.length(tuple)? as i64;
                self.int(length).map(Some)
            }
            ("__getitem__", [key]) => self.get_item(tuple, *key).map(Some),
            ("__iter__", []) => self.get_iter(tuple).map(Some),
            ("__contains__", [item]) => {
                let found = self.contains(tuple, *item)?;
                Ok(Some(self.bool(found)))
            }
            _ => Ok(None),
        }
    }

    fn generator_method(&mut self, generator: Val, name: &str, args: &[Val]) -> R<Option<Val>> {
        match (name, args) {
            ("send", [val]) => match self.resume(generator, *val)? {
                Ok(item) => Ok(Some(item)),
                Err(value) => f::stop_iteration(self, value).map(Some),
            },
            ("__next__", []) => f::next(self, &[generator], &[]).map(Some),
            ("__iter__", []) => Ok(Some(generator)),
            ("close", []) => self.close_generator(generator).map(Some),
            ("throw", [given, ..]) => {
                let exception = match (args.get(1), self.kind(*given)?) {
                    (None, _) => self.as_exception(*given)?,
                    (Some(&value), Kind::Object(_)) => {
                        if matches!(self.kind(value)?, Kind::Instance(_)) {
                            value
                        } else {
                            return self.stop(breaks::UNSUPPORTED_CALL, "generator.throw with separate arguments");
                        }
                    }
                    _ => return self.stop(breaks::UNSUPPORTED_CALL, "generator.throw with separate arguments"),
                };
                match self.throw(generator, exception)? {
                    Ok(item) => Ok(Some(item)),
                    Err(value) => f::stop_iteration(self, value).map(Some),
                }
            }
            _ => self.stop(breaks::UNSUPPORTED_CALL, format!("generator.{name}")),
        }
    }
}

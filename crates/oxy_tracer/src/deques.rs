//! `collections.deque` made by the trace: an instance whose container part is a list, and its bound.

use crate::breaks::{self, R, Stop};
use crate::calls::Kwargs;
use crate::tracer::Tracer;
use crate::value::{InstanceVal, Kind, Object, Val};
use indexmap::IndexMap;
use pyo3::prelude::*;

/// The attribute of the instance that holds the bound.
pub const MAXLEN: &str = "maxlen";

impl<'py> Tracer<'py, '_> {
    pub fn is_deque_class(&self, class: &Object<'py>) -> bool {
        self.known.deque == class.as_ptr() as usize
    }

    /// The items' list of a deque made by the trace.
    pub fn deque_items(&self, val: Val) -> Option<Val> {
        match self.peek(val) {
            Kind::Instance(InstanceVal { class, base, .. }) if self.is_deque_class(class) => *base,
            _ => None,
        }
    }

    pub fn new_deque(&mut self, items: Vec<Val>, maxlen: Option<Val>) -> R<Val> {
        let class = self.py.import("collections")?.getattr("deque")?;
        let base = self.list(Vec::new());
        let maxlen = match maxlen {
            Some(maxlen) => maxlen,
            None => self.none(),
        };
        let mut attrs = IndexMap::new();
        attrs.insert(MAXLEN.to_owned(), maxlen);
        let deque = self.add(Kind::Instance(InstanceVal { class, attrs, args: Vec::new(), base: Some(base) }));
        for item in items {
            self.deque_push(deque, base, item, false)?;
        }
        Ok(deque)
    }

    fn bound(&mut self, deque: Val) -> R<Option<usize>> {
        let Kind::Instance(instance) = self.peek(deque) else { return Ok(None) };
        let Some(&maxlen) = instance.attrs.get(MAXLEN) else { return Ok(None) };
        match self.as_const(maxlen)? {
            Some(object) if object.is_none() => Ok(None),
            Some(object) => match object.extract() {
                Ok(bound) => Ok(Some(bound)),
                Err(_) => self.stop(breaks::UNSUPPORTED_CALL, "a deque with an unusual maxlen"),
            },
            None => self.stop(breaks::UNSUPPORTED_CALL, "a deque with an unusual maxlen"),
        }
    }

    fn deque_push(&mut self, deque: Val, base: Val, item: Val, left: bool) -> R<()> {
        let bound = self.bound(deque)?;
        let Kind::List(items) = self.kind_mut(base) else { return Err(Stop::Bug("a deque without a list".to_owned())) };
        if left {
            items.insert(0, item)
        } else {
            items.push(item)
        }
        if let Some(bound) = bound
            && items.len() > bound
        {
            if left {
                items.pop()
            } else {
                Some(items.remove(0))
            };
        }
        Ok(())
    }

    /// A method of a deque made by the trace.
    pub fn deque_method(&mut self, deque: Val, base: Val, name: &str, args: &[Val], kwargs: &Kwargs) -> R<Val> {
        let none = self.none();
        let Kind::List(items) = self.peek(base) else { return Err(Stop::Bug("a deque without a list".to_owned())) };
        let mut items = items.clone();
        match (name, args) {
            ("append", [item]) => self.deque_push(deque, base, *item, false)?,
            ("appendleft", [item]) => self.deque_push(deque, base, *item, true)?,
            ("extend" | "__iadd__" | "extendleft", [iterable]) => {
                for item in self.iterate(*iterable)? {
                    self.deque_push(deque, base, item, name == "extendleft")?;
                }
                if name == "__iadd__" {
                    return Ok(deque);
                }
            }
            ("pop" | "popleft", []) => {
                if items.is_empty() {
                    return self.raise("IndexError", "pop from an empty deque");
                }
                let item = if name == "popleft" { items.remove(0) } else { items.remove(items.len() - 1) };
                *self.kind_mut(base) = Kind::List(items);
                return Ok(item);
            }
            ("rotate", []) | ("rotate", [_]) => {
                let steps = match args.first() {
                    Some(&steps) => match self.as_const(steps)?.and_then(|s| s.extract::<i64>().ok()) {
                        Some(steps) => steps,
                        None => return self.stop(breaks::UNSUPPORTED_CALL, "deque.rotate"),
                    },
                    None => 1,
                };
                if !items.is_empty() {
                    let by = steps.rem_euclid(items.len() as i64) as usize;
                    items.rotate_right(by);
                }
                *self.kind_mut(base) = Kind::List(items);
            }
            ("copy" | "__copy__", []) => {
                let Kind::Instance(instance) = self.peek(deque) else { return Ok(none) };
                let maxlen = instance.attrs.get(MAXLEN).copied();
                return self.new_deque(items, maxlen);
            }
            ("__reversed__", []) => {
                items.reverse();
                return Ok(self.add(Kind::Iter(crate::value::IterVal::Snapshot { items, index: 0 })));
            }
            (
                "clear" | "reverse" | "count" | "__len__" | "__getitem__" | "__setitem__" | "__delitem__"
                | "__contains__" | "__iter__",
                _,
            ) => {
                return match self.container_method(base, name, args, kwargs)? {
                    Some(val) => Ok(val),
                    None => Ok(none),
                };
            }
            _ => return self.stop(breaks::UNSUPPORTED_CALL, format!("deque.{name}")),
        }
        Ok(none)
    }
}

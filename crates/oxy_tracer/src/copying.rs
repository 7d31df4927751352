//! `copy.deepcopy` of what the trace knows: constants, containers, and instances of plain classes.
//!
//! A class that says itself how it is copied or pickled is a break, and so are tensors.

use crate::breaks::{self, R, Stop};
use crate::tracer::Tracer;
use crate::value::{InstanceVal, Kind, Object, Val};
use indexmap::IndexMap;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

/// What a class may define to be copied its own way.
const OWN_WAYS: &[&str] = &[
    "__deepcopy__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
];

impl<'py> Tracer<'py, '_> {
    pub fn deep_copy(&mut self, val: Val, memo: &mut FxHashMap<Val, Val>) -> R<Val> {
        if let Some(&copy) = memo.get(&val) {
            return Ok(copy);
        }
        if self.used_by_identity(val)? || matches!(self.peek(val), Kind::Function(_)) {
            return Ok(val);
        }
        match self.peek(val) {
            Kind::Tuple { items, class } => {
                let (items, class) = (items.clone(), class.clone());
                let copies = items.iter().map(|&item| self.deep_copy(item, memo)).collect::<R<Vec<_>>>()?;
                if copies == items {
                    return Ok(val);
                }
                let copy = self.add(Kind::Tuple { items: copies, class });
                memo.insert(val, copy);
                Ok(copy)
            }
            Kind::List(items) => {
                let items = items.clone();
                let copy = self.list(Vec::new());
                memo.insert(val, copy);
                for item in items {
                    let item = self.deep_copy(item, memo)?;
                    self.list_push(copy, item)?;
                }
                Ok(copy)
            }
            Kind::Dict { items, class, default_factory } => {
                let pairs: Vec<(Val, Val)> = items.values().copied().collect();
                let (class, default_factory) = (class.clone(), *default_factory);
                let copy = self.add(Kind::Dict { items: IndexMap::new(), class, default_factory });
                memo.insert(val, copy);
                for (key, value) in pairs {
                    let (key, value) = (self.deep_copy(key, memo)?, self.deep_copy(value, memo)?);
                    self.dict_insert(copy, key, value)?;
                }
                Ok(copy)
            }
            Kind::Set { items, frozen } => {
                let (members, frozen): (Vec<Val>, bool) = (items.values().copied().collect(), *frozen);
                let members = members.into_iter().map(|member| self.deep_copy(member, memo)).collect::<R<Vec<_>>>()?;
                let copy = self.new_set(&members, frozen)?;
                memo.insert(val, copy);
                Ok(copy)
            }
            Kind::Instance(InstanceVal { base: None, .. }) | Kind::Object(_) => self.deep_copy_instance(val, memo),
            _ => {
                let what = self.describe(val);
                self.stop(breaks::UNSUPPORTED_CALL, format!("copy.deepcopy of a {what}"))
            }
        }
    }

    fn deep_copy_instance(&mut self, val: Val, memo: &mut FxHashMap<Val, Val>) -> R<Val> {
        let class = self.type_of(val)?;
        let object = self.py.get_type::<PyAny>();
        for name in OWN_WAYS {
            let found = self.guarded_type_lookup(&class, name)?;
            let plain: Option<Object<'py>> = self.type_lookup(object.as_any(), name)?;
            let same = match (&found, &plain) {
                (None, None) => true,
                (Some(a), Some(b)) => a.is(b),
                _ => false,
            };
            if !same {
                return self.stop(breaks::UNSUPPORTED_CALL, format!("copy.deepcopy by {name} of {}", class.repr()?));
            }
        }
        let table = self.py.import("copyreg")?.getattr("dispatch_table")?;
        if table.contains(&class)? || class.hasattr("__slots__")? {
            return self.stop(breaks::UNSUPPORTED_CALL, format!("copy.deepcopy of {}", class.repr()?));
        }
        let new = self.guarded_type_lookup(&class, "__new__")?;
        if !new.is_some_and(|new| object.getattr("__new__").is_ok_and(|plain| plain.is(&new))) {
            return self.stop(breaks::UNSUPPORTED_CALL, format!("copy.deepcopy of {}", class.repr()?));
        }
        let copy = self.new_instance(&class)?;
        memo.insert(val, copy);
        let dict = self.get_attr(val, "__dict__")?;
        for (name, value) in self.string_items(dict)? {
            let value = self.deep_copy(value, memo)?;
            let Kind::Instance(instance) = self.kind_mut(copy) else {
                return Err(Stop::Bug("a new instance is something else".to_owned()));
            };
            instance.attrs.insert(name, value);
        }
        Ok(copy)
    }
}

//! Unpacking, merging and formatting.

use super::{NEXT, Run};
use crate::breaks::R;
use crate::frame::Flow;
use crate::value::{Kind, Val};
use oxy_bytecode::Conversion;
use pyo3::prelude::*;

impl Run<'_, '_, '_> {
    pub(super) fn trace_dict_update(&mut self, dict: Val, mapping: Val, unique: bool) -> R<Flow> {
        for (key, value) in self.t.mapping_items(mapping)? {
            if unique && self.t.dict_get(dict, key)?.is_some() {
                return self.t.stop(crate::breaks::EXCEPTION_ESCAPES, "a keyword argument given twice");
            }
            self.t.dict_insert(dict, key, value)?;
        }
        NEXT
    }

    pub(super) fn trace_unpack_ex(&mut self, val: Val, before: usize, after: usize) -> R<Flow> {
        let items = self.t.iterate(val)?;
        if items.len() < before + after {
            let message =
                format!("not enough values to unpack (expected at least {}, got {})", before + after, items.len());
            return self.t.raise("ValueError", &message);
        }
        let middle = items[before..items.len() - after].to_vec();
        let list = self.t.list(middle);
        self.f.stack.extend(items[items.len() - after..].iter().rev());
        self.f.stack.push(list);
        self.f.stack.extend(items[..before].iter().rev());
        NEXT
    }

    pub(super) fn trace_convert(&mut self, val: Val, conversion: Conversion) -> R<Val> {
        let name = match conversion {
            Conversion::None => return Ok(val),
            Conversion::Str => "str",
            Conversion::Repr => "repr",
            Conversion::Ascii => "ascii",
        };
        let function = self.t.known.builtin(self.t.py, name)?;
        let function = self.t.existing(function);
        self.t.call(function, vec![val], Vec::new())
    }

    pub(super) fn trace_match_keys(&mut self) -> R<Flow> {
        let (keys, subject) = (self.at(1)?, self.at(2)?);
        if !matches!(self.t.kind(subject)?, Kind::Dict { .. }) {
            return self.unsupported("a mapping pattern on something that isn't a dict");
        }
        let mut values = Vec::new();
        for key in self.t.iterate(keys)? {
            match self.t.dict_get(subject, key)? {
                Some(val) => values.push(val),
                None => {
                    let none = self.t.none();
                    return self.result(none);
                }
            }
        }
        let val = self.t.tuple(values);
        self.result(val)
    }

    pub(super) fn trace_match_class(&mut self, count: u32) -> R<Flow> {
        let (names, class, subject) = (self.pop()?, self.pop()?, self.pop()?);
        if !self.t.is_instance(subject, class)? {
            let none = self.t.none();
            return self.result(none);
        }
        let names = self.t.iterate(names)?;
        let mut fields = Vec::new();
        if count > 0 {
            let Some(class_object) = self.t.to_python(class)? else {
                return self.unsupported("a class pattern");
            };
            let itself =
                ["bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"];
            let name: String = class_object.getattr("__name__")?.extract()?;
            match class_object.getattr("__match_args__") {
                Ok(args) => {
                    let args: Vec<String> = args.extract()?;
                    if args.len() < count as usize {
                        return self.unsupported("a class pattern with too many positions");
                    }
                    for field in args.iter().take(count as usize) {
                        fields.push(self.t.get_attr(subject, field)?);
                    }
                }
                Err(_) if itself.contains(&name.as_str()) && count == 1 => fields.push(subject),
                Err(_) => return self.unsupported("a class pattern"),
            }
        }
        for name in names {
            let Some(name) = self.t.as_const(name)? else { return self.unsupported("a class pattern") };
            let name: String = name.extract()?;
            match self.t.try_attr(subject, &name)? {
                Some(val) => fields.push(val),
                None => {
                    let none = self.t.none();
                    return self.result(none);
                }
            }
        }
        let val = self.t.tuple(fields);
        self.result(val)
    }
}

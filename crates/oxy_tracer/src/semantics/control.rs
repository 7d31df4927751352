//! Conditions, calls, functions, imports.

use super::{NEXT, Run};
use crate::breaks::{self, R, Stop};
use crate::frame::Flow;
use crate::value::{FunctionVal, Kind, Val};
use oxy_bytecode::*;
use oxy_guards::{PyObj, SourceKind};
use pyo3::prelude::*;
use std::rc::Rc;

impl Run<'_, '_, '_> {
    pub(super) fn holds(&mut self, condition: Condition, val: Val) -> R<bool> {
        Ok(match condition {
            Condition::True => self.t.truth(val)?,
            Condition::False => !self.t.truth(val)?,
            Condition::None | Condition::NotNone => {
                let is_none = matches!(self.t.kind(val)?, Kind::Const(object) if object.is_none());
                is_none == (condition == Condition::None)
            }
        })
    }

    pub(super) fn trace_call(&mut self, argc: u32, kw: KwNames, layout: CallLayout) -> R<Flow> {
        let names: Vec<String> = match kw {
            KwNames::None => Vec::new(),
            KwNames::Const(index) => self.constant(index)?.extract()?,
            KwNames::Stack => {
                let names = self.pop()?;
                match self.t.to_python(names)? {
                    Some(names) => names.extract()?,
                    None => return Err(Stop::Bug("keyword names are not constant".to_owned())),
                }
            }
        };
        let mut args = self.pop_many(argc)?;
        let (slot1, slot0) = (self.pop()?, self.pop()?);
        let values = args.split_off(args.len() - names.len());
        let kwargs: Vec<(String, Val)> = names.into_iter().zip(values).collect();
        let (callee, args) = self.callable(slot0, slot1, layout, args);
        if args.is_empty() && kwargs.is_empty() && self.is_builtin_super(callee)? {
            let val = self.trace_super()?;
            return self.result(val);
        }
        let val = self.t.call(callee, args, kwargs)?;
        self.result(val)
    }

    fn is_builtin_super(&mut self, callee: Val) -> R<bool> {
        let builtin = self.t.known.builtin(self.t.py, "super")?;
        Ok(matches!(self.t.kind(callee)?, Kind::Object(object) if object.is(&builtin)))
    }

    /// `super()` with no arguments: the `__class__` cell and the first parameter.
    fn trace_super(&mut self) -> R<Val> {
        let slot = self.f.code.var_names.iter().rposition(|name| name == "__class__");
        let cell = slot.and_then(|slot| self.f.locals[slot]);
        let Some(cell) = cell else { return self.t.raise("RuntimeError", "super(): __class__ cell not found") };
        let Kind::Cell(Some(class)) = self.t.kind(cell)? else {
            return self.t.raise("RuntimeError", "super(): empty __class__ cell");
        };
        let class = *class;
        let Some(mut receiver) = self.f.locals.first().copied().flatten() else {
            return self.t.raise("RuntimeError", "super(): arg[0] deleted");
        };
        if let Kind::Cell(Some(inner)) = self.t.kind(receiver)? {
            receiver = *inner;
        }
        self.t.make_super(class, receiver)
    }

    pub(super) fn trace_call_ex(&mut self, has_kwargs: bool, layout: CallLayout) -> R<Flow> {
        let kwargs = if has_kwargs { Some(self.pop()?) } else { None };
        let args = self.pop()?;
        let (slot1, slot0) = (self.pop()?, self.pop()?);
        let args = self.t.iterate(args)?;
        let mut named = Vec::new();
        if let Some(kwargs) = kwargs {
            for (key, value) in self.t.mapping_items(kwargs)? {
                match self.t.as_const(key)?.and_then(|key| key.extract::<String>().ok()) {
                    Some(name) => named.push((name, value)),
                    None => return self.t.raise("TypeError", "keywords must be strings"),
                }
            }
        }
        // The layouts differ only in where NULL is; `f(*args)` never has a bound receiver here.
        let callee = match layout {
            CallLayout::NullFirst => slot1,
            CallLayout::CallableFirst => slot0,
        };
        let val = self.t.call(callee, args, named)?;
        self.result(val)
    }

    pub(super) fn trace_intrinsic(&mut self, op: Intrinsic) -> R<Flow> {
        match op {
            Intrinsic::ListToTuple => {
                let list = self.pop()?;
                let items = self.t.iterate(list)?;
                let val = self.t.tuple(items);
                self.result(val)
            }
            Intrinsic::StopIterationError => {
                // A StopIteration that escapes a generator becomes a RuntimeError; others pass.
                let exception = self.pop()?;
                let class = self.t.known.builtin(self.t.py, "StopIteration")?;
                let class = self.t.existing(class);
                if self.t.is_instance(exception, class)? {
                    return self.t.raise("RuntimeError", "generator raised StopIteration");
                }
                self.result(exception)
            }
            _ => self.unsupported(op.text()),
        }
    }

    pub(super) fn trace_make_function(&mut self, flags: FunctionFlags) -> R<Flow> {
        let code = self.pop()?;
        let code = match self.t.kind(code)? {
            Kind::Object(object) => object.clone(),
            _ => return Err(Stop::Bug("make_function without a code object".to_owned())),
        };
        let code = self.t.code(&code)?;
        let mut attributes = Vec::new();
        for (_, attribute) in FunctionFlags::BITS.iter().rev() {
            if flags.has(*attribute) {
                attributes.push((*attribute, self.pop()?));
            }
        }
        let name = self.t.str(&code.name);
        let qualname = self.t.str(&code.qualname);
        let function = self.t.add(Kind::Function(Rc::new(FunctionVal {
            code,
            globals: self.f.globals.clone(),
            name,
            qualname,
            defaults: None,
            kwdefaults: None,
            annotations: None,
            closure: Vec::new(),
            attrs: Default::default(),
        })));
        for (attribute, value) in attributes {
            self.set_attribute_of_function(function, attribute, value)?;
        }
        self.result(function)
    }

    pub(super) fn set_attribute_of_function(
        &mut self,
        function: Val,
        attribute: FunctionAttribute,
        value: Val,
    ) -> R<()> {
        let closure = match attribute {
            FunctionAttribute::Closure => self.t.iterate(value)?,
            _ => Vec::new(),
        };
        let Kind::Function(shared) = self.t.kind_mut(function) else {
            return Err(Stop::Bug("attribute of something that isn't a new function".to_owned()));
        };
        let Some(data) = Rc::get_mut(shared) else {
            return Err(Stop::Bug("a new function is shared".to_owned()));
        };
        match attribute {
            FunctionAttribute::Defaults => data.defaults = Some(value),
            FunctionAttribute::KwDefaults => data.kwdefaults = Some(value),
            FunctionAttribute::Annotations => data.annotations = Some(value),
            FunctionAttribute::Closure => data.closure = closure,
        }
        Ok(())
    }

    /// `import name`: modules that are loaded already.
    pub(super) fn trace_import(&mut self, name: &str) -> R<Flow> {
        let (fromlist, level) = (self.pop()?, self.pop()?);
        let level = self.t.as_const(level)?.and_then(|l| l.extract::<i64>().ok()).unwrap_or(0);
        let py = self.t.py;
        let mut full = name.to_owned();
        if level > 0 {
            let package: String = match self.f.globals.get_item("__package__").and_then(|p| p.extract()) {
                Ok(package) => package,
                Err(_) => return self.t.stop(breaks::IMPORT, "a relative import without __package__"),
            };
            let mut parts: Vec<&str> = package.split('.').collect();
            parts.truncate(parts.len().saturating_sub(level as usize - 1));
            let base = parts.join(".");
            full = if name.is_empty() { base } else { format!("{base}.{name}") };
        }
        let wants_leaf = match self.t.kind(fromlist)? {
            Kind::Const(object) => !object.is_none(),
            Kind::Tuple { items, .. } => !items.is_empty(),
            _ => false,
        };
        let modules = py.import("sys")?.getattr("modules")?;
        if modules.get_item(&full).is_err() {
            return self.t.stop(breaks::IMPORT, full);
        }
        let wanted = if wants_leaf { full.as_str() } else { full.split('.').next().unwrap_or(&full) };
        let Ok(module) = modules.get_item(wanted) else {
            return self.t.stop(breaks::IMPORT, wanted);
        };
        let modules_source = self.t.src(SourceKind::Object(PyObj::new(&modules)));
        let key = self.t.interned(wanted);
        let source = self.t.src(SourceKind::DictItem(modules_source, PyObj::new(&key)));
        let val = self.t.external(module, source);
        self.result(val)
    }

    /// `yield from`, one round: the receiver's next value falls through, its return value jumps.
    pub(super) fn trace_send(&mut self, target: InstrId, receiver_kept: SendReceiver) -> R<Flow> {
        let (sent, receiver) = (self.pop()?, self.at(1)?);
        let step = match self.t.kind(receiver)? {
            Kind::Generator(_) => self.t.resume(receiver, sent)?,
            _ => match self.t.next_item(receiver)? {
                Some(val) => Ok(val),
                None => Err(self.t.none()),
            },
        };
        match step {
            Ok(val) => {
                self.push(val);
                NEXT
            }
            Err(val) => {
                if receiver_kept == SendReceiver::Popped {
                    self.pop()?;
                }
                self.push(val);
                Ok(Flow::Jump(target))
            }
        }
    }
}

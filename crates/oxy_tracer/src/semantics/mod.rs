//! The symbolic meaning of each neutral instruction: one method per row of the instruction table.

mod containers;
mod control;
mod exceptions;
mod stack;

use crate::breaks::{R, Stop};
use crate::frame::{Flow, Frame};
use crate::tracer::Tracer;
use crate::value::{Kind, Object, Val};
use oxy_bytecode::*;
use pyo3::prelude::*;

oxy_bytecode::define_visitor! {
    /// Performs an instruction on traced values.
    pub trait Trace() -> R<Flow>;
    /// Performs one instruction.
    pub fn dispatch;
}

/// A frame being run by a tracer.
pub struct Run<'t, 'py, 'a> {
    pub t: &'t mut Tracer<'py, 'a>,
    pub f: &'t mut Frame<'py>,
}

const NEXT: R<Flow> = Ok(Flow::Next);

impl<'py> Run<'_, 'py, '_> {
    pub fn push(&mut self, val: Val) {
        self.f.stack.push(val);
    }

    pub fn pop(&mut self) -> R<Val> {
        self.f.stack.pop().ok_or_else(|| Stop::Bug("traced stack underflow".to_owned()))
    }

    /// The top `count` values, in stack order.
    pub fn pop_many(&mut self, count: u32) -> R<Vec<Val>> {
        match self.f.stack.len().checked_sub(count as usize) {
            Some(start) => Ok(self.f.stack.split_off(start)),
            None => Err(Stop::Bug("traced stack underflow".to_owned())),
        }
    }

    /// The value `depth` below the top (1 is the top).
    pub fn at(&self, depth: u32) -> R<Val> {
        let index = self.f.stack.len().checked_sub(depth as usize);
        index.and_then(|i| self.f.stack.get(i).copied()).ok_or_else(|| Stop::Bug("traced stack underflow".to_owned()))
    }

    pub fn name(&self, name: NameId) -> R<String> {
        Ok(self.f.code.names.get_item(name.index())?.extract()?)
    }

    pub fn constant(&self, index: ConstId) -> R<Object<'py>> {
        Ok(self.f.code.consts.get_item(index.index())?)
    }

    /// Pushes a result and goes on.
    pub fn result(&mut self, val: Val) -> R<Flow> {
        self.push(val);
        NEXT
    }

    pub fn unsupported(&mut self, what: &str) -> R<Flow> {
        self.t.stop(crate::breaks::UNSUPPORTED_INSTRUCTION, what)
    }

    /// Pushes the two leading slots of a call for a looked-up method.
    fn push_method(&mut self, method: Val, layout: CallLayout) -> R<Flow> {
        self.t.realize(method)?;
        if let Kind::Method { function, receiver } = self.t.peek(method) {
            let (function, receiver) = (*function, *receiver);
            if self.t.entry(method).source.is_none() {
                self.push(function);
                self.push(receiver);
                return NEXT;
            }
        }
        let null = self.t.add(Kind::Null);
        match layout {
            CallLayout::NullFirst => {
                self.push(null);
                self.push(method);
            }
            CallLayout::CallableFirst => {
                self.push(method);
                self.push(null);
            }
        }
        NEXT
    }

    /// Splits the two leading slots of a call into the callable and the arguments with `self` in front.
    fn callable(&mut self, slot0: Val, slot1: Val, layout: CallLayout, mut args: Vec<Val>) -> (Val, Vec<Val>) {
        let is_null = |t: &Tracer<'py, '_>, v: Val| matches!(t.peek(v), Kind::Null);
        match layout {
            CallLayout::NullFirst if is_null(self.t, slot0) => (slot1, args),
            CallLayout::CallableFirst if is_null(self.t, slot1) => (slot0, args),
            _ => {
                args.insert(0, slot1);
                (slot0, args)
            }
        }
    }
}

impl Trace for Run<'_, '_, '_> {
    fn nop(&mut self) -> R<Flow> {
        NEXT
    }
    fn pop_top(&mut self) -> R<Flow> {
        self.pop()?;
        NEXT
    }
    fn push_null(&mut self) -> R<Flow> {
        let null = self.t.add(Kind::Null);
        self.result(null)
    }
    fn copy(&mut self, depth: u32) -> R<Flow> {
        let val = self.at(depth)?;
        self.result(val)
    }
    fn swap(&mut self, depth: u32) -> R<Flow> {
        self.at(depth)?;
        let (top, other) = (self.f.stack.len() - 1, self.f.stack.len() - depth as usize);
        self.f.stack.swap(top, other);
        NEXT
    }
    fn load_const(&mut self, index: ConstId) -> R<Flow> {
        let object = self.constant(index)?;
        let val = self.t.existing(object);
        self.result(val)
    }
    fn load_fast(&mut self, var: Var, _checked: bool) -> R<Flow> {
        self.trace_load_fast(var)
    }
    fn load_fast_and_clear(&mut self, var: Var) -> R<Flow> {
        let val = match self.f.locals[var.index()].take() {
            Some(val) => val,
            None => self.t.add(Kind::Null),
        };
        self.result(val)
    }
    fn store_fast(&mut self, var: Var) -> R<Flow> {
        let val = self.pop()?;
        let unbound = matches!(self.t.peek(val), Kind::Null);
        self.f.locals[var.index()] = (!unbound).then_some(val);
        NEXT
    }
    fn delete_fast(&mut self, var: Var) -> R<Flow> {
        self.trace_load_fast(var)?;
        self.pop()?;
        self.f.locals[var.index()] = None;
        NEXT
    }
    fn load_name(&mut self, _name: NameId) -> R<Flow> {
        self.unsupported("a name of a class or module body")
    }
    fn store_name(&mut self, _name: NameId) -> R<Flow> {
        self.unsupported("a name of a class or module body")
    }
    fn delete_name(&mut self, _name: NameId) -> R<Flow> {
        self.unsupported("a name of a class or module body")
    }
    fn load_global(&mut self, name: NameId, null: NullPlacement) -> R<Flow> {
        let name = self.name(name)?;
        let val = self.trace_global(&name)?;
        let empty = self.t.add(Kind::Null);
        match null {
            NullPlacement::None => self.push(val),
            NullPlacement::Below => {
                self.push(empty);
                self.push(val);
            }
            NullPlacement::Above => {
                self.push(val);
                self.push(empty);
            }
        }
        NEXT
    }
    fn store_global(&mut self, name: NameId) -> R<Flow> {
        let (name, val) = (self.name(name)?, self.pop()?);
        let key = (self.f.globals.as_ptr() as usize, name);
        self.t.global_writes.insert(key, (self.f.globals.clone(), Some(val)));
        NEXT
    }
    fn delete_global(&mut self, name: NameId) -> R<Flow> {
        let name = self.name(name)?;
        self.trace_global(&name)?;
        let key = (self.f.globals.as_ptr() as usize, name);
        self.t.global_writes.insert(key, (self.f.globals.clone(), None));
        NEXT
    }
    fn load_locals(&mut self) -> R<Flow> {
        self.unsupported("the locals of a class or module body")
    }
    fn load_from_dict_or_globals(&mut self, _name: NameId) -> R<Flow> {
        self.unsupported("a name of a class body")
    }
    fn load_from_dict_or_deref(&mut self, _var: Var) -> R<Flow> {
        self.unsupported("a name of a class body")
    }
    fn load_classderef(&mut self, _var: Var) -> R<Flow> {
        self.unsupported("a name of a class body")
    }
    fn make_cell(&mut self, var: Var) -> R<Flow> {
        let contents = self.f.locals[var.index()];
        let cell = self.t.add(Kind::Cell(contents));
        self.f.locals[var.index()] = Some(cell);
        NEXT
    }
    fn copy_free_vars(&mut self, count: u32) -> R<Flow> {
        let first = self.f.locals.len() - count as usize;
        for (i, &cell) in self.f.closure.iter().enumerate().take(count as usize) {
            self.f.locals[first + i] = Some(cell);
        }
        NEXT
    }
    fn load_closure(&mut self, var: Var) -> R<Flow> {
        self.trace_load_fast(var)
    }
    fn load_deref(&mut self, var: Var) -> R<Flow> {
        let cell = self.cell(var)?;
        match self.t.kind(cell)? {
            Kind::Cell(Some(val)) => {
                let val = *val;
                self.result(val)
            }
            _ => {
                let name = self.f.code.var_names[var.index()].clone();
                let free = self.f.code.unit().local_kinds[var.index()].is_free();
                if free {
                    let message = format!(
                        "cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
                    );
                    self.t.raise("NameError", &message)
                } else {
                    let message =
                        format!("cannot access local variable '{name}' where it is not associated with a value");
                    self.t.raise("UnboundLocalError", &message)
                }
            }
        }
    }
    fn store_deref(&mut self, var: Var) -> R<Flow> {
        let (val, cell) = (self.pop()?, self.cell(var)?);
        self.t.kind(cell)?;
        *self.t.kind_mut(cell) = Kind::Cell(Some(val));
        self.t.touch(cell);
        NEXT
    }
    fn delete_deref(&mut self, var: Var) -> R<Flow> {
        self.load_deref(var)?;
        self.pop()?;
        let cell = self.cell(var)?;
        *self.t.kind_mut(cell) = Kind::Cell(None);
        self.t.touch(cell);
        NEXT
    }
    fn load_attr(&mut self, name: NameId) -> R<Flow> {
        let (name, owner) = (self.name(name)?, self.pop()?);
        let val = self.t.get_attr(owner, &name)?;
        self.result(val)
    }
    fn load_method(&mut self, name: NameId, layout: CallLayout) -> R<Flow> {
        let (name, owner) = (self.name(name)?, self.pop()?);
        let val = self.t.get_attr(owner, &name)?;
        self.push_method(val, layout)
    }
    fn load_super_attr(&mut self, name: NameId, is_method: bool, _has_class: bool, layout: CallLayout) -> R<Flow> {
        let name = self.name(name)?;
        let (receiver, class, function) = (self.pop()?, self.pop()?, self.pop()?);
        let builtin = self.t.known.builtin(self.t.py, "super")?;
        if !matches!(self.t.kind(function)?, Kind::Object(object) if object.is(&builtin)) {
            return self.unsupported("a super() that isn't the builtin");
        }
        let sup = self.t.make_super(class, receiver)?;
        let val = self.t.get_attr(sup, &name)?;
        if is_method { self.push_method(val, layout) } else { self.result(val) }
    }
    fn store_attr(&mut self, name: NameId) -> R<Flow> {
        let (name, owner, val) = (self.name(name)?, self.pop()?, self.pop()?);
        self.t.set_attr(owner, &name, val)?;
        NEXT
    }
    fn delete_attr(&mut self, name: NameId) -> R<Flow> {
        let (name, owner) = (self.name(name)?, self.pop()?);
        self.t.del_attr(owner, &name)?;
        NEXT
    }
    fn binary_subscr(&mut self) -> R<Flow> {
        let (key, container) = (self.pop()?, self.pop()?);
        let val = self.t.get_item(container, key)?;
        self.result(val)
    }
    fn store_subscr(&mut self) -> R<Flow> {
        let (key, container, val) = (self.pop()?, self.pop()?, self.pop()?);
        self.t.set_item(container, key, val)?;
        NEXT
    }
    fn delete_subscr(&mut self) -> R<Flow> {
        let (key, container) = (self.pop()?, self.pop()?);
        self.t.del_item(container, key)?;
        NEXT
    }
    fn binary_slice(&mut self) -> R<Flow> {
        let (stop, start, container) = (self.pop()?, self.pop()?, self.pop()?);
        let step = self.t.none();
        let slice = self.t.add(Kind::Slice([start, stop, step]));
        let val = self.t.get_item(container, slice)?;
        self.result(val)
    }
    fn store_slice(&mut self) -> R<Flow> {
        let (stop, start, container, val) = (self.pop()?, self.pop()?, self.pop()?, self.pop()?);
        let step = self.t.none();
        let slice = self.t.add(Kind::Slice([start, stop, step]));
        self.t.set_item(container, slice, val)?;
        NEXT
    }
    fn binary_op(&mut self, op: BinaryOp, inplace: bool) -> R<Flow> {
        let (right, left) = (self.pop()?, self.pop()?);
        let val = self.t.binary_op(op, inplace, left, right)?;
        self.result(val)
    }
    fn unary_op(&mut self, op: UnaryOp) -> R<Flow> {
        let val = self.pop()?;
        let val = match op {
            UnaryOp::Not => {
                let truth = self.t.truth(val)?;
                self.t.bool(!truth)
            }
            UnaryOp::Negative => self.t.unary_op("neg", "__neg__", val)?,
            UnaryOp::Invert => self.t.unary_op("invert", "__invert__", val)?,
            UnaryOp::Positive => self.t.unary_op("pos", "__pos__", val)?,
        };
        self.result(val)
    }
    fn to_bool(&mut self) -> R<Flow> {
        let val = self.pop()?;
        let truth = self.t.truth(val)?;
        let val = self.t.bool(truth);
        self.result(val)
    }
    fn compare_op(&mut self, op: CompareOp, to_bool: bool) -> R<Flow> {
        let (right, left) = (self.pop()?, self.pop()?);
        let mut val = self.t.compare(op, left, right)?;
        if to_bool {
            let truth = self.t.truth(val)?;
            val = self.t.bool(truth);
        }
        self.result(val)
    }
    fn is_op(&mut self, invert: bool) -> R<Flow> {
        let (right, left) = (self.pop()?, self.pop()?);
        let same = self.t.is_same(left, right)?;
        let val = self.t.bool(same != invert);
        self.result(val)
    }
    fn contains_op(&mut self, invert: bool) -> R<Flow> {
        let (container, item) = (self.pop()?, self.pop()?);
        let found = self.t.contains(container, item)?;
        let val = self.t.bool(found != invert);
        self.result(val)
    }
    fn build_tuple(&mut self, count: u32) -> R<Flow> {
        let items = self.pop_many(count)?;
        let val = self.t.tuple(items);
        self.result(val)
    }
    fn build_list(&mut self, count: u32) -> R<Flow> {
        let items = self.pop_many(count)?;
        let val = self.t.list(items);
        self.result(val)
    }
    fn build_set(&mut self, count: u32) -> R<Flow> {
        let items = self.pop_many(count)?;
        let val = self.t.new_set(&items, false)?;
        self.result(val)
    }
    fn build_map(&mut self, count: u32) -> R<Flow> {
        let items = self.pop_many(count * 2)?;
        let val = self.t.dict(Default::default());
        for pair in items.chunks_exact(2) {
            self.t.dict_insert(val, pair[0], pair[1])?;
        }
        self.result(val)
    }
    fn build_const_key_map(&mut self, count: u32) -> R<Flow> {
        let keys = self.pop()?;
        let values = self.pop_many(count)?;
        let keys = self.t.iterate(keys)?;
        let val = self.t.dict(Default::default());
        for (key, value) in keys.into_iter().zip(values) {
            self.t.dict_insert(val, key, value)?;
        }
        self.result(val)
    }
    fn build_string(&mut self, count: u32) -> R<Flow> {
        let parts = self.pop_many(count)?;
        let mut text = String::new();
        for part in parts {
            match self.t.as_const(part)? {
                Some(object) => text += &object.extract::<String>()?,
                None => return self.unsupported("a string built from a value that isn't a constant"),
            }
        }
        let val = self.t.str(&text);
        self.result(val)
    }
    fn build_slice(&mut self, count: u32) -> R<Flow> {
        let mut parts = self.pop_many(count)?;
        if parts.len() == 2 {
            parts.push(self.t.none());
        }
        let val = self.t.add(Kind::Slice([parts[0], parts[1], parts[2]]));
        self.result(val)
    }
    fn list_append(&mut self, depth: u32) -> R<Flow> {
        let (item, list) = (self.pop()?, self.at(depth)?);
        self.t.list_push(list, item)?;
        NEXT
    }
    fn set_add(&mut self, depth: u32) -> R<Flow> {
        let (item, set) = (self.pop()?, self.at(depth)?);
        self.t.set_insert(set, item)?;
        NEXT
    }
    fn map_add(&mut self, depth: u32) -> R<Flow> {
        let (value, key, dict) = (self.pop()?, self.pop()?, self.at(depth)?);
        self.t.dict_insert(dict, key, value)?;
        NEXT
    }
    fn list_extend(&mut self, depth: u32) -> R<Flow> {
        let (items, list) = (self.pop()?, self.at(depth)?);
        for item in self.t.iterate(items)? {
            self.t.list_push(list, item)?;
        }
        NEXT
    }
    fn set_update(&mut self, depth: u32) -> R<Flow> {
        let (items, set) = (self.pop()?, self.at(depth)?);
        for item in self.t.iterate(items)? {
            self.t.set_insert(set, item)?;
        }
        NEXT
    }
    fn dict_update(&mut self, depth: u32) -> R<Flow> {
        let (mapping, dict) = (self.pop()?, self.at(depth)?);
        self.trace_dict_update(dict, mapping, false)
    }
    fn dict_merge(&mut self, depth: u32) -> R<Flow> {
        let (mapping, dict) = (self.pop()?, self.at(depth)?);
        self.trace_dict_update(dict, mapping, true)
    }
    fn unpack_sequence(&mut self, count: u32) -> R<Flow> {
        let val = self.pop()?;
        let items = self.t.iterate(val)?;
        if items.len() != count as usize {
            let message = if items.len() > count as usize {
                format!("too many values to unpack (expected {count})")
            } else {
                format!("not enough values to unpack (expected {count}, got {})", items.len())
            };
            return self.t.raise("ValueError", &message);
        }
        self.f.stack.extend(items.into_iter().rev());
        NEXT
    }
    fn unpack_ex(&mut self, before: u32, after: u32) -> R<Flow> {
        let val = self.pop()?;
        self.trace_unpack_ex(val, before as usize, after as usize)
    }
    fn convert_value(&mut self, conversion: Conversion) -> R<Flow> {
        let val = self.pop()?;
        let val = self.trace_convert(val, conversion)?;
        self.result(val)
    }
    fn format_value(&mut self, conversion: Conversion, has_spec: bool) -> R<Flow> {
        let spec = if has_spec { Some(self.pop()?) } else { None };
        let val = self.pop()?;
        let val = self.trace_convert(val, conversion)?;
        let val = self.t.format(val, spec)?;
        self.result(val)
    }
    fn jump(&mut self, target: InstrId, _polls: bool) -> R<Flow> {
        Ok(Flow::Jump(target))
    }
    fn pop_jump_if(&mut self, condition: Condition, target: InstrId, _polls: bool) -> R<Flow> {
        let val = self.pop()?;
        let taken = self.holds(condition, val)?;
        Ok(if taken { Flow::Jump(target) } else { Flow::Next })
    }
    fn jump_if_or_pop(&mut self, condition: Condition, target: InstrId) -> R<Flow> {
        let val = self.at(1)?;
        if self.holds(condition, val)? {
            return Ok(Flow::Jump(target));
        }
        self.pop()?;
        NEXT
    }
    fn return_value(&mut self) -> R<Flow> {
        Ok(Flow::Return(self.pop()?))
    }
    fn get_iter(&mut self) -> R<Flow> {
        let val = self.pop()?;
        let val = self.t.get_iter(val)?;
        self.result(val)
    }
    fn get_yield_from_iter(&mut self) -> R<Flow> {
        let val = self.pop()?;
        let val = self.t.get_iter(val)?;
        self.result(val)
    }
    fn for_iter(&mut self, target: InstrId) -> R<Flow> {
        let iterator = self.at(1)?;
        match self.t.next_item(iterator)? {
            Some(val) => self.result(val),
            None => {
                self.pop()?;
                Ok(Flow::Jump(target))
            }
        }
    }
    fn end_for(&mut self, count: u32) -> R<Flow> {
        self.pop_many(count)?;
        NEXT
    }
    fn return_generator(&mut self) -> R<Flow> {
        // The first sent value was pushed by whoever resumed the generator.
        self.f.started = true;
        NEXT
    }
    fn yield_value(&mut self) -> R<Flow> {
        Ok(Flow::Yield(self.pop()?))
    }
    fn send(&mut self, target: InstrId, receiver: SendReceiver) -> R<Flow> {
        self.trace_send(target, receiver)
    }
    fn end_send(&mut self) -> R<Flow> {
        let result = self.pop()?;
        self.pop()?;
        self.result(result)
    }
    fn cleanup_throw(&mut self) -> R<Flow> {
        self.unsupported("an exception thrown into a generator")
    }
    fn resume(&mut self, _origin: ResumeOrigin) -> R<Flow> {
        NEXT
    }
    fn get_awaitable(&mut self, _origin: AwaitOrigin) -> R<Flow> {
        self.unsupported("await")
    }
    fn get_aiter(&mut self) -> R<Flow> {
        self.unsupported("async for")
    }
    fn get_anext(&mut self) -> R<Flow> {
        self.unsupported("async for")
    }
    fn end_async_for(&mut self) -> R<Flow> {
        self.unsupported("async for")
    }
    fn call(&mut self, argc: u32, kw: KwNames, layout: CallLayout) -> R<Flow> {
        self.trace_call(argc, kw, layout)
    }
    fn call_function_ex(&mut self, has_kwargs: bool, layout: CallLayout) -> R<Flow> {
        self.trace_call_ex(has_kwargs, layout)
    }
    fn intrinsic(&mut self, op: Intrinsic) -> R<Flow> {
        self.trace_intrinsic(op)
    }
    fn make_function(&mut self, flags: FunctionFlags) -> R<Flow> {
        self.trace_make_function(flags)
    }
    fn set_function_attribute(&mut self, attribute: FunctionAttribute) -> R<Flow> {
        let (function, value) = (self.pop()?, self.pop()?);
        self.set_attribute_of_function(function, attribute, value)?;
        self.result(function)
    }
    fn load_build_class(&mut self) -> R<Flow> {
        self.unsupported("a class statement")
    }
    fn setup_annotations(&mut self) -> R<Flow> {
        self.unsupported("annotations of a class or module body")
    }
    fn import_name(&mut self, name: NameId) -> R<Flow> {
        let name = self.name(name)?;
        self.trace_import(&name)
    }
    fn import_from(&mut self, name: NameId) -> R<Flow> {
        let name = self.name(name)?;
        let module = self.at(1)?;
        let val = self.t.get_attr(module, &name)?;
        self.result(val)
    }
    fn before_with(&mut self) -> R<Flow> {
        self.trace_before_with()
    }
    fn before_async_with(&mut self) -> R<Flow> {
        self.unsupported("async with")
    }
    fn with_except_start(&mut self) -> R<Flow> {
        self.trace_with_except_start()
    }
    fn push_exc_info(&mut self) -> R<Flow> {
        let exception = self.pop()?;
        let previous = match self.t.handled.replace(exception) {
            Some(previous) => previous,
            None => self.t.none(),
        };
        self.push(previous);
        self.result(exception)
    }
    fn pop_except(&mut self) -> R<Flow> {
        let previous = self.pop()?;
        let is_none = matches!(self.t.peek(previous), Kind::Const(object) if object.is_none());
        self.t.handled = (!is_none).then_some(previous);
        if self.t.here.len() == 1 && self.t.handled.is_none() {
            self.t.raised_at = None;
        }
        NEXT
    }
    fn check_exc_match(&mut self) -> R<Flow> {
        let (class, exception) = (self.pop()?, self.at(1)?);
        let matches = self.t.is_instance(exception, class)?;
        let val = self.t.bool(matches);
        self.result(val)
    }
    fn check_eg_match(&mut self) -> R<Flow> {
        self.unsupported("except*")
    }
    fn reraise(&mut self, _lasti_depth: u32) -> R<Flow> {
        let exception = self.pop()?;
        Err(Stop::Raise(exception))
    }
    fn raise_varargs(&mut self, count: u32) -> R<Flow> {
        self.trace_raise(count)
    }
    fn load_assertion_error(&mut self) -> R<Flow> {
        let class = self.t.known.builtin(self.t.py, "AssertionError")?;
        let val = self.t.existing(class);
        self.result(val)
    }
    fn match_class(&mut self, count: u32) -> R<Flow> {
        self.trace_match_class(count)
    }
    fn match_mapping(&mut self) -> R<Flow> {
        let subject = self.at(1)?;
        let class = self.t.type_of(subject)?;
        let flag = self.t.type_has_flag(&class, 1 << 6)?;
        let val = self.t.bool(flag);
        self.result(val)
    }
    fn match_sequence(&mut self) -> R<Flow> {
        let subject = self.at(1)?;
        let class = self.t.type_of(subject)?;
        let flag = self.t.type_has_flag(&class, 1 << 5)?;
        let val = self.t.bool(flag);
        self.result(val)
    }
    fn match_keys(&mut self) -> R<Flow> {
        self.trace_match_keys()
    }
    fn get_len(&mut self) -> R<Flow> {
        let subject = self.at(1)?;
        let length = self.t.length(subject)?;
        let val = self.t.int(length as i64)?;
        self.result(val)
    }
}

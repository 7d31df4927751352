//! The interpreter loop: running traced frames, unwinding traced exceptions, binding arguments, inlining calls.

use crate::breaks::{self, R, Stop};
use crate::code::Code;
use crate::frame::{Flow, Frame, Place};
use crate::semantics::{Run, dispatch};
use crate::tracer::Tracer;
use crate::value::{Kind, Object, Val};
use indexmap::IndexMap;
use oxy_bytecode::InstrId;
use oxy_guards::{Source, SourceKind};
use pyo3::prelude::*;
use std::rc::Rc;

/// Why a traced frame stopped running.
pub enum Outcome {
    Return(Val),
    Yield(Val),
    /// The outermost frame reached the instruction at which the trace was told to stop.
    Stopped,
}

/// What inlining needs of a function.
pub struct Callee<'py> {
    pub code: Rc<Code<'py>>,
    pub globals: Object<'py>,
    pub globals_source: Source,
    pub defaults: Option<Val>,
    pub kwdefaults: Option<Val>,
    pub closure: Vec<Val>,
}

impl<'py> Tracer<'py, '_> {
    /// Runs a frame until it returns, yields, or the trace stops.
    pub fn run(&mut self, frame: &mut Frame<'py>, outermost: bool) -> R<Outcome> {
        if self.here.len() as u32 >= self.options.depth_max {
            return self.stop(breaks::RECURSION, format!("{} calls deep in {}", self.here.len(), frame.code.name));
        }
        self.here.push((frame.code.clone(), frame.pc));
        let mut result = self.run_loop(frame, outermost);
        self.here.pop();
        if let Err(Stop::Break(stopped)) = &mut result {
            let place =
                Place { file: frame.code.filename.clone(), line: frame.line(), function: frame.code.name.clone() };
            stopped.stack.insert(0, place);
        }
        result
    }

    fn run_loop(&mut self, frame: &mut Frame<'py>, outermost: bool) -> R<Outcome> {
        let code = frame.code.clone();
        let unit = code.unit();
        loop {
            let Some(placed) = unit.get(frame.pc) else {
                return Err(Stop::Bug(format!("ran past the end of {}", code.name)));
            };
            if outermost {
                if placed.enterable {
                    if Some(self.outer_steps) == self.stop_at {
                        return Ok(Outcome::Stopped);
                    }
                    self.outer_enterable = (self.outer_steps, frame.pc);
                }
                self.outer_steps += 1;
            }
            self.steps += 1;
            if self.steps > self.options.steps_max {
                return self.stop(breaks::TOO_LONG, format!("{} instructions", self.steps));
            }
            if let Some(top) = self.here.last_mut() {
                top.1 = frame.pc;
            }
            let flow = dispatch(&mut Run { t: self, f: frame }, &placed.instr);
            match flow {
                Ok(Flow::Next) => frame.pc = InstrId(frame.pc.0 + 1),
                Ok(Flow::Jump(target)) => frame.pc = target,
                Ok(Flow::Return(val)) => return Ok(Outcome::Return(val)),
                Ok(Flow::Yield(val)) => {
                    frame.pc = InstrId(frame.pc.0 + 1);
                    return Ok(Outcome::Yield(val));
                }
                Err(Stop::Raise(exception)) => self.unwind(frame, exception, outermost)?,
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Moves a frame to the handler of an exception, or passes the exception on.
    fn unwind(&mut self, frame: &mut Frame<'py>, exception: Val, outermost: bool) -> R<()> {
        let unit = frame.code.clone();
        let unit = unit.unit();
        let region = unit.region_of(frame.pc).copied();
        let Some(region) = region else {
            if outermost {
                let what = self.describe(exception);
                return self.stop(breaks::EXCEPTION_ESCAPES, what);
            }
            return Err(Stop::Raise(exception));
        };
        if outermost && self.raised_at.is_none() {
            self.raised_at = Some(self.outer_enterable);
        }
        frame.stack.truncate(region.depth as usize);
        if region.push_lasti {
            let offset = unit.get(frame.pc).map_or(0, |placed| placed.offset.0);
            let lasti = self.int(offset as i64)?;
            frame.stack.push(lasti);
        }
        // CPython sets __context__ to the exception being handled.
        if let Some(current) = self.handled
            && current != exception
            && let Kind::Instance(instance) = self.kind_mut(exception)
        {
            instance.attrs.entry("__context__".to_owned()).or_insert(current);
        }
        frame.stack.push(exception);
        frame.pc = region.target;
        Ok(())
    }

    /// What inlining needs of a real function object.
    pub fn callee_of(&mut self, function: &Object<'py>, source: Option<Source>) -> R<Callee<'py>> {
        let source = self.source_or_object(source, function);
        let code_object = function.getattr("__code__")?;
        let code_source = self.src(SourceKind::FunctionCode(source.clone()));
        self.guard_identity(&code_source, &code_object);
        let code = self.code(&code_object)?;
        let globals = function.getattr("__globals__")?;
        let globals_source = self.src(SourceKind::Object(oxy_guards::PyObj::new(&globals)));
        let optional = |this: &mut Self, name: &str, kind: SourceKind| -> R<Option<Val>> {
            let value = function.getattr(name)?;
            let value_source = this.src(kind);
            if value.is_none() {
                this.guard_identity(&value_source, &value);
                return Ok(None);
            }
            Ok(Some(this.external(value, value_source)))
        };
        let defaults = optional(self, "__defaults__", SourceKind::FunctionDefaults(source.clone()))?;
        let kwdefaults = optional(self, "__kwdefaults__", SourceKind::FunctionKwDefaults(source.clone()))?;
        let closure_object = function.getattr("__closure__")?;
        let mut closure = Vec::new();
        if !closure_object.is_none() {
            let closure_source = self.src(SourceKind::FunctionClosure(source));
            for (i, cell) in closure_object.try_iter()?.enumerate() {
                let cell_source = self.src(SourceKind::TupleItem(closure_source.clone(), i as u32));
                closure.push(self.external(cell?, cell_source));
            }
        }
        Ok(Callee { code, globals, globals_source, defaults, kwdefaults, closure })
    }

    /// Calls a Python function by tracing its body.
    pub fn inline(&mut self, callee: Callee<'py>, args: Vec<Val>, kwargs: Vec<(String, Val)>) -> R<Val> {
        let mut frame = self.bind(callee, args, kwargs)?;
        let flags = frame.code.unit().flags;
        if flags.is_coroutine() || flags.is_async_generator() || flags.is_iterable_coroutine() {
            return self.stop(breaks::UNSUPPORTED_CALL, format!("the coroutine function {}", frame.code.name));
        }
        if flags.is_generator() {
            return Ok(self.add(Kind::Generator(Some(Box::new(frame)))));
        }
        match self.run(&mut frame, false)? {
            Outcome::Return(val) => Ok(val),
            Outcome::Yield(_) | Outcome::Stopped => Err(Stop::Bug("a plain call yielded".to_owned())),
        }
    }

    /// Makes the frame of a call, with arguments bound as CPython does it (Python/ceval.c, initialize_locals).
    pub fn bind(&mut self, callee: Callee<'py>, args: Vec<Val>, kwargs: Vec<(String, Val)>) -> R<Frame<'py>> {
        let code = callee.code;
        let unit = code.unit();
        let (argcount, kwonly) = (unit.argcount as usize, unit.kwonlyargcount as usize);
        let mut locals: Vec<Option<Val>> = vec![None; unit.nlocalsplus() as usize];
        let mut next = argcount + kwonly;
        let given = args.len();
        for (slot, &arg) in args.iter().take(argcount).enumerate() {
            locals[slot] = Some(arg);
        }
        if unit.flags.has_varargs() {
            let rest = args.get(argcount..).unwrap_or(&[]).to_vec();
            locals[next] = Some(self.tuple(rest));
            next += 1;
        } else if given > argcount {
            let message = format!("{}() takes {argcount} positional arguments but {given} were given", code.qualname);
            return self.raise("TypeError", &message);
        }
        let mut extra = IndexMap::new();
        for (name, val) in kwargs {
            let slot = code.var_names[..argcount + kwonly].iter().position(|n| *n == name);
            match slot {
                Some(slot) if slot >= unit.posonlyargcount as usize => {
                    if locals[slot].is_some() {
                        let message = format!("{}() got multiple values for argument '{name}'", code.qualname);
                        return self.raise("TypeError", &message);
                    }
                    locals[slot] = Some(val);
                }
                _ if unit.flags.has_varkeywords() => {
                    let key_object = self.interned(&name);
                    let key = crate::value::Key::object(key_object.clone())?;
                    let key_val = self.constant(key_object);
                    extra.insert(key, (key_val, val));
                }
                _ => {
                    let message = format!("{}() got an unexpected keyword argument '{name}'", code.qualname);
                    return self.raise("TypeError", &message);
                }
            }
        }
        if unit.flags.has_varkeywords() {
            locals[next] = Some(self.dict(extra));
        }
        if locals[..argcount].iter().any(Option::is_none)
            && let Some(defaults) = callee.defaults
        {
            let Kind::Tuple { items, .. } = self.kind(defaults)? else {
                return Err(Stop::Bug("defaults are not a tuple".to_owned()));
            };
            let items = items.clone();
            let first = argcount.saturating_sub(items.len());
            for (i, item) in items.into_iter().enumerate() {
                if let Some(slot) = locals.get_mut(first + i)
                    && slot.is_none()
                {
                    *slot = Some(item);
                }
            }
        }
        for (slot, local) in locals.iter_mut().enumerate().skip(argcount).take(kwonly) {
            if local.is_none()
                && let Some(kwdefaults) = callee.kwdefaults
                && let Kind::Dict { .. } = self.kind(kwdefaults)?
            {
                let name = self.interned(&code.var_names[slot]);
                let key = crate::value::Key::object(name)?;
                let Kind::Dict { items, .. } = self.peek(kwdefaults) else { continue };
                *local = items.get(&key).map(|(_, val)| *val);
            }
        }
        let missing: Vec<String> = (0..argcount + kwonly)
            .filter(|&slot| locals[slot].is_none())
            .map(|slot| format!("'{}'", code.var_names[slot]))
            .collect();
        if !missing.is_empty() {
            let plural = if missing.len() == 1 { "argument" } else { "arguments" };
            let message = format!(
                "{}() missing {} required positional {plural}: {}",
                code.qualname,
                missing.len(),
                missing.join(" and ")
            );
            return self.raise("TypeError", &message);
        }
        let builtins = self.builtins_of(&callee.globals)?;
        Ok(Frame {
            code: code.clone(),
            globals: callee.globals,
            globals_source: callee.globals_source,
            builtins,
            closure: callee.closure,
            locals,
            stack: Vec::new(),
            pc: InstrId(0),
            started: false,
        })
    }

    /// The builtins dictionary that functions with these globals use.
    pub fn builtins_of(&self, globals: &Object<'py>) -> PyResult<Object<'py>> {
        let builtins = match globals.get_item("__builtins__") {
            Ok(builtins) => builtins,
            Err(_) => self.py.import("builtins")?.into_any(),
        };
        if builtins.is_instance_of::<pyo3::types::PyModule>() { builtins.getattr("__dict__") } else { Ok(builtins) }
    }

    /// Throws an exception into a generator: what it yields next, or `Err` of its return value.
    pub fn throw(&mut self, generator: Val, exception: Val) -> R<Result<Val, Val>> {
        let Kind::Generator(slot) = self.kind_mut(generator) else {
            return Err(Stop::Bug("throw into something else".to_owned()));
        };
        let Some(mut frame) = slot.take() else { return Err(Stop::Raise(exception)) };
        if !frame.started {
            return Err(Stop::Raise(exception));
        }
        let unit = frame.code.clone();
        if let Some(placed) = unit.unit().get(frame.pc)
            && matches!(placed.instr, oxy_bytecode::Instr::Resume { origin } if origin != oxy_bytecode::ResumeOrigin::AfterYield)
        {
            return self.stop(breaks::GENERATOR, "an exception thrown into a generator that delegates to another");
        }
        // The exception happens at the yield.
        frame.pc = InstrId(frame.pc.0.saturating_sub(1));
        self.here.push((frame.code.clone(), frame.pc));
        let unwound = self.unwind(&mut frame, exception, false);
        self.here.pop();
        unwound?;
        match self.run(&mut frame, false)? {
            Outcome::Yield(val) => {
                *self.kind_mut(generator) = Kind::Generator(Some(frame));
                Ok(Ok(val))
            }
            Outcome::Return(val) => Ok(Err(val)),
            Outcome::Stopped => Err(Stop::Bug("a generator stopped".to_owned())),
        }
    }

    /// `generator.close()`
    pub fn close_generator(&mut self, generator: Val) -> R<Val> {
        match self.kind(generator)? {
            Kind::Generator(Some(frame)) if frame.started => {}
            Kind::Generator(_) => {
                *self.kind_mut(generator) = Kind::Generator(None);
                return Ok(self.none());
            }
            _ => return Err(Stop::Bug("close of something else".to_owned())),
        }
        let class = self.known.builtin(self.py, "GeneratorExit")?;
        let class = self.existing(class);
        let exit = self.as_exception(class)?;
        match self.throw(generator, exit) {
            Ok(Ok(_)) => self.raise("RuntimeError", "generator ignored GeneratorExit"),
            Ok(Err(_)) => Ok(self.none()),
            Err(Stop::Raise(raised)) => {
                let stop = self.known.builtin(self.py, "StopIteration")?;
                let stop = self.existing(stop);
                if self.is_instance(raised, class)? || self.is_instance(raised, stop)? {
                    Ok(self.none())
                } else {
                    Err(Stop::Raise(raised))
                }
            }
            Err(stop) => Err(stop),
        }
    }

    /// Resumes a generator with a sent value: what it yields, or `Err` of StopIteration's value.
    pub fn resume(&mut self, generator: Val, sent: Val) -> R<Result<Val, Val>> {
        let Kind::Generator(slot) = self.kind_mut(generator) else {
            return Err(Stop::Bug("resume of something else".to_owned()));
        };
        let Some(mut frame) = slot.take() else {
            let none = self.none();
            return Ok(Err(none));
        };
        frame.stack.push(sent);
        match self.run(&mut frame, false)? {
            Outcome::Yield(val) => {
                *self.kind_mut(generator) = Kind::Generator(Some(frame));
                Ok(Ok(val))
            }
            Outcome::Return(val) => Ok(Err(val)),
            Outcome::Stopped => Err(Stop::Bug("a generator stopped".to_owned())),
        }
    }
}

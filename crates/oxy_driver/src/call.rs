//! Calling a compiled callable: the fast path without a frame, and the way into the frame driver.

use crate::backend::Runner;
use crate::cache::CodeState;
use crate::compiled::{self, Activation, Compiled};
use crate::engine::engine;
use crate::frames::DRIVER;
use oxy_bytecode::InstrId;
use oxy_guards::Env;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyTuple};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a compiled callable runs, taken apart once.
pub struct Target {
    /// The callable as given.
    pub callable: Py<PyAny>,
    /// The Python function whose frame is compiled; `None` for callables without one of their own.
    function: Option<Py<PyFunction>>,
    /// A bound method's `self`.
    receiver: Option<Py<PyAny>>,
    signature: Signature,
}

#[derive(Default)]
struct Signature {
    code: usize,
    arg_count: usize,
    kwonly_count: usize,
    posonly_count: usize,
    slots: usize,
    has_varargs: bool,
    has_varkeywords: bool,
    names: Vec<Py<PyAny>>,
}

impl Target {
    pub fn new(callable: &Bound<'_, PyAny>) -> PyResult<Target> {
        let py = callable.py();
        let mut receiver = None;
        let mut function = callable.clone();
        if let Ok(method) = callable.getattr("__func__")
            && method.is_instance_of::<PyFunction>()
        {
            receiver = Some(callable.getattr("__self__")?);
            function = method;
        } else if !callable.is_instance_of::<PyFunction>()
            && let Ok(method) = callable.get_type().getattr("__call__")
            && method.is_instance_of::<PyFunction>()
        {
            receiver = Some(callable.clone());
            function = method;
        }
        let Ok(function) = function.cast_into::<PyFunction>() else {
            // No frame of its own: a wrapper whose frame calls it.
            let wrapper = py.import("oxyfuel.polyfills")?.call_method1("calling", (callable,))?;
            let mut target = Target::new(&wrapper)?;
            target.callable = wrapper.unbind();
            return Ok(target);
        };
        let signature = Signature::of(&function)?;
        engine(py).add_target(function.getattr("__code__")?.cast()?)?;
        Ok(Target {
            callable: callable.clone().unbind(),
            function: Some(function.unbind()),
            receiver: receiver.map(Bound::unbind),
            signature,
        })
    }
}

impl Signature {
    fn of(function: &Bound<'_, PyFunction>) -> PyResult<Signature> {
        let code = function.getattr("__code__")?;
        let number = |name: &str| -> PyResult<usize> { code.getattr(name)?.extract() };
        let flags: u32 = code.getattr("co_flags")?.extract()?;
        let (arg_count, kwonly_count) = (number("co_argcount")?, number("co_kwonlyargcount")?);
        let names = code.getattr("co_varnames")?;
        let mut parameters = Vec::new();
        for name in names.try_iter()?.take(arg_count + kwonly_count) {
            parameters.push(name?.unbind());
        }
        let slots = number("co_nlocals")? + code.getattr("co_cellvars")?.len()? + code.getattr("co_freevars")?.len()?;
        Ok(Signature {
            code: code.as_ptr() as usize,
            arg_count,
            kwonly_count,
            posonly_count: number("co_posonlyargcount")?,
            slots,
            has_varargs: flags & 0x4 != 0,
            has_varkeywords: flags & 0x8 != 0,
            names: parameters,
        })
    }
}

type Locals<'py> = SmallVec<[Option<Bound<'py, PyAny>>; 12]>;

/// Binds arguments to localsplus slots as CPython does. `None`: not a valid call (the real one raises).
fn bind<'py>(
    py: Python<'py>,
    target: &Target,
    function: &Bound<'py, PyFunction>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Locals<'py>>> {
    let signature = &target.signature;
    let parameters = signature.arg_count + signature.kwonly_count;
    let mut locals: Locals<'py> = SmallVec::from_elem(None, signature.slots);
    let first = target.receiver.is_some() as usize;
    let given = args.len() + first;
    if let Some(receiver) = &target.receiver
        && signature.arg_count > 0
    {
        locals[0] = Some(receiver.bind(py).clone());
    }
    let positional = given.min(signature.arg_count);
    for slot in first..positional {
        locals[slot] = Some(args.get_item(slot - first)?);
    }
    let mut next = parameters;
    if signature.has_varargs {
        let rest = if given > signature.arg_count {
            if signature.arg_count == 0 && first == 1 {
                return Ok(None);
            }
            args.get_slice(signature.arg_count - first.min(signature.arg_count), args.len())
        } else {
            PyTuple::empty(py)
        };
        locals[next] = Some(rest.into_any());
        next += 1;
    } else if given > signature.arg_count {
        return Ok(None);
    }
    let extra = signature.has_varkeywords.then(|| PyDict::new(py));
    for (name, value) in kwargs.into_iter().flat_map(|kwargs| kwargs.iter()) {
        let mut found = None;
        for (slot, parameter) in signature.names.iter().enumerate() {
            if parameter.bind(py).is(&name) || parameter.bind(py).eq(&name)? {
                found = Some(slot);
                break;
            }
        }
        match (found, &extra) {
            (Some(slot), _) if slot >= signature.posonly_count => {
                if locals[slot].replace(value).is_some() {
                    return Ok(None);
                }
            }
            (_, Some(extra)) => extra.set_item(name, value)?,
            _ => return Ok(None),
        }
    }
    if let Some(extra) = extra {
        locals[next] = Some(extra.into_any());
    }
    if locals[..signature.arg_count].iter().any(Option::is_none) {
        let defaults = function.getattr(pyo3::intern!(py, "__defaults__"))?;
        let Ok(defaults) = defaults.cast::<PyTuple>() else { return Ok(None) };
        let start = signature.arg_count.saturating_sub(defaults.len());
        for slot in start..signature.arg_count {
            if locals[slot].is_none() {
                locals[slot] = Some(defaults.get_item(slot - start)?);
            }
        }
    }
    if locals[signature.arg_count..parameters].iter().any(Option::is_none) {
        let defaults = function.getattr(pyo3::intern!(py, "__kwdefaults__"))?;
        if let Ok(defaults) = defaults.cast::<PyDict>() {
            for slot in signature.arg_count..parameters {
                if locals[slot].is_none() {
                    locals[slot] = defaults.get_item(signature.names[slot].bind(py))?;
                }
            }
        }
    }
    Ok(locals[..parameters].iter().all(Option::is_some).then_some(locals))
}

/// Calls: a segment from entry to return if one fits, else the function itself under the frame driver.
pub fn call<'py>(
    py: Python<'py>,
    compiled: &Arc<Compiled>,
    target: &Target,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Py<PyAny>> {
    if let Some(function) = &target.function
        && let Some(value) = call_complete_segment(py, compiled, target, function.bind(py), args, kwargs)?
    {
        return Ok(value);
    }
    let engine = engine(py);
    if engine.config.is_off() {
        let _eager = Activation::enter(None);
        return target.callable.bind(py).call(args, kwargs).map(Bound::unbind);
    }
    let hook = oxy_frames::hook::install(py, &DRIVER)?;
    let result = {
        let _active = Activation::enter(Some(compiled.clone()));
        compiled::announce(target.signature.code);
        target.callable.bind(py).call(args, kwargs)
    };
    compiled::announce(0);
    drop(hook);
    result.map(Bound::unbind)
}

/// The path without a frame.
fn call_complete_segment<'py>(
    py: Python<'py>,
    compiled: &Arc<Compiled>,
    target: &Target,
    function: &Bound<'py, PyFunction>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(state) = compiled.existing(target.signature.code) else { return Ok(None) };
    if state.is_skipped() || engine(py).config.is_off() {
        return Ok(None);
    }
    let Some(locals) = bind(py, target, function, args, kwargs)? else { return Ok(None) };
    let pointers: SmallVec<[*mut pyo3::ffi::PyObject; 12]> =
        locals.iter().map(|local| local.as_ref().map_or(std::ptr::null_mut(), |l| l.as_ptr())).collect();
    // SAFETY: `locals` holds the slots' objects until the end of the call.
    unsafe { run_complete_segment(py, &state, function, &pointers) }
}

/// Runs a segment from entry to return, if one fits.
///
/// # Safety
/// The slots are those of the function's code, live or NULL, for the whole call.
unsafe fn run_complete_segment(
    py: Python<'_>,
    state: &CodeState,
    function: &Bound<'_, PyFunction>,
    slots: &[*mut pyo3::ffi::PyObject],
) -> PyResult<Option<Py<PyAny>>> {
    // SAFETY: the caller's promise.
    let env = unsafe { Env::of_call(function, slots) };
    let mut n = 0;
    while let Some(segment) = state.segment(InstrId(0), n) {
        let mut registers = segment.program.registers();
        if segment.program.run(&env, &mut registers).is_ok() {
            if segment.resume.is_some() {
                return Ok(None);
            }
            state.hit(InstrId(0), n);
            if let (Runner::Native(graph), Some(output)) = (&segment.runner, segment.returned_output)
                && !graph.runs_python()
            {
                return graph.run_for_one(py, &registers, segment.input_count, output).map(Some);
            }
            // Python code may run from here on, and drop what the registers borrow.
            registers.hold(py);
            let outputs = segment.runner.run(py, &registers, segment.input_count)?;
            let built = segment.exit.apply(py, &segment.program, &registers, &outputs)?;
            return Ok(Some(built.value.unwrap_or_else(|| py.None())));
        }
        n += 1;
    }
    Ok(None)
}

/// The shortest path: a call with positional arguments that fill the parameters exactly. `None`: take the long one.
///
/// # Safety
/// The arguments are live objects for the whole call.
pub unsafe fn call_positional(
    py: Python<'_>,
    compiled: &Arc<Compiled>,
    target: &Target,
    args: &[*mut pyo3::ffi::PyObject],
) -> PyResult<Option<Py<PyAny>>> {
    let signature = &target.signature;
    let (Some(function), first) = (&target.function, target.receiver.is_some() as usize) else { return Ok(None) };
    let plain = signature.kwonly_count == 0 && !signature.has_varargs && !signature.has_varkeywords;
    if !plain || args.len() + first != signature.arg_count || engine(py).config.is_off() {
        return Ok(None);
    }
    let Some(state) = compiled.existing(signature.code) else { return Ok(None) };
    if state.is_skipped() {
        return Ok(None);
    }
    let mut slots: SmallVec<[*mut pyo3::ffi::PyObject; 12]> = SmallVec::with_capacity(signature.slots);
    slots.extend(target.receiver.iter().map(|receiver| receiver.as_ptr()));
    slots.extend_from_slice(args);
    slots.resize(signature.slots, std::ptr::null_mut());
    // SAFETY: the caller's promise for the arguments; the target holds the receiver.
    unsafe { run_complete_segment(py, &state, function.bind(py), &slots) }
}

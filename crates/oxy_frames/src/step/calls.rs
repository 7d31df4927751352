//! Rows that call, and those that make functions.

use std::ptr;

use oxy_bytecode::{CallLayout, FunctionAttribute, FunctionFlags, Intrinsic, KwNames};
use pyo3::ffi;

use super::{
    Flow, StepResult,
    containers::is_iterable,
    stepper::{Stepper, set_field},
};
use crate::{
    capi::{self, Outcome, Owned, Raised, Ref, raise_format},
    frame::drop_reference,
    version::{self, layout::FunctionObject},
};

pub(super) fn call(s: &mut Stepper<'_, '_>, argc: u32, kw: KwNames, layout: CallLayout) -> StepResult {
    let operands = argc.saturating_add(2 + kw.slots());
    let result = call_operands(s, argc, kw, layout);
    s.replace(operands, result)?;
    s.poll()?;
    Ok(Flow::Next)
}

fn call_operands(s: &Stepper<'_, '_>, argc: u32, kw: KwNames, layout: CallLayout) -> Outcome<Owned> {
    // Depths of the two leading slots; the arguments are above them.
    let (first, second) = (argc + kw.slots() + 1, argc + kw.slots());
    let (callable, count) = match (layout, s.peek_or_null(first), s.peek_or_null(second)) {
        (CallLayout::NullFirst, Some(method), Some(_)) => (method, argc + 1),
        (CallLayout::NullFirst, None, Some(callable)) => (callable, argc),
        (CallLayout::CallableFirst, Some(method), Some(_)) => (method, argc + 1),
        (CallLayout::CallableFirst, Some(callable), None) => (callable, argc),
        (CallLayout::NullFirst, _, None) | (CallLayout::CallableFirst, None, _) => {
            return Err(capi::raise(capi::system_error(), c"NULL callable on the value stack"));
        }
    };
    let names = match kw {
        KwNames::None => None,
        KwNames::Const(names) => Some(s.constant(names)?),
        KwNames::Stack => Some(s.peek(0)?),
    };
    let named = match names {
        Some(names) if capi::is_tuple(names) => capi::tuple_len(names),
        Some(_) => {
            return Err(capi::raise(capi::system_error(), c"keyword names are no tuple"));
        }
        None => 0,
    };
    let Some(positional) = (count as usize).checked_sub(named) else {
        return Err(capi::raise(capi::system_error(), c"more keyword names than arguments"));
    };
    for depth in 0..argc {
        s.peek(depth + kw.slots())?;
    }
    // With no argument at all, this points just above the callable, where nothing is read.
    let arguments = s.entry_ptr(second).wrapping_add(1).wrapping_sub((count - argc) as usize);
    // SAFETY: `count` live objects start there, self included; the word before them is one of the two leading slots,
    // whose owner waits for this call.
    unsafe { capi::vectorcall(callable, arguments, positional, capi::ARGUMENTS_OFFSET, names) }
}

pub(super) fn call_function_ex(s: &mut Stepper<'_, '_>, has_kwargs: bool, layout: CallLayout) -> StepResult {
    let operands = 3 + u32::from(has_kwargs);
    let callable = match layout {
        CallLayout::NullFirst => operands - 2,
        CallLayout::CallableFirst => operands - 1,
    };
    if has_kwargs && !capi::is_exact_dict(s.peek(0)?) {
        let merged = copy_kwargs(s.peek(0)?, s.peek(callable)?)?;
        replace_entry(s, 0, merged);
    }
    let arguments = u32::from(has_kwargs);
    if !capi::is_exact_tuple(s.peek(arguments)?) {
        let tuple = positional_tuple(s.peek(arguments)?, s.peek(callable)?)?;
        replace_entry(s, arguments, tuple);
    }
    let kwargs = if has_kwargs { Some(s.peek(0)?) } else { None };
    let result = capi::call_tuple(s.peek(callable)?, s.peek(arguments)?, kwargs);
    s.replace(operands, result)?;
    s.poll()?;
    Ok(Flow::Next)
}

/// Puts another value in the place of one on the stack.
fn replace_entry(s: &mut Stepper<'_, '_>, depth: u32, value: Owned) {
    // SAFETY: the entry exists; what it held is dropped after it has been replaced.
    unsafe { drop_reference(ptr::replace(s.entry_ptr(depth), value.into_ptr())) };
}

fn copy_kwargs(kwargs: Ref<'_>, callable: Ref<'_>) -> Outcome<Owned> {
    let dict = capi::new_dict()?;
    capi::dict_merge(dict.borrow(), kwargs).map_err(|Raised| kwargs_error(Some(callable), kwargs))?;
    Ok(dict)
}

/// The positional arguments as a tuple; `check_args_iterable` first.
fn positional_tuple(arguments: Ref<'_>, callable: Ref<'_>) -> Outcome<Owned> {
    if is_iterable(arguments) {
        return capi::sequence_tuple(arguments);
    }
    let name = capi::function_str(callable)?;
    Err(raise_format!(
        capi::type_error(),
        c"%U argument after * must be an iterable, not %.200s",
        name.borrow().as_ptr(),
        arguments.type_name(),
    ))
}

/// `format_kwargs_error`: names the callable in the errors of merging its keyword arguments.
pub(super) fn kwargs_error(callable: Option<Ref<'_>>, kwargs: Ref<'_>) -> Raised {
    let Some(callable) = callable else {
        return Raised;
    };
    if capi::catch(capi::attribute_error()).is_ok() {
        let Ok(name) = capi::function_str(callable) else {
            return Raised;
        };
        return raise_format!(
            capi::type_error(),
            c"%U argument after ** must be a mapping, not %.200s",
            name.borrow().as_ptr(),
            kwargs.type_name(),
        );
    }
    if !capi::is_raising(capi::key_error()) {
        return Raised;
    }
    let Ok(exception) = capi::take_raised() else {
        return Raised;
    };
    let args = capi::new_str(c"args").and_then(|name| capi::get_attr(exception.borrow(), name.borrow()));
    if let Ok(args) = &args
        && capi::is_tuple(args.borrow())
        && capi::tuple_len(args.borrow()) == 1
        && let Some(key) = capi::tuple_get(args.borrow(), 0)
    {
        let Ok(name) = capi::function_str(callable) else {
            return Raised;
        };
        return raise_format!(
            capi::type_error(),
            c"%U got multiple values for keyword argument '%S'",
            name.borrow().as_ptr(),
            key.as_ptr(),
        );
    }
    capi::raise_again(exception)
}

pub(super) fn make_function(s: &mut Stepper<'_, '_>, flags: FunctionFlags) -> StepResult {
    let function = capi::new_function(s.peek(0)?, s.globals()?);
    s.drop_top(1);
    let function = function?;
    for (_, attribute) in FunctionFlags::BITS.into_iter().rev() {
        if flags.has(attribute) {
            let value = s.pop_or_null();
            set_attribute(function.borrow(), attribute, value)?;
        }
    }
    s.push(function);
    Ok(Flow::Next)
}

pub(super) fn set_function_attribute(s: &mut Stepper<'_, '_>, attribute: FunctionAttribute) -> StepResult {
    let function = s.pop_or_null().ok_or(Raised)?;
    let value = s.pop_or_null();
    let set = set_attribute(function.borrow(), attribute, value);
    s.push(function);
    set.map(|()| Flow::Next)
}

/// Writes the field itself, as the interpreter does with a function that nobody else has seen: no check, no watcher.
fn set_attribute(function: Ref<'_>, attribute: FunctionAttribute, value: Option<Owned>) -> Outcome<()> {
    let value = value.ok_or_else(|| capi::raise(capi::system_error(), c"function attribute without a value"))?;
    if !capi::is_function(function) {
        return Err(capi::raise(capi::system_error(), c"attribute of what isn't a function"));
    }
    let function = function.as_ptr().cast::<FunctionObject>();
    // SAFETY: a live function object, laid out as this version's; the fields hold NULL or owned references.
    unsafe {
        let field = match attribute {
            FunctionAttribute::Defaults => &raw mut (*function).func_defaults,
            FunctionAttribute::KwDefaults => &raw mut (*function).func_kwdefaults,
            FunctionAttribute::Annotations => &raw mut (*function).func_annotations,
            FunctionAttribute::Closure => &raw mut (*function).func_closure,
        };
        set_field(field, value);
    }
    Ok(())
}

pub(super) fn load_build_class(s: &mut Stepper<'_, '_>) -> StepResult {
    let found = capi::get_optional_item(s.builtins()?, capi::new_str(c"__build_class__")?.borrow())?;
    let build = found.ok_or_else(|| capi::raise(capi::name_error(), c"__build_class__ not found"))?;
    s.push(build);
    Ok(Flow::Next)
}

pub(super) fn intrinsic(s: &mut Stepper<'_, '_>, op: Intrinsic) -> StepResult {
    let result = match op {
        Intrinsic::Print => print(s.peek(0)?),
        Intrinsic::ListToTuple => capi::list_as_tuple(s.peek(0)?),
        Intrinsic::PrepReraiseStar => match version::PREP_RERAISE_STAR {
            // SAFETY: an exception and a list of exceptions; a new reference, or NULL with an exception set.
            Some(prepare) => unsafe { Owned::from_new(prepare(s.peek(1)?.as_ptr(), s.peek(0)?.as_ptr())) },
            None => return Ok(Flow::MustLeave),
        },
        Intrinsic::ImportStar
        | Intrinsic::StopIterationError
        | Intrinsic::AsyncGenWrap
        | Intrinsic::TypeVar
        | Intrinsic::ParamSpec
        | Intrinsic::TypeVarTuple
        | Intrinsic::SubscriptGeneric
        | Intrinsic::TypeAlias
        | Intrinsic::TypeVarWithBound
        | Intrinsic::TypeVarWithConstraints
        | Intrinsic::SetFunctionTypeParams
        | Intrinsic::SetTypeParamDefault => return Ok(Flow::MustLeave),
    };
    s.replace(op.operands(), result)
}

fn print(value: Ref<'_>) -> Outcome<Owned> {
    // SAFETY: attached; the borrowed hook becomes owned before it is called.
    let hook = unsafe { Ref::new(ffi::PySys_GetObject(c"displayhook".as_ptr())).map(Ref::to_owned) };
    let hook = hook.ok_or_else(|| capi::raise(capi::runtime_error(), c"lost sys.displayhook"))?;
    capi::call(hook.borrow(), &[value])
}

//! Rows of `with`, `try`, `raise` and `assert`.

use std::ptr;

use pyo3::ffi;

use super::{Flow, StepResult, stepper::Stepper};
use crate::{
    capi::{self, Outcome, Owned, Raised, Ref, raise_format},
    frame::drop_reference,
    version,
};

unsafe extern "C" {
    fn PyErr_GetHandledException() -> *mut ffi::PyObject;
    fn PyErr_SetHandledException(exception: *mut ffi::PyObject);
}

pub(super) fn before_with(s: &mut Stepper<'_, '_>) -> StepResult {
    let manager = s.peek(0)?;
    let enter = match capi::lookup_special(manager, capi::new_str(c"__enter__")?.borrow())? {
        Some(enter) => enter,
        None => {
            return Err(raise_format!(
                capi::type_error(),
                c"'%.200s' object does not support the context manager protocol",
                manager.type_name(),
            ));
        }
    };
    let exit = match capi::lookup_special(manager, capi::new_str(c"__exit__")?.borrow())? {
        Some(exit) => exit,
        None => {
            return Err(raise_format!(
                capi::type_error(),
                c"'%.200s' object does not support the context manager protocol (missed __exit__ method)",
                manager.type_name(),
            ));
        }
    };
    s.replace(1, Ok(exit))?;
    let entered = capi::call(enter.borrow(), &[])?;
    drop(enter);
    s.push(entered);
    Ok(Flow::Next)
}

pub(super) fn with_except_start(s: &mut Stepper<'_, '_>) -> StepResult {
    let exception = s.peek(0)?;
    // SAFETY: an exception instance; its traceback is a new reference, or NULL.
    let traceback = unsafe { Owned::from_new(ffi::PyException_GetTraceback(exception.as_ptr())) };
    let traceback = traceback.unwrap_or_else(|Raised| Owned::none());
    // SAFETY: a live object's type is live.
    let kind = unsafe { Ref::new(exception.type_ptr().cast()) }.ok_or(Raised)?;
    let result = capi::call(s.peek(3)?, &[kind, exception, traceback.borrow()])?;
    s.push(result);
    Ok(Flow::Next)
}

pub(super) fn push_exc_info(s: &mut Stepper<'_, '_>) -> StepResult {
    let exception = s.peek(0)?.to_owned();
    let handled = s.handled_exception();
    // SAFETY: the slot holds an owned reference or NULL, which moves to the stack; it gets one of its own.
    unsafe {
        let previous = Owned::from_new(ptr::replace(handled, exception.borrow().to_owned().into_ptr()));
        // The stack's own reference to the exception makes room for the previous one.
        drop(s.pop_or_null());
        s.push(previous.unwrap_or_else(|Raised| Owned::none()));
    }
    s.push(exception);
    Ok(Flow::Next)
}

pub(super) fn pop_except(s: &mut Stepper<'_, '_>) -> StepResult {
    // No handled exception is NULL, not None: from some version on, the interpreter asks for nothing else.
    let previous = s.pop_or_null().filter(|previous| !previous.borrow().is_none());
    let handled = s.handled_exception();
    // SAFETY: the slot holds an owned reference or NULL, dropped after it was replaced.
    unsafe { drop_reference(ptr::replace(handled, previous.map_or(ptr::null_mut(), Owned::into_ptr))) };
    Ok(Flow::Next)
}

/// One class, or each of a tuple of them.
fn classes<'a>(kind: Ref<'a>) -> Vec<Ref<'a>> {
    if !capi::is_tuple(kind) {
        return vec![kind];
    }
    (0..capi::tuple_len(kind)).filter_map(|i| capi::tuple_get(kind, i)).collect()
}

/// `check_except_type_valid`
fn check_catchable(kind: Ref<'_>) -> Outcome<()> {
    if classes(kind).into_iter().all(capi::is_exception_class) {
        return Ok(());
    }
    Err(capi::raise(capi::type_error(), c"catching classes that do not inherit from BaseException is not allowed"))
}

pub(super) fn check_exc_match(s: &mut Stepper<'_, '_>) -> StepResult {
    let (exception, kind) = (s.peek(1)?, s.peek(0)?);
    let matches = check_catchable(kind).map(|()| Owned::bool(capi::exception_matches(exception, kind)));
    s.replace(1, matches)
}

/// `check_except_star_type_valid`
fn check_star_catchable(kind: Ref<'_>) -> Outcome<()> {
    check_catchable(kind)?;
    for class in classes(kind) {
        if capi::is_subclass(class, capi::base_exception_group())? {
            return Err(capi::raise(
                capi::type_error(),
                c"catching ExceptionGroup with except* is not allowed. Use except instead.",
            ));
        }
    }
    Ok(())
}

pub(super) fn check_eg_match(s: &mut Stepper<'_, '_>) -> StepResult {
    let (exception, kind) = (s.peek(1)?, s.peek(0)?);
    let split = match check_star_catchable(kind).and_then(|()| split_group(exception, kind)) {
        Ok(None) => return Ok(Flow::MustLeave),
        Ok(Some(split)) => Ok(split),
        Err(raised) => Err(raised),
    };
    let (rest, matched) = match split {
        Ok(split) => split,
        Err(raised) => return s.consume(1, Err(raised)),
    };
    s.drop_top(2);
    if !matched.borrow().is_none() {
        // SAFETY: a live exception, of which the call takes a reference of its own.
        unsafe { PyErr_SetHandledException(matched.borrow().as_ptr()) };
    }
    s.push(rest);
    s.push(matched);
    Ok(Flow::Next)
}

/// `exception_group_match`: what is left, and what matched. `None`: the interpreter has to do it, because what it puts
/// into the group around a naked exception depends on the patch release.
fn split_group(exception: Ref<'_>, kind: Ref<'_>) -> Outcome<Option<(Owned, Owned)>> {
    if let Some(split) = version::EXCEPTION_GROUP_MATCH {
        let (mut matched, mut rest) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: live objects; on success both results are new references.
        unsafe {
            capi::truth(split(exception.as_ptr(), kind.as_ptr(), &mut matched, &mut rest))?;
            return Ok(Some((Owned::from_new(rest)?, Owned::from_new(matched)?)));
        }
    }
    if exception.is_none() {
        return Ok(Some((Owned::none(), Owned::none())));
    }
    let is_group = capi::is_instance(exception, capi::base_exception_group())?;
    if capi::exception_matches(exception, kind) {
        return Ok(is_group.then(|| (Owned::none(), exception.to_owned())));
    }
    if !is_group {
        return Ok(Some((exception.to_owned(), Owned::none())));
    }
    let split = capi::get_attr(exception, capi::new_str(c"split")?.borrow())?;
    let pair = capi::call(split.borrow(), &[kind])?;
    match (capi::tuple_get(pair.borrow(), 1), capi::tuple_get(pair.borrow(), 0)) {
        (Some(rest), Some(matched)) => Ok(Some((rest.to_owned(), matched.to_owned()))),
        _ => Err(capi::raise(capi::type_error(), c"split must return a 2-tuple")),
    }
}

pub(super) fn reraise(s: &mut Stepper<'_, '_>, lasti_depth: u32) -> StepResult {
    if lasti_depth > 0 {
        let lasti = s.peek(lasti_depth)?;
        if !capi::is_int(lasti) {
            return Err(capi::raise(capi::system_error(), c"lasti is not an int"));
        }
        // SAFETY: an int object.
        let word = unsafe { ffi::PyLong_AsLong(lasti.as_ptr()) };
        let words = s.unit.instrs.last().map_or(0, |last| last.next.0);
        match u32::try_from(word) {
            Ok(word) if word < words => s.frame().set_executing(word),
            _ => return Err(capi::raise(capi::system_error(), c"lasti is out of range")),
        }
    }
    if !capi::is_exception_instance(s.peek(0)?) {
        return Err(capi::raise(capi::system_error(), c"reraise of what isn't an exception"));
    }
    let exception = s.pop_or_null().ok_or(Raised)?;
    // SAFETY: an owned exception instance.
    unsafe { version::restore_raised(exception.into_ptr()) };
    Err(Raised)
}

pub(super) fn raise_varargs(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let raised = match count {
        0 => raise_handled(),
        1 => raise_from(s.peek(0)?, None),
        2 => s.peek(1).and_then(|exception| raise_from(exception, Some(s.peek(0)?))),
        _ => Err(capi::raise(capi::system_error(), c"bad RAISE_VARARGS oparg")),
    };
    s.consume(count.min(2), raised)
}

/// A bare `raise`. Always an error, of one kind or the other.
fn raise_handled() -> Outcome<()> {
    // SAFETY: attached; the handled exception is a new reference or NULL, and is given on.
    unsafe {
        let handled = PyErr_GetHandledException();
        if handled.is_null() {
            return Err(capi::raise(capi::runtime_error(), c"No active exception to reraise"));
        }
        version::restore_raised(handled);
    }
    Err(Raised)
}

/// What calling an exception class made isn't one.
fn not_an_exception(class: Ref<'_>, made: &Owned) -> Raised {
    raise_format!(
        capi::type_error(),
        c"calling %R should have returned an instance of BaseException, not %R",
        class.as_ptr(),
        made.borrow().type_ptr(),
    )
}

/// The exception to raise and its class, from a class or an instance.
fn instantiate(exception: Ref<'_>) -> Outcome<(Owned, Owned)> {
    if capi::is_exception_class(exception) {
        let value = capi::call(exception, &[])?;
        if !capi::is_exception_instance(value.borrow()) {
            return Err(not_an_exception(exception, &value));
        }
        return Ok((exception.to_owned(), value));
    }
    if capi::is_exception_instance(exception) {
        // SAFETY: a live object's type is live.
        let kind = unsafe { Ref::new(exception.type_ptr().cast()) }.ok_or(Raised)?;
        return Ok((kind.to_owned(), exception.to_owned()));
    }
    Err(capi::raise(capi::type_error(), c"exceptions must derive from BaseException"))
}

/// `raise exception [from cause]`. Always an error.
fn raise_from(exception: Ref<'_>, cause: Option<Ref<'_>>) -> Outcome<()> {
    let (kind, value) = instantiate(exception)?;
    if let Some(cause) = cause {
        let cause = if capi::is_exception_class(cause) {
            let made = capi::call(cause, &[])?;
            if version::CHECKS_MADE_CAUSE && !capi::is_exception_instance(made.borrow()) {
                return Err(not_an_exception(cause, &made));
            }
            Some(made)
        } else if capi::is_exception_instance(cause) {
            Some(cause.to_owned())
        } else if cause.is_none() {
            None
        } else {
            return Err(capi::raise(capi::type_error(), c"exception causes must derive from BaseException"));
        };
        // SAFETY: an exception instance; the call takes the cause over.
        unsafe { ffi::PyException_SetCause(value.borrow().as_ptr(), cause.map_or(ptr::null_mut(), Owned::into_ptr)) };
    }
    // SAFETY: a class and its instance; the call takes references of its own.
    unsafe { ffi::PyErr_SetObject(kind.borrow().as_ptr(), value.borrow().as_ptr()) };
    Err(Raised)
}

pub(super) fn load_assertion_error(s: &mut Stepper<'_, '_>) -> StepResult {
    s.push(capi::assertion_error().to_owned());
    Ok(Flow::Next)
}

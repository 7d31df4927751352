//! Rows that read and write variables: locals, names, globals, cells.

use oxy_bytecode::{NameId, NullPlacement, Var};
use pyo3::ffi;

use super::{Flow, StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Raised, Ref, raise_format};

/// `format_exc_check_arg` for names.
fn name_error(name: Ref<'_>) -> Raised {
    // SAFETY: a live str; the text belongs to it.
    let text = unsafe { ffi::PyUnicode_AsUTF8(name.as_ptr()) };
    if text.is_null() {
        return Raised;
    }
    let raised = raise_format!(capi::name_error(), c"name '%.200s' is not defined", text);
    // The name goes into the exception so that tracebacks can suggest others; it doesn't matter if that fails.
    let Ok(exception) = capi::take_raised() else {
        return raised;
    };
    if let Ok(attribute) = capi::new_str(c"name") {
        let _ = capi::set_attr(exception.borrow(), attribute.borrow(), name);
    }
    capi::raise_again(exception)
}

/// `format_exc_unbound`
fn unbound_error(s: &Stepper<'_, '_>, var: Var) -> Raised {
    let Ok(name) = s.local_name(var) else {
        return Raised;
    };
    // SAFETY: a live str; the text belongs to it.
    let text = unsafe { ffi::PyUnicode_AsUTF8(name.as_ptr()) };
    if text.is_null() {
        return Raised;
    }
    if s.unit.local_kinds.get(var.index()).is_some_and(|kind| kind.is_free()) {
        return raise_format!(
            capi::name_error(),
            c"cannot access free variable '%s' where it is not associated with a value in enclosing scope",
            text,
        );
    }
    raise_format!(
        capi::unbound_local_error(),
        c"cannot access local variable '%s' where it is not associated with a value",
        text,
    )
}

pub(super) fn load_fast(s: &mut Stepper<'_, '_>, var: Var, _checked: bool) -> StepResult {
    match s.local(var).map(|value| value.to_owned()) {
        Some(value) => s.push(value),
        None => return Err(unbound_error(s, var)),
    }
    Ok(Flow::Next)
}

pub(super) fn load_fast_and_clear(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let value = s.replace_local(var, None);
    s.push_or_null(value);
    Ok(Flow::Next)
}

pub(super) fn store_fast(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let value = s.pop_or_null();
    drop(s.replace_local(var, value));
    Ok(Flow::Next)
}

pub(super) fn delete_fast(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    match s.replace_local(var, None) {
        Some(value) => drop(value),
        None => return Err(unbound_error(s, var)),
    }
    Ok(Flow::Next)
}

/// Globals, then builtins.
fn global(s: &Stepper<'_, '_>, name: Ref<'_>) -> Outcome<Owned> {
    let (globals, builtins) = (s.globals()?, s.builtins()?);
    for namespace in [globals, builtins] {
        if let Some(value) = capi::get_optional_item(namespace, name)? {
            return Ok(value);
        }
    }
    Err(name_error(name))
}

fn no_locals() -> Raised {
    capi::raise(capi::system_error(), c"no locals found")
}

pub(super) fn load_name(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let (locals, name) = (s.locals().ok_or_else(no_locals)?, s.name(name)?);
    let value = match capi::get_optional_item(locals, name)? {
        Some(value) => value,
        None => global(s, name)?,
    };
    s.push(value);
    Ok(Flow::Next)
}

pub(super) fn store_name(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let name = s.name(name)?;
    let stored = match s.locals() {
        None => Err(raise_format!(capi::system_error(), c"no locals found when storing %R", name.as_ptr())),
        Some(locals) if capi::is_exact_dict(locals) => capi::dict_set_item(locals, name, s.peek(0)?),
        Some(locals) => capi::set_item(locals, name, s.peek(0)?),
    };
    s.consume(1, stored)
}

pub(super) fn delete_name(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let name = s.name(name)?;
    let Some(locals) = s.locals() else {
        return Err(raise_format!(capi::system_error(), c"no locals when deleting %R", name.as_ptr()));
    };
    // The interpreter reports any failure as an unknown name.
    capi::delete_item(locals, name).map_err(|Raised| name_error(name))?;
    Ok(Flow::Next)
}

pub(super) fn load_global(s: &mut Stepper<'_, '_>, name: NameId, null: NullPlacement) -> StepResult {
    let value = global(s, s.name(name)?)?;
    if null == NullPlacement::Below {
        s.push_or_null(None);
    }
    s.push(value);
    if null == NullPlacement::Above {
        s.push_or_null(None);
    }
    Ok(Flow::Next)
}

pub(super) fn store_global(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let stored = capi::dict_set_item(s.globals()?, s.name(name)?, s.peek(0)?);
    s.consume(1, stored)
}

pub(super) fn delete_global(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let (globals, name) = (s.globals()?, s.name(name)?);
    match capi::dict_delete_item(globals, name) {
        Ok(()) => Ok(Flow::Next),
        Err(Raised) if capi::is_raising(capi::key_error()) => Err(name_error(name)),
        Err(Raised) => Err(Raised),
    }
}

pub(super) fn load_locals(s: &mut Stepper<'_, '_>) -> StepResult {
    let locals = s.locals().ok_or_else(no_locals)?.to_owned();
    s.push(locals);
    Ok(Flow::Next)
}

pub(super) fn load_from_dict_or_globals(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let name = s.name(name)?;
    let value = match capi::get_optional_item(s.peek(0)?, name)? {
        Some(value) => value,
        None => global(s, name)?,
    };
    s.replace(1, Ok(value))
}

pub(super) fn load_from_dict_or_deref(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let value = match capi::get_optional_item(s.peek(0)?, s.local_name(var)?)? {
        Some(value) => value,
        None => contents(s, var)?,
    };
    s.replace(1, Ok(value))
}

pub(super) fn load_classderef(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let locals = s.locals().ok_or_else(no_locals)?;
    let value = match capi::get_optional_item(locals, s.local_name(var)?)? {
        Some(value) => value,
        None => contents(s, var)?,
    };
    s.push(value);
    Ok(Flow::Next)
}

pub(super) fn make_cell(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let cell = match s.local(var) {
        Some(initial) => capi::new_cell_of(initial)?,
        None => capi::new_empty_cell()?,
    };
    drop(s.replace_local(var, Some(cell)));
    Ok(Flow::Next)
}

pub(super) fn copy_free_vars(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let function = s.function()?;
    // SAFETY: a function object; its closure is NULL or a tuple it owns.
    let closure = unsafe { Ref::new(ffi::PyFunction_GetClosure(function.as_ptr())) };
    let first = s.frame().nlocalsplus().saturating_sub(count);
    for i in 0..count {
        let cell = closure.and_then(|closure| capi::tuple_get(closure, i as usize)).map(|cell| cell.to_owned());
        drop(s.replace_local(Var(first + i), cell));
    }
    Ok(Flow::Next)
}

pub(super) fn load_closure(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    load_fast(s, var, true)
}

/// What the cell in `var` holds.
fn contents(s: &Stepper<'_, '_>, var: Var) -> Outcome<Owned> {
    capi::cell_get(s.cell(var)?.borrow()).ok_or_else(|| unbound_error(s, var))
}

pub(super) fn load_deref(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let value = contents(s, var)?;
    s.push(value);
    Ok(Flow::Next)
}

pub(super) fn store_deref(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let cell = s.cell(var)?;
    let value = s.pop_or_null();
    set_cell(&cell, value);
    Ok(Flow::Next)
}

pub(super) fn delete_deref(s: &mut Stepper<'_, '_>, var: Var) -> StepResult {
    let cell = s.cell(var)?;
    if capi::cell_get(cell.borrow()).is_none() {
        return Err(unbound_error(s, var));
    }
    set_cell(&cell, None);
    Ok(Flow::Next)
}

fn set_cell(cell: &Owned, value: Option<Owned>) {
    // SAFETY: a cell; the call takes its own reference, ours is dropped after it.
    unsafe { ffi::PyCell_Set(cell.borrow().as_ptr(), capi::or_null(value.as_ref().map(Owned::borrow))) };
}

//! Rows on attributes and subscripts.

use oxy_bytecode::{CallLayout, NameId};

use super::{Flow, StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Ref};

pub(super) fn load_attr(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let value = capi::get_attr(s.peek(0)?, s.name(name)?);
    s.replace(1, value)
}

pub(super) fn load_method(s: &mut Stepper<'_, '_>, name: NameId, layout: CallLayout) -> StepResult {
    let (method, unbound) = capi::get_method(s.peek(0)?, s.name(name)?)?;
    if unbound {
        let owner = s.pop_or_null();
        s.push(method);
        s.push_or_null(owner);
    } else {
        s.drop_top(1);
        push_attribute(s, method, layout);
    }
    Ok(Flow::Next)
}

/// Pushes a callable that takes no self, with the NULL of the call where the layout wants it.
fn push_attribute(s: &mut Stepper<'_, '_>, attribute: Owned, layout: CallLayout) {
    match layout {
        CallLayout::NullFirst => {
            s.push_or_null(None);
            s.push(attribute);
        }
        CallLayout::CallableFirst => {
            s.push(attribute);
            s.push_or_null(None);
        }
    }
}

pub(super) fn load_super_attr(
    s: &mut Stepper<'_, '_>,
    name: NameId,
    is_method: bool,
    has_class: bool,
    layout: CallLayout,
) -> StepResult {
    let name = s.name(name)?;
    let made = make_super(s, has_class);
    s.drop_top(3);
    let value = capi::get_attr(made?.borrow(), name)?;
    if is_method {
        push_attribute(s, value, layout);
    } else {
        s.push(value);
    }
    Ok(Flow::Next)
}

/// Without a class, `super()` finds class and self in the frame.
fn make_super(s: &Stepper<'_, '_>, has_class: bool) -> Outcome<Owned> {
    let arguments: [Ref<'_>; 2] = [s.peek(1)?, s.peek(0)?];
    capi::call(s.peek(2)?, if has_class { &arguments } else { &[] })
}

pub(super) fn store_attr(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let stored = capi::set_attr(s.peek(0)?, s.name(name)?, s.peek(1)?);
    s.consume(2, stored)
}

pub(super) fn delete_attr(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let deleted = capi::delete_attr(s.peek(0)?, s.name(name)?);
    s.consume(1, deleted)
}

pub(super) fn binary_subscr(s: &mut Stepper<'_, '_>) -> StepResult {
    let value = capi::get_item(s.peek(1)?, s.peek(0)?);
    s.replace(2, value)
}

pub(super) fn store_subscr(s: &mut Stepper<'_, '_>) -> StepResult {
    let stored = capi::set_item(s.peek(1)?, s.peek(0)?, s.peek(2)?);
    s.consume(3, stored)
}

pub(super) fn delete_subscr(s: &mut Stepper<'_, '_>) -> StepResult {
    let deleted = capi::delete_item(s.peek(1)?, s.peek(0)?);
    s.consume(2, deleted)
}

pub(super) fn binary_slice(s: &mut Stepper<'_, '_>) -> StepResult {
    let slice = capi::new_slice(s.peek(1)?, s.peek(0)?, None);
    let value = match slice {
        Ok(slice) => capi::get_item(s.peek(2)?, slice.borrow()),
        Err(raised) => Err(raised),
    };
    s.replace(3, value)
}

pub(super) fn store_slice(s: &mut Stepper<'_, '_>) -> StepResult {
    let slice = capi::new_slice(s.peek(1)?, s.peek(0)?, None);
    let stored = match slice {
        Ok(slice) => capi::set_item(s.peek(2)?, slice.borrow(), s.peek(3)?),
        Err(raised) => Err(raised),
    };
    s.consume(4, stored)
}

//! Rows that only move values.

use std::ptr;

use oxy_bytecode::ConstId;

use super::{Flow, StepResult, stepper::Stepper};

pub(super) fn nop(_s: &mut Stepper<'_, '_>) -> StepResult {
    Ok(Flow::Next)
}

pub(super) fn pop_top(s: &mut Stepper<'_, '_>) -> StepResult {
    s.drop_top(1);
    Ok(Flow::Next)
}

pub(super) fn push_null(s: &mut Stepper<'_, '_>) -> StepResult {
    s.push_or_null(None);
    Ok(Flow::Next)
}

pub(super) fn copy(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let value = s.peek_or_null(depth.saturating_sub(1)).map(|value| value.to_owned());
    s.push_or_null(value);
    Ok(Flow::Next)
}

pub(super) fn swap(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    // SAFETY: both entries exist; swapping moves the references.
    unsafe { ptr::swap(s.entry_ptr(0), s.entry_ptr(depth.saturating_sub(1))) };
    Ok(Flow::Next)
}

pub(super) fn load_const(s: &mut Stepper<'_, '_>, index: ConstId) -> StepResult {
    let value = s.constant(index)?.to_owned();
    s.push(value);
    Ok(Flow::Next)
}

//! Rows that decide where execution goes on.

use oxy_bytecode::{Condition, InstrId, ResumeOrigin};

use super::{Flow, StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Raised};

pub(super) fn jump(s: &mut Stepper<'_, '_>, target: InstrId, polls: bool) -> StepResult {
    if polls {
        s.poll()?;
    }
    Ok(Flow::Jump(target))
}

/// Whether the top of the stack meets a condition.
fn meets(s: &Stepper<'_, '_>, condition: Condition) -> Outcome<bool> {
    let value = s.peek(0)?;
    match condition {
        Condition::True => capi::is_true(value),
        Condition::False => capi::is_true(value).map(|truth| !truth),
        Condition::None => Ok(value.is_none()),
        Condition::NotNone => Ok(!value.is_none()),
    }
}

pub(super) fn pop_jump_if(s: &mut Stepper<'_, '_>, condition: Condition, target: InstrId, polls: bool) -> StepResult {
    let met = meets(s, condition);
    s.drop_top(1);
    if !met? {
        return Ok(Flow::Next);
    }
    jump(s, target, polls)
}

pub(super) fn jump_if_or_pop(s: &mut Stepper<'_, '_>, condition: Condition, target: InstrId) -> StepResult {
    if meets(s, condition)? {
        return Ok(Flow::Jump(target));
    }
    s.drop_top(1);
    Ok(Flow::Next)
}

pub(super) fn return_value(s: &mut Stepper<'_, '_>) -> StepResult {
    s.peek(0)?;
    s.pop_or_null().map(Flow::Return).ok_or(Raised)
}

pub(super) fn get_iter(s: &mut Stepper<'_, '_>) -> StepResult {
    let iterator = capi::get_iter(s.peek(0)?);
    s.replace(1, iterator)
}

pub(super) fn for_iter(s: &mut Stepper<'_, '_>, target: InstrId) -> StepResult {
    match capi::iter_next(s.peek(0)?)? {
        Some(value) => {
            s.push(value);
            Ok(Flow::Next)
        }
        None => {
            s.drop_top(1);
            Ok(Flow::Jump(target))
        }
    }
}

pub(super) fn end_for(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    s.drop_top(count);
    Ok(Flow::Next)
}

pub(super) fn resume(s: &mut Stepper<'_, '_>, origin: ResumeOrigin) -> StepResult {
    match origin {
        ResumeOrigin::FunctionStart => {
            s.poll()?;
            Ok(Flow::Next)
        }
        ResumeOrigin::AfterYield | ResumeOrigin::AfterYieldFrom | ResumeOrigin::AfterAwait => Ok(Flow::MustLeave),
    }
}

//! Rows on operators: arithmetic, comparison, identity, membership, truth.

use std::ffi::c_int;

use oxy_bytecode::{BinaryOp, CompareOp, UnaryOp};
use pyo3::ffi;

use super::{StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Ref};

type Binary = fn(Ref<'_>, Ref<'_>) -> Outcome<Owned>;

/// The plain and the in-place function of an operator. Powers take a third argument, so they are spelled apart.
fn functions(op: BinaryOp) -> [Binary; 2] {
    match op {
        BinaryOp::Add => [capi::number_add, capi::number_inplace_add],
        BinaryOp::And => [capi::number_and, capi::number_inplace_and],
        BinaryOp::FloorDivide => [capi::number_floor_divide, capi::number_inplace_floor_divide],
        BinaryOp::LeftShift => [capi::number_lshift, capi::number_inplace_lshift],
        BinaryOp::MatrixMultiply => [capi::number_matrix_multiply, capi::number_inplace_matrix_multiply],
        BinaryOp::Multiply => [capi::number_multiply, capi::number_inplace_multiply],
        BinaryOp::Remainder => [capi::number_remainder, capi::number_inplace_remainder],
        BinaryOp::Or => [capi::number_or, capi::number_inplace_or],
        BinaryOp::Power => [|a, b| capi::number_power(a, b, false), |a, b| capi::number_power(a, b, true)],
        BinaryOp::RightShift => [capi::number_rshift, capi::number_inplace_rshift],
        BinaryOp::Subtract => [capi::number_subtract, capi::number_inplace_subtract],
        BinaryOp::TrueDivide => [capi::number_true_divide, capi::number_inplace_true_divide],
        BinaryOp::Xor => [capi::number_xor, capi::number_inplace_xor],
    }
}

pub(super) fn binary_op(s: &mut Stepper<'_, '_>, op: BinaryOp, inplace: bool) -> StepResult {
    let result = functions(op)[usize::from(inplace)](s.peek(1)?, s.peek(0)?);
    s.replace(2, result)
}

pub(super) fn unary_op(s: &mut Stepper<'_, '_>, op: UnaryOp) -> StepResult {
    let value = s.peek(0)?;
    let result = match op {
        UnaryOp::Negative => capi::number_negative(value),
        UnaryOp::Positive => capi::number_positive(value),
        UnaryOp::Invert => capi::number_invert(value),
        UnaryOp::Not => capi::is_true(value).map(|truth| Owned::bool(!truth)),
    };
    s.replace(1, result)
}

pub(super) fn to_bool(s: &mut Stepper<'_, '_>) -> StepResult {
    let result = capi::is_true(s.peek(0)?).map(Owned::bool);
    s.replace(1, result)
}

fn compare_code(op: CompareOp) -> c_int {
    match op {
        CompareOp::Lt => ffi::Py_LT,
        CompareOp::Le => ffi::Py_LE,
        CompareOp::Eq => ffi::Py_EQ,
        CompareOp::Ne => ffi::Py_NE,
        CompareOp::Gt => ffi::Py_GT,
        CompareOp::Ge => ffi::Py_GE,
    }
}

pub(super) fn compare_op(s: &mut Stepper<'_, '_>, op: CompareOp, to_bool: bool) -> StepResult {
    let result = capi::rich_compare(s.peek(1)?, s.peek(0)?, compare_code(op));
    s.drop_top(2);
    let mut result = result?;
    if to_bool {
        result = Owned::bool(capi::is_true(result.borrow())?);
    }
    s.replace(0, Ok(result))
}

pub(super) fn is_op(s: &mut Stepper<'_, '_>, invert: bool) -> StepResult {
    let same = s.peek(1)? == s.peek(0)?;
    s.replace(2, Ok(Owned::bool(same != invert)))
}

pub(super) fn contains_op(s: &mut Stepper<'_, '_>, invert: bool) -> StepResult {
    let found = capi::contains(s.peek(0)?, s.peek(1)?);
    s.replace(2, found.map(|found| Owned::bool(found != invert)))
}

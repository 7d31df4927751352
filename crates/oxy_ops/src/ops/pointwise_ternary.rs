//! Elementwise operators of three operands: selection, clamping, interpolation, fused multiply-add.

use super::{
    activation::{at_least, at_most},
    pointwise_binary::has_scalar_ties,
};
use crate::{
    Body, OpCx, OpDef,
    def::BodyFn,
    expr::{T, compute_ty},
};
use oxy_graph::DType;
use oxy_loops::ScalarOp::*;

/// self + value·t1·t2: eager fuses the last product with the sum.
fn addcmul(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b, c) = (cx.tensor("self")?, cx.tensor("tensor1")?, cx.tensor("tensor2")?);
    let value = cx.float("value")?;
    let dtype = cx.arithmetic(&[&a, &b, &c])?;
    if !dtype.is_floating_point() {
        return None;
    }
    let (x, y, z) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?, cx.as_dtype(&c, dtype, 0)?);
    let e = &mut *cx.exprs;
    let value = e.number(value, e.ty(x));
    let scaled = e.op(Mul, &[value, y]);
    let sum = e.op(Fma, &[scaled, z, x]);
    Some(vec![cx.finish(sum, dtype, 0)?])
}

/// self + value·t1/t2, three roundings.
fn addcdiv(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b, c) = (cx.tensor("self")?, cx.tensor("tensor1")?, cx.tensor("tensor2")?);
    let value = cx.float("value")?;
    let dtype = cx.arithmetic(&[&a, &b, &c])?;
    if !dtype.is_floating_point() {
        return None;
    }
    let (x, y, z) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?, cx.as_dtype(&c, dtype, 0)?);
    let e = &mut *cx.exprs;
    let value = e.number(value, e.ty(x));
    let scaled = e.op(Mul, &[value, y]);
    let quotient = e.op(Div, &[scaled, z]);
    let sum = e.op(Add, &[x, quotient]);
    Some(vec![cx.finish(sum, dtype, 0)?])
}

/// start + w·(end - start) for |w| < 0.5, else end + (w-1)·(end - start), both fused.
fn lerp(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.tensor("self")?, cx.tensor("end")?);
    let w = cx.operand("weight")?;
    let dtype = a.dtype;
    if !dtype.is_floating_point() || b.dtype != dtype || (!w.wrapped && w.dtype != dtype) {
        return None;
    }
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    // A number weight is not rounded to a narrow dtype.
    let w = if w.wrapped { cx.as_compute(&w, dtype, 0)? } else { cx.as_dtype(&w, dtype, 0)? };
    let e = &mut *cx.exprs;
    let ty = e.ty(x);
    let (one, half) = (e.int(1, ty), e.number(0.5, ty));
    let difference = e.op(Sub, &[y, x]);
    let magnitude = e.op(Abs, &[w]);
    let is_low = e.op(Lt, &[magnitude, half]);
    let rest = e.op(Sub, &[w, one]);
    let weight = e.op(Select, &[is_low, w, rest]);
    let base = e.op(Select, &[is_low, x, y]);
    let z = e.op(Fma, &[weight, difference, base]);
    Some(vec![cx.finish(z, dtype, 0)?])
}

fn where_(cx: &mut OpCx) -> Option<Vec<T>> {
    let condition = cx.tensor("condition")?;
    if condition.dtype != DType::Bool {
        return None;
    }
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    let condition = cx.as_dtype(&condition, DType::Bool, 0)?;
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    let z = cx.exprs.op(Select, &[condition, x, y]);
    Some(vec![cx.finish(z, dtype, 0)?])
}

fn masked_fill(cx: &mut OpCx) -> Option<Vec<T>> {
    let (x, mask) = (cx.tensor("self")?, cx.tensor("mask")?);
    let value = cx.operand("value")?;
    let dtype = cx.out(0)?.dtype;
    if mask.dtype != DType::Bool || x.dtype != dtype || !value.sizes.is_empty() {
        return None;
    }
    // A float into an integer tensor is an error of eager's.
    if value.dtype.is_floating_point() && !dtype.is_floating_point() {
        return None;
    }
    let (a, mask) = (cx.as_dtype(&x, dtype, 0)?, cx.as_dtype(&mask, DType::Bool, 0)?);
    let value = cx.as_dtype(&value, dtype, 0)?;
    let y = cx.exprs.op(Select, &[mask, value, a]);
    Some(vec![cx.finish(y, dtype, 0)?])
}

/// Clamping by numbers keeps NaN; a NaN bound stays a call.
fn clamp(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let bound = |cx: &mut OpCx, name: &str| {
        if cx.is_none(name) { Some(None) } else { cx.operand(name).map(Some) }
    };
    let (low, high) = (bound(cx, "min")?, bound(cx, "max")?);
    for name in ["min", "max"] {
        if !cx.is_none(name) && cx.float(name)?.is_nan() {
            return None;
        }
    }
    clamp_to(cx, x, low, high)
}

fn clamp_to(
    cx: &mut OpCx,
    x: crate::promote::Operand,
    low: Option<crate::promote::Operand>,
    high: Option<crate::promote::Operand>,
) -> Option<Vec<T>> {
    let all: Vec<_> = std::iter::once(&x).chain(&low).chain(&high).collect();
    let dtype = cx.arithmetic(&all)?;
    // Without bounds, eager raises.
    let has_tensors = low.iter().chain(&high).any(|bound| !bound.wrapped);
    if dtype.is_bool() || all.len() == 1 || (has_tensors && has_scalar_ties(cx, dtype)) {
        return None;
    }
    let mut y = cx.as_dtype(&x, dtype, 0)?;
    for (bound, is_low) in [(&low, true), (&high, false)] {
        let Some(bound) = bound else { continue };
        let b = cx.as_dtype(bound, dtype, 0)?;
        y = match (bound.wrapped, is_low) {
            (true, true) => at_least(cx.exprs, y, b),
            (true, false) => at_most(cx.exprs, y, b),
            // Tensor bounds: NaN on either side wins.
            (false, true) => cx.exprs.op(Maximum, &[y, b]),
            (false, false) => cx.exprs.op(Minimum, &[y, b]),
        };
    }
    Some(vec![cx.finish(y, dtype, 0)?])
}

fn clamp_tensor(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let (low, high) = (cx.optional_tensor("min")?, cx.optional_tensor("max")?);
    compute_ty(x.dtype)?;
    clamp_to(cx, x, low, high)
}

fn clamp_one(cx: &mut OpCx, name: &str) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let bound = cx.operand(name)?;
    if bound.wrapped && cx.float(name)?.is_nan() {
        return None;
    }
    if name == "min" { clamp_to(cx, x, Some(bound), None) } else { clamp_to(cx, x, None, Some(bound)) }
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), in_place: true }
}

const fn functional(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcdiv),
    row("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcmul),
    row("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", clamp),
    row("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", clamp_tensor),
    row("clamp_max(Tensor self, Scalar max) -> Tensor", |cx| clamp_one(cx, "max")),
    row("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", |cx| clamp_one(cx, "max")),
    row("clamp_min(Tensor self, Scalar min) -> Tensor", |cx| clamp_one(cx, "min")),
    row("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", |cx| clamp_one(cx, "min")),
    row("lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", lerp),
    row("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", lerp),
    row("masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", masked_fill),
    row("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", masked_fill),
    functional("where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor", where_),
    functional("where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor", where_),
    functional("where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor", where_),
    functional("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", where_),
];

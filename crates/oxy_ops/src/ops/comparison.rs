//! Comparisons and logic: boolean results.

use crate::{Body, OpCx, OpDef, def::BodyFn, expr::T};
use oxy_graph::DType;
use oxy_loops::{
    ScalarOp::{self, *},
    Ty,
};

fn compare(cx: &mut OpCx, op: ScalarOp) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.common(&[&a, &b])?;
    if cx.out(0)?.dtype != DType::Bool {
        return None;
    }
    let (mut x, mut y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    if dtype.is_bool() && !matches!(op, Eq | Ne) {
        (x, y) = (cx.exprs.cast(x, Ty::I32), cx.exprs.cast(y, Ty::I32));
    }
    let z = cx.exprs.op(op, &[x, y]);
    Some(vec![cx.finish(z, DType::Bool, 0)?])
}

fn logical(cx: &mut OpCx, op: ScalarOp) -> Option<Vec<T>> {
    let (a, b) = (cx.tensor("self")?, cx.tensor("other")?);
    let (x, y) = (cx.as_dtype(&a, DType::Bool, 0)?, cx.as_dtype(&b, DType::Bool, 0)?);
    let z = cx.exprs.op(op, &[x, y]);
    Some(vec![cx.finish(z, DType::Bool, 0)?])
}

fn logical_not(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let x = cx.as_dtype(&x, DType::Bool, 0)?;
    let y = cx.exprs.op(Not, &[x]);
    Some(vec![cx.finish(y, DType::Bool, 0)?])
}

/// A question about a float; false for integers.
fn classify(cx: &mut OpCx, f: fn(&mut OpCx, T) -> T) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let t = cx.as_dtype(&x, x.dtype, 0)?;
    let y = if x.dtype.is_floating_point() { f(cx, t) } else { cx.exprs.int(0, Ty::Bool) };
    Some(vec![cx.finish(y, DType::Bool, 0)?])
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row("eq.Scalar(Tensor self, Scalar other) -> Tensor", |cx| compare(cx, Eq)),
    row("eq.Tensor(Tensor self, Tensor other) -> Tensor", |cx| compare(cx, Eq)),
    row("ge.Scalar(Tensor self, Scalar other) -> Tensor", |cx| compare(cx, Ge)),
    row("ge.Tensor(Tensor self, Tensor other) -> Tensor", |cx| compare(cx, Ge)),
    row("gt.Scalar(Tensor self, Scalar other) -> Tensor", |cx| compare(cx, Gt)),
    row("gt.Tensor(Tensor self, Tensor other) -> Tensor", |cx| compare(cx, Gt)),
    row("isinf(Tensor self) -> Tensor", |cx| {
        classify(cx, |cx, x| {
            let infinity = cx.exprs.number(f64::INFINITY, cx.exprs.ty(x));
            let magnitude = cx.exprs.op(Abs, &[x]);
            cx.exprs.op(Eq, &[magnitude, infinity])
        })
    }),
    row("isnan(Tensor self) -> Tensor", |cx| classify(cx, |cx, x| cx.exprs.op(IsNan, &[x]))),
    row("le.Scalar(Tensor self, Scalar other) -> Tensor", |cx| compare(cx, Le)),
    row("le.Tensor(Tensor self, Tensor other) -> Tensor", |cx| compare(cx, Le)),
    row("logical_and(Tensor self, Tensor other) -> Tensor", |cx| logical(cx, And)),
    row("logical_not(Tensor self) -> Tensor", logical_not),
    row("logical_or(Tensor self, Tensor other) -> Tensor", |cx| logical(cx, Or)),
    row("logical_xor(Tensor self, Tensor other) -> Tensor", |cx| logical(cx, Xor)),
    row("lt.Scalar(Tensor self, Scalar other) -> Tensor", |cx| compare(cx, Lt)),
    row("lt.Tensor(Tensor self, Tensor other) -> Tensor", |cx| compare(cx, Lt)),
    row("ne.Scalar(Tensor self, Scalar other) -> Tensor", |cx| compare(cx, Ne)),
    row("ne.Tensor(Tensor self, Tensor other) -> Tensor", |cx| compare(cx, Ne)),
];

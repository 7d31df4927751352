//! Softmax: max, sum of exponentials, division. Narrow floats compute in float32 throughout.

use crate::{Body, OpCx, OpDef, def::BodyFn, expr::T};
use oxy_graph::DType;
use oxy_loops::{ReduceOp, ScalarOp::*};

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    Log,
    /// A row of -inf alone gives zeros.
    Safe,
}

fn softmax(cx: &mut OpCx, form: Form) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let rank = x.sizes.len() as i64;
    let dim = cx.int("dim")?;
    let dim = (if dim < 0 { dim + rank } else { dim }) as usize;
    if !x.dtype.is_floating_point() || dim >= rank as usize || cx.exprs.is_const(x.t) {
        return None;
    }
    let out = cx.out(0)?.dtype;
    if out != x.dtype {
        return None;
    }
    let e = &mut *cx.exprs;
    let t = x.t;
    let max = e.reduce(t, ReduceOp::Max, &[dim]);
    let wide_max = e.broadcast(max, &x.sizes);
    let shifted = e.op(Sub, &[t, wide_max]);
    let exp = e.op(Exp, &[shifted]);
    let sum = e.reduce(exp, ReduceOp::Sum, &[dim]);
    let y = if form == Form::Log {
        let log = e.op(Log, &[sum]);
        let log = e.broadcast(log, &x.sizes);
        e.op(Sub, &[shifted, log])
    } else {
        let sum = e.broadcast(sum, &x.sizes);
        e.op(Div, &[exp, sum])
    };
    let y = if form == Form::Safe {
        let lowest = e.number(f64::NEG_INFINITY, e.ty(t));
        let zero = e.int(0, e.ty(t));
        let empty = e.op(Eq, &[wide_max, lowest]);
        e.op(Select, &[empty, zero, y])
    } else {
        y
    };
    Some(vec![cx.finish(y, out, 0)?])
}

fn checked(cx: &mut OpCx, form: Form) -> Option<Vec<T>> {
    if cx.boolean("half_to_float")? {
        return None;
    }
    softmax(cx, form)
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row("_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", |cx| checked(cx, Form::Log)),
    row("_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", |cx| {
        if !cx.is_none("dtype") && cx.tensor("self")?.dtype != dtype_of(cx)? {
            return None;
        }
        softmax(cx, Form::Safe)
    }),
    row("_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", |cx| checked(cx, Form::Plain)),
];

fn dtype_of(cx: &OpCx) -> Option<DType> {
    match cx.arg("dtype")? {
        oxy_graph::Arg::DType(dtype) => Some(*dtype),
        _ => None,
    }
}

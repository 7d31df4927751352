//! Elementwise operators of one tensor. Narrow floats compute in float32 and round once.

use crate::{
    Body, OpCx, OpDef,
    expr::{Exprs, T},
};
use oxy_loops::ScalarOp::{self, *};

/// A float function; integers are converted to the result's float dtype first.
fn float(cx: &mut OpCx, f: impl Fn(&mut Exprs, T) -> T) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dtype = cx.out(0)?.dtype;
    if !dtype.is_floating_point() {
        return None;
    }
    let x = cx.as_dtype(&x, dtype, 0)?;
    let y = f(cx.exprs, x);
    Some(vec![cx.finish(y, dtype, 0)?])
}

fn float_op(cx: &mut OpCx, op: ScalarOp) -> Option<Vec<T>> {
    float(cx, |e, x| e.op(op, &[x]))
}

/// A function on any number that keeps the dtype.
fn number(cx: &mut OpCx, float: fn(&mut Exprs, T) -> T, int: fn(&mut Exprs, T) -> T) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dtype = x.dtype;
    if dtype.is_bool() || cx.out(0)?.dtype != dtype {
        return None;
    }
    let x = cx.as_dtype(&x, dtype, 0)?;
    let y = if dtype.is_floating_point() { float(cx.exprs, x) } else { int(cx.exprs, x) };
    Some(vec![cx.finish(y, dtype, 0)?])
}

fn sign(e: &mut Exprs, x: T) -> T {
    let ty = e.ty(x);
    let (zero, one) = (e.int(0, ty), e.int(1, ty));
    let above = e.op(Gt, &[x, zero]);
    let below = e.op(Lt, &[x, zero]);
    let (above, below) = (e.op(Select, &[above, one, zero]), e.op(Select, &[below, one, zero]));
    e.op(Sub, &[above, below])
}

fn same(_: &mut Exprs, x: T) -> T {
    x
}

const fn row(schema: &'static str, body: crate::def::BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), in_place: true }
}

pub const OPS: &[OpDef] = &[
    row("abs(Tensor self) -> Tensor", |cx| number(cx, |e, x| e.op(Abs, &[x]), |e, x| e.op(Abs, &[x]))),
    row("acos(Tensor self) -> Tensor", |cx| float_op(cx, Acos)),
    row("acosh(Tensor self) -> Tensor", |cx| float_op(cx, Acosh)),
    row("asin(Tensor self) -> Tensor", |cx| float_op(cx, Asin)),
    row("asinh(Tensor self) -> Tensor", |cx| float_op(cx, Asinh)),
    row("atan(Tensor self) -> Tensor", |cx| float_op(cx, Atan)),
    row("atanh(Tensor self) -> Tensor", |cx| float_op(cx, Atanh)),
    row("bitwise_not(Tensor self) -> Tensor", |cx| {
        let x = cx.tensor("self")?;
        if x.dtype.is_floating_point() {
            return None;
        }
        let t = cx.as_dtype(&x, x.dtype, 0)?;
        let y = cx.exprs.op(Not, &[t]);
        Some(vec![cx.finish(y, x.dtype, 0)?])
    }),
    row("ceil(Tensor self) -> Tensor", |cx| number(cx, |e, x| e.op(Ceil, &[x]), same)),
    row("cos(Tensor self) -> Tensor", |cx| float_op(cx, Cos)),
    row("cosh(Tensor self) -> Tensor", |cx| float_op(cx, Cosh)),
    row("digamma(Tensor self) -> Tensor", |cx| float_op(cx, Digamma)),
    row("erf(Tensor self) -> Tensor", |cx| float_op(cx, Erf)),
    row("erfc(Tensor self) -> Tensor", |cx| float_op(cx, Erfc)),
    row("exp(Tensor self) -> Tensor", |cx| float_op(cx, Exp)),
    row("exp2(Tensor self) -> Tensor", |cx| float_op(cx, Exp2)),
    row("expm1(Tensor self) -> Tensor", |cx| float_op(cx, Expm1)),
    row("floor(Tensor self) -> Tensor", |cx| number(cx, |e, x| e.op(Floor, &[x]), same)),
    row("frac(Tensor self) -> Tensor", |cx| {
        float(cx, |e, x| {
            let whole = e.op(Trunc, &[x]);
            e.op(Sub, &[x, whole])
        })
    }),
    row("lgamma(Tensor self) -> Tensor", |cx| float_op(cx, Lgamma)),
    row("log(Tensor self) -> Tensor", |cx| float_op(cx, Log)),
    row("log10(Tensor self) -> Tensor", |cx| float_op(cx, Log10)),
    row("log1p(Tensor self) -> Tensor", |cx| float_op(cx, Log1p)),
    row("log2(Tensor self) -> Tensor", |cx| float_op(cx, Log2)),
    row("neg(Tensor self) -> Tensor", |cx| number(cx, |e, x| e.op(Neg, &[x]), |e, x| e.op(Neg, &[x]))),
    row("reciprocal(Tensor self) -> Tensor", |cx| float_op(cx, Reciprocal)),
    row("round(Tensor self) -> Tensor", |cx| number(cx, |e, x| e.op(RoundEven, &[x]), same)),
    row("rsqrt(Tensor self) -> Tensor", |cx| float_op(cx, Rsqrt)),
    row("sgn(Tensor self) -> Tensor", |cx| number(cx, sign, sign)),
    row("sigmoid(Tensor self) -> Tensor", |cx| float(cx, sigmoid)),
    row("sign(Tensor self) -> Tensor", |cx| number(cx, sign, sign)),
    row("sin(Tensor self) -> Tensor", |cx| float_op(cx, Sin)),
    row("sinh(Tensor self) -> Tensor", |cx| float_op(cx, Sinh)),
    row("sqrt(Tensor self) -> Tensor", |cx| float_op(cx, Sqrt)),
    row("tan(Tensor self) -> Tensor", |cx| float_op(cx, Tan)),
    row("tanh(Tensor self) -> Tensor", |cx| float_op(cx, Tanh)),
    row("trunc(Tensor self) -> Tensor", |cx| number(cx, |e, x| e.op(Trunc, &[x]), same)),
];

/// 1 / (1 + exp(-x))
pub fn sigmoid(e: &mut Exprs, x: T) -> T {
    let one = e.int(1, e.ty(x));
    let negative = e.op(Neg, &[x]);
    let exp = e.op(Exp, &[negative]);
    let sum = e.op(Add, &[one, exp]);
    e.op(Div, &[one, sum])
}

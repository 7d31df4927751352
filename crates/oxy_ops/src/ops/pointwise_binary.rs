//! Elementwise arithmetic of two operands.
//!
//! Where ATen's CPU kernels read a single-element second operand unrounded (mul and div of narrow floats), so do
//! these rows. Integer division is only computed by a constant other than 0 and -1; everything else that could
//! raise stays a call.

use crate::{
    Body, OpCx, OpDef,
    def::BodyFn,
    expr::{Exprs, Kind, T, compute_ty, is_narrow},
    promote::Operand,
};
use oxy_graph::DType;
use oxy_loops::ScalarOp::{self, *};

/// Whether a dtype is a float that computes wider than it is stored.
fn is_narrow_float(dtype: DType) -> bool {
    dtype.is_floating_point() && is_narrow(dtype)
}

/// a ± alpha·b, fused when alpha isn't 1, as eager does.
fn add_scaled(cx: &mut OpCx, a: Operand, b: Operand, alpha: f64, subtract: bool) -> Option<Vec<T>> {
    let dtype = cx.arithmetic(&[&a, &b])?;
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    let ty = compute_ty(dtype)?;
    let e = &mut *cx.exprs;
    let sum = if dtype.is_bool() {
        if alpha != 1.0 || subtract {
            return None;
        }
        e.op(Or, &[x, y])
    } else if alpha == 1.0 {
        e.op(if subtract { Sub } else { Add }, &[x, y])
    } else if dtype.is_floating_point() {
        let factor = e.number(if subtract { -alpha } else { alpha }, ty);
        let factor = e.round(factor, dtype);
        e.op(Fma, &[factor, y, x])
    } else {
        if alpha.fract() != 0.0 || alpha.abs() > 2f64.powi(31) {
            return None;
        }
        let factor = e.int(alpha as i64, ty);
        let scaled = e.op(Mul, &[factor, y]);
        e.op(if subtract { Sub } else { Add }, &[x, scaled])
    };
    Some(vec![cx.finish(sum, dtype, 0)?])
}

fn add(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let alpha = cx.float("alpha")?;
    add_scaled(cx, a, b, alpha, false)
}

fn sub(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let alpha = cx.float("alpha")?;
    add_scaled(cx, a, b, alpha, true)
}

fn rsub(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let alpha = cx.float("alpha")?;
    add_scaled(cx, b, a, alpha, true)
}

/// Both operands for a kernel that reads a single second element unrounded.
fn opmath_pair(cx: &mut OpCx, a: &Operand, b: &Operand, dtype: DType) -> Option<(T, T)> {
    let x = cx.as_dtype(a, dtype, 0)?;
    let y =
        if is_narrow_float(dtype) && b.is_single() { cx.as_compute(b, dtype, 0)? } else { cx.as_dtype(b, dtype, 0)? };
    Some((x, y))
}

fn mul(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    let (x, y) = opmath_pair(cx, &a, &b, dtype)?;
    let product = cx.exprs.op(if dtype.is_bool() { And } else { Mul }, &[x, y]);
    Some(vec![cx.finish(product, dtype, 0)?])
}

fn div(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let common = cx.common(&[&a, &b])?;
    let out = cx.out(0)?.dtype;
    let dtype = if common.is_floating_point() { common } else { out };
    if !dtype.is_floating_point() || (!cx.is_in_place() && dtype != out) {
        return None;
    }
    let (x, y) = opmath_pair(cx, &a, &b, dtype)?;
    let quotient = cx.exprs.op(Div, &[x, y]);
    Some(vec![cx.finish(quotient, dtype, 0)?])
}

/// A constant divisor for which integer division can neither raise nor overflow.
fn safe_divisor(e: &Exprs, t: T) -> bool {
    matches!(e.get(t).kind, Kind::Int(x) if x != 0 && x != -1)
}

fn div_mode(cx: &mut OpCx) -> Option<Vec<T>> {
    if cx.is_none("rounding_mode") {
        return div(cx);
    }
    match cx.string("rounding_mode")? {
        "trunc" => div_trunc(cx),
        "floor" => div_floor(cx),
        _ => None,
    }
}

fn div_trunc(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    let (x, y) = opmath_pair(cx, &a, &b, dtype)?;
    let e = &mut *cx.exprs;
    let quotient = if dtype.is_floating_point() {
        let mut quotient = e.op(Div, &[x, y]);
        if !b.is_single() {
            quotient = e.round(quotient, dtype);
        }
        e.op(Trunc, &[quotient])
    } else if !dtype.is_bool() && safe_divisor(e, y) {
        e.op(IntDivTrunc, &[x, y])
    } else {
        return None;
    };
    Some(vec![cx.finish(quotient, dtype, 0)?])
}

/// Python's floor division, with c10::div_floor_floating's corrections.
fn div_floor(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    let (x, y) = opmath_pair(cx, &a, &b, dtype)?;
    let e = &mut *cx.exprs;
    let result = if dtype.is_floating_point() {
        if is_narrow_float(dtype) && !b.is_single() {
            return None;
        }
        let ty = e.ty(x);
        let (zero, one, half) = (e.int(0, ty), e.int(1, ty), e.number(0.5, ty));
        let rest = e.op(Fmod, &[x, y]);
        let whole = e.op(Sub, &[x, rest]);
        let quotient = e.op(Div, &[whole, y]);
        let is_rest = e.op(Ne, &[rest, zero]);
        let (y_negative, rest_negative) = (e.op(Lt, &[y, zero]), e.op(Lt, &[rest, zero]));
        let signs_differ = e.op(Xor, &[y_negative, rest_negative]);
        let adjust = e.op(And, &[is_rest, signs_differ]);
        let less = e.op(Sub, &[quotient, one]);
        let quotient = e.op(Select, &[adjust, less, quotient]);
        let floor = e.op(Floor, &[quotient]);
        let gap = e.op(Sub, &[quotient, floor]);
        let is_wide = e.op(Gt, &[gap, half]);
        let more = e.op(Add, &[floor, one]);
        let floor = e.op(Select, &[is_wide, more, floor]);
        let plain = e.op(Div, &[x, y]);
        let signed_zero = e.op(Copysign, &[zero, plain]);
        let is_zero = e.op(Eq, &[quotient, zero]);
        let floor = e.op(Select, &[is_zero, signed_zero, floor]);
        let by_zero = e.op(Eq, &[y, zero]);
        e.op(Select, &[by_zero, plain, floor])
    } else if !dtype.is_bool() && safe_divisor(e, y) {
        e.op(IntDivFloor, &[x, y])
    } else {
        return None;
    };
    Some(vec![cx.finish(result, dtype, 0)?])
}

fn remainder_by(cx: &mut OpCx, float: ScalarOp, int: ScalarOp) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    let op = if dtype.is_floating_point() {
        float
    } else if !dtype.is_bool() && safe_divisor(cx.exprs, y) {
        int
    } else {
        return None;
    };
    let rest = cx.exprs.op(op, &[x, y]);
    Some(vec![cx.finish(rest, dtype, 0)?])
}

fn pow_scalar(cx: &mut OpCx) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("exponent")?);
    let exponent = cx.float("exponent")?;
    let dtype = cx.arithmetic(&[&a, &b])?;
    let x = cx.as_dtype(&a, dtype, 0)?;
    let e = &mut *cx.exprs;
    if !dtype.is_floating_point() {
        let y = if exponent == 2.0 && !dtype.is_bool() {
            e.op(Mul, &[x, x])
        } else if exponent == 3.0 && !dtype.is_bool() {
            let square = e.op(Mul, &[x, x]);
            let square = e.round(square, dtype);
            e.op(Mul, &[square, x])
        } else {
            return None;
        };
        return Some(vec![cx.finish(y, dtype, 0)?]);
    }
    // bfloat16 vectors round between the two steps, float16 ones don't.
    let between = |e: &mut Exprs, t: T| if dtype == DType::BF16 { e.round(t, dtype) } else { t };
    let y = if exponent == 0.5 {
        e.op(Sqrt, &[x])
    } else if exponent == 1.0 {
        x
    } else if exponent == 2.0 {
        e.op(Mul, &[x, x])
    } else if exponent == 3.0 {
        let square = e.op(Mul, &[x, x]);
        let square = between(e, square);
        e.op(Mul, &[square, x])
    } else if exponent == -0.5 {
        e.op(Rsqrt, &[x])
    } else if exponent == -1.0 {
        e.op(Reciprocal, &[x])
    } else if exponent == -2.0 {
        let square = e.op(Mul, &[x, x]);
        let square = between(e, square);
        e.op(Reciprocal, &[square])
    } else if exponent != 0.0 && !is_narrow_float(dtype) {
        let exponent = e.number(exponent, e.ty(x));
        e.op(Pow, &[x, exponent])
    } else {
        return None;
    };
    Some(vec![cx.finish(y, dtype, 0)?])
}

/// A float operator of two tensors that keeps the common dtype.
fn float_op(cx: &mut OpCx, names: [&str; 2], op: ScalarOp) -> Option<Vec<T>> {
    let (a, b) = (cx.operand(names[0])?, cx.operand(names[1])?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    if !dtype.is_floating_point() {
        return None;
    }
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    let z = cx.exprs.op(op, &[x, y]);
    Some(vec![cx.finish(z, dtype, 0)?])
}

/// Up to this many elements, `has_scalar_ties` matters.
const FEW: i64 = 1024;

/// Of two zeros with different signs, eager's scalar code gives the first and its vector code the second, as ours
/// does. Which code has an element depends on the machine; scalar code has all elements of small tensors.
pub fn has_scalar_ties(cx: &OpCx, dtype: DType) -> bool {
    dtype.is_floating_point() && cx.out(0).is_none_or(|meta| meta.numel() <= FEW)
}

/// maximum, minimum: NaN wins.
fn extremum(cx: &mut OpCx, op: ScalarOp, on_bool: ScalarOp) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    if has_scalar_ties(cx, dtype) {
        return None;
    }
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    let z = cx.exprs.op(if dtype.is_bool() { on_bool } else { op }, &[x, y]);
    Some(vec![cx.finish(z, dtype, 0)?])
}

fn bitwise(cx: &mut OpCx, op: ScalarOp) -> Option<Vec<T>> {
    let (a, b) = (cx.operand("self")?, cx.operand("other")?);
    let dtype = cx.arithmetic(&[&a, &b])?;
    if dtype.is_floating_point() {
        return None;
    }
    let (x, y) = (cx.as_dtype(&a, dtype, 0)?, cx.as_dtype(&b, dtype, 0)?);
    let z = cx.exprs.op(op, &[x, y]);
    Some(vec![cx.finish(z, dtype, 0)?])
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), in_place: true }
}

pub const OPS: &[OpDef] = &[
    row("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", add),
    row("add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", add),
    row("atan2(Tensor self, Tensor other) -> Tensor", |cx| float_op(cx, ["self", "other"], Atan2)),
    row("bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor", |cx| bitwise(cx, And)),
    row("bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor", |cx| bitwise(cx, And)),
    row("bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor", |cx| bitwise(cx, Or)),
    row("bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor", |cx| bitwise(cx, Or)),
    row("bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor", |cx| bitwise(cx, Xor)),
    row("bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor", |cx| bitwise(cx, Xor)),
    row("copysign.Tensor(Tensor self, Tensor other) -> Tensor", |cx| float_op(cx, ["self", "other"], Copysign)),
    row("div.Scalar(Tensor self, Scalar other) -> Tensor", div),
    row("div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor", div_mode),
    row("div.Tensor(Tensor self, Tensor other) -> Tensor", div),
    row("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor", div_mode),
    row("floor_divide(Tensor self, Tensor other) -> Tensor", div_floor),
    row("floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", div_floor),
    row("fmod.Scalar(Tensor self, Scalar other) -> Tensor", |cx| remainder_by(cx, Fmod, IntRemTrunc)),
    row("fmod.Tensor(Tensor self, Tensor other) -> Tensor", |cx| remainder_by(cx, Fmod, IntRemTrunc)),
    OpDef {
        schema: "maximum(Tensor self, Tensor other) -> Tensor",
        body: Body::Expr(|cx| extremum(cx, Maximum, Or)),
        ..OpDef::FALLBACK
    },
    OpDef {
        schema: "minimum(Tensor self, Tensor other) -> Tensor",
        body: Body::Expr(|cx| extremum(cx, Minimum, And)),
        ..OpDef::FALLBACK
    },
    row("mul.Scalar(Tensor self, Scalar other) -> Tensor", mul),
    row("mul.Tensor(Tensor self, Tensor other) -> Tensor", mul),
    row("pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", pow_scalar),
    row("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", |cx| float_op(cx, ["self", "exponent"], Pow)),
    row("remainder.Scalar(Tensor self, Scalar other) -> Tensor", |cx| remainder_by(cx, Remainder, Remainder)),
    row("remainder.Tensor(Tensor self, Tensor other) -> Tensor", |cx| remainder_by(cx, Remainder, Remainder)),
    OpDef {
        schema: "rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        body: Body::Expr(rsub),
        ..OpDef::FALLBACK
    },
    OpDef {
        schema: "rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        body: Body::Expr(rsub),
        ..OpDef::FALLBACK
    },
    row("sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", sub),
    row("sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", sub),
];

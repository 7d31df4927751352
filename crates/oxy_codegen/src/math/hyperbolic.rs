//! tanh, sinh, cosh from expm1 and exp; their inverses from log1p.

use super::{exp, log, nan_where, or_tiny};
use crate::{
    emit::{Emit, Kind, Val},
    llvm::FloatPredicate,
};

/// (tanh(√s)/√s - 1) / s on [0, 1] for f32. Each coefficient was rounded to f32 and the rest fitted again: plain
/// rounding costs a quarter ulp near 1.
const TANH_F32: [f64; 8] = [
    0.00011783641821239144,
    -0.0008267821394838393,
    0.003055637702345848,
    -0.008576096035540104,
    0.021776074543595314,
    -0.05395099148154259,
    0.133331760764122,
    -0.333333283662796,
];

pub fn tanh_f32<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F32, v);
    let (a, s) = (e.fabs(x), e.fmul(x, x));
    let small = e.fma(e.horner(s, &TANH_F32), e.fmul(x, s), x);
    // 1 - 2/(e^2a + 1).
    let exp = exp::exp_f32_normal(e, e.fadd(a, a));
    let large = e.fadd(e.fdiv(float(-2.0), e.fadd(exp, float(1.0))), float(1.0));
    // NaN takes the polynomial, which propagates it.
    let is_large = e.fcmp(FloatPredicate::LLVMRealOGE, a, float(1.0));
    e.copysign(e.select(is_large, large, small), x)
}

pub fn tanh<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let a = e.fabs(x);
    let a = e.select(e.fgt(a, float(22.0)), float(22.0), a);
    let t = exp::expm1(e, e.fadd(a, a));
    let value = e.copysign(e.fdiv(t, e.fadd(t, float(2.0))), x);
    or_tiny(e, x, value)
}

/// (e^(a/2)/2)·e^(a/2): e^a/2 without overflow.
fn half_exp<'c>(e: &Emit<'c>, a: Val<'c>) -> Val<'c> {
    let half = e.float(Kind::F64, 0.5);
    let root = exp::exp(e, e.fmul(a, half));
    e.fmul(e.fmul(root, half), root)
}

pub fn sinh<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let a = e.fabs(x);
    let t = exp::expm1(e, a);
    let small = e.fmul(float(0.5), e.fadd(t, e.fdiv(t, e.fadd(t, float(1.0)))));
    let value = e.select(e.fgt(a, float(700.0)), half_exp(e, a), small);
    or_tiny(e, x, e.copysign(value, x))
}

pub fn cosh<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let a = e.fabs(x);
    let t = exp::exp(e, a);
    let small = e.fma(float(0.5), t, e.fdiv(float(0.5), t));
    e.select(e.fgt(a, float(700.0)), half_exp(e, a), small)
}

/// From here on 1 + x² is x².
const LARGE: f64 = 268435456.0;

pub fn asinh<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let (a, one) = (e.fabs(x), float(1.0));
    let square = e.fmul(a, a);
    let root = e.sqrt(e.fadd(square, one));
    let inside = e.fadd(a, e.fdiv(square, e.fadd(one, root)));
    let is_large = e.fgt(a, float(LARGE));
    let argument = e.select(is_large, e.fsub(a, one), inside);
    let addend = e.select(is_large, float(std::f64::consts::LN_2), float(0.0));
    let value = e.fadd(log::log1p(e, argument), addend);
    or_tiny(e, x, e.copysign(value, x))
}

pub fn acosh<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let t = e.fsub(x, float(1.0));
    let root = e.sqrt(e.fma(t, t, e.fadd(t, t)));
    let is_large = e.fgt(x, float(LARGE));
    let argument = e.select(is_large, t, e.fadd(t, root));
    let addend = e.select(is_large, float(std::f64::consts::LN_2), float(0.0));
    let value = e.fadd(log::log1p(e, argument), addend);
    nan_where(e, e.fcmp(FloatPredicate::LLVMRealULT, x, float(1.0)), value)
}

pub fn atanh<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let a = e.fabs(x);
    let argument = e.fdiv(e.fadd(a, a), e.fsub(float(1.0), a));
    let value = e.fmul(float(0.5), log::log1p(e, argument));
    or_tiny(e, x, e.copysign(value, x))
}

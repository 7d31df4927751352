//! Vector math: transcendental functions in terms of bundles, so that CPU and GPU compute the same.
//!
//! - f32 exp, exp2, log, tanh and erf are computed in f32: they are the ones in hot loops.
//! - Every other f32 function widens to f64, uses the f64 function and rounds: at most 0.51 ulp where the f64
//!   function is good to a few ulp.
//! - f64 functions follow fdlibm's formulas with fused steps, branch-free: all cases are computed and selected.
//!   pow, lgamma and digamma, and sin, cos and tan of huge arguments, call scalar functions lane by lane.
//! - Without fused multiply-add in hardware everything calls libm: the formulas depend on it.
//!
//! `tests/ulp.rs` holds the error bound of every function.

#![allow(clippy::excessive_precision, reason = "coefficients stand as fdlibm prints them")]

use crate::emit::{Emit, Kind, Val};
use oxy_loops::ScalarOp;
use std::ffi::CStr;

mod asin;
mod atan;
mod erf;
mod exp;
mod hyperbolic;
mod log;
mod pow;
mod trig;

/// Emits a function of one argument.
pub fn unary<'c>(e: &Emit<'c>, op: ScalarOp, x: Val<'c>) -> Val<'c> {
    if !e.target.has_fma {
        return from_libm(e, op, &[x]);
    }
    match (x.kind, op) {
        (Kind::F32, ScalarOp::Exp) => exp::exp_f32(e, x),
        (Kind::F32, ScalarOp::Exp2) => exp::exp2_f32(e, x),
        (Kind::F32, ScalarOp::Log) => log::log_f32(e, x),
        (Kind::F32, ScalarOp::Tanh) => hyperbolic::tanh_f32(e, x),
        (Kind::F32, ScalarOp::Erf) => erf::erf_f32(e, x),
        (Kind::F32, _) => e.fptrunc(unary_f64(e, op, e.fpext(x, Kind::F64)), Kind::F32),
        _ => unary_f64(e, op, x),
    }
}

/// Emits a function of two arguments.
pub fn binary<'c>(e: &Emit<'c>, op: ScalarOp, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    match (a.kind, op) {
        (Kind::F32, ScalarOp::Pow) if e.target.has_fma => pow::pow_f32(e, a, b),
        (Kind::F32, ScalarOp::Atan2) if e.target.has_fma => {
            e.fptrunc(atan::atan2(e, e.fpext(a, Kind::F64), e.fpext(b, Kind::F64)), Kind::F32)
        }
        (_, ScalarOp::Atan2) if e.target.has_fma => atan::atan2(e, a, b),
        _ => from_libm(e, op, &[a, b]),
    }
}

fn unary_f64<'c>(e: &Emit<'c>, op: ScalarOp, x: Val<'c>) -> Val<'c> {
    use ScalarOp::*;
    match op {
        Exp => exp::exp(e, x),
        Exp2 => exp::exp2(e, x),
        Expm1 => exp::expm1(e, x),
        Log => log::log(e, x),
        Log2 => log::log2(e, x),
        Log10 => log::log10(e, x),
        Log1p => log::log1p(e, x),
        Sin => trig::sin(e, x),
        Cos => trig::cos(e, x),
        Tan => trig::tan(e, x),
        Asin => asin::asin(e, x),
        Acos => asin::acos(e, x),
        Atan => atan::atan(e, x),
        Sinh => hyperbolic::sinh(e, x),
        Cosh => hyperbolic::cosh(e, x),
        Tanh => hyperbolic::tanh(e, x),
        Asinh => hyperbolic::asinh(e, x),
        Acosh => hyperbolic::acosh(e, x),
        Atanh => hyperbolic::atanh(e, x),
        Erf => erf::erf(e, x),
        Erfc => erf::erfc(e, x),
        _ => from_libm(e, op, &[x]),
    }
}

/// Calls the double precision C function at every point and rounds the result.
fn from_libm<'c>(e: &Emit<'c>, op: ScalarOp, args: &[Val<'c>]) -> Val<'c> {
    let wide: Vec<Val> = args.iter().map(|a| e.fpext(*a, Kind::F64)).collect();
    let result = e.call_per_lane(c_name(op), &wide);
    e.fptrunc(result, args[0].kind)
}

fn c_name(op: ScalarOp) -> &'static CStr {
    use ScalarOp::*;
    match op {
        Exp2 => c"exp2",
        Expm1 => c"expm1",
        Log => c"log",
        Log2 => c"log2",
        Log10 => c"log10",
        Log1p => c"log1p",
        Sin => c"sin",
        Cos => c"cos",
        Tan => c"tan",
        Asin => c"asin",
        Acos => c"acos",
        Atan => c"atan",
        Sinh => c"sinh",
        Cosh => c"cosh",
        Tanh => c"tanh",
        Asinh => c"asinh",
        Acosh => c"acosh",
        Atanh => c"atanh",
        Erf => c"erf",
        Erfc => c"erfc",
        Lgamma => c"lgamma",
        Digamma => c"oxy_digamma",
        Pow => c"pow",
        Atan2 => c"atan2",
        _ => c"exp",
    }
}

/// A value for every case: `x` itself where |x| is so small that f(x) rounds to x (and so for -0.0).
fn or_tiny<'c>(e: &Emit<'c>, x: Val<'c>, value: Val<'c>) -> Val<'c> {
    let is_tiny = e.flt(e.fabs(x), e.float(x.kind, 1e-17));
    e.select(is_tiny, x, value)
}

/// NaN where `bad`.
fn nan_where<'c>(e: &Emit<'c>, bad: Val<'c>, value: Val<'c>) -> Val<'c> {
    e.select(bad, e.float(value.kind, f64::NAN), value)
}

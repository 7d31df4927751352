//! Vector math: transcendental functions in terms of bundles, so that CPU and GPU compute the same.

use crate::emit::{Emit, Kind, Val};
use oxy_loops::ScalarOp;
use std::ffi::CStr;

/// Emits a function of one argument.
pub fn unary<'c>(e: &Emit<'c>, op: ScalarOp, x: Val<'c>) -> Val<'c> {
    in_double(e, op, &[x])
}

/// Emits a function of two arguments.
pub fn binary<'c>(e: &Emit<'c>, op: ScalarOp, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    in_double(e, op, &[a, b])
}

/// Calls libm's double precision function and rounds the result.
fn in_double<'c>(e: &Emit<'c>, op: ScalarOp, args: &[Val<'c>]) -> Val<'c> {
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

//! pow for f32, through f64: e^(y·log x) has 20 bits to spare.

use super::{exp, log, nan_where};
use crate::emit::{Emit, Kind, Val};

pub fn pow_f32<'c>(e: &Emit<'c>, x: Val<'c>, y: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let (zero, one, infinity) = (float(0.0), float(1.0), float(f64::INFINITY));
    let (x, y) = (e.fpext(x, Kind::F64), e.fpext(y, Kind::F64));
    let a = e.fabs(x);
    // log 0 = -inf and log inf = inf: y·log x then gives 0 and infinity with the right sign of y.
    let mut log = log::log_positive(e, a);
    log = e.select(e.feq(a, zero), e.fneg(infinity), log);
    log = e.select(e.feq(a, infinity), infinity, log);
    log = e.select(e.is_nan(x), x, log);
    let magnitude = exp::exp(e, e.fmul(y, log));

    let is_negative = e.ilt(e.bitcast(x, Kind::I64), e.int(Kind::I64, 0));
    let is_integer = e.feq(e.truncate(y), y);
    let half = e.fmul(y, float(0.5));
    let is_odd = e.and(is_integer, e.not(e.feq(e.truncate(half), half)));
    let mut result = e.select(e.and(is_negative, is_odd), e.fneg(magnitude), magnitude);
    // A negative finite base with a fractional exponent.
    let is_root = e.and(e.flt(x, zero), e.not(is_integer));
    result = nan_where(e, e.and(is_root, e.flt(a, infinity)), result);
    result = nan_where(e, e.is_nan(y), result);
    // |x| = 1 with an infinite exponent is 1; so are 1 to anything and anything to 0.
    let is_unit = e.and(e.feq(a, one), e.feq(e.fabs(y), infinity));
    let is_one = e.or(is_unit, e.or(e.feq(x, one), e.feq(y, zero)));
    e.fptrunc(e.select(is_one, one, result), Kind::F32)
}

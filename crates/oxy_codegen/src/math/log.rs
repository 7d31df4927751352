//! Logarithms: mantissa near 1, the series in s = f/(2+f), and the exponent times ln2 in two parts.

use super::nan_where;
use crate::{
    emit::{Emit, Kind, Val},
    llvm::FloatPredicate,
};

/// (log(1+f) - f + f²/2) / f³ on |f| ≤ 1/3 for f32.
const LOG_F32: [f64; 9] = [
    0.11330617385023777,
    -0.12422200575409693,
    0.10915654793276691,
    -0.12288721609296725,
    0.14291867181988005,
    -0.1667331625320225,
    0.19999948351310606,
    -0.24999944186243983,
    0.3333333333333333,
];

/// fdlibm's series for log((1+s)/(1-s)) - 2s, in s².
const LG: [f64; 7] = [
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
];

const LN2_HI: f64 = 6.93147180369123816490e-01;
const LN2_LO: f64 = 1.90821492927058770002e-10;

pub fn log_f32<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F32, v);
    let int = |v| e.int(Kind::I32, v);
    // Subnormals are scaled by 2^23.
    let is_small = e.flt(x, float(f64::from(f32::MIN_POSITIVE)));
    let a = e.select(is_small, e.fmul(x, float(8388608.0)), x);
    let bias = e.select(is_small, float(-23.0), float(0.0));
    // a = 2^k · m with m in [2/3, 4/3).
    let bits = e.bitcast(a, Kind::I32);
    let exponent = e.and(e.sub(bits, int(0x3f2a_aaab)), int(-0x80_0000));
    let m = e.bitcast(e.sub(bits, exponent), Kind::F32);
    let k = e.fma(e.sitofp(exponent, Kind::F32), float(2f64.powi(-23)), bias);
    let f = e.fsub(m, float(1.0));
    let square = e.fmul(f, f);
    let tail = e.fma(e.horner(f, &LOG_F32), f, float(-0.5));
    let low = e.fma(k, float(-2.121_944_400_546_905_8e-4), f);
    // ln2 = 0.693359375 - 2.12194440e-4; the first part times k is exact. The large parts are added last.
    let error = e.fsub(e.fma(k, float(-2.121_944_400_546_905_8e-4), e.fsub(f, low)), float(0.0));
    let tail = e.fma(tail, square, error);
    let result = e.fma(k, float(0.693359375), e.fadd(low, tail));
    special_cases(e, x, result)
}

/// log(0) = -inf, log(inf) = inf, log(negative) = NaN.
fn special_cases<'c>(e: &Emit<'c>, x: Val<'c>, result: Val<'c>) -> Val<'c> {
    let (zero, infinity) = (e.float(x.kind, 0.0), e.float(x.kind, f64::INFINITY));
    let result = e.select(e.feq(x, infinity), infinity, result);
    let result = e.select(e.feq(x, zero), e.fneg(infinity), result);
    nan_where(e, e.fcmp(FloatPredicate::LLVMRealULT, x, zero), result)
}

/// a = 2^k · (1+f) with 1+f in [√½, √2).
struct Reduced<'c> {
    k: Val<'c>,
    f: Val<'c>,
    /// f²/2.
    half_square: Val<'c>,
    /// log(1+f) - f + f²/2.
    tail: Val<'c>,
}

/// Reduces a positive normal number.
fn reduce<'c>(e: &Emit<'c>, a: Val<'c>) -> Reduced<'c> {
    let float = |v| e.float(Kind::F64, v);
    let int = |v| e.int(Kind::I64, v);
    const ROOT_HALF: i64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = e.add(e.bitcast(a, Kind::I64), int((1023 << 52) - ROOT_HALF));
    // The exponent field as a float, through the mantissa of 2^52.
    let field = e.or(e.lshr(shifted, int(52)), int(0x4330_0000_0000_0000));
    let k = e.fsub(e.bitcast(field, Kind::F64), float(4503599627370496.0 + 1023.0));
    let m = e.add(e.and(shifted, int((1 << 52) - 1)), int(ROOT_HALF));
    let f = e.fsub(e.bitcast(m, Kind::F64), float(1.0));
    let half_square = e.fmul(e.fmul(f, f), float(0.5));
    let s = e.fdiv(f, e.fadd(f, float(2.0)));
    let z = e.fmul(s, s);
    let r = e.fmul(z, e.horner(z, &LG));
    Reduced { k, f, half_square, tail: e.fmul(s, e.fadd(half_square, r)) }
}

/// Scales subnormals up; returns the factor's exponent too.
fn normalised<'c>(e: &Emit<'c>, x: Val<'c>) -> (Val<'c>, Val<'c>) {
    let float = |v| e.float(Kind::F64, v);
    let is_small = e.flt(x, float(f64::MIN_POSITIVE));
    (e.select(is_small, e.fmul(x, float(2f64.powi(54))), x), e.select(is_small, float(-54.0), float(0.0)))
}

/// log without the special cases, for positive finite x.
pub fn log_positive<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let (a, bias) = normalised(e, x);
    let r = reduce(e, a);
    let k = e.fadd(r.k, bias);
    let low = e.fma(k, float(LN2_LO), r.tail);
    let low = e.fadd(e.fsub(low, r.half_square), r.f);
    e.fma(k, float(LN2_HI), low)
}

pub fn log<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    special_cases(e, x, log_positive(e, x))
}

/// log of another base: k·scale + log(1+f)·factor, both constants in two parts.
fn log_base<'c>(e: &Emit<'c>, x: Val<'c>, factor: (f64, f64), scale: (f64, f64)) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let (a, bias) = normalised(e, x);
    let r = reduce(e, a);
    let k = e.fadd(r.k, bias);
    // log(1+f) as high + low.
    let high = e.fsub(r.f, r.half_square);
    let low = e.fadd(e.fsub(e.fsub(r.f, high), r.half_square), r.tail);
    let product = e.fmul(high, float(factor.0));
    let rest = e.fma(high, float(factor.0), e.fneg(product));
    let rest = e.fadd(rest, e.fma(high, float(factor.1), e.fmul(low, float(factor.0))));
    // k·scale + product, exactly as sum + error.
    let whole = e.fmul(k, float(scale.0));
    let rest = e.fadd(rest, e.fma(k, float(scale.1), e.fma(k, float(scale.0), e.fneg(whole))));
    let sum = e.fadd(whole, product);
    let error = e.fadd(e.fsub(whole, sum), product);
    special_cases(e, x, e.fadd(sum, e.fadd(rest, error)))
}

pub fn log2<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    log_base(e, x, (std::f64::consts::LOG2_E, 2.0355273740931033e-17), (1.0, 0.0))
}

pub fn log10<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let log10_2 = (std::f64::consts::LOG10_2, -2.8037281277851704e-18);
    log_base(e, x, (std::f64::consts::LOG10_E, 1.098319650216765e-17), log10_2)
}

pub fn log1p<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let one = float(1.0);
    let u = e.fadd(x, one);
    let r = reduce(e, u);
    // What the sum lost, relative to u: log(1+x) = log(u) + lost/u.
    let is_large = e.fgt(u, float(2.0));
    let lost = e.select(is_large, e.fsub(one, e.fsub(u, x)), e.fsub(x, e.fsub(u, one)));
    let correction = e.fdiv(lost, u);
    let low = e.fadd(r.tail, e.fma(r.k, float(LN2_LO), correction));
    let low = e.fadd(e.fsub(low, r.half_square), r.f);
    let result = e.fma(r.k, float(LN2_HI), low);
    let infinity = float(f64::INFINITY);
    let result = e.select(e.feq(x, infinity), infinity, result);
    let result = e.select(e.feq(x, float(-1.0)), e.fneg(infinity), result);
    let result = nan_where(e, e.fcmp(FloatPredicate::LLVMRealULT, x, float(-1.0)), result);
    super::or_tiny(e, x, result)
}

//! exp, exp2, expm1: reduction to |r| ≤ ln2/2, a polynomial, and scaling by 2^n.

use crate::emit::{Emit, Kind, Val};

/// (e^r - 1 - r) / r² on |r| ≤ ln2/2 in f64; error 1.4e-18.
const EXP_F64: [f64; 11] = [
    2.091477283224809e-09,
    2.510533724466521e-08,
    2.755727343657049e-07,
    2.755725511097889e-06,
    2.480158732571076e-05,
    0.00019841269875048905,
    0.0013888888888883703,
    0.00833333333332607,
    0.04166666666666667,
    0.1666666666666667,
    0.5,
];

/// (2^r - 1) / r on |r| ≤ 1/2 for f32; error 1.7e-10.
const EXP2_F32: [f64; 7] = [
    1.5297323760701075e-05,
    0.0001546144469856913,
    0.001333350238616277,
    0.009618056678524637,
    0.055504108839096185,
    0.24022650922288757,
    std::f64::consts::LN_2,
];

/// e^r on |r| ≤ ln2/2 for f32.
const EXP_F32: [f64; 7] = [1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0];

const LN2_HI: f64 = 6.93147180369123816490e-01;
const LN2_LO: f64 = 1.90821492927058770002e-10;

/// 1.5·2^(mantissa bits): adding it to a small float leaves the nearest integer in the low bits.
fn magic<'c>(e: &Emit<'c>, kind: Kind) -> Val<'c> {
    e.float(kind, if kind == Kind::F32 { 12582912.0 } else { 6755399441055744.0 })
}

/// The exponent bias and the width of the mantissa field.
fn layout(kind: Kind) -> (i64, i64) {
    if kind == Kind::F32 { (127, 23) } else { (1023, 52) }
}

/// 2^n for an integral float n in the normal range.
fn power_of_two<'c>(e: &Emit<'c>, n: Val<'c>) -> Val<'c> {
    let (kind, int) = (n.kind, n.kind.to_int());
    let (bias, width) = layout(kind);
    let bits = e.bitcast(e.fadd(n, magic(e, kind)), int);
    e.bitcast(e.shl(e.add(bits, e.int(int, bias)), e.int(int, width)), kind)
}

/// p · 2^n with gradual underflow: in two steps, since 2^n itself may be out of range.
fn scale<'c>(e: &Emit<'c>, p: Val<'c>, n: Val<'c>) -> Val<'c> {
    let half = e.fmul(n, e.float(n.kind, 0.5));
    let first = e.fsub(e.fadd(half, magic(e, n.kind)), magic(e, n.kind));
    let q = e.fmul(p, power_of_two(e, first));
    e.fmul(q, power_of_two(e, e.fsub(n, first)))
}

/// Keeps x within [lo, hi]; NaN stays.
fn bounded<'c>(e: &Emit<'c>, x: Val<'c>, lo: f64, hi: f64) -> Val<'c> {
    let (lo, hi) = (e.float(x.kind, lo), e.float(x.kind, hi));
    let x = e.select(e.flt(hi, x), hi, x);
    e.select(e.fgt(lo, x), lo, x)
}

/// The integer nearest to x (small x).
fn nearest<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    e.fsub(e.fadd(x, magic(e, x.kind)), magic(e, x.kind))
}

/// (n, r) with x = n·ln2 + r, |r| ≤ ln2/2.
fn reduce<'c>(e: &Emit<'c>, x: Val<'c>) -> (Val<'c>, Val<'c>) {
    let float = |v| e.float(x.kind, v);
    let (hi, lo) = match x.kind {
        Kind::F32 => (0.693145752, 1.42860677e-6),
        _ => (LN2_HI, LN2_LO),
    };
    // Fused, so that the sum with the magic number rounds the exact product.
    let n = e.fma(x, float(std::f64::consts::LOG2_E), magic(e, x.kind));
    let n = e.fsub(n, magic(e, x.kind));
    let r = e.fma(n, float(-hi), x);
    (n, e.fma(n, float(-lo), r))
}

pub fn exp_f32<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let (n, r) = reduce(e, bounded(e, x, -104.0, 89.0));
    scale(e, e.horner(r, &EXP_F32), n)
}

/// exp where the result is known to be a normal number (NaN gives anything): one step of scaling.
pub fn exp_f32_normal<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let (n, r) = reduce(e, bounded(e, x, -87.3, 88.3));
    let bits = e.bitcast(e.fadd(n, magic(e, Kind::F32)), Kind::I32);
    let p = e.bitcast(e.horner(r, &EXP_F32), Kind::I32);
    e.bitcast(e.add(p, e.shl(bits, e.int(Kind::I32, 23))), Kind::F32)
}

pub fn exp2_f32<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let x = bounded(e, x, -151.0, 129.0);
    let n = nearest(e, x);
    let r = e.fsub(x, n);
    let p = e.fma(e.horner(r, &EXP2_F32), r, e.float(Kind::F32, 1.0));
    scale(e, p, n)
}

/// e^r - 1 for a reduced r.
fn small_expm1<'c>(e: &Emit<'c>, r: Val<'c>) -> Val<'c> {
    let q = e.horner(r, &EXP_F64);
    e.fma(e.fmul(r, r), q, r)
}

pub fn exp<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let (n, r) = reduce(e, bounded(e, x, -746.0, 710.0));
    scale(e, e.fadd(small_expm1(e, r), e.float(Kind::F64, 1.0)), n)
}

pub fn exp2<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let x = bounded(e, x, -1076.0, 1025.0);
    let n = nearest(e, x);
    // r·ln2 with its rounding error folded in to first order: e^(h + l) = e^h (1 + l).
    let r = e.fsub(x, n);
    let ln2 = e.float(Kind::F64, std::f64::consts::LN_2);
    let high = e.fmul(r, ln2);
    let low = e.fma(r, e.float(Kind::F64, 2.3190468138462996e-17), e.fma(r, ln2, e.fneg(high)));
    let p = e.fadd(e.fadd(small_expm1(e, high), low), e.float(Kind::F64, 1.0));
    scale(e, p, n)
}

pub fn expm1<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let (n, r) = reduce(e, bounded(e, x, -50.0, 710.0));
    let p = small_expm1(e, r);
    // 2 · (2^(n-1)·p + (2^(n-1) - 1/2)): 2^n would overflow for the largest results.
    let s = power_of_two(e, e.fsub(n, float(1.0)));
    let sum = e.fma(s, p, e.fsub(s, float(0.5)));
    super::or_tiny(e, x, e.fmul(sum, float(2.0)))
}

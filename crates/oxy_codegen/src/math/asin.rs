//! asin, acos: fdlibm's rational function of x² below 1/2, of (1-|x|)/2 above.

use crate::emit::{Emit, Kind, Val};

const P: [f64; 6] = [
    3.47933107596021167570e-05,
    7.91534994289814532176e-04,
    -4.00555345006794114027e-02,
    2.01212532134862925881e-01,
    -3.25565818622400915405e-01,
    1.66666666666666657415e-01,
];
const Q: [f64; 5] = [
    7.70381505559019352791e-02,
    -6.88283971605453293030e-01,
    2.02094576023350569471e+00,
    -2.40339491173441421878e+00,
    1.0,
];
const HALF_PI_HI: f64 = std::f64::consts::FRAC_PI_2;
const HALF_PI_LO: f64 = 6.123233995736766e-17;
const QUARTER_PI: f64 = std::f64::consts::FRAC_PI_4;

struct Parts<'c> {
    is_large: Val<'c>,
    /// (asin(√z) - √z) / √z.
    ratio: Val<'c>,
    /// √z, where x is large.
    root: Val<'c>,
    /// asin(√z) - √z, with the error of the root, where x is large.
    rest: Val<'c>,
}

fn parts<'c>(e: &Emit<'c>, x: Val<'c>) -> Parts<'c> {
    let float = |v| e.float(Kind::F64, v);
    let a = e.fabs(x);
    let is_large = e.fgt(a, float(0.5));
    let z = e.select(is_large, e.fmul(e.fsub(float(1.0), a), float(0.5)), e.fmul(x, x));
    let ratio = e.fdiv(e.fmul(z, e.horner(z, &P)), e.horner(z, &Q));
    let root = e.sqrt(z);
    // The tiny addend keeps 0/0 away at |x| = 1.
    let twice = e.fadd(e.fadd(root, root), float(1e-300));
    let error = e.fdiv(e.fma(e.fneg(root), root, z), twice);
    Parts { is_large, ratio, root, rest: e.fma(root, ratio, error) }
}

pub fn asin<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let p = parts(e, x);
    let small = e.fma(x, p.ratio, x);
    // π/2 - 2(root + rest), from the middle so that the first difference is exact.
    let low = e.fsub(e.fmul(float(2.0), p.rest), float(HALF_PI_LO));
    let high = e.fsub(float(QUARTER_PI), e.fmul(float(2.0), p.root));
    let large = e.fsub(float(QUARTER_PI), e.fsub(low, high));
    super::or_tiny(e, x, e.select(p.is_large, e.copysign(large, x), small))
}

pub fn acos<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let p = parts(e, x);
    let half_pi = float(HALF_PI_HI);
    let small = e.fsub(half_pi, e.fsub(x, e.fsub(float(HALF_PI_LO), e.fmul(x, p.ratio))));
    let positive = e.fmul(float(2.0), e.fadd(p.root, p.rest));
    let w = e.fadd(p.root, e.fsub(p.rest, float(HALF_PI_LO)));
    let negative = e.fmul(float(2.0), e.fsub(half_pi, w));
    let large = e.select(e.fgt(x, float(0.0)), positive, negative);
    // Comparisons are false for NaN, which `small` propagates.
    e.select(p.is_large, large, small)
}

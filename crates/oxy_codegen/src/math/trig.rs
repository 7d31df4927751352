//! sin, cos, tan: reduction by multiples of π/2 in three parts, fdlibm's polynomials, libm for |x| ≥ 2^30.

use crate::{
    emit::{Emit, Kind, Val},
    llvm::FloatPredicate,
};

/// π/2 as the sum of three doubles.
const HALF_PI: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];

const SIN: [f64; 5] = [
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
];
const SIN_FIRST: f64 = -1.66666666666666324348e-01;

const COS: [f64; 6] = [
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
];

/// Beyond this the reduction isn't exact.
const LIMIT: f64 = 1073741824.0;

struct Quadrant<'c> {
    sin: Val<'c>,
    cos: Val<'c>,
    /// Which quarter of the circle, in the low two bits (I64).
    number: Val<'c>,
}

fn quadrant<'c>(e: &Emit<'c>, x: Val<'c>) -> Quadrant<'c> {
    let float = |v| e.float(Kind::F64, v);
    let magic = float(6755399441055744.0);
    let shifted = e.fma(x, float(std::f64::consts::FRAC_2_PI), magic);
    let number = e.bitcast(shifted, Kind::I64);
    let n = e.fneg(e.fsub(shifted, magic));
    // x - n·π/2 = r + y. The first step is exact; the second keeps its rounding errors.
    let exact = e.fma(n, float(HALF_PI[0]), x);
    let r = e.fma(n, float(HALF_PI[1]), exact);
    let product = e.fmul(n, float(HALF_PI[1]));
    let product_error = e.fma(n, float(HALF_PI[1]), e.fneg(product));
    // TwoSum of exact and product, relative to r, which is the correctly rounded sum of the unrounded product.
    let back = e.fsub(r, exact);
    let sum_error = e.fadd(e.fsub(exact, e.fsub(r, back)), e.fsub(product, back));
    let y = e.fma(n, float(HALF_PI[2]), e.fadd(sum_error, product_error));

    let z = e.fmul(r, r);
    let v = e.fmul(z, r);
    let s = e.horner(z, &SIN);
    // r - ((z·(y/2 - v·s) - y) - v·S1)
    let inner = e.fsub(e.fmul(y, float(0.5)), e.fmul(v, s));
    let inner = e.fsub(e.fmul(z, inner), y);
    let sin = e.fsub(r, e.fsub(inner, e.fmul(v, float(SIN_FIRST))));

    let half = e.fmul(z, float(0.5));
    let w = e.fsub(float(1.0), half);
    let c = e.fmul(z, e.horner(z, &COS));
    // w + (((1 - w) - z/2) + (z·c - r·y))
    let rest = e.fsub(e.fmul(z, c), e.fmul(r, y));
    let cos = e.fadd(w, e.fadd(e.fsub(e.fsub(float(1.0), w), half), rest));
    Quadrant { sin, cos, number }
}

/// Whether bit `bit` of the quadrant number (plus `offset`) is set.
fn has_bit<'c>(e: &Emit<'c>, number: Val<'c>, offset: i64, bit: i64) -> Val<'c> {
    let masked = e.and(e.add(number, e.int(Kind::I64, offset)), e.int(Kind::I64, bit));
    e.not(e.ieq(masked, e.int(Kind::I64, 0)))
}

fn is_huge<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    e.fcmp(FloatPredicate::LLVMRealOGE, e.fabs(x), e.float(Kind::F64, LIMIT))
}

pub fn sin<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let q = quadrant(e, x);
    let value = e.select(has_bit(e, q.number, 0, 1), q.cos, q.sin);
    let value = e.select(has_bit(e, q.number, 0, 2), e.fneg(value), value);
    let value = super::or_tiny(e, x, value);
    e.or_rarely(is_huge(e, x), value, || e.call_per_lane(c"sin", &[x]))
}

pub fn cos<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let q = quadrant(e, x);
    let value = e.select(has_bit(e, q.number, 0, 1), q.sin, q.cos);
    let value = e.select(has_bit(e, q.number, 1, 2), e.fneg(value), value);
    e.or_rarely(is_huge(e, x), value, || e.call_per_lane(c"cos", &[x]))
}

pub fn tan<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let q = quadrant(e, x);
    let is_odd = has_bit(e, q.number, 0, 1);
    let top = e.select(is_odd, e.fneg(q.cos), q.sin);
    let bottom = e.select(is_odd, q.sin, q.cos);
    let value = super::or_tiny(e, x, e.fdiv(top, bottom));
    e.or_rarely(is_huge(e, x), value, || e.call_per_lane(c"tan", &[x]))
}

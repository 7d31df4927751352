//! atan, atan2: argument within tan(π/8) by one division, then fdlibm's polynomial.

use crate::emit::{Emit, Kind, Val};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

const ATAN: [f64; 11] = [
    1.62858201153657823623e-02,
    -3.65315727442169155270e-02,
    4.97687799461593236017e-02,
    -5.83357013379057348645e-02,
    6.66107313738753120669e-02,
    -7.69187620504482999495e-02,
    9.09088713343650656196e-02,
    -1.11111104054623557880e-01,
    1.42857142725034663711e-01,
    -1.99999999998764832476e-01,
    3.33333333333329318027e-01,
];
const HALF_PI_LO: f64 = 6.123233995736766e-17;

/// atan(y/x) for y, x ≥ 0, not both 0 or infinite.
fn first_quadrant<'c>(e: &Emit<'c>, y: Val<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let steep = e.fgt(y, e.fmul(x, float(2.414213562373095)));
    let middle = e.fgt(y, e.fmul(x, float(0.41421356237309503)));
    let pick = |a, b, c| e.select(steep, a, e.select(middle, b, c));
    let top = pick(e.fneg(x), e.fsub(y, x), y);
    let bottom = pick(y, e.fadd(y, x), x);
    let t = e.fdiv(top, bottom);
    let zero = float(0.0);
    let base = pick(float(FRAC_PI_2), float(FRAC_PI_4), zero);
    let base_low = pick(float(HALF_PI_LO), float(HALF_PI_LO / 2.0), zero);
    let z = e.fmul(t, t);
    let tail = e.fmul(t, e.fmul(z, e.horner(z, &ATAN)));
    e.fsub(base, e.fsub(e.fsub(tail, base_low), t))
}

pub fn atan<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    // Beyond 2^60 the result is π/2; the bound keeps infinity out of y - x.
    let a = e.fabs(x);
    let bound = e.float(Kind::F64, 1152921504606846976.0);
    let a = e.select(e.fgt(a, bound), bound, a);
    let r = first_quadrant(e, a, e.float(Kind::F64, 1.0));
    super::or_tiny(e, x, e.copysign(r, x))
}

pub fn atan2<'c>(e: &Emit<'c>, y: Val<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let (zero, one, infinity) = (float(0.0), float(1.0), float(f64::INFINITY));
    let (mut a, mut b) = (e.fabs(y), e.fabs(x));
    // atan2(0, 0) is that of (0, 1); of two infinities, (1, 1); of a finite number and infinity, (0, 1) or (1, 0).
    let both_zero = e.and(e.feq(a, zero), e.feq(b, zero));
    let (a_infinite, b_infinite) = (e.feq(a, infinity), e.feq(b, infinity));
    let either = e.or(a_infinite, b_infinite);
    let is_nan = e.or(e.is_nan(x), e.is_nan(y));
    a = e.select(either, e.select(a_infinite, one, zero), a);
    b = e.select(either, e.select(b_infinite, one, zero), b);
    b = e.select(both_zero, one, b);
    // Scaled so that sums and products neither overflow nor vanish.
    let largest = e.select(e.fgt(a, b), a, b);
    let down = e.fgt(largest, float(1e150));
    let up = e.flt(largest, float(1e-150));
    let factor = e.select(down, float(2f64.powi(-600)), e.select(up, float(2f64.powi(600)), one));
    let r = first_quadrant(e, e.fmul(a, factor), e.fmul(b, factor));
    let is_left = e.ilt(e.bitcast(x, Kind::I64), e.int(Kind::I64, 0));
    let left = e.fsub(float(PI), e.fsub(r, float(2.0 * HALF_PI_LO)));
    let r = e.copysign(e.select(is_left, left, r), y);
    super::nan_where(e, is_nan, r)
}

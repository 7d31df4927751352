//! erf, erfc: fdlibm's rational functions on four ranges of |x|; a polynomial pair for f32 erf.

use super::exp;
use crate::emit::{Emit, Kind, Val};

/// erf(x) on [0.84375, 1.25] is ERX + P/Q.
const ERX: f64 = 8.45062911510467529297e-01;

// erf(x)/x - 1 below 0.84375, in x².
const PP: [f64; 5] = [
    -2.37630166566501626084e-05,
    -5.77027029648944159157e-03,
    -2.84817495755985104766e-02,
    -3.25042107247001499370e-01,
    1.28379167095512558561e-01,
];
const QQ: [f64; 6] = [
    -3.96022827877536812320e-06,
    1.32494738004321644526e-04,
    5.08130628187576562776e-03,
    6.50222499887672944485e-02,
    3.97917223959155352819e-01,
    1.0,
];
// Around 1, in |x| - 1.
const PA: [f64; 7] = [
    -2.16637559486879084300e-03,
    3.54783043256182359371e-02,
    -1.10894694282396677476e-01,
    3.18346619901161753674e-01,
    -3.72207876035701323847e-01,
    4.14856118683748331666e-01,
    -2.36211856075265944077e-03,
];
const QA: [f64; 7] = [
    1.19844998467991074170e-02,
    1.36370839120290507362e-02,
    1.26171219808761642112e-01,
    7.18286544141962662868e-02,
    5.40397917702171048937e-01,
    1.06420880400844228286e-01,
    1.0,
];
// erfc on [1.25, 1/0.35], in 1/x².
const RA: [f64; 8] = [
    -9.81432934416914548592e+00,
    -8.12874355063065934246e+01,
    -1.84605092906711035994e+02,
    -1.62396669462573470355e+02,
    -6.23753324503260060396e+01,
    -1.05586262253232909814e+01,
    -6.93858572707181764372e-01,
    -9.86494403484714822705e-03,
];
const SA: [f64; 9] = [
    -6.04244152148580987438e-02,
    6.57024977031928170135e+00,
    1.08635005541779435134e+02,
    4.29008140027567833386e+02,
    6.45387271733267880336e+02,
    4.34565877475229228821e+02,
    1.37657754143519042600e+02,
    1.96512716674392571292e+01,
    1.0,
];
// erfc beyond 1/0.35, in 1/x².
const RB: [f64; 7] = [
    -4.83519191608651397019e+02,
    -1.02509513161107724954e+03,
    -6.37566443368389627722e+02,
    -1.60636384855821916062e+02,
    -1.77579549177547519889e+01,
    -7.99283237680523006574e-01,
    -9.86494292470009928597e-03,
];
const SB: [f64; 8] = [
    -2.24409524465858183362e+01,
    4.74528541206955367215e+02,
    2.55305040643316442583e+03,
    3.19985821950859553908e+03,
    1.53672958608443695994e+03,
    3.25792512996573918826e+02,
    3.03380607434824582924e+01,
    1.0,
];

/// log(1 - erf(t)) + t on [0.92, ∞), f32; the two leading pairs are combined with t².
const TAIL_F32: ([f64; 2], [f64; 2], [f64; 3]) = (
    [-1.72853470e-5, 3.83197126e-4],
    [-3.88396438e-3, 2.42546219e-2],
    [-1.06777877e-1, -6.34846687e-1, -1.28717512e-1],
);
/// erf(x)/x - 1 below 0.92, in x², f32.
const CENTRE_F32: [f64; 6] =
    [-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1];

pub fn erf_f32<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F32, v);
    let (t, s) = (e.fabs(x), e.fmul(x, x));
    let (first, second, rest) = TAIL_F32;
    let mut r = e.fma(e.horner(t, &first), s, e.horner(t, &second));
    for c in rest {
        r = e.fma(r, t, float(c));
    }
    let r = e.fma(r, t, e.fneg(t));
    let large = e.copysign(e.fsub(float(1.0), exp::exp_f32_normal(e, r)), x);
    let small = e.fma(e.horner(s, &CENTRE_F32), x, x);
    e.select(e.fgt(t, float(0.927734375)), large, small)
}

struct Parts<'c> {
    a: Val<'c>,
    /// P/Q below 0.84375.
    centre: Val<'c>,
    /// P/Q around 1.
    middle: Val<'c>,
    /// erfc(a) from 1.25 on.
    tail: Val<'c>,
}

fn parts<'c>(e: &Emit<'c>, x: Val<'c>) -> Parts<'c> {
    let float = |v| e.float(Kind::F64, v);
    let a = e.fabs(x);
    let z = e.fmul(x, x);
    let centre = e.fdiv(e.horner(z, &PP), e.horner(z, &QQ));
    let s = e.fsub(a, float(1.0));
    let middle = e.fdiv(e.horner(s, &PA), e.horner(s, &QA));
    // Beyond 28 erfc is 0; the bound keeps infinity out of the formulas.
    let b = e.select(e.fgt(a, float(28.0)), float(28.0), a);
    let s = e.fdiv(float(1.0), e.fmul(b, b));
    let is_far = e.fgt(b, float(1.0 / 0.35));
    let top = e.select(is_far, e.horner(s, &RB), e.horner(s, &RA));
    let bottom = e.select(is_far, e.horner(s, &SB), e.horner(s, &SA));
    // b = high + low with few bits in high, so that high² is exact.
    let high = e.and(e.bitcast(b, Kind::I64), e.int(Kind::I64, -0x1_0000_0000));
    let high = e.bitcast(high, Kind::F64);
    let square = exp::exp(e, e.fsub(e.fneg(e.fmul(high, high)), float(0.5625)));
    let low = e.fmul(e.fsub(high, b), e.fadd(high, b));
    let rest = exp::exp(e, e.fadd(low, e.fdiv(top, bottom)));
    Parts { a, centre, middle, tail: e.fdiv(e.fmul(square, rest), b) }
}

pub fn erf<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let p = parts(e, x);
    let centre = e.fma(x, p.centre, x);
    let middle = e.fadd(float(ERX), p.middle);
    let tail = e.fsub(float(1.0), p.tail);
    let outer = e.copysign(e.select(e.flt(p.a, float(1.25)), middle, tail), x);
    // x·(1 + P/Q) at tiny x is x·(2/√π), so tiny x is not x here; only the sign of zero needs care.
    e.select(e.fcmp(crate::llvm::FloatPredicate::LLVMRealOGE, p.a, float(0.84375)), outer, centre)
}

pub fn erfc<'c>(e: &Emit<'c>, x: Val<'c>) -> Val<'c> {
    let float = |v| e.float(Kind::F64, v);
    let one = float(1.0);
    let p = parts(e, x);
    let product = e.fmul(x, p.centre);
    let near = e.fsub(one, e.fadd(x, product));
    let above = e.fsub(float(0.5), e.fadd(e.fsub(x, float(0.5)), product));
    let centre = e.select(e.flt(x, float(0.25)), near, above);
    let is_negative = e.flt(x, float(0.0));
    let middle = e.select(is_negative, e.fadd(float(1.0 + ERX), p.middle), e.fsub(float(1.0 - ERX), p.middle));
    let tail = e.select(is_negative, e.fsub(float(2.0), p.tail), p.tail);
    let outer = e.select(e.flt(p.a, float(1.25)), middle, tail);
    e.select(e.fcmp(crate::llvm::FloatPredicate::LLVMRealOGE, p.a, float(0.84375)), outer, centre)
}

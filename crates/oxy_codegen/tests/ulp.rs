//! Accuracy of the vector math: error in ulp against f64, over the whole range of f32.
#![allow(clippy::print_stdout, reason = "the measured errors, with --nocapture")]

mod common;
use common::*;
use oxy_loops::{Kernel, ScalarOp, interp, special};

unsafe extern "C" {
    safe fn acosh(x: f64) -> f64;
    safe fn asinh(x: f64) -> f64;
    safe fn atanh(x: f64) -> f64;
    safe fn erf(x: f64) -> f64;
    safe fn erfc(x: f64) -> f64;
    safe fn lgamma(x: f64) -> f64;
}

fn reference(op: ScalarOp, x: f64, y: f64) -> f64 {
    use ScalarOp::*;
    match op {
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.ln_1p(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => asinh(x),
        Acosh => acosh(x),
        Atanh => atanh(x),
        Erf => erf(x),
        Erfc => erfc(x),
        Lgamma => lgamma(x),
        Digamma => special::digamma(x),
        Pow => x.powf(y),
        Atan2 => x.atan2(y),
        _ => unreachable!(),
    }
}

/// (function, bound in ulp for f32, bound in ulp against libm's result for f64)
const BOUNDS: &[(ScalarOp, f64, f64)] = &[
    (ScalarOp::Exp, 0.9, 1.0),
    (ScalarOp::Exp2, 0.9, 1.0),
    (ScalarOp::Expm1, 0.51, 2.0),
    (ScalarOp::Log, 0.9, 1.0),
    (ScalarOp::Log2, 0.51, 1.0),
    (ScalarOp::Log10, 0.51, 2.0),
    (ScalarOp::Log1p, 0.51, 2.0),
    (ScalarOp::Sin, 0.51, 1.0),
    (ScalarOp::Cos, 0.51, 1.0),
    (ScalarOp::Tan, 0.51, 2.0),
    (ScalarOp::Asin, 0.51, 1.0),
    (ScalarOp::Acos, 0.51, 1.0),
    (ScalarOp::Atan, 0.51, 2.0),
    (ScalarOp::Sinh, 0.51, 3.0),
    (ScalarOp::Cosh, 0.51, 2.0),
    (ScalarOp::Tanh, 1.0, 3.0),
    (ScalarOp::Asinh, 0.51, 2.0),
    (ScalarOp::Acosh, 0.51, 2.0),
    (ScalarOp::Atanh, 0.51, 3.0),
    (ScalarOp::Erf, 1.0, 1.0),
    (ScalarOp::Erfc, 0.51, 4.0),
    (ScalarOp::Lgamma, 0.51, 0.0),
    (ScalarOp::Digamma, 0.51, 0.0),
];

const BINARY_BOUNDS: &[(ScalarOp, f64, f64)] = &[(ScalarOp::Pow, 0.51, 1.0), (ScalarOp::Atan2, 0.51, 2.0)];

fn function_kernel(op: ScalarOp, ty: &str) -> Kernel {
    let (second, args) =
        if op.arity() == 2 { (format!("v1 {ty} = load p1[d0]"), "v0 v1") } else { (String::new(), "v0") };
    let result = op.arity();
    kernel(&format!(
        "kernel f\n p0 {ty}\n p1 {ty}\n p2 {ty} written\n d0 parallel 1000000000\n vector d0\n split vector\npoint\n \
         v0 {ty} = load p0[d0]\n {second}\n v{result} {ty} = {} {args}\n p2[d0] <- v{result}\nend",
        op.name()
    ))
}

/// |got - want| in units of the last place of want in f32.
fn ulp_f32(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got.is_nan() || rounded.is_nan() || got.is_infinite() || rounded.is_infinite() {
        // An overflow is right if the rounded reference overflows too, or one is the neighbour of the other.
        let same = got == rounded || got.is_nan() && rounded.is_nan();
        let beside = got.is_infinite() != rounded.is_infinite()
            && got.abs().max(rounded.abs()) == f32::INFINITY
            && got.abs().min(rounded.abs()) == f32::MAX
            && got.signum() == rounded.signum();
        return if same {
            0.0
        } else if beside {
            0.5
        } else {
            f64::INFINITY
        };
    }
    if want == 0.0 || got == 0.0 && want.abs() < 1e-46 {
        return if got == 0.0 && got.is_sign_negative() == want.is_sign_negative() { 0.0 } else { f64::INFINITY };
    }
    let exponent = (want.abs().log2().floor() as i32).clamp(-126, 127);
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

fn ulp_f64(got: f64, want: f64) -> f64 {
    if got == want && got.is_sign_negative() == want.is_sign_negative() || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    if !got.is_finite() || !want.is_finite() || got.is_sign_negative() != want.is_sign_negative() {
        return f64::INFINITY;
    }
    (got.to_bits() as i64 - want.to_bits() as i64).unsigned_abs() as f64
}

struct Worst {
    ulp: f64,
    x: f64,
    y: f64,
    got: f64,
    want: f64,
}

fn measure_f32(op: ScalarOp, xs: &[f32], ys: &[f32]) -> Worst {
    let code = Code::new(&function_kernel(op, "f32"));
    let mut buffers = vec![f32s(xs.iter().copied()), f32s(ys.iter().copied()), vec![0; xs.len() * 4]];
    code.run(&mut buffers, &[0, 1, 2], 0, xs.len() as i64);
    let mut worst = Worst { ulp: -1.0, x: 0.0, y: 0.0, got: 0.0, want: 0.0 };
    for ((x, y), got) in xs.iter().zip(ys).zip(to_f32s(&buffers[2])) {
        let want = reference(op, (*x).into(), (*y).into());
        let ulp = ulp_f32(got, want);
        if ulp > worst.ulp {
            worst = Worst { ulp, x: (*x).into(), y: (*y).into(), got: got.into(), want };
        }
    }
    worst
}

fn measure_f64(op: ScalarOp, xs: &[f64], ys: &[f64]) -> Worst {
    let code = Code::new(&function_kernel(op, "f64"));
    let bytes = |v: &[f64]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut buffers = vec![bytes(xs), bytes(ys), vec![0; xs.len() * 8]];
    code.run(&mut buffers, &[0, 1, 2], 0, xs.len() as i64);
    let mut worst = Worst { ulp: -1.0, x: 0.0, y: 0.0, got: 0.0, want: 0.0 };
    for ((x, y), got) in xs.iter().zip(ys).zip(buffers[2].chunks(8)) {
        let got = f64::from_le_bytes(got.try_into().unwrap());
        let want = reference(op, *x, *y);
        let ulp = ulp_f64(got, want);
        if ulp > worst.ulp {
            worst = Worst { ulp, x: *x, y: *y, got, want };
        }
    }
    worst
}

/// Every K-th bit pattern (all exponents, subnormals, infinities, NaN), and the awkward ones.
fn all_f32(step: usize) -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(step).map(f32::from_bits).collect();
    let awkward =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, -f32::INFINITY, f32::NAN, 0.5, 2.0, 1e-45, f32::MAX, f32::MIN_POSITIVE];
    xs.extend(awkward);
    xs
}

fn all_f64(count: u64) -> Vec<f64> {
    let mut rng = Rng(77);
    let mut xs: Vec<f64> = (0..count).map(|_| f64::from_bits(rng.next())).collect();
    // Most bit patterns are far from anything interesting.
    for _ in 0..2 * count {
        let unit = rng.next() as f64 / u64::MAX as f64 * 2.0 - 1.0;
        let scale = rng.pick(&[1e-3, 0.5, 1.0, 3.0, 30.0, 800.0]);
        xs.push(unit * scale);
    }
    xs.extend([0.0, -0.0, 1.0, -1.0, f64::INFINITY, -f64::INFINITY, f64::NAN, 0.5, 2.0, 5e-324, f64::MAX, 1e-310]);
    xs
}

fn report(failures: &mut Vec<String>, kind: &str, op: ScalarOp, worst: &Worst, bound: f64) {
    let Worst { ulp, x, y, got, want } = worst;
    let line = format!("{kind} {:8} {ulp:.3} ulp (bound {bound}) at {x:e}, {y:e}: {got:e}, right {want:e}", op.name());
    println!("{line}");
    if *ulp > bound || ulp.is_nan() {
        failures.push(line);
    }
}

#[test]
fn functions_of_one_argument() {
    let step = std::env::var("OXY_TEST_ULP_STEP").map_or(8209, |s| s.parse().unwrap());
    let xs = all_f32(step);
    let wide = all_f64(40_000);
    let mut failures = Vec::new();
    let only = std::env::var("OXY_TEST_ULP_ONLY").ok();
    for (op, bound32, bound64) in BOUNDS {
        if only.as_ref().is_some_and(|names| !names.split(',').any(|n| n == op.name())) {
            continue;
        }
        // Negative arguments of lgamma and digamma have poles where no bound is meant.
        let keep = |x: f64| !matches!(op, ScalarOp::Lgamma | ScalarOp::Digamma) || x.is_nan() || x > 0.0;
        let xs: Vec<f32> = xs.iter().copied().filter(|x| keep((*x).into())).collect();
        let wide: Vec<f64> = wide.iter().copied().filter(|x| keep(*x)).collect();
        report(&mut failures, "f32", *op, &measure_f32(*op, &xs, &xs), *bound32);
        report(&mut failures, "f64", *op, &measure_f64(*op, &wide, &wide), *bound64);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn functions_of_two_arguments() {
    let mut rng = Rng(5);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        0.5,
        -0.5,
        1e30,
        -1e30,
        1e-40,
        f32::INFINITY,
        -f32::INFINITY,
        f32::NAN,
        -3.0,
    ];
    let mut xs: Vec<f32> = Vec::new();
    let mut ys = Vec::new();
    for x in special {
        for y in special {
            xs.push(x);
            ys.push(y);
        }
    }
    for _ in 0..100_000 {
        let near = |rng: &mut Rng| (rng.next() as f64 / u64::MAX as f64 * 40.0 - 8.0) as f32;
        match rng.below(3) {
            0 => xs.push(f32::from_bits(rng.next() as u32)),
            1 => xs.push(near(&mut rng).abs()),
            _ => xs.push(near(&mut rng).round()),
        }
        ys.push(match rng.below(3) {
            0 => f32::from_bits(rng.next() as u32),
            1 => near(&mut rng),
            _ => near(&mut rng).round(),
        });
    }
    let wide_xs: Vec<f64> = xs.iter().map(|x| f64::from(*x)).collect();
    let wide_ys: Vec<f64> = ys.iter().map(|y| f64::from(*y)).collect();
    let mut failures = Vec::new();
    for (op, bound32, bound64) in BINARY_BOUNDS {
        report(&mut failures, "f32", *op, &measure_f32(*op, &xs, &ys), *bound32);
        report(&mut failures, "f64", *op, &measure_f64(*op, &wide_xs, &wide_ys), *bound64);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The interpreter's functions, which other tests compare with, are the same functions.
#[test]
fn interpreter_functions_agree_with_libm() {
    for (op, ..) in BOUNDS {
        for x in [0.1, 0.7, 1.3, 2.5, 20.0] {
            let (got, want) = (interp::function(*op, x, 0.0).unwrap(), reference(*op, x, 0.0));
            let close = (got - want).abs() <= 1e-14 * want.abs() || got.is_nan() && want.is_nan();
            assert!(close, "{} {x}: {got}, {want}", op.name());
        }
    }
}

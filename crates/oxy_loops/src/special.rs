//! Special functions that Rust's and C's libraries lack. Generated code calls these same functions.

use std::f64::consts::PI;

/// The logarithmic derivative of Γ, by recurrence up to 10 and an asymptotic series (torch's algorithm).
pub fn digamma(x: f64) -> f64 {
    const PSI_10: f64 = 2.251_752_589_066_721;
    const SERIES: [f64; 7] = [
        8.333_333_333_333_333e-2,
        -2.109_279_609_279_609_3e-2,
        7.575_757_575_757_576e-3,
        -4.166_666_666_666_667e-3,
        3.968_253_968_253_968e-3,
        -8.333_333_333_333_333e-3,
        8.333_333_333_333_333e-2,
    ];
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / libm::tan(PI * x.fract());
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    if x == 10.0 {
        return sum + PSI_10;
    }
    let mut tail = 0.0;
    if x < 1.0e17 {
        let z = 1.0 / (x * x);
        tail = z * SERIES.iter().fold(0.0, |poly, c| poly * z + c);
    }
    sum + libm::log(x) - 0.5 / x - tail
}

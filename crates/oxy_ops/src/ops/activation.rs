//! Activation functions: ATen's CPU formulas. Narrow floats compute in float32 and round once.

use super::pointwise_unary::sigmoid;
use crate::{
    Body, OpCx, OpDef,
    expr::{Exprs, T},
};
use oxy_graph::DType;
use oxy_loops::ScalarOp::*;

/// A float activation that keeps its dtype. `f` gets numbers already in the compute type.
fn activation(
    cx: &mut OpCx,
    numbers: &[&str],
    round_numbers: bool,
    f: impl Fn(&mut Exprs, T, &[T]) -> T,
) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dtype = x.dtype;
    if !dtype.is_floating_point() || cx.out(0)?.dtype != dtype {
        return None;
    }
    let t = cx.as_dtype(&x, dtype, 0)?;
    let ty = cx.exprs.ty(t);
    let mut values = Vec::new();
    for name in numbers {
        let x = cx.float(name)?;
        let number = cx.exprs.number(x, ty);
        values.push(if round_numbers { cx.exprs.round(number, dtype) } else { number });
    }
    let y = f(cx.exprs, t, &values);
    Some(vec![cx.finish(y, dtype, 0)?])
}

/// x < low ? low : x, which keeps NaN and -0.0 as ATen's clamp does.
pub fn at_least(e: &mut Exprs, x: T, low: T) -> T {
    let below = e.op(Lt, &[x, low]);
    e.op(Select, &[below, low, x])
}

pub fn at_most(e: &mut Exprs, x: T, high: T) -> T {
    let above = e.op(Gt, &[x, high]);
    e.op(Select, &[above, high, x])
}

/// min(max(x + 3, 0), 6)
fn relu6_of_x_plus_3(e: &mut Exprs, x: T) -> T {
    let ty = e.ty(x);
    let (zero, three, six) = (e.int(0, ty), e.int(3, ty), e.int(6, ty));
    let sum = e.op(Add, &[x, three]);
    let sum = e.op(Maximum, &[sum, zero]);
    e.op(Minimum, &[sum, six])
}

fn relu(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    if x.dtype.is_bool() || cx.out(0)?.dtype != x.dtype {
        return None;
    }
    let t = cx.as_dtype(&x, x.dtype, 0)?;
    let zero = cx.exprs.int(0, cx.exprs.ty(t));
    let y = at_least(cx.exprs, t, zero);
    Some(vec![cx.finish(y, x.dtype, 0)?])
}

fn gelu(cx: &mut OpCx) -> Option<Vec<T>> {
    let tanh = match cx.string("approximate")? {
        "none" => false,
        "tanh" => true,
        _ => return None,
    };
    activation(cx, &[], false, |e, x, _| {
        let ty = e.ty(x);
        let (half, one) = (e.number(0.5, ty), e.int(1, ty));
        if tanh {
            let beta = e.number(std::f64::consts::SQRT_2 * std::f64::consts::FRAC_2_SQRT_PI * 0.5, ty);
            let kappa = e.number(0.044715, ty);
            let square = e.op(Mul, &[x, x]);
            let cube = e.op(Mul, &[square, x]);
            let cube = e.op(Mul, &[kappa, cube]);
            let inner = e.op(Add, &[x, cube]);
            let inner = e.op(Mul, &[beta, inner]);
            let tanh = e.op(Tanh, &[inner]);
            let sum = e.op(Add, &[one, tanh]);
            let half_x = e.op(Mul, &[half, x]);
            e.op(Mul, &[half_x, sum])
        } else {
            let alpha = e.number(std::f64::consts::FRAC_1_SQRT_2, ty);
            let inner = e.op(Mul, &[x, alpha]);
            let erf = e.op(Erf, &[inner]);
            let sum = e.op(Add, &[one, erf]);
            let half_x = e.op(Mul, &[x, half]);
            e.op(Mul, &[half_x, sum])
        }
    })
}

/// exp(x) - 1 scaled on the negative side; all numbers unrounded.
fn elu(cx: &mut OpCx) -> Option<Vec<T>> {
    let (alpha, scale) = (cx.float("alpha")?, cx.float("scale")?);
    activation(cx, &["scale", "input_scale"], false, |e, x, n| {
        let ty = e.ty(x);
        // ATen multiplies the two after conversion to the compute type.
        let negative = match ty {
            oxy_loops::Ty::F32 => f64::from(alpha as f32 * scale as f32),
            _ => alpha * scale,
        };
        let negative = e.number(negative, ty);
        let zero = e.int(0, ty);
        let below = e.op(Le, &[x, zero]);
        let scaled = e.op(Mul, &[x, n[1]]);
        let exp = e.op(Expm1, &[scaled]);
        let low = e.op(Mul, &[exp, negative]);
        let high = e.op(Mul, &[x, n[0]]);
        // NaN is not <= 0 and takes the high side, which keeps it.
        e.op(Select, &[below, low, high])
    })
}

fn log_sigmoid(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    if !matches!(x.dtype, DType::F32 | DType::F64 | DType::BF16) || cx.out(1)?.sizes != cx.out(0)?.sizes {
        return None;
    }
    let t = cx.as_dtype(&x, x.dtype, 0)?;
    let e = &mut *cx.exprs;
    let zero = e.int(0, e.ty(t));
    let low = e.op(Minimum, &[t, zero]);
    let magnitude = e.op(Abs, &[t]);
    let negative = e.op(Neg, &[magnitude]);
    let buffer = e.op(Exp, &[negative]);
    let log = e.op(Log1p, &[buffer]);
    let y = e.op(Sub, &[low, log]);
    Some(vec![cx.finish(y, x.dtype, 0)?, cx.finish(buffer, x.dtype, 1)?])
}

fn glu(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let rank = x.sizes.len() as i64;
    let dim = cx.int("dim")?;
    let dim = if dim < 0 { dim + rank } else { dim };
    if !x.dtype.is_floating_point() || dim < 0 || dim >= rank || x.sizes[dim as usize] % 2 != 0 {
        return None;
    }
    let half = x.sizes[dim as usize] / 2;
    let a = cx.exprs.slice(x.t, dim as usize, 0, half);
    let b = cx.exprs.slice(x.t, dim as usize, half, half);
    let gate = sigmoid(cx.exprs, b);
    let y = cx.exprs.op(Mul, &[a, gate]);
    Some(vec![cx.finish(y, x.dtype, 0)?])
}

const fn row(schema: &'static str, body: crate::def::BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), in_place: true }
}

pub const OPS: &[OpDef] = &[
    row("elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor", elu),
    row("gelu(Tensor self, *, str approximate='none') -> Tensor", gelu),
    OpDef { schema: "glu(Tensor self, int dim=-1) -> Tensor", body: Body::Expr(glu), ..OpDef::FALLBACK },
    row("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", |cx| {
        activation(cx, &["lambd"], true, |e, x, n| {
            let zero = e.int(0, e.ty(x));
            let negative = e.op(Neg, &[n[0]]);
            let (above, below) = (e.op(Ge, &[x, negative]), e.op(Le, &[x, n[0]]));
            let inside = e.op(And, &[above, below]);
            e.op(Select, &[inside, zero, x])
        })
    }),
    row("hardsigmoid(Tensor self) -> Tensor", |cx| {
        activation(cx, &[], false, |e, x, _| {
            let y = relu6_of_x_plus_3(e, x);
            let six = e.int(6, e.ty(x));
            e.op(Div, &[y, six])
        })
    }),
    row("hardswish(Tensor self) -> Tensor", |cx| {
        activation(cx, &[], false, |e, x, _| {
            let y = relu6_of_x_plus_3(e, x);
            let y = e.op(Mul, &[x, y]);
            let six = e.int(6, e.ty(x));
            e.op(Div, &[y, six])
        })
    }),
    row("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor", |cx| {
        activation(cx, &["min_val", "max_val"], true, |e, x, n| {
            let y = at_least(e, x, n[0]);
            at_most(e, y, n[1])
        })
    }),
    row("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", |cx| {
        activation(cx, &["negative_slope"], false, |e, x, n| {
            let zero = e.int(0, e.ty(x));
            let above = e.op(Gt, &[x, zero]);
            let low = e.op(Mul, &[x, n[0]]);
            e.op(Select, &[above, x, low])
        })
    }),
    OpDef {
        schema: "log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)",
        body: Body::Expr(log_sigmoid),
        ..OpDef::FALLBACK
    },
    row("mish(Tensor self) -> Tensor", |cx| {
        activation(cx, &[], false, |e, x, _| {
            let exp = e.op(Exp, &[x]);
            let log = e.op(Log1p, &[exp]);
            let tanh = e.op(Tanh, &[log]);
            e.op(Mul, &[x, tanh])
        })
    }),
    row("relu(Tensor self) -> Tensor", relu),
    row("silu(Tensor self) -> Tensor", |cx| {
        activation(cx, &[], false, |e, x, _| {
            let one = e.int(1, e.ty(x));
            let negative = e.op(Neg, &[x]);
            let exp = e.op(Exp, &[negative]);
            let sum = e.op(Add, &[one, exp]);
            e.op(Div, &[x, sum])
        })
    }),
    OpDef {
        schema: "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
        body: Body::Expr(|cx| {
            activation(cx, &["beta", "threshold"], false, |e, x, n| {
                let scaled = e.op(Mul, &[x, n[0]]);
                let above = e.op(Gt, &[scaled, n[1]]);
                let exp = e.op(Exp, &[scaled]);
                let log = e.op(Log1p, &[exp]);
                let soft = e.op(Div, &[log, n[0]]);
                e.op(Select, &[above, x, soft])
            })
        }),
        ..OpDef::FALLBACK
    },
    OpDef {
        schema: "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
        body: Body::Expr(|cx| {
            activation(cx, &["lambd"], true, |e, x, n| {
                let zero = e.int(0, e.ty(x));
                let negative = e.op(Neg, &[n[0]]);
                let (above, below) = (e.op(Gt, &[x, n[0]]), e.op(Lt, &[x, negative]));
                let (high, low) = (e.op(Sub, &[x, n[0]]), e.op(Add, &[x, n[0]]));
                // x * 0 keeps NaN and the sign of zero.
                let inside = e.op(Mul, &[x, zero]);
                let inner = e.op(Select, &[below, low, inside]);
                e.op(Select, &[above, high, inner])
            })
        }),
        ..OpDef::FALLBACK
    },
    row("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", |cx| {
        activation(cx, &["threshold", "value"], false, |e, x, n| {
            let below = e.op(Le, &[x, n[0]]);
            e.op(Select, &[below, n[1], x])
        })
    }),
];

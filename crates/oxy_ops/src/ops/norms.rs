//! Normalisations, inference only. Statistics in the compute type, two passes.

use super::reductions::float_sum;
use crate::{
    Body, OpCx, OpDef,
    def::BodyFn,
    expr::{T, compute_ty},
    promote::Operand,
};
use oxy_loops::{ScalarOp::*, Ty};

/// mean and 1/sqrt(var + eps) over `dims` (kept), and x - mean.
fn standardize(cx: &mut OpCx, x: T, dims: &[usize], n: i64, eps: f64) -> (T, T, T) {
    let ty = cx.exprs.ty(x);
    let sizes = cx.exprs.sizes(x).clone();
    let count = cx.exprs.int(n, ty);
    let sum = float_sum(cx, x, dims, n, ty);
    let mean = cx.exprs.op(Div, &[sum, count]);
    let wide = cx.exprs.broadcast(mean, &sizes);
    let centred = cx.exprs.op(Sub, &[x, wide]);
    let square = cx.exprs.op(Mul, &[centred, centred]);
    let sum = float_sum(cx, square, dims, n, ty);
    let variance = cx.exprs.op(Div, &[sum, count]);
    let rstd = inverse_root(cx, variance, eps);
    (mean, rstd, centred)
}

/// 1 / sqrt(x + eps)
fn inverse_root(cx: &mut OpCx, x: T, eps: f64) -> T {
    let e = &mut *cx.exprs;
    let ty = e.ty(x);
    let eps = e.number(eps, ty);
    let one = e.int(1, ty);
    let sum = e.op(Add, &[x, eps]);
    let root = e.op(Sqrt, &[sum]);
    e.op(Div, &[one, root])
}

/// A float operand's values in `ty`.
fn values(cx: &mut OpCx, operand: &Operand, ty: Ty) -> Option<T> {
    operand.dtype.is_floating_point().then(|| cx.exprs.cast(operand.t, ty))
}

fn layer_norm(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("input")?;
    let shape = cx.ints("normalized_shape")?;
    let (weight, bias) = (cx.optional_tensor("weight")?, cx.optional_tensor("bias")?);
    let eps = cx.float("eps")?;
    let rank = x.sizes.len();
    let first = rank.checked_sub(shape.len())?;
    let n: i64 = shape.iter().product();
    if !x.dtype.is_floating_point() || n == 0 || cx.exprs.is_const(x.t) {
        return None;
    }
    let dims: Vec<usize> = (first..rank).collect();
    let ty = compute_ty(x.dtype)?;
    let (mean, rstd, centred) = standardize(cx, x.t, &dims, n, eps);
    let wide = cx.exprs.broadcast(rstd, &x.sizes);
    let mut y = cx.exprs.op(Mul, &[centred, wide]);
    for (operand, op) in [(weight, Mul), (bias, Add)] {
        let Some(operand) = operand else { continue };
        let t = values(cx, &operand, ty)?;
        let t = cx.exprs.broadcast(t, &x.sizes);
        y = cx.exprs.op(op, &[y, t]);
    }
    statistics(cx, y, mean, rstd, &x)
}

/// The three results of a norm: values, mean and rstd, the latter as recorded.
fn statistics(cx: &mut OpCx, y: T, mean: T, rstd: T, x: &Operand) -> Option<Vec<T>> {
    let mut results = vec![cx.finish(y, x.dtype, 0)?];
    for (i, t) in [mean, rstd].into_iter().enumerate() {
        let meta = cx.out(i + 1)?;
        let t = cx.exprs.reshape(t, &meta.sizes);
        let dtype = meta.dtype;
        let t = cx.exprs.convert(t, dtype)?;
        results.push(cx.finish(t, dtype, i + 1)?);
    }
    Some(results)
}

fn group_norm(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("input")?;
    let (weight, bias) = (cx.optional_tensor("weight")?, cx.optional_tensor("bias")?);
    let (batch, channels, points) = (cx.int("N")?, cx.int("C")?, cx.int("HxW")?);
    let (groups, eps) = (cx.int("group")?, cx.float("eps")?);
    if !x.dtype.is_floating_point() || groups <= 0 || channels % groups != 0 || cx.exprs.is_const(x.t) {
        return None;
    }
    let per_group = channels / groups;
    let n = per_group * points;
    if n == 0 || x.sizes.iter().product::<i64>() != batch * channels * points {
        return None;
    }
    let ty = compute_ty(x.dtype)?;
    let grouped = [batch, groups, per_group, points];
    let t = cx.exprs.reshape(x.t, &grouped);
    let (mean, rstd, centred) = standardize(cx, t, &[2, 3], n, eps);
    let wide = cx.exprs.broadcast(rstd, &grouped);
    let mut y = cx.exprs.op(Mul, &[centred, wide]);
    for (operand, op) in [(weight, Mul), (bias, Add)] {
        let Some(operand) = operand else { continue };
        let t = values(cx, &operand, ty)?;
        let t = cx.exprs.reshape(t, &[1, groups, per_group, 1]);
        let t = cx.exprs.broadcast(t, &grouped);
        y = cx.exprs.op(op, &[y, t]);
    }
    let y = cx.exprs.reshape(y, &x.sizes);
    statistics(cx, y, mean, rstd, &x)
}

/// x·alpha + beta with alpha = w/sqrt(var + eps), beta = b - mean·alpha; eager fuses both sums.
fn batch_norm(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("input")?;
    let (weight, bias) = (cx.optional_tensor("weight")?, cx.optional_tensor("bias")?);
    let (mean, var) = (cx.tensor("running_mean")?, cx.tensor("running_var")?);
    let eps = cx.float("eps")?;
    if !x.dtype.is_floating_point() || x.sizes.len() < 2 {
        return None;
    }
    let ty = compute_ty(x.dtype)?;
    let (mean, var) = (values(cx, &mean, ty)?, values(cx, &var, ty)?);
    let mut alpha = inverse_root(cx, var, eps);
    if let Some(weight) = weight {
        let weight = values(cx, &weight, ty)?;
        alpha = cx.exprs.op(Mul, &[alpha, weight]);
    }
    let bias = match bias {
        Some(bias) => values(cx, &bias, ty)?,
        None => cx.exprs.int(0, ty),
    };
    let negative = cx.exprs.op(Neg, &[mean]);
    let beta = cx.exprs.op(Fma, &[negative, alpha, bias]);
    let mut per_channel = vec![1; x.sizes.len()];
    per_channel[1] = x.sizes[1];
    let mut wide = |t: T| {
        let t = cx.exprs.reshape(t, &per_channel);
        cx.exprs.broadcast(t, &x.sizes)
    };
    let (alpha, beta) = (wide(alpha), wide(beta));
    let y = cx.exprs.op(Fma, &[x.t, alpha, beta]);
    let mut results = vec![cx.finish(y, x.dtype, 0)?];
    for i in 1..cx.n_outputs() {
        // Inference saves no statistics: the other results are empty.
        let meta = cx.out(i)?;
        if meta.numel() != 0 {
            return None;
        }
        let zero = cx.exprs.int(0, compute_ty(meta.dtype)?);
        results.push(cx.fill(zero, &meta.sizes)?);
    }
    Some(results)
}

fn rms_norm(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("input")?;
    let shape = cx.ints("normalized_shape")?;
    let weight = cx.optional_tensor("weight")?;
    let first = x.sizes.len().checked_sub(shape.len())?;
    let n: i64 = shape.iter().product();
    if !x.dtype.is_floating_point() || n == 0 || cx.exprs.is_const(x.t) {
        return None;
    }
    let eps = match (cx.is_none("eps"), x.dtype) {
        (false, _) => cx.float("eps")?,
        (true, oxy_graph::DType::F64) => f64::EPSILON,
        (true, _) => f64::from(f32::EPSILON),
    };
    let ty = compute_ty(x.dtype)?;
    let dims: Vec<usize> = (first..x.sizes.len()).collect();
    let square = cx.exprs.op(Mul, &[x.t, x.t]);
    let sum = float_sum(cx, square, &dims, n, ty);
    let count = cx.exprs.int(n, ty);
    let mean = cx.exprs.op(Div, &[sum, count]);
    let rstd = inverse_root(cx, mean, eps);
    let wide = cx.exprs.broadcast(rstd, &x.sizes);
    let mut y = cx.exprs.op(Mul, &[x.t, wide]);
    if let Some(weight) = weight {
        let weight = values(cx, &weight, ty)?;
        let weight = cx.exprs.broadcast(weight, &x.sizes);
        y = cx.exprs.op(Mul, &[y, weight]);
    }
    let mut results = vec![cx.finish(y, x.dtype, 0)?];
    if cx.n_outputs() > 1 {
        let meta = cx.out(1)?;
        let t = cx.exprs.reshape(rstd, &meta.sizes);
        let t = cx.exprs.convert(t, meta.dtype)?;
        results.push(cx.finish(t, meta.dtype, 1)?);
    }
    Some(results)
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row(
        "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
        rms_norm,
    ),
    row(
        "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        batch_norm,
    ),
    row(
        "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        |cx| if cx.boolean("training")? { None } else { batch_norm(cx) },
    ),
    row(
        "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)",
        group_norm,
    ),
    row(
        "native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
        layer_norm,
    ),
];

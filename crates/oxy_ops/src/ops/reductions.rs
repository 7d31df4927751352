//! Reductions over dimensions.
//!
//! Sums of narrow floats accumulate in float32, long float32 sums in float64 (eager's pairwise summation is about as
//! exact), variances in float64 as eager does. Reductions to a few results over very many elements stay calls:
//! they need threads across the reduced dimension.

use crate::{
    Body, OpCx, OpDef,
    def::BodyFn,
    expr::{T, compute_ty, is_float},
    promote::Operand,
};
use oxy_graph::DType;
use oxy_loops::{
    ReduceOp,
    ScalarOp::{self, *},
    Ty,
};

/// Reduced elements from which float32 sums accumulate in float64.
const LONG: i64 = 4096;
/// Reduced elements from which a reduction needs parallel results to be worth a kernel.
const HUGE: i64 = 1 << 17;

/// The dimensions an argument names; all if it is missing or empty.
fn dims(cx: &OpCx, name: &str, rank: usize) -> Option<Vec<usize>> {
    let listed = if cx.is_none(name) { Vec::new() } else { cx.ints(name)? };
    if listed.is_empty() {
        return Some((0..rank).collect());
    }
    let rank = rank as i64;
    let mut dims = Vec::new();
    for dim in listed {
        let dim = if dim < 0 { dim + rank } else { dim };
        if dim < 0 || dim >= rank {
            return None;
        }
        dims.push(dim as usize);
    }
    Some(dims)
}

/// The number of elements in each reduction; None where a kernel is no good: nothing to reduce, or too much.
fn count(x: &Operand, dims: &[usize]) -> Option<i64> {
    let n: i64 = dims.iter().map(|d| x.sizes[*d]).product();
    let results: i64 = x.sizes.iter().product::<i64>() / n.max(1);
    (n > 0 && !dims.is_empty() && (n < HUGE || results >= 16)).then_some(n)
}

/// Gives a reduced tensor (kept dimensions) as result i is recorded.
fn give(cx: &mut OpCx, t: T, computed: DType, out: usize) -> Option<T> {
    let sizes = cx.out(out)?.sizes.clone();
    let t = cx.exprs.reshape(t, &sizes);
    cx.finish(t, computed, out)
}

/// Σ x over dims as a float sum, accumulated wide enough; the result has `ty`.
pub fn float_sum(cx: &mut OpCx, t: T, dims: &[usize], n: i64, ty: Ty) -> T {
    let e = &mut *cx.exprs;
    let wide = if ty == Ty::F32 && n >= LONG { Ty::F64 } else { ty };
    let x = e.cast(t, wide);
    let sum = e.reduce(x, ReduceOp::Sum, dims);
    e.cast(sum, ty)
}

fn sum_over(cx: &mut OpCx, dims: Vec<usize>) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dtype = cx.out(0)?.dtype;
    let n = count(&x, &dims)?;
    let ty = compute_ty(dtype)?;
    if is_float(ty) {
        // Eager converts to the result's dtype before it sums.
        let t = cx.exprs.convert(x.t, dtype)?;
        let t = solid(cx, t)?;
        let sum = float_sum(cx, t, &dims, n, ty);
        return Some(vec![give(cx, sum, dtype, 0)?]);
    }
    if dtype.is_bool() {
        return None;
    }
    let t = cx.exprs.cast(x.t, ty);
    let t = solid(cx, t)?;
    let sum = cx.exprs.reduce(t, ReduceOp::Sum, &dims);
    Some(vec![give(cx, sum, dtype, 0)?])
}

/// Reductions of constants stay calls.
fn solid(cx: &OpCx, t: T) -> Option<T> {
    (!cx.exprs.is_const(t)).then_some(t)
}

fn sum(cx: &mut OpCx) -> Option<Vec<T>> {
    let rank = cx.tensor("self")?.sizes.len();
    sum_over(cx, (0..rank).collect())
}

fn sum_dim(cx: &mut OpCx) -> Option<Vec<T>> {
    let rank = cx.tensor("self")?.sizes.len();
    let dims = dims(cx, "dim", rank)?;
    sum_over(cx, dims)
}

fn mean_over(cx: &mut OpCx, dims: Vec<usize>) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dtype = cx.out(0)?.dtype;
    let n = count(&x, &dims)?;
    let ty = compute_ty(dtype).filter(|ty| is_float(*ty))?;
    let t = cx.exprs.convert(x.t, dtype)?;
    let t = solid(cx, t)?;
    let sum = float_sum(cx, t, &dims, n, ty);
    let n = cx.exprs.int(n, ty);
    let mean = cx.exprs.op(Div, &[sum, n]);
    Some(vec![give(cx, mean, dtype, 0)?])
}

fn mean(cx: &mut OpCx) -> Option<Vec<T>> {
    let rank = cx.tensor("self")?.sizes.len();
    mean_over(cx, (0..rank).collect())
}

fn mean_dim(cx: &mut OpCx) -> Option<Vec<T>> {
    let rank = cx.tensor("self")?.sizes.len();
    let dims = dims(cx, "dim", rank)?;
    mean_over(cx, dims)
}

/// amax, amin, max, min: NaN wins.
fn extremum(cx: &mut OpCx, op: ReduceOp, on_bool: ReduceOp, dim: Option<&str>) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dims = match dim {
        Some(name) => dims(cx, name, x.sizes.len())?,
        None => (0..x.sizes.len()).collect(),
    };
    count(&x, &dims)?;
    let t = solid(cx, x.t)?;
    let y = cx.exprs.reduce(t, if x.dtype.is_bool() { on_bool } else { op }, &dims);
    Some(vec![give(cx, y, x.dtype, 0)?])
}

fn quantifier(cx: &mut OpCx, op: ReduceOp, dim: Option<&str>) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dims = match dim {
        Some(name) => dims(cx, name, x.sizes.len())?,
        None => (0..x.sizes.len()).collect(),
    };
    count(&x, &dims)?;
    let t = cx.exprs.cast(x.t, Ty::Bool);
    let t = solid(cx, t)?;
    let y = cx.exprs.reduce(t, op, &dims);
    Some(vec![give(cx, y, DType::Bool, 0)?])
}

fn prod(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let dims = dims(cx, "dim", x.sizes.len())?;
    count(&x, &dims)?;
    let dtype = cx.out(0)?.dtype;
    if dtype.is_bool() {
        return None;
    }
    let t = cx.exprs.convert(x.t, dtype)?;
    let t = solid(cx, t)?;
    let y = cx.exprs.reduce(t, ReduceOp::Prod, &dims);
    Some(vec![give(cx, y, dtype, 0)?])
}

/// Σ (x - mean)² and mean over dims, both in float64, dimensions kept.
fn moments(cx: &mut OpCx, t: T, dims: &[usize], n: i64) -> (T, T) {
    let e = &mut *cx.exprs;
    let x = e.cast(t, Ty::F64);
    let count = e.int(n, Ty::F64);
    let sum = e.reduce(x, ReduceOp::Sum, dims);
    let mean = e.op(Div, &[sum, count]);
    let sizes = e.sizes(x).clone();
    let wide = e.broadcast(mean, &sizes);
    let centred = e.op(Sub, &[x, wide]);
    let square = e.op(Mul, &[centred, centred]);
    (e.reduce(square, ReduceOp::Sum, dims), mean)
}

/// var and std (with mean first or last, as the operator gives them).
fn variance(cx: &mut OpCx, root: Option<ScalarOp>, with_mean: bool) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    if !x.dtype.is_floating_point() {
        return None;
    }
    let dims = dims(cx, "dim", x.sizes.len())?;
    let n = count(&x, &dims)?;
    let correction = if cx.is_none("correction") { 1.0 } else { cx.float("correction")? };
    let t = solid(cx, x.t)?;
    let (squares, mean) = moments(cx, t, &dims, n);
    // Eager divides by max(0, n - correction): 0/0 is NaN.
    let divisor = cx.exprs.number((n as f64 - correction).max(0.0), Ty::F64);
    let mut y = cx.exprs.op(Div, &[squares, divisor]);
    if let Some(root) = root {
        y = cx.exprs.op(root, &[y]);
    }
    let ty = compute_ty(x.dtype)?;
    let y = cx.exprs.cast(y, ty);
    let mut results = vec![give(cx, y, x.dtype, 0)?];
    if with_mean {
        let mean = cx.exprs.cast(mean, ty);
        results.push(give(cx, mean, x.dtype, 1)?);
    }
    Some(results)
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row("all(Tensor self) -> Tensor", |cx| quantifier(cx, ReduceOp::All, None)),
    row("all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", |cx| quantifier(cx, ReduceOp::All, Some("dim"))),
    row("all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", |cx| {
        quantifier(cx, ReduceOp::All, Some("dim"))
    }),
    row("amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", |cx| {
        extremum(cx, ReduceOp::Max, ReduceOp::Any, Some("dim"))
    }),
    row("amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", |cx| {
        extremum(cx, ReduceOp::Min, ReduceOp::All, Some("dim"))
    }),
    row("any(Tensor self) -> Tensor", |cx| quantifier(cx, ReduceOp::Any, None)),
    row("any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", |cx| quantifier(cx, ReduceOp::Any, Some("dim"))),
    row("any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", |cx| {
        quantifier(cx, ReduceOp::Any, Some("dim"))
    }),
    row("max(Tensor self) -> Tensor", |cx| extremum(cx, ReduceOp::Max, ReduceOp::Any, None)),
    row("mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", mean),
    row("mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", mean_dim),
    row("min(Tensor self) -> Tensor", |cx| extremum(cx, ReduceOp::Min, ReduceOp::All, None)),
    row("prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", prod),
    row(
        "std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        |cx| variance(cx, Some(Sqrt), false),
    ),
    row("sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", sum),
    row("sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", sum_dim),
    row(
        "var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        |cx| variance(cx, None, false),
    ),
    row(
        "var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        |cx| variance(cx, None, true),
    ),
];

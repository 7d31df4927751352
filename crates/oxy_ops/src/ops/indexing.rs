//! Indexing by tensors. A kernel can't raise, so only indices that are provably in range are computed here: those
//! that are affine in their own position (ranges, broadcast, shifted or scaled), which make indexing a view.

use crate::{
    Body, OpCx, OpDef,
    expr::{Exprs, Kind, T},
};
use oxy_graph::{
    Arg, DType,
    meta::{Dims, contiguous_strides},
};
use oxy_loops::ScalarOp::*;

/// An integer tensor whose element at i is base + Σ steps·i.
#[derive(Clone, Debug)]
struct Ramp {
    base: i64,
    steps: Dims,
}

impl Ramp {
    /// The least and the greatest element.
    fn range(&self, sizes: &[i64]) -> (i64, i64) {
        let reach = self.steps.iter().zip(sizes).map(|(step, size)| step * (size - 1));
        reach.fold((self.base, self.base), |(low, high), r| (low + r.min(0), high + r.max(0)))
    }
}

fn ramp(e: &Exprs, t: T, depth: u32) -> Option<Ramp> {
    let expr = e.get(t);
    let flat = |base: i64| Ramp { base, steps: Dims::from_elem(0, expr.sizes.len()) };
    if depth > 16 || expr.sizes.contains(&0) {
        return None;
    }
    match &expr.kind {
        Kind::Int(x) => Some(flat(*x)),
        Kind::Iota(dim) => {
            let mut ramp = flat(0);
            ramp.steps[*dim as usize] = 1;
            Some(ramp)
        }
        Kind::Op(op @ (Add | Sub | Mul), args) => {
            let (a, b) = (ramp(e, args[0], depth + 1)?, ramp(e, args[1], depth + 1)?);
            // Constants have no sizes of their own.
            let steps =
                |r: &Ramp| if r.steps.is_empty() { Dims::from_elem(0, expr.sizes.len()) } else { r.steps.clone() };
            let (sa, sb) = (steps(&a), steps(&b));
            let is_flat = |s: &Dims| s.iter().all(|x| *x == 0);
            let zip = |f: fn(i64, i64) -> i64| sa.iter().zip(&sb).map(|(x, y)| f(*x, *y)).collect::<Dims>();
            match op {
                Add => Some(Ramp { base: a.base.checked_add(b.base)?, steps: zip(|x, y| x + y) }),
                Sub => Some(Ramp { base: a.base.checked_sub(b.base)?, steps: zip(|x, y| x - y) }),
                _ if is_flat(&sa) => scale(b.base, &sb, a.base),
                _ if is_flat(&sb) => scale(a.base, &sa, b.base),
                _ => None,
            }
        }
        Kind::View { of, layout, strides, offset } => {
            let inner = ramp(e, *of, depth + 1)?;
            let sizes = e.sizes(*of);
            // Only along the one dimension that the values move in, where the view's steps say how they move.
            let moving: Vec<usize> = (0..sizes.len()).filter(|d| sizes[*d] > 1).collect();
            match moving[..] {
                [] => Some(flat(inner.base)),
                [d] if layout[d] == 1 => Some(Ramp {
                    base: inner.base + inner.steps[d] * offset,
                    steps: strides
                        .iter()
                        .zip(&expr.sizes)
                        .map(|(s, n)| if *n > 1 { s * inner.steps[d] } else { 0 })
                        .collect(),
                }),
                _ => None,
            }
        }
        _ => None,
    }
}

fn scale(base: i64, steps: &Dims, factor: i64) -> Option<Ramp> {
    Some(Ramp { base: base.checked_mul(factor)?, steps: steps.iter().map(|s| s * factor).collect() })
}

/// x at ramps along some dimensions (aligned at the last dimension of `index_sizes`), whole along the others.
/// `at` is where the index dimensions stand in the result.
fn take(cx: &mut OpCx, x: T, ramps: &[Option<Ramp>], index_sizes: &[i64], at: usize) -> Option<T> {
    let sizes = cx.exprs.sizes(x).clone();
    let layout = contiguous_strides(&sizes);
    let mut offset = 0;
    let mut moves = Dims::from_elem(0, index_sizes.len());
    let (mut out_sizes, mut strides) = (Dims::new(), Dims::new());
    for d in 0..sizes.len() {
        match ramps.get(d).and_then(Option::as_ref) {
            Some(ramp) => {
                let lead = index_sizes.len().checked_sub(ramp.steps.len())?;
                let (low, high) = ramp.range(&index_sizes[lead..]);
                // Negative indices count from the end; a ramp across zero isn't affine.
                let wrap = if high < 0 { sizes[d] } else { 0 };
                if low + wrap < 0 || high + wrap >= sizes[d] {
                    return None;
                }
                offset += layout[d] * (ramp.base + wrap);
                for (k, step) in ramp.steps.iter().enumerate() {
                    moves[lead + k] += layout[d] * step;
                }
            }
            None => {
                out_sizes.push(sizes[d]);
                strides.push(layout[d]);
            }
        }
    }
    // Views don't go backwards.
    if moves.iter().any(|m| *m < 0) {
        return None;
    }
    for (k, size) in index_sizes.iter().enumerate() {
        out_sizes.insert(at + k, *size);
        strides.insert(at + k, moves[k]);
    }
    Some(cx.exprs.view(x, layout, out_sizes, strides, offset))
}

fn embedding(cx: &mut OpCx) -> Option<Vec<T>> {
    let (weight, indices) = (cx.tensor("weight")?, cx.tensor("indices")?);
    if weight.sizes.len() != 2 || cx.exprs.is_const(weight.t) {
        return None;
    }
    let ramp = ramp(cx.exprs, indices.t, 0)?;
    let y = take(cx, weight.t, &[Some(ramp)], &indices.sizes, 0)?;
    Some(vec![cx.finish(y, weight.dtype, 0)?])
}

fn index_select(cx: &mut OpCx) -> Option<Vec<T>> {
    let (x, indices) = (cx.tensor("self")?, cx.tensor("index")?);
    let rank = x.sizes.len() as i64;
    let dim = cx.int("dim")?;
    let dim = if dim < 0 { dim + rank } else { dim };
    if cx.exprs.is_const(x.t) || dim < 0 || dim >= rank || indices.sizes.len() != 1 {
        return None;
    }
    let mut ramps = vec![None; x.sizes.len()];
    ramps[dim as usize] = Some(ramp(cx.exprs, indices.t, 0)?);
    let y = take(cx, x.t, &ramps, &indices.sizes, dim as usize)?;
    Some(vec![cx.finish(y, x.dtype, 0)?])
}

/// x[i, j, …] with integer indices; those that stand apart would move the index dimensions to the front.
fn index(cx: &mut OpCx) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let items = match cx.arg("indices")?.clone() {
        Arg::List(items) | Arg::Tuple(items) => items,
        _ => return None,
    };
    if cx.exprs.is_const(x.t) {
        return None;
    }
    let mut ramps = Vec::new();
    let mut index_sizes = Dims::new();
    for item in &items {
        ramps.push(match item {
            Arg::None => None,
            Arg::Value(id) => {
                let index = cx.value(*id)?;
                if !matches!(index.dtype, DType::I64 | DType::I32) {
                    return None;
                }
                index_sizes = broadcast_sizes(&index_sizes, &index.sizes)?;
                Some(ramp(cx.exprs, index.t, 0).filter(|r| r.steps.len() == index.sizes.len())?)
            }
            _ => return None,
        });
    }
    let given: Vec<usize> = (0..ramps.len()).filter(|d| ramps[*d].is_some()).collect();
    let (first, last) = (*given.first()?, *given.last()?);
    if last - first + 1 != given.len() {
        return None;
    }
    let y = take(cx, x.t, &ramps, &index_sizes, first)?;
    Some(vec![cx.finish(y, x.dtype, 0)?])
}

fn broadcast_sizes(a: &[i64], b: &[i64]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let at = |s: &[i64], d: usize| (d + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|d| match (at(a, d), at(b, d)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

pub const OPS: &[OpDef] = &[
    OpDef {
        schema: "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
        body: Body::Expr(embedding),
        ..OpDef::FALLBACK
    },
    OpDef {
        schema: "index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
        body: Body::Expr(index),
        ..OpDef::FALLBACK
    },
    OpDef {
        schema: "index_select(Tensor self, int dim, Tensor index) -> Tensor",
        body: Body::Expr(index_select),
        ..OpDef::FALLBACK
    },
];

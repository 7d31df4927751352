//! Scheduling of one kernel: loop order, collapsed dimensions, the vector dimension, what is split over threads.
//!
//! Takes a kernel whose dimensions are in any order and gives one that computes the same. Parallel dimensions come
//! first, then reduce dimensions, each with the smallest strides innermost.

use crate::kernel::{Body, DimKind, Index, Kernel, Phase, Split};
use crate::scalar::Expr;
use smallvec::SmallVec;

/// Outer points from which a kernel is split over its outer dimensions rather than along its vector, unless the
/// vector is too short to be split.
const ENOUGH_OUTER: i64 = 8;
const LONG_VECTOR: i64 = 1024;

pub fn schedule(kernel: &mut Kernel) {
    reorder(kernel);
    collapse(kernel);
    choose_vector(kernel);
}

fn bodies(kernel: &Kernel) -> impl Iterator<Item = &Body> {
    kernel.phases.iter().map(|phase| match phase {
        Phase::Point(body) | Phase::Loop(body) => body,
    })
}

fn bodies_mut(kernel: &mut Kernel) -> impl Iterator<Item = &mut Body> {
    kernel.phases.iter_mut().map(|phase| match phase {
        Phase::Point(body) | Phase::Loop(body) => body,
    })
}

/// Every address of a kernel, stores first.
fn accesses(kernel: &Kernel) -> Vec<&Index> {
    let stores = bodies(kernel).flat_map(|b| b.stores.iter().map(|s| &s.index));
    let loads = bodies(kernel)
        .flat_map(|b| b.exprs.iter().filter_map(|e| if let Expr::Load { index, .. } = e { Some(index) } else { None }));
    stores.chain(loads).collect()
}

fn for_each_index(body: &mut Body, mut f: impl FnMut(&mut Index)) {
    for store in &mut body.stores {
        f(&mut store.index);
    }
    for expr in &mut body.exprs {
        if let Expr::Load { index, .. } = expr {
            f(index);
        }
    }
}

/// Drops dimensions of extent 1 and sorts the others by the first stride that isn't 0, stores before loads.
fn reorder(kernel: &mut Kernel) {
    let mut order: Vec<usize> = (0..kernel.dims.len()).filter(|d| kernel.dims[*d].extent != 1).collect();
    let all = accesses(kernel);
    let stride = |d: usize| all.iter().map(|index| index.strides[d]).find(|s| *s != 0).unwrap_or(i64::MAX);
    order.sort_by_key(|d| (kernel.dims[*d].kind == DimKind::Reduce, std::cmp::Reverse(stride(*d)), *d));
    if order.is_empty() && !kernel.dims.is_empty() {
        // Keep one dimension, so that a kernel always has a range.
        let parallel = kernel.dims.iter().position(|d| d.kind == DimKind::Parallel);
        order.push(parallel.unwrap_or(0));
    }
    // A kernel with reduce phases keeps a reduce dimension, even of extent 1.
    let has_loop = kernel.phases.iter().any(|p| matches!(p, Phase::Loop(_)));
    if has_loop && !order.iter().any(|d| kernel.dims[*d].kind == DimKind::Reduce) {
        order.extend(kernel.dims.iter().position(|d| d.kind == DimKind::Reduce));
    }
    permute(kernel, &order);
}

/// Rewrites the kernel over the dimensions `order`; dimensions left out have extent 1.
fn permute(kernel: &mut Kernel, order: &[usize]) {
    let dims = order.iter().map(|d| kernel.dims[*d]).collect();
    for body in bodies_mut(kernel) {
        for_each_index(body, |index| {
            index.strides = order.iter().map(|d| index.strides[*d]).collect();
        });
        for expr in &mut body.exprs {
            if let Expr::Iota(d) = expr {
                *expr = match order.iter().position(|o| *o == *d as usize) {
                    Some(new) => Expr::Iota(new as u32),
                    None => Expr::Int(0),
                };
            }
        }
    }
    kernel.dims = dims;
}

/// Merges neighbours d, d+1 that every access walks as one.
fn collapse(kernel: &mut Kernel) {
    let mut d = 0;
    while d + 1 < kernel.dims.len() {
        let inner = kernel.dims[d + 1].extent;
        let same_kind = kernel.dims[d].kind == kernel.dims[d + 1].kind;
        let is_iota = bodies(kernel)
            .flat_map(|b| &b.exprs)
            .any(|e| matches!(e, Expr::Iota(i) if *i as usize == d || *i as usize == d + 1));
        let walks = |index: &&Index| index.strides[d] == index.strides[d + 1] * inner;
        if !same_kind || is_iota || !accesses(kernel).iter().all(walks) {
            d += 1;
            continue;
        }
        kernel.dims[d + 1].extent *= kernel.dims[d].extent;
        let order: Vec<usize> = (0..kernel.dims.len()).filter(|o| *o != d).collect();
        permute(kernel, &order);
        d = d.saturating_sub(1);
    }
}

/// The dimension along which most accesses are contiguous.
fn choose_vector(kernel: &mut Kernel) {
    let scores: SmallVec<[i64; 4]> = (0..kernel.dims.len())
        .map(|d| {
            let mut score = 0;
            for body in bodies(kernel) {
                for store in &body.stores {
                    score += access_score(store.index.strides[d], 3);
                }
                for expr in &body.exprs {
                    if let Expr::Load { index, .. } = expr {
                        score += access_score(index.strides[d], 2);
                    }
                }
            }
            if kernel.dims[d].extent < 4 { score.min(0) - 1 } else { score }
        })
        .collect();
    let best = (0..kernel.dims.len()).max_by_key(|d| (scores[*d], *d));
    let best = best.filter(|d| scores[*d] > 0 || kernel.dims.len() == 1);
    kernel.vector_dim = best.map(|d| d as u32);
    let parallel_vector = best.filter(|d| kernel.dims[*d].kind == DimKind::Parallel);
    kernel.split = Split::Outer;
    if let Some(d) = parallel_vector {
        let outer = kernel.range();
        if outer == 1 || (outer < ENOUGH_OUTER && kernel.dims[d].extent >= LONG_VECTOR) {
            kernel.split = Split::Vector;
        }
    }
}

fn access_score(stride: i64, weight: i64) -> i64 {
    match stride {
        1 => weight,
        0 => 0,
        _ => -weight,
    }
}

//! How wide and how often: lanes, unrolled copies and the kind of tail, chosen per loop.
//!
//! Lanes fill a vector register with the narrowest compute type in use. Copies hide latency; they are limited by
//! registers and by code size, since compile time grows with every copy. The numbers come from measurements of
//! relu, gelu, softmax, layer norm and sums.

use crate::{emit::MAX_COPIES, spell, target::HostTarget};
use oxy_loops::{Body, Expr, Index, Kernel, Phase, ScalarOp, Ty};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub lanes: u32,
    pub copies: u32,
    /// The incomplete last vector runs under a mask; otherwise point by point.
    pub masked_tail: bool,
}

impl Shape {
    /// For a kernel whose vector dimension is parallel. `extent` is its length where it is known.
    pub fn of_kernel(kernel: &Kernel, target: &HostTarget, extent: Option<i64>) -> Shape {
        let bodies: Vec<&Body> = kernel.phases.iter().map(body_of).collect();
        choose(kernel, &bodies, target, extent)
    }

    /// For one `Loop` phase along a reduced vector dimension.
    pub fn of_body(kernel: &Kernel, body: &Body, target: &HostTarget, extent: i64) -> Shape {
        choose(kernel, &[body], target, Some(extent))
    }
}

fn body_of(phase: &Phase) -> &Body {
    match phase {
        Phase::Point(body) | Phase::Loop(body) => body,
    }
}

fn choose(kernel: &Kernel, bodies: &[&Body], target: &HostTarget, extent: Option<i64>) -> Shape {
    let types = || bodies.iter().flat_map(|b| &b.types);
    let wide_only = types().all(|t| matches!(t, Ty::F64 | Ty::I64 | Ty::Bool)) && types().any(|t| *t != Ty::Bool);
    let mut lanes = target.vector_bits / if wide_only { 64 } else { 32 };
    let mut copies = copies(kernel, bodies, target, wide_only);
    if let Some(extent) = extent {
        let extent = u32::try_from(extent.max(1)).unwrap_or(u32::MAX);
        lanes = lanes.min(extent.min(1 << 16).next_power_of_two());
        copies = copies.min(extent.div_ceil(lanes));
    }
    Shape { lanes, copies, masked_tail: lanes > 1 && bodies.iter().all(|b| stores_can_be_masked(kernel, b, target)) }
}

fn copies(kernel: &Kernel, bodies: &[&Body], target: &HostTarget, wide_only: bool) -> u32 {
    let exprs = || bodies.iter().flat_map(|b| b.exprs.iter().zip(&b.types));
    let cost: u32 = exprs().map(|(expr, ty)| cost(kernel, expr, *ty, wide_only)).sum();
    let accumulators: u32 = bodies.iter().map(|b| b.reductions.len() as u32).sum();
    let budget = if target.vector_registers >= 32 { 100 } else { 24 };
    let by_cost = match cost {
        c if c <= budget => 4,
        c if c <= 5 * budget => 2,
        _ => 1,
    };
    let by_registers = (target.vector_registers / 2) / accumulators.max(1);
    by_cost.min(by_registers).clamp(1, MAX_COPIES as u32)
}

/// Rough count of vector instructions.
fn cost(kernel: &Kernel, expr: &Expr, ty: Ty, wide_only: bool) -> u32 {
    use ScalarOp::*;
    let ops = match expr {
        Expr::Float(_) | Expr::Int(_) | Expr::Slot(_) => 0,
        Expr::Iota(_) | Expr::Cast(_) => 2,
        Expr::Round(..) => 6,
        // Lane by lane: little speed and much code in more copies.
        Expr::Load { index, .. } => {
            let stride = kernel.vector_dim.map_or(0, |d| index.strides[d as usize]);
            if index.indirect.is_empty() && (0..=1).contains(&stride) { 1 } else { 120 }
        }
        Expr::Op(op, _) => match op {
            Exp | Exp2 | Erf | Tanh | Log => 20,
            Expm1 | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Asinh | Acosh
            | Atanh | Atan2 | Erfc | Pow => 50,
            Lgamma | Digamma | Fmod | Remainder | IntDivTrunc | IntDivFloor | IntRemTrunc => 50,
            Div | Sqrt | Rsqrt | Reciprocal => 3,
            _ => 1,
        },
    };
    // A 64-bit value in a kernel of 32-bit lanes takes two registers.
    if !wide_only && matches!(ty, Ty::F64 | Ty::I64) { 2 * ops } else { ops }
}

fn stores_can_be_masked(kernel: &Kernel, body: &Body, target: &HostTarget) -> bool {
    let contiguous = |index: &Index| {
        let stride = kernel.vector_dim.map_or(0, |d| index.strides[d as usize]);
        stride == 1 && index.indirect.is_empty()
    };
    body.stores.iter().all(|store| {
        let storage = spell::storage_kind(kernel.params[store.param as usize].dtype);
        let bits = storage.map_or(8, |k| k.bits());
        contiguous(&store.index) && if bits >= 32 { target.has_masks } else { target.has_narrow_masks }
    })
}

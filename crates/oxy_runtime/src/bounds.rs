//! Checks that a kernel stays inside its buffers, from its loop nest and the buffers' metadata.
//!
//! Machine code has no bounds checks; this is the one place where an address error of an earlier stage becomes a build
//! error instead of a write into someone's memory. Data-dependent and masked accesses are the producer's promise.

use oxy_graph::TensorMeta;
use oxy_loops::{Body, Expr, Index, Kernel, Phase};

/// None if every access of the kernel is inside the buffer's elements; else what is wrong.
pub fn check_launch(kernel: &Kernel, buffers: &[&TensorMeta]) -> Option<String> {
    if kernel.params.len() != buffers.len() {
        return Some(format!("kernel {} takes {} buffers, not {}", kernel.name, kernel.params.len(), buffers.len()));
    }
    for (i, (param, meta)) in kernel.params.iter().zip(buffers).enumerate() {
        if param.dtype != meta.dtype {
            let (expected, given) = (param.dtype.name(), meta.dtype.name());
            return Some(format!("parameter {i} of kernel {} is {expected}, its buffer {given}", kernel.name));
        }
    }
    if kernel.dims.iter().any(|dim| dim.extent <= 0) {
        return None; // no point is visited
    }
    kernel.phases.iter().find_map(|phase| {
        let (Phase::Point(body) | Phase::Loop(body)) = phase;
        check_body(kernel, body, buffers)
    })
}

fn check_body(kernel: &Kernel, body: &Body, buffers: &[&TensorMeta]) -> Option<String> {
    let loads = body.exprs.iter().filter_map(|expr| match expr {
        Expr::Load { param, index, mask: None } => Some((*param, index)),
        _ => None,
    });
    let stores = body.stores.iter().map(|store| (store.param, &store.index));
    for (param, index) in loads.chain(stores) {
        let Some(meta) = buffers.get(param as usize) else {
            return Some(format!("kernel {} has no parameter {param}", kernel.name));
        };
        if !index.indirect.is_empty() {
            continue;
        }
        let (low, high) = reach(kernel, index);
        let end = elements(meta);
        if low < 0 || high >= end {
            return Some(format!(
                "kernel {} reaches elements {low}..={high} of parameter {param}, which has {end} ({meta})",
                kernel.name
            ));
        }
    }
    None
}

/// The lowest and highest element that an index reaches.
fn reach(kernel: &Kernel, index: &Index) -> (i64, i64) {
    let (mut low, mut high) = (index.base, index.base);
    for (stride, dim) in index.strides.iter().zip(&kernel.dims) {
        let far = stride.saturating_mul(dim.extent - 1);
        low = low.saturating_add(far.min(0));
        high = high.saturating_add(far.max(0));
    }
    (low, high)
}

/// Elements from a tensor's first to after its last.
fn elements(meta: &TensorMeta) -> i64 {
    crate::memory_plan::extent_bytes(meta) as i64 / meta.dtype.itemsize() as i64
}

/// Points that a worthwhile part of a parallel range visits; torch's own figure for elementwise loops.
const POINTS_PER_PART: i64 = 32768;

/// A sensible `grain` for a kernel: small ranges run in the calling thread.
pub fn default_grain(kernel: &Kernel) -> i64 {
    let points: i64 = kernel.dims.iter().map(|dim| dim.extent.max(1)).fold(1, i64::saturating_mul);
    let per_item = points / kernel.range().max(1);
    (POINTS_PER_PART / per_item.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxy_graph::DType;
    use oxy_loops::{Dim, DimKind, Param, Split, Store, Ty, V};

    fn copy_kernel(n: i64, load_base: i64) -> Kernel {
        let index = |base| Index { base, strides: [1].as_slice().into(), indirect: vec![] };
        let body = Body {
            exprs: vec![Expr::Load { param: 0, index: index(load_base), mask: None }],
            types: vec![Ty::F32],
            stores: vec![Store { param: 1, index: index(0), value: V(0) }],
            ..Body::default()
        };
        Kernel {
            name: "copy".into(),
            params: vec![Param { dtype: DType::F32, written: false }, Param { dtype: DType::F32, written: true }],
            dims: vec![Dim { extent: n, kind: DimKind::Parallel }],
            vector_dim: Some(0),
            phases: vec![Phase::Point(body)],
            slots: vec![],
            split: Split::Vector,
        }
    }

    #[test]
    fn accesses_outside_are_found() {
        let meta = TensorMeta::contiguous(DType::F32, &[4, 2]);
        assert_eq!(check_launch(&copy_kernel(8, 0), &[&meta, &meta]), None);
        let error = check_launch(&copy_kernel(8, 1), &[&meta, &meta]);
        assert!(error.is_some_and(|text| text.contains("1..=8 of parameter 0")));
        assert!(check_launch(&copy_kernel(8, -1), &[&meta, &meta]).is_some());
        assert!(check_launch(&copy_kernel(9, 0), &[&meta, &meta]).is_some());
        assert!(check_launch(&copy_kernel(8, 0), &[&meta]).is_some());
        let other = TensorMeta::contiguous(DType::F64, &[8]);
        assert!(check_launch(&copy_kernel(8, 0), &[&meta, &other]).is_some());
        assert_eq!(default_grain(&copy_kernel(8, 0)), 32768);
    }
}

//! Indexing by tensors. A kernel can't raise, so only indices that are provably in range are computed here.

use crate::{
    Body, OpCx, OpDef,
    expr::{Kind, T},
};
use oxy_graph::meta::contiguous_strides;

/// An embedding of `arange(n)` is the first n rows.
fn embedding(cx: &mut OpCx) -> Option<Vec<T>> {
    let (weight, indices) = (cx.tensor("weight")?, cx.tensor("indices")?);
    if cx.exprs.is_const(weight.t) {
        return None;
    }
    let (rows, width) = match weight.sizes.as_slice() {
        [rows, width] => (*rows, *width),
        _ => return None,
    };
    // The indices along one of their dimensions, the same for all others.
    let mut t = indices.t;
    let mut dim = None;
    loop {
        let expr = cx.exprs.get(t);
        match &expr.kind {
            Kind::Iota(d) => {
                let d = *d as usize;
                if dim.is_none() {
                    dim = Some(d);
                }
                if expr.sizes[d] > rows {
                    return None;
                }
                break;
            }
            // A broadcast or unsqueezed range.
            Kind::View { of, strides, offset: 0, .. } if dim.is_none() && cx.exprs.sizes(*of).len() == 1 => {
                let moving: Vec<usize> = (0..strides.len()).filter(|d| expr.sizes[*d] > 1 && strides[*d] != 0).collect();
                match moving[..] {
                    [d] if strides[d] == 1 && expr.sizes[d] == cx.exprs.sizes(*of)[0] => dim = Some(d),
                    _ => return None,
                }
                t = *of;
            }
            _ => return None,
        }
    }
    let dim = dim?;
    let out = cx.out(0)?.sizes.clone();
    let mut strides = oxy_graph::meta::Dims::from_elem(0, out.len());
    strides[dim] = width;
    *strides.last_mut()? = 1;
    let layout = contiguous_strides(&weight.sizes);
    let y = cx.exprs.view(weight.t, layout, out, strides, 0);
    Some(vec![cx.finish(y, weight.dtype, 0)?])
}

pub const OPS: &[OpDef] = &[OpDef {
    schema: "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    body: Body::Expr(embedding),
    ..OpDef::FALLBACK
}];

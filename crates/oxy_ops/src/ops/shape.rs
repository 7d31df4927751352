//! Joining tensors. The parts are stored one by one into the result.

use crate::{
    Body, OpCx, OpDef,
    def::BodyFn,
    expr::{Kind, T},
};

fn join(cx: &mut OpCx, parts: Vec<T>, dim: usize) -> Option<Vec<T>> {
    let out = cx.out(0)?;
    let ty = crate::expr::compute_ty(out.dtype)?;
    let total: i64 = parts.iter().map(|t| cx.exprs.sizes(*t).get(dim).copied().unwrap_or(0)).sum();
    let fits = parts.iter().all(|t| {
        let sizes = cx.exprs.sizes(*t);
        sizes.len() == out.sizes.len() && (0..sizes.len()).all(|d| d == dim || sizes[d] == out.sizes[d])
    });
    if !fits || total != out.sizes.get(dim).copied()? {
        return None;
    }
    if let [single] = parts[..] {
        return Some(vec![single]);
    }
    Some(vec![cx.exprs.add(out.sizes.clone(), ty, Kind::Concat { parts, dim: dim as u32 })])
}

fn dim_of(cx: &OpCx, rank: usize) -> Option<usize> {
    let dim = cx.int("dim")?;
    let dim = if dim < 0 { dim + rank as i64 } else { dim };
    (dim >= 0 && dim < rank as i64).then_some(dim as usize)
}

fn cat(cx: &mut OpCx) -> Option<Vec<T>> {
    let tensors = cx.tensors("tensors")?;
    let out = cx.out(0)?.clone();
    let dim = dim_of(cx, out.sizes.len())?;
    let mut parts = Vec::new();
    for x in &tensors {
        // Old habit of torch's: empty one-dimensional tensors are skipped, whatever the others' rank.
        if x.sizes.as_slice() == [0] && out.sizes.len() != 1 {
            continue;
        }
        let t = cx.exprs.convert(x.t, out.dtype)?;
        parts.push(cx.fill(t, &x.sizes)?);
    }
    join(cx, parts, dim)
}

fn stack(cx: &mut OpCx) -> Option<Vec<T>> {
    let tensors = cx.tensors("tensors")?;
    let out = cx.out(0)?.clone();
    let dim = dim_of(cx, out.sizes.len())?;
    let mut parts = Vec::new();
    for x in &tensors {
        let t = cx.exprs.convert(x.t, out.dtype)?;
        let mut sizes = x.sizes.clone();
        sizes.insert(dim, 1);
        let t = cx.fill(t, &x.sizes)?;
        let t = cx.exprs.reshape(t, &sizes);
        parts.push(cx.fill(t, &sizes)?);
    }
    join(cx, parts, dim)
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row("cat(Tensor[] tensors, int dim=0) -> Tensor", cat),
    row("stack(Tensor[] tensors, int dim=0) -> Tensor", stack),
];

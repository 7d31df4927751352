//! Copies and dtype conversions.

use crate::{Body, OpCx, OpDef, def::BodyFn, expr::T};
use oxy_graph::Device;

/// The argument's values in the result's dtype. Memory format is the recorded metadata's business.
fn copy_of(cx: &mut OpCx, name: &str) -> Option<Vec<T>> {
    let x = cx.tensor(name)?;
    let dtype = cx.out(0)?.dtype;
    if cx.out(0)?.device != Device::CPU {
        return None;
    }
    let t = cx.as_dtype(&x, dtype, 0)?;
    Some(vec![cx.fill(t, &cx.out(0)?.sizes.clone())?])
}

fn to_copy(cx: &mut OpCx) -> Option<Vec<T>> {
    if !cx.is_none("pin_memory") && cx.boolean("pin_memory")? {
        return None;
    }
    copy_of(cx, "self")
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

pub const OPS: &[OpDef] = &[
    row(
        "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
         bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
        to_copy,
    ),
    row("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", |cx| copy_of(cx, "self")),
    OpDef {
        schema: "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
        body: Body::Expr(|cx| copy_of(cx, "src")),
        in_place: true,
    },
    row("lift_fresh_copy(Tensor self) -> Tensor", |cx| copy_of(cx, "self")),
];

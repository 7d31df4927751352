//! Tensors from nothing: constants and ranges, inlined where they are used.

use crate::{
    Body, OpCx, OpDef,
    def::BodyFn,
    expr::{T, compute_ty},
    promote::Operand,
};
use oxy_graph::{Arg, Device};
use oxy_loops::{ScalarOp::*, Ty};

fn constant(cx: &mut OpCx, value: Operand) -> Option<Vec<T>> {
    let out = cx.out(0)?;
    if out.device != Device::CPU || (!cx.is_none("pin_memory") && cx.boolean("pin_memory") == Some(true)) {
        return None;
    }
    let t = cx.as_dtype(&value, out.dtype, 0)?;
    Some(vec![cx.fill(t, &out.sizes)?])
}

fn number(cx: &mut OpCx, name: &str) -> Option<Vec<T>> {
    let value = cx.operand(name)?;
    constant(cx, value)
}

fn filled(cx: &mut OpCx, x: i64) -> Option<Vec<T>> {
    let ty = compute_ty(cx.out(0)?.dtype)?;
    let out = cx.out(0)?;
    if out.device != Device::CPU || (!cx.is_none("pin_memory") && cx.boolean("pin_memory") == Some(true)) {
        return None;
    }
    let t = cx.exprs.int(x, ty);
    Some(vec![cx.fill(t, &out.sizes)?])
}

/// Integer ranges of integers; others stay calls (eager computes them in several ways).
fn arange(cx: &mut OpCx) -> Option<Vec<T>> {
    let integer = |cx: &OpCx, name: &str, default: i64| match cx.arg(name) {
        None => Some(default),
        Some(Arg::Int(i)) => Some(*i),
        Some(_) => None,
    };
    let (start, step) = (integer(cx, "start", 0)?, integer(cx, "step", 1)?);
    integer(cx, "end", 0)?;
    let out = cx.out(0)?;
    if !out.dtype.is_integral() || out.device != Device::CPU || out.sizes.len() != 1 {
        return None;
    }
    let e = &mut *cx.exprs;
    let mut t = e.iota(&out.sizes, 0);
    if step != 1 {
        let step = e.int(step, Ty::I64);
        t = e.op(Mul, &[t, step]);
    }
    if start != 0 {
        let start = e.int(start, Ty::I64);
        t = e.op(Add, &[t, start]);
    }
    let t = e.convert(t, out.dtype)?;
    Some(vec![t])
}

/// Keeps the lower (or upper) triangle of the last two dimensions.
fn triangle(cx: &mut OpCx, lower: bool) -> Option<Vec<T>> {
    let x = cx.tensor("self")?;
    let diagonal = cx.int("diagonal")?;
    let rank = x.sizes.len() as u32;
    if rank < 2 {
        return None;
    }
    let t = cx.as_dtype(&x, x.dtype, 0)?;
    let e = &mut *cx.exprs;
    let (row, column) = (e.iota(&x.sizes, rank - 2), e.iota(&x.sizes, rank - 1));
    let distance = e.op(Sub, &[column, row]);
    let diagonal = e.int(diagonal, Ty::I64);
    let keep = e.op(if lower { Le } else { Ge }, &[distance, diagonal]);
    let zero = e.int(0, e.ty(t));
    let y = e.op(Select, &[keep, t, zero]);
    Some(vec![cx.finish(y, x.dtype, 0)?])
}

const fn row(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { schema, body: Body::Expr(body), ..OpDef::FALLBACK }
}

const fn in_place(schema: &'static str, body: BodyFn) -> OpDef {
    OpDef { in_place: true, ..row(schema, body) }
}

/// The tail of every factory's schema.
macro_rules! factory {
    ($head:literal) => {
        concat!(
            $head,
            ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
        )
    };
}

pub const OPS: &[OpDef] = &[
    row(factory!("arange(Scalar end"), arange),
    row(factory!("arange.start(Scalar start, Scalar end"), arange),
    row(factory!("arange.start_step(Scalar start, Scalar end, Scalar step=1"), arange),
    in_place("fill.Scalar(Tensor self, Scalar value) -> Tensor", |cx| number(cx, "value")),
    in_place("fill.Tensor(Tensor self, Tensor value) -> Tensor", |cx| number(cx, "value")),
    row(factory!("full(SymInt[] size, Scalar fill_value"), |cx| number(cx, "fill_value")),
    row(
        "full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        |cx| number(cx, "fill_value"),
    ),
    row(factory!("new_full(Tensor self, SymInt[] size, Scalar fill_value"), |cx| number(cx, "fill_value")),
    row(factory!("new_ones(Tensor self, SymInt[] size"), |cx| filled(cx, 1)),
    row(factory!("new_zeros(Tensor self, SymInt[] size"), |cx| filled(cx, 0)),
    row(factory!("ones(SymInt[] size"), |cx| filled(cx, 1)),
    row(
        "ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        |cx| filled(cx, 1),
    ),
    row(factory!("scalar_tensor(Scalar s"), |cx| number(cx, "s")),
    in_place("tril(Tensor self, SymInt diagonal=0) -> Tensor", |cx| triangle(cx, true)),
    in_place("triu(Tensor self, SymInt diagonal=0) -> Tensor", |cx| triangle(cx, false)),
    in_place("zero(Tensor self) -> Tensor", |cx| filled(cx, 0)),
    row(factory!("zeros(SymInt[] size"), |cx| filled(cx, 0)),
    row(
        "zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        |cx| filled(cx, 0),
    ),
];

//! Operators whose results always are views of their first argument: the same storage under other metadata, which the
//! graph records. Operators that only sometimes give a view (`reshape`, `contiguous`, `to`) stay calls.
//!
//! `_unsafe_view` and `unsafe_split` have no alias in their schema, but what they give is a view all the same.

use crate::{Body, OpDef};

const fn view(schema: &'static str) -> OpDef {
    OpDef { schema, body: Body::View, ..OpDef::FALLBACK }
}

#[rustfmt::skip]
pub const OPS: &[OpDef] = &[
    view("_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)"),
    view("_unsafe_view(Tensor self, SymInt[] size) -> Tensor"),
    view("alias(Tensor(a) self) -> Tensor(a)"),
    view("as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)"),
    view("chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]"),
    view("detach(Tensor(a) self) -> Tensor(a)"),
    view("diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)"),
    view("expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"),
    view("lift_fresh(Tensor(a) self) -> Tensor(a)"),
    view("permute(Tensor(a) self, int[] dims) -> Tensor(a)"),
    view("select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)"),
    view("slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)"),
    view("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"),
    view("split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]"),
    view("split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]"),
    view("squeeze(Tensor(a) self) -> Tensor(a)"),
    view("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)"),
    view("squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)"),
    view("t(Tensor(a) self) -> Tensor(a)"),
    view("transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"),
    view("unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"),
    view("unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)"),
    view("unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]"),
    view("unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]"),
    view("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)"),
    view("view(Tensor(a) self, SymInt[] size) -> Tensor(a)"),
];

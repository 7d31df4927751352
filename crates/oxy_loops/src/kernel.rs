//! The kernel: dimensions, phases, bodies.
//!
//! Semantics. The *parallel* dimensions are visited in any order, from any thread. For each of their points the
//! phases run in order. A `Point` phase runs its body once; a `Loop` phase runs its body for every point of
//! the *reduce* dimensions and folds reductions into slots. Slots live for one parallel point and carry
//! values from phase to phase. A softmax is Loop(max) · Loop(sum of exp) · Loop(store); a pointwise kernel
//! has no reduce dimension and one `Point` phase.
//!
//! If `vector_dim` is a reduce dimension, slots are scalars and loops fold vector accumulators (contiguous
//! rows). If it is a parallel dimension, every slot is a vector across neighbouring points (reductions over
//! outer dimensions, pointwise kernels). The vector dimension should have stride 1 (or 0) where memory is
//! contiguous; other strides are allowed and are gathered or done in scalar code.

use crate::scalar::{Expr, ReduceOp, Ty};
use oxy_graph::DType;
use smallvec::SmallVec;

/// A value of one body: the position of its expression in `Body::exprs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct V(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DimKind {
    Parallel,
    Reduce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    pub extent: i64,
    pub kind: DimKind,
}

/// A buffer of the kernel: pointer number i of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    pub dtype: DType,
    pub written: bool,
}

/// An element address: base + Σ strides[d]·index[d] + Σ stride·value, all in elements of the parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Index {
    pub base: i64,
    /// One stride per kernel dimension.
    pub strides: SmallVec<[i64; 4]>,
    /// Data-dependent terms: (I64 value, stride). The producer guarantees or has checked the range.
    pub indirect: Vec<(V, i64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    pub param: u32,
    pub index: Index,
    /// Converted to the parameter's dtype (round to nearest even).
    pub value: V,
}

/// slot ← slot `op` value, over all points of the loop; the slot starts at the operation's identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    pub op: ReduceOp,
    pub value: V,
    pub slot: u32,
}

/// A straight-line scalar program. Expressions refer to earlier ones only.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Body {
    pub exprs: Vec<Expr>,
    /// Type of each expression.
    pub types: Vec<Ty>,
    pub stores: Vec<Store>,
    /// `Loop` phases only.
    pub reductions: Vec<Reduction>,
    /// slot ← value; `Point` phases only.
    pub sets: Vec<(u32, V)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    Point(Body),
    Loop(Body),
}

/// What the range lo..hi of a kernel call counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Linear index over all parallel dimensions except a parallel vector dimension.
    Outer,
    /// Index along the (parallel) vector dimension; all other parallel dimensions run inside.
    Vector,
}

/// Entry point in machine code: `extern "C" fn(buffers: *const *mut u8, lo: i64, hi: i64)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub name: String,
    pub params: Vec<Param>,
    /// Outermost first. Reduce dimensions may stand anywhere; loops nest in this order.
    pub dims: Vec<Dim>,
    /// None: no dimension is worth vectorising (all scalar code).
    pub vector_dim: Option<u32>,
    pub phases: Vec<Phase>,
    /// Type of each slot.
    pub slots: Vec<Ty>,
    pub split: Split,
}

impl Kernel {
    /// The range to pass as lo..hi = 0..range for the whole kernel.
    pub fn range(&self) -> i64 {
        let vector = self.vector_dim.map(|d| d as usize);
        match (self.split, vector) {
            (Split::Vector, Some(d)) => self.dims[d].extent,
            _ => self
                .dims
                .iter()
                .enumerate()
                .filter(|(d, dim)| dim.kind == DimKind::Parallel && Some(*d) != vector)
                .map(|(_, dim)| dim.extent)
                .product(),
        }
    }
}

impl Body {
    /// Appends an expression, or finds an equal earlier one.
    pub fn push(&mut self, expr: Expr, ty: Ty) -> V {
        let found = self.exprs.iter().zip(&self.types).position(|(e, t)| *e == expr && *t == ty);
        V(found.unwrap_or_else(|| {
            self.exprs.push(expr);
            self.types.push(ty);
            self.exprs.len() - 1
        }) as u32)
    }
}

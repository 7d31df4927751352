//! Tensor expressions: what operator bodies build and what fusion consumes.
//!
//! A pure, hash-consed DAG. A node says how to compute the element at an index of its sizes from elements of other
//! nodes; it has no memory of its own unless the scheduler gives it some. Elements are in compute types (`Ty`); a
//! value that torch would store in a narrow dtype carries an explicit `Round`, so storing and reloading it anywhere
//! changes nothing.
//!
//! Constants have no sizes and combine with any sizes; all other operands of an `Op` have equal sizes (`broadcast`
//! makes them so). A violated precondition is remembered in `Exprs::misuse`, and the caller drops the body.

use oxy_graph::{
    DType, ValueId,
    meta::{Dims, contiguous_strides},
};
use oxy_loops::{ReduceOp, ScalarOp, Ty};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A node of the DAG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct T(pub u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Elements of a stored tensor: strides and offset count from the first element of `value`, in elements of
    /// `dtype`. `version` counts the writes to the tensor's storage before the read.
    Buffer {
        value: ValueId,
        version: u32,
        dtype: DType,
        strides: Dims,
        offset: i64,
    },
    /// Bits of an f64.
    Float(u64),
    /// Also Bool constants (0 or 1).
    Int(i64),
    /// The index along a dimension, as I64.
    Iota(u32),
    Op(ScalarOp, SmallVec<[T; 3]>),
    Cast(T),
    Round(DType, T),
    /// Element at index i = element of `of` at address offset + Σ strides·i, where `of` is imagined to be stored
    /// with strides `layout` (dense: a permutation of contiguous).
    View {
        of: T,
        layout: Dims,
        strides: Dims,
        offset: i64,
    },
    /// Reduction over dimensions, which stay with size 1.
    Reduce {
        of: T,
        op: ReduceOp,
        dims: SmallVec<[u32; 4]>,
    },
    /// Concatenation along a dimension. Only at the root of a stored value: the parts are stored one by one.
    Concat {
        parts: Vec<T>,
        dim: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expr {
    pub sizes: Dims,
    pub ty: Ty,
    pub kind: Kind,
}

#[derive(Debug, Default)]
pub struct Exprs {
    nodes: Vec<Expr>,
    /// Whether a node is built from constants alone (and so combines with any sizes).
    constant: Vec<bool>,
    numbers: FxHashMap<Expr, T>,
    /// What a body did wrong, if anything did.
    pub misuse: Option<&'static str>,
}

/// The type a dtype computes in; None for dtypes that bodies can't handle.
pub fn compute_ty(dtype: DType) -> Option<Ty> {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => Some(Ty::F32),
        DType::F64 => Some(Ty::F64),
        DType::U8 | DType::I8 | DType::I16 | DType::I32 => Some(Ty::I32),
        DType::I64 => Some(Ty::I64),
        DType::Bool => Some(Ty::Bool),
        DType::C32
        | DType::C64
        | DType::C128
        | DType::F8E5M2
        | DType::F8E4M3FN
        | DType::U16
        | DType::U32
        | DType::U64 => None,
    }
}

/// Whether values of the dtype's compute type must be rounded (or wrapped) to fit the dtype.
pub fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::U8 | DType::I8 | DType::I16)
}

pub fn is_float(ty: Ty) -> bool {
    matches!(ty, Ty::F32 | Ty::F64)
}

impl Exprs {
    pub fn get(&self, t: T) -> &Expr {
        &self.nodes[t.0 as usize]
    }

    pub fn sizes(&self, t: T) -> &Dims {
        &self.get(t).sizes
    }

    pub fn ty(&self, t: T) -> Ty {
        self.get(t).ty
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A constant, or computed from constants alone.
    pub fn is_const(&self, t: T) -> bool {
        self.constant[t.0 as usize]
    }

    pub fn add(&mut self, sizes: Dims, ty: Ty, kind: Kind) -> T {
        let expr = Expr { sizes, ty, kind };
        if let Some(&t) = self.numbers.get(&expr) {
            return t;
        }
        let t = T(self.nodes.len() as u32);
        self.constant.push(match &expr.kind {
            Kind::Float(_) | Kind::Int(_) => true,
            Kind::Op(_, args) => args.iter().all(|a| self.is_const(*a)),
            Kind::Cast(of) | Kind::Round(_, of) => self.is_const(*of),
            Kind::Buffer { .. } | Kind::Iota(_) | Kind::View { .. } | Kind::Reduce { .. } | Kind::Concat { .. } => {
                false
            }
        });
        self.nodes.push(expr.clone());
        self.numbers.insert(expr, t);
        t
    }

    /// A constant of any type; NaN and fractions become integers as C does it.
    pub fn number(&mut self, x: f64, ty: Ty) -> T {
        match ty {
            Ty::F32 => self.add(Dims::new(), ty, Kind::Float(f64::from(x as f32).to_bits())),
            Ty::F64 => self.add(Dims::new(), ty, Kind::Float(x.to_bits())),
            Ty::Bool => self.int(i64::from(x != 0.0), ty),
            Ty::I32 | Ty::I64 => self.int(x as i64, ty),
        }
    }

    /// A constant of any type from an integer.
    pub fn int(&mut self, x: i64, ty: Ty) -> T {
        match ty {
            // One rounding from the integer, as C converts it.
            Ty::F32 => self.add(Dims::new(), ty, Kind::Float(f64::from(x as f32).to_bits())),
            Ty::F64 => self.add(Dims::new(), ty, Kind::Float((x as f64).to_bits())),
            Ty::I32 => self.add(Dims::new(), ty, Kind::Int(i64::from(x as i32))),
            Ty::I64 => self.add(Dims::new(), ty, Kind::Int(x)),
            Ty::Bool => self.add(Dims::new(), ty, Kind::Int(i64::from(x != 0))),
        }
    }

    pub fn iota(&mut self, sizes: &[i64], dim: u32) -> T {
        self.add(sizes.into(), Ty::I64, Kind::Iota(dim))
    }

    /// Applies a scalar operator elementwise.
    pub fn op(&mut self, op: ScalarOp, args: &[T]) -> T {
        use ScalarOp::*;
        if args.len() != op.arity() {
            self.misuse = Some("wrong number of operands");
        }
        let first = if op == Select { args.get(1) } else { args.first() };
        let operand_ty = first.map_or(Ty::F32, |t| self.ty(*t));
        let ty = match op {
            Eq | Ne | Lt | Le | Gt | Ge | IsNan => Ty::Bool,
            _ => operand_ty,
        };
        let mut sizes = Dims::new();
        for (i, t) in args.iter().enumerate() {
            let expected = if op == Select && i == 0 { Ty::Bool } else { operand_ty };
            let (these_ty, these) = (self.ty(*t), self.sizes(*t).clone());
            if these_ty != expected {
                self.misuse = Some("operand types differ");
            }
            if !self.is_const(*t) {
                // A computed rank-0 operand is only equal to rank 0; constants were skipped.
                if i > 0 && sizes != these && args[..i].iter().any(|t| !self.is_const(*t)) {
                    self.misuse = Some("operand sizes differ");
                }
                sizes = these;
            }
        }
        self.add(sizes, ty, Kind::Op(op, args.into()))
    }

    pub fn cast(&mut self, t: T, ty: Ty) -> T {
        let expr = self.get(t);
        if expr.ty == ty {
            return t;
        }
        match expr.kind {
            Kind::Int(x) => self.int(x, ty),
            Kind::Float(bits) => self.number(f64::from_bits(bits), ty),
            _ => {
                let sizes = expr.sizes.clone();
                self.add(sizes, ty, Kind::Cast(t))
            }
        }
    }

    /// Rounds to a dtype's precision if that is narrower than its compute type.
    pub fn round(&mut self, t: T, dtype: DType) -> T {
        if !is_narrow(dtype) || self.is_exact(t, dtype, 8) {
            return t;
        }
        let expr = self.get(t);
        match &expr.kind {
            Kind::Round(d, _) if *d == dtype => return t,
            Kind::Buffer { dtype: d, .. } if *d == dtype => return t,
            Kind::Float(bits) => {
                let x = f64::from_bits(*bits);
                let rounded = match dtype {
                    DType::BF16 => f64::from(half::bf16::from_f32(x as f32).to_f32()),
                    _ => f64::from(half::f16::from_f32(x as f32).to_f32()),
                };
                return self.number(rounded, Ty::F32);
            }
            Kind::Int(x) => {
                let wrapped = match dtype {
                    DType::U8 => i64::from(*x as u8),
                    DType::I8 => i64::from(*x as i8),
                    _ => i64::from(*x as i16),
                };
                return self.int(wrapped, Ty::I32);
            }
            _ => {}
        }
        let (sizes, ty) = (expr.sizes.clone(), expr.ty);
        self.add(sizes, ty, Kind::Round(dtype, t))
    }

    /// Converts to another dtype's values: compute type and precision.
    pub fn convert(&mut self, t: T, dtype: DType) -> Option<T> {
        let ty = compute_ty(dtype)?;
        let t = self.cast(t, ty);
        Some(self.round(t, dtype))
    }

    /// Whether a float dtype holds the values exactly, because what they are made from is and no step rounds.
    fn is_exact(&self, t: T, dtype: DType, depth: u32) -> bool {
        if depth == 0 || !dtype.is_floating_point() {
            return false;
        }
        let is_exact = |t: &T| match &self.get(*t).kind {
            Kind::Float(bits) => {
                let x = f64::from_bits(*bits);
                let rounded = match dtype {
                    DType::BF16 => half::bf16::from_f64(x).to_f64(),
                    _ => half::f16::from_f64(x).to_f64(),
                };
                rounded == x
            }
            _ => self.is_exact(*t, dtype, depth - 1),
        };
        match &self.get(t).kind {
            Kind::Round(d, _) | Kind::Buffer { dtype: d, .. } => *d == dtype,
            Kind::View { of, .. } => is_exact(of),
            Kind::Op(ScalarOp::Neg | ScalarOp::Abs | ScalarOp::Relu | ScalarOp::Minimum | ScalarOp::Maximum, args) => {
                args.iter().all(is_exact)
            }
            Kind::Op(ScalarOp::Select, args) => args.iter().skip(1).all(is_exact),
            _ => false,
        }
    }

    /// Broadcasts by torch's rule (aligned at the last dimension).
    pub fn broadcast(&mut self, t: T, sizes: &[i64]) -> T {
        if self.is_const(t) || self.sizes(t).as_slice() == sizes {
            return t;
        }
        let own = self.sizes(t).clone();
        let layout = contiguous_strides(&own);
        let Some(lead) = sizes.len().checked_sub(own.len()) else {
            self.misuse = Some("broadcast to a lower rank");
            return t;
        };
        let mut strides = Dims::from_elem(0, sizes.len());
        for dim in 0..own.len() {
            if own[dim] != 1 {
                strides[lead + dim] = layout[dim];
                if own[dim] != sizes[lead + dim] {
                    self.misuse = Some("sizes don't broadcast");
                }
            }
        }
        self.view(t, layout, sizes.into(), strides, 0)
    }

    /// The same elements in row-major order under other sizes.
    pub fn reshape(&mut self, t: T, sizes: &[i64]) -> T {
        if self.is_const(t) || self.sizes(t).as_slice() == sizes {
            return t;
        }
        if self.sizes(t).iter().product::<i64>() != sizes.iter().product::<i64>() {
            self.misuse = Some("reshape changes the number of elements");
        }
        let layout = contiguous_strides(self.sizes(t));
        self.view(t, layout, sizes.into(), contiguous_strides(sizes), 0)
    }

    /// A part of a dimension.
    pub fn slice(&mut self, t: T, dim: usize, start: i64, len: i64) -> T {
        let own = self.sizes(t).clone();
        if dim >= own.len() || start < 0 || len < 0 || start + len > own[dim] {
            self.misuse = Some("slice out of range");
            return t;
        }
        let layout = contiguous_strides(&own);
        let mut sizes = own;
        sizes[dim] = len;
        self.view(t, layout.clone(), sizes, layout.clone(), start * layout[dim])
    }

    /// A view by metadata; see `Kind::View`.
    pub fn view(&mut self, of: T, layout: Dims, sizes: Dims, strides: Dims, offset: i64) -> T {
        if self.is_const(of) {
            return of;
        }
        let expr = self.get(of);
        let ty = expr.ty;
        if let Kind::Buffer { value, version, dtype, strides: physical, offset: base } = &expr.kind
            && *physical == layout
        {
            let kind = Kind::Buffer { value: *value, version: *version, dtype: *dtype, strides, offset: base + offset };
            return self.add(sizes, ty, kind);
        }
        if expr.sizes == sizes && strides == layout && offset == 0 {
            return of;
        }
        self.add(sizes, ty, Kind::View { of, layout, strides, offset })
    }

    /// Reduces over dimensions, keeping them with size 1.
    pub fn reduce(&mut self, of: T, op: ReduceOp, dims: &[usize]) -> T {
        let expr = self.get(of);
        let (mut sizes, ty) = (expr.sizes.clone(), expr.ty);
        if self.is_const(of) || dims.iter().any(|d| *d >= sizes.len()) {
            self.misuse = Some("reduction of a constant or over a missing dimension");
            return of;
        }
        if dims.is_empty() {
            return of;
        }
        let mut dims: SmallVec<[u32; 4]> = dims.iter().map(|d| *d as u32).collect();
        dims.sort_unstable();
        dims.dedup();
        for d in &dims {
            sizes[*d as usize] = 1;
        }
        self.add(sizes, ty, Kind::Reduce { of, op, dims })
    }

    /// The dtype that holds an expression's values exactly.
    pub fn storage_dtype(&self, t: T) -> DType {
        match (&self.get(t).kind, self.ty(t)) {
            (Kind::Round(dtype, _) | Kind::Buffer { dtype, .. }, _) => *dtype,
            (_, Ty::F32) => DType::F32,
            (_, Ty::F64) => DType::F64,
            (_, Ty::I32) => DType::I32,
            (_, Ty::I64) => DType::I64,
            (_, Ty::Bool) => DType::Bool,
        }
    }

    /// Calls `f` for each operand.
    pub fn for_each_operand(&self, t: T, mut f: impl FnMut(T)) {
        match &self.get(t).kind {
            Kind::Buffer { .. } | Kind::Float(_) | Kind::Int(_) | Kind::Iota(_) => {}
            Kind::Op(_, args) => args.iter().for_each(|a| f(*a)),
            Kind::Cast(of) | Kind::Round(_, of) | Kind::View { of, .. } | Kind::Reduce { of, .. } => f(*of),
            Kind::Concat { parts, .. } => parts.iter().for_each(|a| f(*a)),
        }
    }
}

//! The kernel verifier: what may exist in a kernel.
//!
//! 1. Names are non-empty and made of letters, digits, `_`, `.` and `$`; extents are not negative; parameters have
//!    dtypes that compute in some `Ty`.
//! 2. The vector dimension exists; `Split::Vector` needs it to be parallel.
//! 3. Every index has one stride per dimension; data-dependent terms are I64 values.
//! 4. Expressions refer to earlier ones; operand and result types are those of the operator.
//! 5. In `Point` bodies nothing depends on a reduce dimension, and there are no reductions; `Loop` bodies set no
//!    slots. A slot is read only after an earlier phase wrote it, and has its declared type.
//! 6. Stores go to written parameters only. Masks are Bool.

use crate::{
    kernel::{Body, DimKind, Index, Kernel, Phase, Split, V},
    scalar::{Expr, ReduceOp, ScalarOp, Ty},
};
use oxy_graph::DType;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct VerifyError {
    /// E.g. `phase 1, v3`.
    pub place: String,
    pub what: String,
}

type Check = Result<(), String>;

pub fn verify(kernel: &Kernel) -> Result<(), VerifyError> {
    let fail = |place: String| move |what| VerifyError { place, what };
    header(kernel).map_err(fail("kernel".into()))?;
    let mut written = vec![false; kernel.slots.len()];
    for (i, phase) in kernel.phases.iter().enumerate() {
        let (body, is_loop) = match phase {
            Phase::Point(body) => (body, false),
            Phase::Loop(body) => (body, true),
        };
        let checker = Checker { kernel, body, is_loop, written: &written };
        if body.exprs.len() != body.types.len() {
            return Err(fail(format!("phase {i}"))("types and expressions differ in number".into()));
        }
        for (k, (expr, ty)) in body.exprs.iter().zip(&body.types).enumerate() {
            checker.expr(k, expr, *ty).map_err(fail(format!("phase {i}, v{k}")))?;
        }
        checker.effects().map_err(fail(format!("phase {i}")))?;
        for slot in body.reductions.iter().map(|r| r.slot).chain(body.sets.iter().map(|s| s.0)) {
            written[slot as usize] = true;
        }
    }
    Ok(())
}

fn header(kernel: &Kernel) -> Check {
    let symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    ensure(!kernel.name.is_empty() && kernel.name.chars().all(symbol), || format!("bad name {:?}", kernel.name))?;
    for (i, param) in kernel.params.iter().enumerate() {
        ensure(Ty::of(param.dtype).is_some(), || format!("p{i} has dtype {}", param.dtype.name()))?;
    }
    for (d, dim) in kernel.dims.iter().enumerate() {
        ensure(dim.extent >= 0, || format!("d{d} has extent {}", dim.extent))?;
    }
    let vector = match kernel.vector_dim {
        Some(d) => Some(kernel.dims.get(d as usize).ok_or_else(|| format!("no vector dimension d{d}"))?),
        None => None,
    };
    let is_parallel = vector.is_some_and(|dim| dim.kind == DimKind::Parallel);
    ensure(kernel.split == Split::Outer || is_parallel, || "split along a dimension that isn't parallel".into())
}

struct Checker<'k> {
    kernel: &'k Kernel,
    body: &'k Body,
    is_loop: bool,
    written: &'k [bool],
}

impl Checker<'_> {
    /// Type of an operand of expression `at` (or of a store: `at` is the number of expressions).
    fn ty(&self, at: usize, v: V) -> Result<Ty, String> {
        ensure((v.0 as usize) < at, || format!("v{} is not defined yet", v.0))?;
        Ok(self.body.types[v.0 as usize])
    }

    fn expr(&self, at: usize, expr: &Expr, ty: Ty) -> Check {
        match expr {
            Expr::Float(_) => ensure(ty.is_float(), || format!("float constant of type {}", ty.name())),
            Expr::Int(_) => ensure(!ty.is_float(), || format!("integer constant of type {}", ty.name())),
            Expr::Iota(d) => {
                self.dim(*d)?;
                expect(ty, Ty::I64)
            }
            Expr::Slot(slot) => {
                self.slot(*slot, ty)?;
                ensure(self.written[*slot as usize], || format!("s{slot} is read before it is set"))
            }
            Expr::Load { param, index, mask } => {
                let dtype = self.param(*param)?;
                self.index(at, index)?;
                if let Some(mask) = mask {
                    expect(self.ty(at, *mask)?, Ty::Bool)?;
                }
                Ty::of(dtype).map_or(Ok(()), |own| expect(ty, own))
            }
            Expr::Op(op, args) => {
                let types: Result<Vec<Ty>, String> = args.iter().map(|v| self.ty(at, *v)).collect();
                expect(ty, result_type(*op, &types?)?)
            }
            Expr::Cast(v) => self.ty(at, *v).map(|_| ()),
            Expr::Round(dtype, v) => {
                expect(ty, self.ty(at, *v)?)?;
                let fits = Ty::of(*dtype) == Some(ty) && *dtype != DType::Bool;
                ensure(fits, || format!("{} doesn't round to {}", ty.name(), dtype.name()))
            }
        }
    }

    fn effects(&self) -> Check {
        let end = self.body.exprs.len();
        for store in &self.body.stores {
            self.param(store.param)?;
            let is_written = self.kernel.params[store.param as usize].written;
            ensure(is_written, || format!("store to p{}, which isn't written", store.param))?;
            self.index(end, &store.index)?;
            self.ty(end, store.value)?;
        }
        ensure(self.is_loop || self.body.reductions.is_empty(), || "reduction at a point".into())?;
        ensure(!self.is_loop || self.body.sets.is_empty(), || "slot set in a loop".into())?;
        for (i, r) in self.body.reductions.iter().enumerate() {
            let ty = self.ty(end, r.value)?;
            self.slot(r.slot, ty)?;
            let is_logic = matches!(r.op, ReduceOp::Any | ReduceOp::All);
            ensure(is_logic == (ty == Ty::Bool), || format!("{} of {}", r.op.name(), ty.name()))?;
            let twice = self.body.reductions[..i].iter().any(|other| other.slot == r.slot);
            ensure(!twice, || format!("s{} is reduced twice", r.slot))?;
        }
        for (slot, value) in &self.body.sets {
            self.slot(*slot, self.ty(end, *value)?)?;
        }
        Ok(())
    }

    fn index(&self, at: usize, index: &Index) -> Check {
        let (have, want) = (index.strides.len(), self.kernel.dims.len());
        ensure(have == want, || format!("{have} strides for {want} dimensions"))?;
        for (d, stride) in index.strides.iter().enumerate() {
            if *stride != 0 {
                self.dim(d as u32)?;
            }
        }
        for (v, _) in &index.indirect {
            expect(self.ty(at, *v)?, Ty::I64)?;
        }
        Ok(())
    }

    /// A dimension that has an index here.
    fn dim(&self, d: u32) -> Check {
        let dim = self.kernel.dims.get(d as usize).ok_or_else(|| format!("no dimension d{d}"))?;
        let is_open = self.is_loop || dim.kind == DimKind::Parallel;
        ensure(is_open, || format!("a point depends on the reduce dimension d{d}"))
    }

    fn param(&self, p: u32) -> Result<DType, String> {
        self.kernel.params.get(p as usize).map(|param| param.dtype).ok_or_else(|| format!("no parameter p{p}"))
    }

    fn slot(&self, slot: u32, ty: Ty) -> Check {
        let declared = self.kernel.slots.get(slot as usize).ok_or_else(|| format!("no slot s{slot}"))?;
        expect(ty, *declared)
    }
}

/// The result type of an operator over operands of these types.
pub fn result_type(op: ScalarOp, types: &[Ty]) -> Result<Ty, String> {
    use ScalarOp::*;
    ensure(types.len() == op.arity(), || format!("{} takes {} operands", op.name(), op.arity()))?;
    if op == Select {
        expect(types[0], Ty::Bool)?;
        expect(types[2], types[1])?;
        return Ok(types[1]);
    }
    let ty = types[0];
    for other in types {
        expect(*other, ty)?;
    }
    let allowed = match op {
        Add | Sub | Mul | Neg | Abs | Relu | Remainder => ty != Ty::Bool,
        IntDivTrunc | IntDivFloor | IntRemTrunc | Shl | Shr => ty.is_int(),
        And | Or | Xor | Not => !ty.is_float(),
        Minimum | Maximum | Eq | Ne | Lt | Le | Gt | Ge | Select => true,
        Div | Fma | Fmod | Floor | Ceil | Trunc | RoundEven | Sqrt | Rsqrt | Reciprocal | Pow | Exp | Exp2 | Expm1
        | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos | Atan | Atan2 | Sinh | Cosh | Tanh | Asinh
        | Acosh | Atanh | Erf | Erfc | Lgamma | Digamma | Copysign | IsNan => ty.is_float(),
    };
    ensure(allowed, || format!("{} of {}", op.name(), ty.name()))?;
    Ok(if matches!(op, Eq | Ne | Lt | Le | Gt | Ge | IsNan) { Ty::Bool } else { ty })
}

fn expect(found: Ty, wanted: Ty) -> Check {
    ensure(found == wanted, || format!("type {} where {} is needed", found.name(), wanted.name()))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

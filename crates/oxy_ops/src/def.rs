//! The row type of the registry, and what a row's functions see.

use crate::{
    expr::{Exprs, Kind, T, compute_ty},
    promote::{Operand, common_dtype},
    schema::{self, Param},
};
use oxy_graph::{Arg, DType, Node, TensorMeta, ValueId};

/// Computes an operator's results as tensor expressions, one per result. None: not this time (an unsupported dtype
/// or argument), call the operator.
pub type BodyFn = fn(&mut OpCx) -> Option<Vec<T>>;

/// How an operator is computed.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// By calling the ATen operator.
    Call,
    /// By tensor expressions, fused with its neighbours.
    Expr(BodyFn),
    /// The result is its first argument under other metadata.
    View,
}

/// One row: an operator. Every column but the schema has a safe value, in `FALLBACK`.
#[derive(Clone, Copy, Debug)]
pub struct OpDef {
    /// As torch prints it, without the `aten::`.
    pub schema: &'static str,
    pub body: Body,
    /// The in-place form has the same row under the name with `_`, e.g. `add_.Tensor`.
    pub in_place: bool,
}

impl OpDef {
    pub const FALLBACK: OpDef = OpDef { schema: "", body: Body::Call, in_place: false };
}

/// One call of an operator, as its row sees it: arguments by name, metadata, and the expressions to build in.
pub struct OpCx<'a> {
    pub exprs: &'a mut Exprs,
    node: &'a Node,
    params: Vec<Param>,
    metas: &'a [TensorMeta],
    operands: &'a [(ValueId, Option<T>)],
    outputs: &'a [TensorMeta],
}

impl<'a> OpCx<'a> {
    /// `operands` gives the expression of every tensor argument (None: dtype not supported); `outputs` the recorded
    /// metadata of the results.
    pub fn new(
        def: &OpDef,
        exprs: &'a mut Exprs,
        node: &'a Node,
        metas: &'a [TensorMeta],
        operands: &'a [(ValueId, Option<T>)],
        outputs: &'a [TensorMeta],
    ) -> OpCx<'a> {
        OpCx { exprs, node, params: schema::params(def.schema), metas, operands, outputs }
    }

    /// An argument by name, or its default.
    pub fn arg(&self, name: &str) -> Option<&Arg> {
        if let Some(arg) = self.node.kwargs.get(name) {
            return Some(arg);
        }
        let position = self.params.iter().position(|p| p.name == name)?;
        match self.node.args.get(position) {
            Some(arg) if !self.params[position].keyword_only => Some(arg),
            _ => self.params[position].default.as_ref(),
        }
    }

    pub fn is_none(&self, name: &str) -> bool {
        matches!(self.arg(name), None | Some(Arg::None))
    }

    pub fn boolean(&self, name: &str) -> Option<bool> {
        match self.arg(name)? {
            Arg::Bool(b) => Some(*b),
            Arg::Int(i) => Some(*i != 0),
            _ => None,
        }
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.arg(name)? {
            Arg::Int(i) => Some(*i),
            Arg::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// A Python number as f64; None also if the dtype of result 0 can't hold it, where many operators raise.
    pub fn float(&self, name: &str) -> Option<f64> {
        let x = match self.arg(name)? {
            Arg::Float(x) => *x,
            Arg::Int(i) => *i as f64,
            Arg::Bool(b) => f64::from(u8::from(*b)),
            _ => return None,
        };
        let largest = self.outputs.first().map_or(f64::INFINITY, |meta| largest_float(meta.dtype));
        (!x.is_finite() || x.abs() <= largest).then_some(x)
    }

    pub fn string(&self, name: &str) -> Option<&str> {
        match self.arg(name)? {
            Arg::Str(s) => Some(s),
            _ => None,
        }
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.arg(name)? {
            Arg::List(items) | Arg::Tuple(items) => {
                items.iter().map(|i| if let Arg::Int(i) = i { Some(*i) } else { None }).collect()
            }
            Arg::Int(i) => Some(vec![*i]),
            _ => None,
        }
    }

    /// The recorded metadata of result i.
    pub fn out(&self, i: usize) -> Option<&'a TensorMeta> {
        self.outputs.get(i)
    }

    pub fn n_outputs(&self) -> usize {
        self.outputs.len()
    }

    pub fn meta(&self, id: ValueId) -> Option<&'a TensorMeta> {
        self.metas.get(id.0 as usize)
    }

    /// The operand for a tensor value.
    pub fn value(&self, id: ValueId) -> Option<Operand> {
        let t = self.operands.iter().find(|(v, _)| *v == id)?.1?;
        let meta = self.metas.get(id.0 as usize)?;
        Some(Operand { t, dtype: meta.dtype, sizes: meta.sizes.clone(), wrapped: false })
    }

    fn operand_of(&mut self, arg: &Arg) -> Option<Operand> {
        let (t, dtype) = match arg {
            Arg::Value(id) => return self.value(*id),
            Arg::Bool(b) => (self.exprs.int(i64::from(*b), oxy_loops::Ty::Bool), DType::Bool),
            Arg::Int(i) => (self.exprs.int(*i, oxy_loops::Ty::I64), DType::I64),
            Arg::Float(x) => (self.exprs.number(*x, oxy_loops::Ty::F64), DType::F64),
            _ => return None,
        };
        Some(Operand { t, dtype, sizes: Default::default(), wrapped: true })
    }

    /// A tensor argument; None also if its dtype isn't supported.
    pub fn tensor(&mut self, name: &str) -> Option<Operand> {
        let arg = self.arg(name)?.clone();
        if matches!(arg, Arg::Value(_)) { self.operand_of(&arg) } else { None }
    }

    /// A tensor argument that may be missing: Some(None) if it is.
    pub fn optional_tensor(&mut self, name: &str) -> Option<Option<Operand>> {
        if self.is_none(name) { Some(None) } else { self.tensor(name).map(Some) }
    }

    /// A tensor or number argument.
    pub fn operand(&mut self, name: &str) -> Option<Operand> {
        let arg = self.arg(name)?.clone();
        self.operand_of(&arg)
    }

    /// A list of tensors.
    pub fn tensors(&mut self, name: &str) -> Option<Vec<Operand>> {
        match self.arg(name)?.clone() {
            Arg::List(items) | Arg::Tuple(items) => {
                items.iter().map(|arg| if matches!(arg, Arg::Value(_)) { self.operand_of(arg) } else { None }).collect()
            }
            _ => None,
        }
    }

    /// The dtype torch computes in for these operands.
    pub fn common(&self, operands: &[&Operand]) -> Option<DType> {
        common_dtype(operands)
    }

    /// The operand's values as values of `dtype`, in compute type, broadcast to result i's sizes.
    /// None if a Python number doesn't fit (eager has its own ways then).
    pub fn as_dtype(&mut self, operand: &Operand, dtype: DType, out: usize) -> Option<T> {
        if operand.wrapped && !fits(&self.exprs.get(operand.t).kind, dtype) {
            return None;
        }
        let t = self.exprs.convert(operand.t, dtype)?;
        let sizes = &self.outputs.get(out)?.sizes;
        Some(self.exprs.broadcast(t, sizes))
    }

    /// The operand's values in the compute type of `dtype`, unrounded, broadcast to result i's sizes.
    pub fn as_compute(&mut self, operand: &Operand, dtype: DType, out: usize) -> Option<T> {
        let t = self.exprs.cast(operand.t, compute_ty(dtype)?);
        let sizes = &self.outputs.get(out)?.sizes;
        Some(self.exprs.broadcast(t, sizes))
    }

    /// Ends an elementwise body: `t` holds values for a result of dtype `computed`; gives them as result i is stored.
    pub fn finish(&mut self, t: T, computed: DType, out: usize) -> Option<T> {
        let t = self.exprs.round(t, computed);
        let meta = self.outputs.get(out)?;
        let t = self.exprs.convert(t, meta.dtype)?;
        self.fill(t, &meta.sizes)
    }

    /// Gives a constant a result's sizes (as an elementwise node, so that it can be stored).
    pub fn fill(&mut self, t: T, sizes: &[i64]) -> Option<T> {
        if self.exprs.is_const(t) {
            let expr = self.exprs.get(t).clone();
            // A constant of some sizes: the same kind of node, with sizes.
            return Some(self.exprs.add(sizes.into(), expr.ty, expr.kind));
        }
        let t = self.exprs.broadcast(t, sizes);
        (self.exprs.sizes(t).as_slice() == sizes).then_some(t)
    }

    /// The node is an in-place operator: its result keeps its argument's dtype.
    pub fn is_in_place(&self) -> bool {
        self.node.target.rsplit_once('.').is_some_and(|(name, _)| name.ends_with('_'))
    }

    /// The dtype of an arithmetic operator: the operands' common one, if the result is recorded with it.
    pub fn arithmetic(&self, operands: &[&Operand]) -> Option<DType> {
        let dtype = common_dtype(operands)?;
        (self.is_in_place() || self.outputs.first()?.dtype == dtype).then_some(dtype)
    }
}

/// Whether a dtype holds a number: in range, integers for integers.
fn fits(number: &Kind, dtype: DType) -> bool {
    let (low, high) = match dtype {
        DType::U8 => (0, 255),
        DType::I8 => (-128, 127),
        DType::I16 => (-32768, 32767),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::Bool => (0, 1),
        _ => (i64::MIN, i64::MAX),
    };
    match number {
        Kind::Int(x) if dtype.is_floating_point() => (*x as f64).abs() <= largest_float(dtype),
        Kind::Int(x) => (low..=high).contains(x),
        Kind::Float(bits) => {
            let x = f64::from_bits(*bits);
            if dtype.is_floating_point() {
                !x.is_finite() || x.abs() <= largest_float(dtype)
            } else {
                // Any float is a truth value; for integers it must be in range, whatever becomes of its fraction.
                dtype.is_bool() || (x >= low as f64 && x < high as f64)
            }
        }
        _ => false,
    }
}

/// The largest finite number of a float dtype.
fn largest_float(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => f64::from_bits(0x47ef_e000_0000_0000),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::INFINITY,
    }
}

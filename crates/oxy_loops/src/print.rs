//! Names and the text form of kernels. `parse` reads it back.
//!
//! ```text
//! kernel softmax
//!   p0 f32
//!   p1 f32 written
//!   d0 parallel 2048
//!   d1 reduce 1024
//!   s0 f32
//!   vector d1
//!   split outer
//! loop
//!   v0 f32 = load p0[1024*d0 + d1]
//!   s0 <- max v0
//! point
//!   v0 f32 = slot s0
//!   p1[d0] <- v0
//!   s0 = v0
//! end
//! ```
//! A load under a mask ends in `if v1`; a data-dependent index term is written like a dimension (`64*v2`).

use crate::{
    kernel::{Body, DimKind, Index, Kernel, Phase, Split},
    scalar::{Expr, ReduceOp, ScalarOp, Ty},
};
use std::fmt::{Display, Formatter, Result, Write};

/// (type, name)
const TYPES: &[(Ty, &str)] =
    &[(Ty::F32, "f32"), (Ty::F64, "f64"), (Ty::I32, "i32"), (Ty::I64, "i64"), (Ty::Bool, "bool")];

/// (operator, name), in declaration order.
const OPS: &[(ScalarOp, &str)] = &[
    (ScalarOp::Add, "add"),
    (ScalarOp::Sub, "sub"),
    (ScalarOp::Mul, "mul"),
    (ScalarOp::Div, "div"),
    (ScalarOp::Neg, "neg"),
    (ScalarOp::Abs, "abs"),
    (ScalarOp::Minimum, "minimum"),
    (ScalarOp::Maximum, "maximum"),
    (ScalarOp::Relu, "relu"),
    (ScalarOp::Fma, "fma"),
    (ScalarOp::IntDivTrunc, "int_div_trunc"),
    (ScalarOp::IntDivFloor, "int_div_floor"),
    (ScalarOp::IntRemTrunc, "int_rem_trunc"),
    (ScalarOp::Remainder, "remainder"),
    (ScalarOp::Fmod, "fmod"),
    (ScalarOp::Floor, "floor"),
    (ScalarOp::Ceil, "ceil"),
    (ScalarOp::Trunc, "trunc"),
    (ScalarOp::RoundEven, "round_even"),
    (ScalarOp::Sqrt, "sqrt"),
    (ScalarOp::Rsqrt, "rsqrt"),
    (ScalarOp::Reciprocal, "reciprocal"),
    (ScalarOp::Pow, "pow"),
    (ScalarOp::Exp, "exp"),
    (ScalarOp::Exp2, "exp2"),
    (ScalarOp::Expm1, "expm1"),
    (ScalarOp::Log, "log"),
    (ScalarOp::Log2, "log2"),
    (ScalarOp::Log10, "log10"),
    (ScalarOp::Log1p, "log1p"),
    (ScalarOp::Sin, "sin"),
    (ScalarOp::Cos, "cos"),
    (ScalarOp::Tan, "tan"),
    (ScalarOp::Asin, "asin"),
    (ScalarOp::Acos, "acos"),
    (ScalarOp::Atan, "atan"),
    (ScalarOp::Atan2, "atan2"),
    (ScalarOp::Sinh, "sinh"),
    (ScalarOp::Cosh, "cosh"),
    (ScalarOp::Tanh, "tanh"),
    (ScalarOp::Asinh, "asinh"),
    (ScalarOp::Acosh, "acosh"),
    (ScalarOp::Atanh, "atanh"),
    (ScalarOp::Erf, "erf"),
    (ScalarOp::Erfc, "erfc"),
    (ScalarOp::Lgamma, "lgamma"),
    (ScalarOp::Digamma, "digamma"),
    (ScalarOp::Copysign, "copysign"),
    (ScalarOp::Eq, "eq"),
    (ScalarOp::Ne, "ne"),
    (ScalarOp::Lt, "lt"),
    (ScalarOp::Le, "le"),
    (ScalarOp::Gt, "gt"),
    (ScalarOp::Ge, "ge"),
    (ScalarOp::IsNan, "is_nan"),
    (ScalarOp::And, "and"),
    (ScalarOp::Or, "or"),
    (ScalarOp::Xor, "xor"),
    (ScalarOp::Not, "not"),
    (ScalarOp::Shl, "shl"),
    (ScalarOp::Shr, "shr"),
    (ScalarOp::Select, "select"),
];

/// (operator, name)
const REDUCE_OPS: &[(ReduceOp, &str)] = &[
    (ReduceOp::Sum, "sum"),
    (ReduceOp::Prod, "prod"),
    (ReduceOp::Max, "max"),
    (ReduceOp::Min, "min"),
    (ReduceOp::Any, "any"),
    (ReduceOp::All, "all"),
];

fn name_of<T: PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find(|row| row.0 == value).map_or("?", |row| row.1)
}

fn named<T: Copy>(table: &[(T, &'static str)], name: &str) -> Option<T> {
    table.iter().find(|row| row.1 == name).map(|row| row.0)
}

impl Ty {
    pub fn name(self) -> &'static str {
        name_of(TYPES, self)
    }

    pub fn from_name(name: &str) -> Option<Ty> {
        named(TYPES, name)
    }
}

impl ScalarOp {
    /// Every operator, in declaration order.
    pub fn all() -> impl Iterator<Item = ScalarOp> {
        OPS.iter().map(|row| row.0)
    }

    pub fn name(self) -> &'static str {
        name_of(OPS, self)
    }

    pub fn from_name(name: &str) -> Option<ScalarOp> {
        named(OPS, name)
    }
}

impl ReduceOp {
    pub fn name(self) -> &'static str {
        name_of(REDUCE_OPS, self)
    }

    pub fn from_name(name: &str) -> Option<ReduceOp> {
        named(REDUCE_OPS, name)
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "kernel {}", self.name)?;
        for (i, param) in self.params.iter().enumerate() {
            let written = if param.written { " written" } else { "" };
            writeln!(f, "  p{i} {}{written}", param.dtype.name())?;
        }
        for (d, dim) in self.dims.iter().enumerate() {
            let kind = match dim.kind {
                DimKind::Parallel => "parallel",
                DimKind::Reduce => "reduce",
            };
            writeln!(f, "  d{d} {kind} {}", dim.extent)?;
        }
        for (s, ty) in self.slots.iter().enumerate() {
            writeln!(f, "  s{s} {}", ty.name())?;
        }
        if let Some(d) = self.vector_dim {
            writeln!(f, "  vector d{d}")?;
        }
        let split = match self.split {
            Split::Outer => "outer",
            Split::Vector => "vector",
        };
        writeln!(f, "  split {split}")?;
        for phase in &self.phases {
            let (word, body) = match phase {
                Phase::Point(body) => ("point", body),
                Phase::Loop(body) => ("loop", body),
            };
            writeln!(f, "{word}")?;
            print_body(f, body)?;
        }
        writeln!(f, "end")
    }
}

fn print_body(f: &mut Formatter<'_>, body: &Body) -> Result {
    for (i, (expr, ty)) in body.exprs.iter().zip(&body.types).enumerate() {
        write!(f, "  v{i} {} = ", ty.name())?;
        match expr {
            Expr::Float(bits) => writeln!(f, "float {}", Float(*bits))?,
            Expr::Int(value) => writeln!(f, "int {value}")?,
            Expr::Iota(d) => writeln!(f, "iota d{d}")?,
            Expr::Slot(s) => writeln!(f, "slot s{s}")?,
            Expr::Load { param, index, mask } => {
                write!(f, "load p{param}[{index}]")?;
                match mask {
                    Some(v) => writeln!(f, " if v{}", v.0)?,
                    None => f.write_char('\n')?,
                }
            }
            Expr::Op(op, args) => {
                f.write_str(op.name())?;
                for v in args {
                    write!(f, " v{}", v.0)?;
                }
                f.write_char('\n')?;
            }
            Expr::Cast(v) => writeln!(f, "cast v{}", v.0)?,
            Expr::Round(dtype, v) => writeln!(f, "round {} v{}", dtype.name(), v.0)?,
        }
    }
    for store in &body.stores {
        writeln!(f, "  p{}[{}] <- v{}", store.param, store.index, store.value.0)?;
    }
    for r in &body.reductions {
        writeln!(f, "  s{} <- {} v{}", r.slot, r.op.name(), r.value.0)?;
    }
    for (slot, v) in &body.sets {
        writeln!(f, "  s{slot} = v{}", v.0)?;
    }
    Ok(())
}

impl Display for Index {
    /// Terms joined by ` + `: the base unless it is 0, then strides that aren't 0, then data-dependent terms.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut terms = Vec::new();
        if self.base != 0 {
            terms.push(self.base.to_string());
        }
        let term = |stride: i64, name: String| {
            if stride == 1 { name } else { format!("{stride}*{name}") }
        };
        for (d, stride) in self.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
            terms.push(term(*stride, format!("d{d}")));
        }
        for (v, stride) in &self.indirect {
            terms.push(term(*stride, format!("v{}", v.0)));
        }
        if terms.is_empty() {
            terms.push("0".into());
        }
        f.write_str(&terms.join(" + "))
    }
}

/// Shortest decimal that reads back as the same f64; NaN by its bits.
struct Float(u64);

impl Display for Float {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let value = f64::from_bits(self.0);
        if value.is_nan() { write!(f, "nan:{:016x}", self.0) } else { write!(f, "{value:?}") }
    }
}

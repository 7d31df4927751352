//! Scalar expressions: THE primitive scalar operations of kernel bodies.

use crate::kernel::{Index, V};
use oxy_graph::DType;

/// Types that bodies compute in. Storage dtypes are converted on load and store: f16 and bf16 compute as F32,
/// i8/u8/i16 as I32 (their wrap-around is made by `Round`), bool as Bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

/// One expression. Constants are stored as bits so that NaN and -0.0 compare and hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A float constant: bits of the f64 (converted to the expression's type).
    Float(u64),
    Int(i64),
    /// The current index along a kernel dimension (I64).
    Iota(u32),
    Slot(u32),
    /// Element of a parameter, converted to its compute type. With a mask, lanes whose mask is false are not
    /// read and give 0.
    Load {
        param: u32,
        index: Index,
        mask: Option<V>,
    },
    Op(ScalarOp, Vec<V>),
    /// Conversion with torch's (C's) semantics: float→int truncates, anything→Bool is != 0.
    Cast(V),
    /// Rounds a compute value to a storage dtype and widens it again: F32 through f16/bf16 (nearest even),
    /// I32 through i8/u8/i16 (wraps).
    Round(DType, V),
}

/// Scalar operators; operands have one type and so does the result, unless said otherwise.
/// Semantics are those of torch's CPU kernels, NaN and signed zero included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarOp {
    // arithmetic (float and int; int wraps)
    Add,
    Sub,
    Mul,
    /// Float division only.
    Div,
    Neg,
    Abs,
    /// min/max that propagate NaN (torch.minimum, clamp, amin).
    Minimum,
    Maximum,
    /// relu: x if x > 0 or x is NaN else 0.
    Relu,
    /// a*b + c with one rounding; only where eager also fuses or where numerics allow.
    Fma,
    // integer division: operands checked for zero by the producer
    IntDivTrunc,
    IntDivFloor,
    IntRemTrunc,
    /// Remainder with the sign of the divisor (torch.remainder, ints and floats).
    Remainder,
    /// C fmod for floats.
    Fmod,
    // rounding
    Floor,
    Ceil,
    Trunc,
    /// Half to even.
    RoundEven,
    // powers and roots
    Sqrt,
    /// 1/sqrt, two roundings as torch does it.
    Rsqrt,
    Reciprocal,
    Pow,
    // exponentials and friends
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Atan2,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Erfc,
    Lgamma,
    Digamma,
    /// Copysign(magnitude, sign).
    Copysign,
    // comparisons: Bool result
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Bool result.
    IsNan,
    // bits and logic (ints and Bool)
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    /// Select(Bool, a, b).
    Select,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    Sum,
    Prod,
    /// NaN-propagating.
    Max,
    Min,
    /// Bool.
    Any,
    All,
}

impl ScalarOp {
    pub fn arity(self) -> usize {
        use ScalarOp::*;
        match self {
            Fma | Select => 3,
            Add | Sub | Mul | Div | Minimum | Maximum | IntDivTrunc | IntDivFloor | IntRemTrunc | Remainder | Fmod
            | Pow | Atan2 | Copysign | Eq | Ne | Lt | Le | Gt | Ge | And | Or | Xor | Shl | Shr => 2,
            _ => 1,
        }
    }
}

impl Ty {
    /// The type that elements of a storage dtype compute in; None for dtypes kernels can't hold.
    pub fn of(dtype: DType) -> Option<Ty> {
        Some(match dtype {
            DType::F16 | DType::BF16 | DType::F32 => Ty::F32,
            DType::F64 => Ty::F64,
            DType::U8 | DType::I8 | DType::I16 | DType::U16 | DType::I32 => Ty::I32,
            DType::U32 | DType::I64 => Ty::I64,
            DType::Bool => Ty::Bool,
            _ => return None,
        })
    }

    pub fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }

    pub fn is_int(self) -> bool {
        matches!(self, Ty::I32 | Ty::I64)
    }
}

//! Spellings: every scalar operator, conversion and rounding in terms of bundles.
//!
//! Semantics are torch's CPU kernels' (see `oxy_loops::scalar`); `oxy_loops::interp` says the same in scalar
//! Rust, and the differential tests hold the two together bit for bit. Integer division never traps: a zero
//! divisor acts as 1 in the quotient, and MIN / -1 wraps.

use crate::{
    emit::{Emit, Kind, Val},
    llvm::{FloatPredicate, IntPredicate},
    math,
};
use oxy_graph::DType;
use oxy_loops::{ReduceOp, ScalarOp, Ty};

pub fn kind_of(ty: Ty) -> Kind {
    match ty {
        Ty::F32 => Kind::F32,
        Ty::F64 => Kind::F64,
        Ty::I32 => Kind::I32,
        Ty::I64 => Kind::I64,
        Ty::Bool => Kind::I1,
    }
}

/// Emits one operator. Operands have the types the kernel verifier demands.
pub fn op<'c>(e: &Emit<'c>, op: ScalarOp, args: &[Val<'c>]) -> Val<'c> {
    use ScalarOp::*;
    let a = args[0];
    let b = args.get(1).copied().unwrap_or(a);
    let is_float = a.kind.is_float();
    match op {
        Add if is_float => e.fadd(a, b),
        Add => e.add(a, b),
        Sub if is_float => e.fsub(a, b),
        Sub => e.sub(a, b),
        Mul if is_float => e.fmul(a, b),
        Mul => e.mul(a, b),
        Div => e.fdiv(a, b),
        Neg if is_float => e.fneg(a),
        Neg => e.sub(e.int(a.kind, 0), a),
        Abs if is_float => e.fabs(a),
        Abs => {
            let zero = e.int(a.kind, 0);
            e.select(e.ilt(a, zero), e.sub(zero, a), a)
        }
        Minimum => minimum(e, a, b),
        Maximum => maximum(e, a, b),
        // 0 > x ? 0 : x keeps NaN and -0.0, as eager does.
        Relu if is_float => {
            let zero = e.float(a.kind, 0.0);
            e.select(e.fgt(zero, a), zero, a)
        }
        Relu => {
            let zero = e.int(a.kind, 0);
            e.select(e.ilt(a, zero), zero, a)
        }
        Fma => e.fma(a, b, args[2]),
        IntDivTrunc => div_trunc(e, a, b),
        IntDivFloor => {
            let q = div_trunc(e, a, b);
            let r = e.sub(a, e.mul(q, b));
            e.select(signs_differ(e, r, b), e.sub(q, e.int(a.kind, 1)), q)
        }
        IntRemTrunc => rem_trunc(e, a, b),
        Remainder if is_float => {
            let r = fmod(e, a, b);
            let zero = e.float(a.kind, 0.0);
            let nonzero = e.fcmp(FloatPredicate::LLVMRealUNE, r, zero);
            let wrong = e.and(nonzero, e.xor(e.flt(b, zero), e.flt(r, zero)));
            e.select(wrong, e.fadd(r, b), r)
        }
        Remainder => {
            let r = rem_trunc(e, a, b);
            e.select(signs_differ(e, r, b), e.add(r, b), r)
        }
        Fmod => fmod(e, a, b),
        Floor => e.floor(a),
        Ceil => e.ceil(a),
        Trunc => e.truncate(a),
        RoundEven => e.round_even(a),
        Sqrt => e.sqrt(a),
        Rsqrt => e.fdiv(e.float(a.kind, 1.0), e.sqrt(a)),
        Reciprocal => e.fdiv(e.float(a.kind, 1.0), a),
        Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Tanh
        | Asinh | Acosh | Atanh | Erf | Erfc | Lgamma | Digamma => math::unary(e, op, a),
        Pow | Atan2 => math::binary(e, op, a, b),
        Copysign => e.copysign(a, b),
        Eq | Ne | Lt | Le | Gt | Ge => compare(e, op, a, b),
        IsNan => e.is_nan(a),
        And => e.and(a, b),
        Or => e.or(a, b),
        Xor => e.xor(a, b),
        Not => e.not(a),
        Shl => {
            let in_range = e.icmp(IntPredicate::LLVMIntULT, b, e.int(b.kind, i64::from(b.kind.bits())));
            let shifted = e.shl(a, e.select(in_range, b, e.int(b.kind, 0)));
            e.select(in_range, shifted, e.int(a.kind, 0))
        }
        Shr => {
            let width = i64::from(b.kind.bits());
            let in_range = e.icmp(IntPredicate::LLVMIntULT, b, e.int(b.kind, width));
            e.ashr(a, e.select(in_range, b, e.int(b.kind, width - 1)))
        }
        Select => e.select(a, b, args[2]),
    }
}

/// NaN-propagating minimum; of equal operands the second (so of -0.0 and 0.0), as eager's vector code has it.
pub fn minimum<'c>(e: &Emit<'c>, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    match a.kind {
        Kind::I1 => e.and(a, b),
        k if k.is_float() => e.select(e.is_nan(a), a, e.select(e.flt(a, b), a, b)),
        _ => e.select(e.ilt(a, b), a, b),
    }
}

pub fn maximum<'c>(e: &Emit<'c>, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    match a.kind {
        Kind::I1 => e.or(a, b),
        k if k.is_float() => e.select(e.is_nan(a), a, e.select(e.fgt(a, b), a, b)),
        _ => e.select(e.ilt(b, a), a, b),
    }
}

/// accumulator `op` value.
pub fn combine<'c>(e: &Emit<'c>, op: ReduceOp, acc: Val<'c>, value: Val<'c>) -> Val<'c> {
    match op {
        ReduceOp::Sum if acc.kind.is_float() => e.fadd(acc, value),
        ReduceOp::Sum => e.add(acc, value),
        ReduceOp::Prod if acc.kind.is_float() => e.fmul(acc, value),
        ReduceOp::Prod => e.mul(acc, value),
        ReduceOp::Max => maximum(e, acc, value),
        ReduceOp::Min => minimum(e, acc, value),
        ReduceOp::Any => e.or(acc, value),
        ReduceOp::All => e.and(acc, value),
    }
}

/// The value that `op` starts from.
pub fn identity<'c>(e: &Emit<'c>, op: ReduceOp, kind: Kind) -> Val<'c> {
    let lowest = if kind == Kind::I32 { i64::from(i32::MIN) } else { i64::MIN };
    match op {
        ReduceOp::Sum if kind.is_float() => e.float(kind, 0.0),
        ReduceOp::Prod if kind.is_float() => e.float(kind, 1.0),
        ReduceOp::Max if kind.is_float() => e.float(kind, f64::NEG_INFINITY),
        ReduceOp::Min if kind.is_float() => e.float(kind, f64::INFINITY),
        ReduceOp::Max if kind == Kind::I1 => e.int(kind, 0),
        ReduceOp::Min if kind == Kind::I1 => e.int(kind, -1),
        ReduceOp::Max => e.int(kind, lowest),
        ReduceOp::Min => e.int(kind, !lowest),
        ReduceOp::Sum | ReduceOp::Any => e.int(kind, 0),
        ReduceOp::Prod => e.int(kind, 1),
        ReduceOp::All => e.int(kind, -1),
    }
}

fn compare<'c>(e: &Emit<'c>, op: ScalarOp, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    use {FloatPredicate::*, IntPredicate::*};
    let (float, signed, unsigned) = match op {
        ScalarOp::Eq => (LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ),
        ScalarOp::Ne => (LLVMRealUNE, LLVMIntNE, LLVMIntNE),
        ScalarOp::Lt => (LLVMRealOLT, LLVMIntSLT, LLVMIntULT),
        ScalarOp::Le => (LLVMRealOLE, LLVMIntSLE, LLVMIntULE),
        ScalarOp::Gt => (LLVMRealOGT, LLVMIntSGT, LLVMIntUGT),
        _ => (LLVMRealOGE, LLVMIntSGE, LLVMIntUGE),
    };
    match a.kind {
        k if k.is_float() => e.fcmp(float, a, b),
        Kind::I1 => e.icmp(unsigned, a, b),
        _ => e.icmp(signed, a, b),
    }
}

/// (divisor with 0 and -1 replaced by 1, whether it was -1)
fn safe_divisor<'c>(e: &Emit<'c>, b: Val<'c>) -> (Val<'c>, Val<'c>) {
    let minus_one = e.ieq(b, e.int(b.kind, -1));
    let unsafe_ = e.or(minus_one, e.ieq(b, e.int(b.kind, 0)));
    (e.select(unsafe_, e.int(b.kind, 1), b), minus_one)
}

fn div_trunc<'c>(e: &Emit<'c>, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    let (divisor, minus_one) = safe_divisor(e, b);
    let q = e.sdiv(a, divisor);
    e.select(minus_one, e.sub(e.int(a.kind, 0), a), q)
}

fn rem_trunc<'c>(e: &Emit<'c>, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    e.srem(a, safe_divisor(e, b).0)
}

/// r != 0 and r, b have different signs: where a truncating division must be corrected to a flooring one.
fn signs_differ<'c>(e: &Emit<'c>, r: Val<'c>, b: Val<'c>) -> Val<'c> {
    let zero = e.int(r.kind, 0);
    let nonzero = e.icmp(IntPredicate::LLVMIntNE, r, zero);
    e.and(nonzero, e.ilt(e.xor(r, b), zero))
}

/// C's fmod; exact, so any implementation gives the same bits.
fn fmod<'c>(e: &Emit<'c>, a: Val<'c>, b: Val<'c>) -> Val<'c> {
    e.call_per_lane(if a.kind == Kind::F32 { c"fmodf" } else { c"fmod" }, &[a, b])
}

/// Conversion between compute types with C's semantics.
pub fn cast<'c>(e: &Emit<'c>, a: Val<'c>, to: Ty) -> Val<'c> {
    let kind = kind_of(to);
    if a.kind == kind {
        return a;
    }
    match (a.kind, kind) {
        (Kind::F32, Kind::F64) => e.fpext(a, kind),
        (Kind::F64, Kind::F32) => e.fptrunc(a, kind),
        (from, Kind::I1) if from.is_float() => e.fcmp(FloatPredicate::LLVMRealUNE, a, e.float(from, 0.0)),
        (from, Kind::I1) => e.icmp(IntPredicate::LLVMIntNE, a, e.int(from, 0)),
        (from, _) if from.is_float() => e.fptosi(a, kind),
        (Kind::I1, _) if kind.is_float() => e.uitofp(a, kind),
        (Kind::I1, _) => e.zext(a, kind),
        (_, _) if kind.is_float() => e.sitofp(a, kind),
        (Kind::I32, _) => e.sext(a, kind),
        _ => e.itrunc(a, kind),
    }
}

/// Rounds a compute value to a storage dtype and widens it again.
pub fn round<'c>(e: &Emit<'c>, dtype: DType, a: Val<'c>) -> Val<'c> {
    match (dtype, a.kind) {
        (DType::BF16, Kind::F32) => {
            let high = e.and(bf16_rounded(e, a), e.int(Kind::I32, -0x10000));
            e.bitcast(high, Kind::F32)
        }
        (DType::I8 | DType::I16, Kind::I32) => {
            let count = e.int(a.kind, if dtype == DType::I8 { 24 } else { 16 });
            e.ashr(e.shl(a, count), count)
        }
        (DType::U8 | DType::U16, Kind::I32) => e.and(a, e.int(a.kind, if dtype == DType::U8 { 0xff } else { 0xffff })),
        (DType::F16, Kind::F32) => widen(e, dtype, narrow(e, dtype, a)),
        _ => a,
    }
}

/// The integer type a storage dtype is loaded and stored as, or its float type. None: no code for this dtype.
pub fn storage_kind(dtype: DType) -> Option<Kind> {
    Some(match dtype {
        DType::Bool | DType::I8 | DType::U8 => Kind::I8,
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => Kind::I16,
        DType::I32 | DType::U32 => Kind::I32,
        DType::I64 => Kind::I64,
        DType::F32 => Kind::F32,
        DType::F64 => Kind::F64,
        _ => return None,
    })
}

/// Storage bits to compute value.
pub fn widen<'c>(e: &Emit<'c>, dtype: DType, raw: Val<'c>) -> Val<'c> {
    match dtype {
        DType::Bool => e.icmp(IntPredicate::LLVMIntNE, raw, e.int(Kind::I8, 0)),
        DType::I8 | DType::I16 => e.sext(raw, Kind::I32),
        DType::U8 | DType::U16 => e.zext(raw, Kind::I32),
        DType::U32 => e.zext(raw, Kind::I64),
        DType::BF16 => {
            let wide = e.shl(e.zext(raw, Kind::I32), e.int(Kind::I32, 16));
            e.bitcast(wide, Kind::F32)
        }
        DType::F16 if e.target.has_f16c => e.fpext(e.bitcast(raw, Kind::F16), Kind::F32),
        DType::F16 => f16_to_f32(e, raw),
        _ => raw,
    }
}

/// Compute value to storage bits; rounds to nearest even, wraps integers.
pub fn narrow<'c>(e: &Emit<'c>, dtype: DType, a: Val<'c>) -> Val<'c> {
    match dtype {
        DType::Bool => e.zext(a, Kind::I8),
        DType::I8 | DType::U8 => e.itrunc(a, Kind::I8),
        DType::I16 | DType::U16 => e.itrunc(a, Kind::I16),
        DType::U32 => e.itrunc(a, Kind::I32),
        DType::BF16 => {
            let high = e.lshr(bf16_rounded(e, a), e.int(Kind::I32, 16));
            e.itrunc(high, Kind::I16)
        }
        DType::F16 if e.target.has_f16c => e.bitcast(e.fptrunc(a, Kind::F16), Kind::I16),
        DType::F16 => f32_to_f16(e, a),
        _ => a,
    }
}

/// f32 bits whose upper half is the bf16 nearest to `a`. Integer arithmetic: vcvtneps2bf16 flushes subnormals,
/// which eager doesn't.
fn bf16_rounded<'c>(e: &Emit<'c>, a: Val<'c>) -> Val<'c> {
    let bits = e.bitcast(a, Kind::I32);
    let odd = e.and(e.lshr(bits, e.int(Kind::I32, 16)), e.int(Kind::I32, 1));
    let rounded = e.add(bits, e.add(odd, e.int(Kind::I32, 0x7fff)));
    e.select(e.is_nan(a), e.int(Kind::I32, 0x7fc0_0000), rounded)
}

/// For machines without the instruction. Subnormals are exact multiples of 2^-24.
fn f16_to_f32<'c>(e: &Emit<'c>, raw: Val<'c>) -> Val<'c> {
    let int = |v| e.int(Kind::I32, v);
    let wide = e.zext(raw, Kind::I32);
    let magnitude = e.and(wide, int(0x7fff));
    let shifted = e.shl(magnitude, int(13));
    let normal = e.add(shifted, int(112 << 23));
    let special = e.add(shifted, int(224 << 23));
    let small = e.fmul(e.sitofp(magnitude, Kind::F32), e.float(Kind::F32, 2f64.powi(-24)));
    let finite = e.select(e.ilt(magnitude, int(0x400)), e.bitcast(small, Kind::I32), normal);
    let bits = e.select(e.ilt(magnitude, int(0x7c00)), finite, special);
    let sign = e.shl(e.and(wide, int(0x8000)), int(16));
    e.bitcast(e.or(bits, sign), Kind::F32)
}

/// For machines without the instruction. Below 2^-14 the addition of 0.5 rounds at 2^-24, f16's finest step.
fn f32_to_f16<'c>(e: &Emit<'c>, a: Val<'c>) -> Val<'c> {
    let int = |v| e.int(Kind::I32, v);
    let bits = e.bitcast(a, Kind::I32);
    let magnitude = e.and(bits, int(0x7fff_ffff));
    let odd = e.and(e.lshr(magnitude, int(13)), int(1));
    let rounded = e.add(magnitude, e.add(odd, int(0xfff)));
    let normal = e.lshr(e.sub(rounded, int(112 << 23)), int(13));
    let half = e.float(Kind::F32, 0.5);
    let small = e.sub(e.bitcast(e.fadd(e.bitcast(magnitude, Kind::F32), half), Kind::I32), e.bitcast(half, Kind::I32));
    let finite = e.select(e.ilt(magnitude, int(113 << 23)), small, normal);
    // 65520 and above round to infinity.
    let bounded = e.select(e.ilt(magnitude, int(0x477f_f000)), finite, int(0x7c00));
    let result = e.select(e.is_nan(a), int(0x7e00), bounded);
    let sign = e.and(e.lshr(bits, int(16)), int(0x8000));
    e.itrunc(e.or(result, sign), Kind::I16)
}

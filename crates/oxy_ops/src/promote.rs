//! Type promotion: torch.result_type for tensors, zero-dimensional tensors and Python numbers.

use crate::expr::T;
use oxy_graph::{DType, meta::Dims};

/// An argument of an elementwise operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    pub t: T,
    pub dtype: DType,
    pub sizes: Dims,
    /// A Python number.
    pub wrapped: bool,
}

impl Operand {
    /// A single element, so that ATen's CPU kernels read it once, unrounded where they compute wider.
    pub fn is_single(&self) -> bool {
        self.sizes.iter().product::<i64>() == 1
    }
}

/// 0 bool, 1 integer, 2 float, 3 complex.
fn category(dtype: DType) -> u8 {
    if dtype.is_bool() {
        0
    } else if dtype.is_complex() {
        3
    } else if dtype.is_floating_point() {
        2
    } else {
        1
    }
}

/// c10::promoteTypes, for the dtypes that bodies compute in. None: an unsupported pair.
pub fn promote_types(a: DType, b: DType) -> Option<DType> {
    use DType::*;
    if a == b {
        return Some(a);
    }
    let (low, high) = if category(a) <= category(b) { (a, b) } else { (b, a) };
    match (category(low), category(high)) {
        (x, y) if y > 2 || x > 2 => None,
        (x, y) if x < y => Some(high),
        (2, 2) => match (a, b) {
            (F64, _) | (_, F64) => Some(F64),
            (F32, F16 | BF16) | (F16 | BF16, F32) => Some(F32),
            (F16, BF16) | (BF16, F16) => Some(F32),
            _ => None,
        },
        (1, 1) => match (a.is_signed(), b.is_signed()) {
            (true, true) => Some(if a.itemsize() > b.itemsize() { a } else { b }),
            _ if a != U8 && b != U8 => None,
            _ => {
                let signed = if a == U8 { b } else { a };
                if !signed.is_signed() {
                    return None;
                }
                Some(if signed == I8 { I16 } else { signed })
            }
        },
        _ => None,
    }
}

/// The dtype in which torch computes on these operands: tensors with dimensions decide, unless a zero-dimensional
/// tensor or a number is of a higher category; numbers count as the default dtypes (int64, float32).
pub fn common_dtype(operands: &[&Operand]) -> Option<DType> {
    let mut best: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let rank = if operand.wrapped {
            2
        } else if operand.sizes.is_empty() {
            1
        } else {
            0
        };
        let dtype = match (operand.wrapped, operand.dtype) {
            (true, DType::F64) => DType::F32,
            (_, dtype) => dtype,
        };
        best[rank] = Some(match best[rank] {
            None => dtype,
            Some(other) => promote_types(other, dtype)?,
        });
    }
    let [dims, zeros, numbers] = best;
    let combine = |higher: Option<DType>, lower: Option<DType>| match (higher, lower) {
        (Some(h), Some(l)) if category(l) > category(h) => promote_types(h, l),
        (Some(h), _) => Some(h),
        (None, l) => l,
    };
    let lower = match (zeros, numbers) {
        (None, None) => None,
        (z, n) => Some(combine(z, n)?),
    };
    combine(dims, lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    fn check(operands: &[(DType, usize, bool)], expected: DType) {
        let operands: Vec<Operand> = operands
            .iter()
            .map(|(dtype, rank, wrapped)| Operand {
                t: T(0),
                dtype: *dtype,
                sizes: Dims::from_elem(2, *rank),
                wrapped: *wrapped,
            })
            .collect();
        let refs: Vec<&Operand> = operands.iter().collect();
        assert_eq!(common_dtype(&refs), Some(expected), "{operands:?}");
    }

    #[test]
    fn follows_torch() {
        check(&[(F32, 1, false), (F64, 0, false)], F32);
        check(&[(BF16, 2, false), (F64, 0, true)], BF16);
        check(&[(I64, 1, false), (F64, 0, true)], F32);
        check(&[(I32, 1, false), (I64, 0, true)], I32);
        check(&[(U8, 1, false), (I8, 1, false)], I16);
        check(&[(F16, 1, false), (BF16, 1, false)], F32);
        check(&[(Bool, 1, false), (I64, 0, true)], I64);
        check(&[(I64, 1, false), (F64, 0, false)], F64);
        check(&[(BF16, 0, false), (F32, 0, true)], BF16);
        check(&[(Bool, 1, false), (Bool, 0, true)], Bool);
        check(&[(I64, 0, false), (F16, 1, false)], F16);
    }
}

//! Operator shims for the CPU: direct C functions for hot operators, past the dispatcher and its boxed arguments.
//!
//! One row per operator; the letters are its arguments in schema order, as `generated/c_shim_cpu.h` encodes them:
//!
//! | letter | schema type | C parameters |
//! |--------|-------------|--------------|
//! | `T`, `OT` | `Tensor`, `Tensor?` | handle; pointer to handle, or null |
//! | `TL`, `OTL` | `Tensor[]`, `Tensor?[]` | pointer to handles, length; pointer to pointers to handles, length |
//! | `I`, `OI`, `IL` | `int`, `int?`, `int[]` | int64; pointer; pointer, length |
//! | `F`, `OF` | `float`, `float?` | double; pointer |
//! | `S` | `Scalar` | double |
//! | `B` | `bool` | int32 |
//! | `OD` | `ScalarType?` | pointer to int32 |
//! | `Z` | `str` | `const char*` |
//!
//! 1. A shim runs the CPU kernel: no autograd, no autocast, no dispatch modes. Plans are made for that.
//! 2. A row whose letters don't fit the loaded torch's schema, or whose symbol that torch lacks, is not used.
//! 3. Rows `-> out` write a tensor that the caller allocated with the result's metadata; the others return new tensors.

use crate::{
    schema::ArgType,
    sys::{AOTITorchError, AtenTensorHandle, Library},
};
use libc::c_void;

/// How one argument is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms, reason = "the letters of the table")]
pub(crate) enum Letter {
    T,
    OT,
    TL,
    OTL,
    I,
    OI,
    IL,
    F,
    OF,
    S,
    B,
    OD,
    Z,
}

/// Calls the function at an address with arguments encoded as words.
///
/// # Safety
/// The address is the row's function; the words are its arguments (integers and pointers as they are, doubles as bits)
/// and pointers among them are valid.
pub(crate) type Caller = unsafe fn(*const c_void, &[u64]) -> AOTITorchError;

pub(crate) struct Row {
    pub target: &'static str,
    symbol: &'static str,
    pub letters: &'static [Letter],
    /// Number of results. 0: the first parameter is the tensor to write.
    pub n_results: usize,
    pub call: Caller,
}

impl Row {
    pub fn has_out(&self) -> bool {
        self.n_results == 0
    }

    /// The row's function in the loaded torch.
    pub fn find(&self, library: &Library) -> Option<*const c_void> {
        library.symbol(self.symbol).map(<*mut c_void>::cast_const)
    }
}

/// The letter of a schema type.
pub(crate) fn letter(ty: &ArgType) -> Option<Letter> {
    Some(match ty {
        ArgType::Tensor => Letter::T,
        ArgType::Int => Letter::I,
        ArgType::Float => Letter::F,
        ArgType::Bool => Letter::B,
        ArgType::Scalar => Letter::S,
        ArgType::Str => Letter::Z,
        ArgType::Optional(inner) => match **inner {
            ArgType::Tensor => Letter::OT,
            ArgType::Int => Letter::OI,
            ArgType::Float => Letter::OF,
            ArgType::ScalarType => Letter::OD,
            _ => return None,
        },
        ArgType::List(inner, _) => match &**inner {
            ArgType::Tensor => Letter::TL,
            ArgType::Int => Letter::IL,
            ArgType::Optional(inner) if **inner == ArgType::Tensor => Letter::OTL,
            _ => return None,
        },
        ArgType::ScalarType | ArgType::Device | ArgType::Layout | ArgType::MemoryFormat | ArgType::Other(_) => {
            return None;
        }
    })
}

/// Reads words in order as C arguments.
struct Words<'a>(std::slice::Iter<'a, u64>);

impl Words<'_> {
    fn word(&mut self) -> u64 {
        self.0.next().copied().unwrap_or(0)
    }

    fn pointer<T>(&mut self) -> *mut T {
        self.word() as usize as *mut T
    }
}

/// Builds the exact C type of a function from its letters, and calls it.
macro_rules! call_words {
    ($f:ident $w:ident [] [$($ty:ty,)*] [$($value:expr,)*]) => {{
        type Function = unsafe extern "C" fn($($ty),*) -> AOTITorchError;
        // SAFETY: the row's letters spell the function's signature in torch's header; the rest is the caller's promise.
        unsafe { (std::mem::transmute::<*const c_void, Function>($f))($($value),*) }
    }};
    ($f:ident $w:ident [T $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* AtenTensorHandle,] [$($value,)* $w.pointer(),])
    };
    ($f:ident $w:ident [OT $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *mut AtenTensorHandle,] [$($value,)* $w.pointer(),])
    };
    ($f:ident $w:ident [R $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *mut AtenTensorHandle,] [$($value,)* $w.pointer(),])
    };
    ($f:ident $w:ident [TL $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *const AtenTensorHandle, i64,]
            [$($value,)* $w.pointer(), $w.word() as i64,])
    };
    ($f:ident $w:ident [OTL $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *mut *const AtenTensorHandle, i64,]
            [$($value,)* $w.pointer(), $w.word() as i64,])
    };
    ($f:ident $w:ident [IL $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *const i64, i64,] [$($value,)* $w.pointer(), $w.word() as i64,])
    };
    ($f:ident $w:ident [I $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* i64,] [$($value,)* $w.word() as i64,])
    };
    ($f:ident $w:ident [OI $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *mut i64,] [$($value,)* $w.pointer(),])
    };
    ($f:ident $w:ident [F $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* f64,] [$($value,)* f64::from_bits($w.word()),])
    };
    ($f:ident $w:ident [S $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* f64,] [$($value,)* f64::from_bits($w.word()),])
    };
    ($f:ident $w:ident [OF $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *mut f64,] [$($value,)* $w.pointer(),])
    };
    ($f:ident $w:ident [B $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* i32,] [$($value,)* $w.word() as i32,])
    };
    ($f:ident $w:ident [OD $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *mut i32,] [$($value,)* $w.pointer(),])
    };
    ($f:ident $w:ident [Z $($rest:tt)*] [$($ty:ty,)*] [$($value:expr,)*]) => {
        call_words!($f $w [$($rest)*] [$($ty,)* *const libc::c_char,] [$($value,)* $w.pointer(),])
    };
}

macro_rules! row {
    ($target:literal $symbol:literal ($($letter:ident)*) -> out) => {
        row!(@ $target $symbol ($($letter)*) 0 [T $($letter)*])
    };
    ($target:literal $symbol:literal ($($letter:ident)*) -> 1) => {
        row!(@ $target $symbol ($($letter)*) 1 [$($letter)* R])
    };
    ($target:literal $symbol:literal ($($letter:ident)*) -> 2) => {
        row!(@ $target $symbol ($($letter)*) 2 [$($letter)* R R])
    };
    (@ $target:literal $symbol:literal ($($letter:ident)*) $n:literal [$($full:ident)*]) => {{
        unsafe fn call(function: *const c_void, words: &[u64]) -> AOTITorchError {
            let mut words = Words(words.iter());
            call_words!(function words [$($full)*] [] [])
        }
        Row {
            target: concat!("aten.", $target),
            symbol: concat!("aoti_torch_cpu_", $symbol),
            letters: &[$(Letter::$letter),*],
            n_results: $n,
            call,
        }
    }};
}

/// The table. Sorted by operator.
pub(crate) static ROWS: &[Row] = &[
    row!("_adaptive_avg_pool2d.default" "_adaptive_avg_pool2d" (T IL) -> 1),
    row!("_adaptive_avg_pool3d.default" "_adaptive_avg_pool3d" (T IL) -> 1),
    row!("_addmm_activation.default" "_addmm_activation" (T T T S S B) -> 1),
    row!("_cdist_forward.default" "_cdist_forward" (T T F OI) -> 1),
    row!("_fused_rms_norm.default" "_fused_rms_norm" (T IL OT OF) -> 2),
    row!("_int_mm.default" "_int_mm_out" (T T) -> out),
    row!("_scaled_dot_product_flash_attention_for_cpu.default"
        "_scaled_dot_product_flash_attention_for_cpu" (T T T F B OT OF) -> 2),
    row!("abs.default" "abs" (T) -> 1),
    row!("adaptive_max_pool2d.default" "adaptive_max_pool2d" (T IL) -> 2),
    row!("add.Scalar" "add_Scalar" (T S S) -> 1),
    row!("add.Tensor" "add_Tensor" (T T S) -> 1),
    row!("addbmm.default" "addbmm" (T T T S S) -> 1),
    row!("addmm.default" "addmm_out" (T T T S S) -> out),
    row!("addmv.default" "addmv" (T T T S S) -> 1),
    row!("angle.default" "angle" (T) -> 1),
    row!("avg_pool2d.default" "avg_pool2d" (T IL IL IL B B OI) -> 1),
    row!("avg_pool3d.default" "avg_pool3d" (T IL IL IL B B OI) -> 1),
    row!("baddbmm.default" "baddbmm_out" (T T T S S) -> out),
    row!("bmm.default" "bmm_out" (T T) -> out),
    row!("bucketize.Tensor" "bucketize_Tensor" (T T B B) -> 1),
    row!("cat.default" "cat" (TL I) -> 1),
    row!("convolution.default" "convolution" (T T OT IL IL IL B IL I) -> 1),
    row!("cummax.default" "cummax" (T I) -> 2),
    row!("cummin.default" "cummin" (T I) -> 2),
    row!("cumprod.default" "cumprod" (T I OD) -> 1),
    row!("cumsum.default" "cumsum" (T I OD) -> 1),
    row!("gcd.default" "gcd" (T T) -> 1),
    row!("grid_sampler_3d.default" "grid_sampler_3d" (T T I I B) -> 1),
    row!("index.Tensor" "index_Tensor" (T OTL) -> 1),
    row!("index_put.default" "index_put" (T OTL T B) -> 1),
    row!("index_reduce.default" "index_reduce" (T I T T Z B) -> 1),
    row!("kthvalue.default" "kthvalue" (T I I B) -> 2),
    row!("logcumsumexp.default" "logcumsumexp" (T I) -> 1),
    row!("masked_scatter.default" "masked_scatter" (T T T) -> 1),
    row!("masked_select.default" "masked_select" (T T) -> 1),
    row!("max_pool2d_with_indices.default" "max_pool2d_with_indices" (T IL IL IL IL B) -> 2),
    row!("max_pool3d_with_indices.default" "max_pool3d_with_indices" (T IL IL IL IL B) -> 2),
    row!("median.default" "median" (T) -> 1),
    row!("mm.default" "mm_out" (T T) -> out),
    row!("mode.default" "mode" (T I B) -> 2),
    row!("mul.Scalar" "mul_Scalar" (T S) -> 1),
    row!("mul.Tensor" "mul_Tensor" (T T) -> 1),
    row!("nonzero.default" "nonzero" (T) -> 1),
    row!("pow.Tensor_Scalar" "pow_Tensor_Scalar" (T S) -> 1),
    row!("pow.Tensor_Tensor" "pow_Tensor_Tensor" (T T) -> 1),
    row!("scatter.src" "scatter_src_out" (T I T T) -> out),
    row!("scatter.value" "scatter_value_out" (T I T S) -> out),
    row!("scatter_reduce.two" "scatter_reduce_two_out" (T I T T Z B) -> out),
    row!("sort.default" "sort" (T I B) -> 2),
    row!("topk.default" "topk" (T I I B B) -> 2),
];

/// The row of an operator.
pub(crate) fn find(target: &str) -> Option<&'static Row> {
    ROWS.binary_search_by(|row| row.target.cmp(target)).ok().map(|i| &ROWS[i])
}

/// Whether calling this operator can write its result into a tensor that the caller allocated.
pub fn takes_out(target: &str) -> bool {
    find(target).is_some_and(Row::has_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted() {
        assert!(ROWS.windows(2).all(|pair| pair[0].target < pair[1].target));
        assert!(find("aten.addmm.default").is_some_and(Row::has_out));
        assert!(!takes_out("aten.convolution.default") && !takes_out("aten.no_such.default"));
    }
}

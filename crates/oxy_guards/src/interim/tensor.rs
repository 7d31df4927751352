//! Tensor metadata through torch's C ABI.

use crate::TensorGuard;
use oxy_torch::{TensorRef, Torch};
use pyo3::ffi::{self, PyObject};
use std::ptr::NonNull;

/// A tensor of exactly this Python type, viewed through the ABI.
///
/// # Safety
/// Attached; `object` is a live `torch.Tensor` (or of a subclass with its layout).
pub unsafe fn view<'a>(torch: &'static Torch, object: NonNull<PyObject>) -> TensorRef<'a> {
    // SAFETY: the caller's promise.
    unsafe { TensorRef::from_pyobject(torch, object.cast()) }
}

/// Whether an object is a tensor with this metadata.
///
/// # Safety
/// Attached; `object` is live.
pub unsafe fn matches(torch: &'static Torch, guard: &TensorGuard, object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise; the exact type makes it a tensor.
    unsafe {
        if ffi::Py_TYPE(object).cast() != guard.pytype.as_ptr() {
            return false;
        }
        let Some(object) = NonNull::new(object) else { return false };
        let tensor = view(torch, object);
        tensor.dtype_code() == guard.dtype as i32
            && tensor.has_layout(&guard.sizes, &guard.strides)
            && tensor.device() == Some(guard.device)
            && tensor.requires_grad().is_none_or(|grad| grad == guard.requires_grad)
            && tensor.is_conj().is_none_or(|conj| conj == guard.is_conj)
            && tensor.is_neg().is_none_or(|neg| neg == guard.is_neg)
    }
}

/// What differs, for messages.
///
/// # Safety
/// As [`matches`].
pub unsafe fn difference(torch: &'static Torch, guard: &TensorGuard, object: *mut PyObject) -> String {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(object) = NonNull::new(object) else { return "it is missing".to_owned() };
        if ffi::Py_TYPE(object.as_ptr()).cast() != guard.pytype.as_ptr() {
            return "it is of another type".to_owned();
        }
        let tensor = view(torch, object);
        if tensor.dtype_code() != guard.dtype as i32 {
            let actual = tensor.dtype().map_or("unknown", |d| d.torch_name());
            return format!("dtype: expected {}, got {actual}", guard.dtype.torch_name());
        }
        let (sizes, strides) = (tensor.sizes(), tensor.strides());
        if sizes != guard.sizes {
            return format!("size: expected {:?}, got {:?}", guard.sizes.as_slice(), sizes.as_slice());
        }
        if strides != guard.strides {
            return format!("stride: expected {:?}, got {:?}", guard.strides.as_slice(), strides.as_slice());
        }
        if tensor.requires_grad().is_some_and(|grad| grad != guard.requires_grad) {
            return format!("requires_grad: expected {}", guard.requires_grad);
        }
        "device or layout differs".to_owned()
    }
}

/// Address of a tensor's storage, for overlap checks; 0 for empty ones.
///
/// # Safety
/// As [`view`].
pub unsafe fn storage_range(torch: &'static Torch, object: NonNull<PyObject>) -> (usize, usize) {
    // SAFETY: the caller's promise.
    let tensor = unsafe { view(torch, object) };
    if tensor.numel() == 0 {
        return (0, 0);
    }
    let size = tensor.dtype().map_or(8, |d| d.itemsize()) as i64;
    let extent: i64 =
        tensor.sizes().iter().zip(&tensor.strides()).map(|(size, stride)| (size - 1) * stride).sum::<i64>() + 1;
    let start = tensor.data_ptr() as usize;
    (start, start + (extent * size) as usize)
}

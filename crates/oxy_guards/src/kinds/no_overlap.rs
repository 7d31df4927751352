//! `NoOverlap`: no two tensors share memory.

use super::tensor::view;
use oxy_torch::{TensorRef, Torch};
use pyo3::ffi::PyObject;
use smallvec::SmallVec;
use std::{cell::RefCell, ptr::NonNull};

/// A check with what it remembers: where the tensors were when they last didn't overlap.
pub struct OverlapCheck {
    torch: &'static Torch,
    /// Each tensor's data pointer. Tensor guards fix sizes and strides, so where the tensors are says all.
    passed: RefCell<Vec<usize>>,
}

// SAFETY: `passed` is only touched by threads that are attached to the one interpreter lock, and no Python runs meanwhile.
unsafe impl Sync for OverlapCheck {}
// SAFETY: plain data.
unsafe impl Send for OverlapCheck {}

/// Bytes before and after the first element that a tensor's elements reach; nothing if it has none.
struct Extent {
    below: usize,
    above: usize,
}

impl OverlapCheck {
    pub fn new(torch: &'static Torch) -> OverlapCheck {
        OverlapCheck { torch, passed: RefCell::default() }
    }

    /// # Safety
    /// Attached; the values are live tensors that have passed their tensor guards.
    pub unsafe fn holds(&self, values: &[*mut PyObject]) -> bool {
        let Ok(mut passed) = self.passed.try_borrow_mut() else {
            // SAFETY: the caller's promise.
            return unsafe { self.overlapping(values) }.is_none();
        };
        let address = |value: &*mut PyObject| {
            // SAFETY: the caller's promise.
            NonNull::new(*value).map_or(0, |value| unsafe { view(self.torch, value) }.data_ptr() as usize)
        };
        if passed.len() == values.len() && values.iter().map(address).eq(passed.iter().copied()) {
            return true;
        }
        passed.clear();
        // SAFETY: the caller's promise.
        if unsafe { self.overlapping(values) }.is_some() {
            return false;
        }
        passed.extend(values.iter().map(address));
        true
    }

    /// The positions of two tensors that share memory.
    ///
    /// # Safety
    /// Attached; the values are live tensors.
    pub unsafe fn overlapping(&self, values: &[*mut PyObject]) -> Option<(usize, usize)> {
        let mut ranges: SmallVec<[(usize, usize, usize); 64]> = SmallVec::new();
        for (position, value) in values.iter().enumerate() {
            let Some(value) = NonNull::new(*value) else { continue };
            // SAFETY: the caller's promise.
            let tensor = unsafe { view(self.torch, value) };
            let (start, extent) = (tensor.data_ptr() as usize, extent(tensor));
            if start != 0 && extent.above > 0 {
                ranges.push((start - extent.below, start + extent.above, position));
            }
        }
        ranges.sort_unstable();
        let mut reached = (0, 0);
        for (start, end, position) in ranges {
            if start < reached.0 {
                return Some((reached.1, position));
            }
            if end > reached.0 {
                reached = (end, position);
            }
        }
        None
    }
}

fn extent(tensor: TensorRef<'_>) -> Extent {
    if tensor.numel() == 0 {
        return Extent { below: 0, above: 0 };
    }
    let item = tensor.dtype().map_or(16, |dtype| dtype.itemsize());
    let (mut below, mut above) = (0, item);
    for (size, stride) in tensor.sizes().iter().zip(&tensor.strides()) {
        let reach = (*size as usize - 1) * stride.unsigned_abs() as usize * item;
        if *stride < 0 { below += reach } else { above += reach }
    }
    Extent { below, above }
}

pub fn difference(first: &str, second: &str) -> String {
    format!("expected tensors that share no memory, but {first} and {second} do")
}

//! `Tensor`: a tensor's class and metadata, read through torch's C ABI.
//!
//! Once a tensor has passed, the words of its TensorImpl that hold metadata are remembered, and a tensor with the same
//! words passes without being asked (see `tensor_impl`). Any difference means asking.

use super::TensorGuard;
use crate::{
    cpython, object,
    object::truth,
    program::Raw,
    tensor_impl::{ImplLayout, Words},
};
use oxy_graph::{DeviceType, Layout};
use oxy_torch::{TensorRef, Torch};
use pyo3::{ffi::PyObject, prelude::*};
use std::{cell::Cell, ops::Range, ptr, ptr::NonNull};

/// What is asked about a tensor, and of whom.
#[derive(Clone, Copy)]
pub struct TensorCheck {
    torch: &'static Torch,
    layout: Option<&'static ImplLayout>,
}

/// A Python tensor as torch sees it.
///
/// # Safety
/// Attached; `object` is a live `torch.Tensor` for 'a.
pub unsafe fn view<'a>(torch: &'static Torch, object: NonNull<PyObject>) -> TensorRef<'a> {
    // SAFETY: the caller's promise.
    unsafe { TensorRef::from_pyobject(torch, object.cast()) }
}

impl TensorCheck {
    pub fn new(torch: &'static Torch, layout: Option<&'static ImplLayout>) -> TensorCheck {
        TensorCheck { torch, layout }
    }

    /// Asks for every fact.
    ///
    /// # Safety
    /// Attached; `value` is a live object.
    pub unsafe fn holds(&self, guard: &TensorGuard, value: *mut PyObject) -> bool {
        // SAFETY: the caller's promise; the exact type makes it a tensor.
        unsafe {
            let Some(object) = NonNull::new(value) else { return false };
            ptr::addr_eq(cpython::type_of(value), guard.pytype.as_ptr())
                && differences(view(self.torch, object), guard, self.layout, value).next().is_none()
        }
    }
}

/// A tensor guard as the fast way checks it.
#[derive(Clone, Copy)]
struct Fast {
    class: *mut PyObject,
    register: u32,
    guard: u32,
    /// Guards that ask for the same metadata share what was learned.
    group: u32,
    requires_grad: bool,
}

/// The tensor guards of a program, checked in a row.
pub struct TensorTable {
    layout: &'static ImplLayout,
    rows: Vec<Fast>,
    /// The words of the last tensor that passed, by group.
    learned: Vec<Cell<Option<Words>>>,
    /// A guard of each group, to find it by.
    groups: Vec<TensorGuard>,
}

// SAFETY: classes are held by the guards; `learned` is only touched by threads that are attached to the one interpreter
// lock.
unsafe impl Sync for TensorTable {}
// SAFETY: as above.
unsafe impl Send for TensorTable {}

impl TensorTable {
    pub fn new(layout: &'static ImplLayout) -> TensorTable {
        TensorTable { layout, rows: Vec::new(), learned: Vec::new(), groups: Vec::new() }
    }

    /// Adds a row for a guard on a register. Guards on more than words and gradients can't be added.
    pub fn add(&mut self, guard: &TensorGuard, register: u32, index: u32) -> bool {
        if guard.is_leaf.is_some() {
            return false;
        }
        let same = |known: &TensorGuard| {
            known.sizes == guard.sizes
                && known.strides == guard.strides
                && known.dtype == guard.dtype
                && known.device == guard.device
                && known.storage_offset == guard.storage_offset
                && (known.is_conj, known.is_neg) == (guard.is_conj, guard.is_neg)
        };
        let group = self.groups.iter().position(same).unwrap_or_else(|| {
            self.groups.push(guard.clone());
            self.learned.push(Cell::new(None));
            self.groups.len() - 1
        });
        self.rows.push(Fast {
            class: guard.pytype.as_ptr(),
            register,
            guard: index,
            group: group as u32,
            requires_grad: guard.requires_grad,
        });
        true
    }

    /// (register, guard) of rows.
    pub fn rows(&self, rows: Range<u32>) -> impl Iterator<Item = (u32, u32)> {
        self.rows[rows.start as usize..rows.end as usize].iter().map(|row| (row.register, row.guard))
    }

    pub fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Checks rows: `Err` is the guard that failed. `ask` asks about a guard's value in full.
    ///
    /// # Safety
    /// Attached; the registers of the rows hold live objects or NULL.
    #[inline]
    pub unsafe fn check(
        &self,
        rows: Range<u32>,
        values: &[Raw],
        ask: impl Fn(u32, *mut PyObject) -> bool,
    ) -> Result<(), u32> {
        for row in &self.rows[rows.start as usize..rows.end as usize] {
            let value = values[row.register as usize];
            // SAFETY: the caller's promise; the exact type makes it a tensor, and no Python code runs meanwhile.
            unsafe {
                if value.is_null() || !ptr::addr_eq(cpython::type_of(value), row.class) {
                    return Err(row.guard);
                }
                let learned = &self.learned[row.group as usize];
                if let Some(words) = &*learned.as_ptr()
                    && self.layout.matches(words, value)
                {
                    if self.layout.requires_grad(value) != row.requires_grad {
                        return Err(row.guard);
                    }
                    continue;
                }
                if !ask(row.guard, value) {
                    return Err(row.guard);
                }
                let words = self.layout.words(value, self.groups[row.group as usize].storage_offset.is_some());
                let both = learned.get().zip(words).and_then(|(old, new)| old.merged(&new));
                learned.set(both.or(words));
            }
        }
        Ok(())
    }
}

/// What differs from the guard.
///
/// # Safety
/// Attached; `tensor` is the tensor of the live object `value`.
unsafe fn differences(
    tensor: TensorRef<'_>,
    guard: &TensorGuard,
    layout: Option<&'static ImplLayout>,
    value: *mut PyObject,
) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    if !tensor.is_defined() || tensor.layout() != Some(Layout::Strided) {
        found.push("layout: expected torch.strided".to_owned());
        return found.into_iter();
    }
    if tensor.dtype_code() != guard.dtype as i32 {
        let actual = tensor.dtype().map_or("an unknown dtype", |dtype| dtype.torch_name());
        found.push(format!("dtype: expected {}, got {actual}", guard.dtype.torch_name()));
    }
    if tensor.device() != Some(guard.device) {
        let actual = tensor.device().map_or("an unknown device".to_owned(), device_name);
        found.push(format!("device: expected {}, got {actual}", device_name(guard.device)));
    }
    let (sizes, strides) = (tensor.sizes(), tensor.strides());
    if sizes.len() != guard.sizes.len() {
        found.push(format!("dim(): expected {}, got {}", guard.sizes.len(), sizes.len()));
    } else {
        for (name, expected, actual) in [("size", &guard.sizes, &sizes), ("stride", &guard.strides, &strides)] {
            for (dim, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                if expected != actual {
                    found.push(format!("{name}({dim}): expected {expected}, got {actual}"));
                }
            }
        }
    }
    if let Some(offset) = guard.storage_offset
        && offset != tensor.storage_offset()
    {
        found.push(format!("storage_offset(): expected {offset}, got {}", tensor.storage_offset()));
    }
    // SAFETY: the caller's promise.
    let flag = |native: Option<bool>, name: &str| native.unwrap_or_else(|| unsafe { ask_python(value, name) });
    for (name, expected, actual) in [
        ("requires_grad", guard.requires_grad, flag(tensor.requires_grad(), "requires_grad")),
        ("is_conj()", guard.is_conj, flag(tensor.is_conj(), "is_conj")),
        ("is_neg()", guard.is_neg, flag(tensor.is_neg(), "is_neg")),
    ] {
        if expected != actual {
            found.push(format!("{name}: expected {}, got {}", truth(expected), truth(actual)));
        }
    }
    if let Some(expected) = guard.is_leaf {
        // SAFETY: the caller's promise.
        let actual = unsafe { ask_python(value, "is_leaf") };
        if expected != actual {
            found.push(format!("is_leaf: expected {}, got {}", truth(expected), truth(actual)));
        }
    }
    // SAFETY: the caller's promise.
    let is_ordinary = layout.is_none_or(|layout| unsafe { layout.is_ordinary(value) });
    if !is_ordinary {
        found.push("expected an ordinary tensor, got one that a transform or a dispatch mode wraps".to_owned());
    }
    found.into_iter()
}

/// A boolean property or argumentless method.
///
/// # Safety
/// Attached; `value` is a live tensor.
unsafe fn ask_python(value: *mut PyObject, name: &str) -> bool {
    // SAFETY: the caller's promise.
    let value = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), value) };
    let answer = value
        .getattr(name)
        .and_then(|attr| if attr.is_callable() { attr.call0()?.is_truthy() } else { attr.is_truthy() });
    answer.unwrap_or(false)
}

fn device_name(device: oxy_graph::Device) -> String {
    let kind = match device.kind {
        DeviceType::Cpu => "cpu",
        DeviceType::Cuda => "cuda",
        DeviceType::Meta => "meta",
    };
    if device.index < 0 { kind.to_owned() } else { format!("{kind}:{}", device.index) }
}

impl TensorCheck {
    /// The sentences for what differs.
    pub fn difference(&self, guard: &TensorGuard, value: &Bound<'_, PyAny>) -> Vec<String> {
        let class = value.get_type();
        if !ptr::addr_eq(class.as_ptr(), guard.pytype.as_ptr()) {
            let (old, new) = (object::type_name(guard.pytype.bind(value.py())), object::type_name(class.as_any()));
            return vec![format!("type: expected {old}, got {new}")];
        }
        let Some(object) = NonNull::new(value.as_ptr()) else { return Vec::new() };
        // SAFETY: attached, and of a tensor's class.
        unsafe { differences(view(self.torch, object), guard, self.layout, value.as_ptr()).collect() }
    }
}

//! What is known of a tensor without its data.

use crate::DType;
use smallvec::SmallVec;

/// Sizes or strides, in elements.
pub type Dims = SmallVec<[i64; 6]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceType {
    Cpu,
    Cuda,
    Meta,
}

/// A device; `index` is -1 where torch has none (`cpu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    pub kind: DeviceType,
    pub index: i16,
}

impl Device {
    pub const CPU: Device = Device { kind: DeviceType::Cpu, index: -1 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    Strided,
    Sparse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryFormat {
    Contiguous,
    Preserve,
    ChannelsLast,
    ChannelsLast3d,
}

/// Metadata of a strided tensor. Sizes are in elements, one per dimension; strides likewise.
// Invariant: sizes.len() == strides.len().
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMeta {
    pub dtype: DType,
    pub device: Device,
    pub sizes: Dims,
    pub strides: Dims,
    pub storage_offset: i64,
    pub requires_grad: bool,
}

/// Row-major strides of a contiguous tensor (torch's rule: a size of 0 counts as 1).
pub fn contiguous_strides(sizes: &[i64]) -> Dims {
    let mut strides: Dims = SmallVec::from_elem(1, sizes.len());
    for dim in (0..sizes.len().saturating_sub(1)).rev() {
        strides[dim] = strides[dim + 1] * sizes[dim + 1].max(1);
    }
    strides
}

impl TensorMeta {
    /// A contiguous CPU tensor without gradient.
    pub fn contiguous(dtype: DType, sizes: &[i64]) -> TensorMeta {
        TensorMeta {
            dtype,
            device: Device::CPU,
            sizes: sizes.into(),
            strides: contiguous_strides(sizes),
            storage_offset: 0,
            requires_grad: false,
        }
    }

    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    pub fn numel(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Contiguous in row-major order; strides of dimensions of size 1 don't matter.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.sizes.iter().zip(&self.strides).rev() {
            if size == 0 {
                return true;
            }
            if size != 1 {
                if stride != expected {
                    return false;
                }
                expected *= size;
            }
        }
        true
    }
}

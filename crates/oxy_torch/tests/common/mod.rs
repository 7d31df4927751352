//! Loads torch into a test process that has no Python.
//!
//! The library is `OXY_TORCH_LIB` (`libtorch_cpu.so` or its folder), else that of the torch which the development
//! environment (`OXYFUEL_VENV`, by default `~/.cache/oxyfuel/venv-3.11`) or `python3` has. No torch is a failure.
#![allow(dead_code, reason = "each test file uses a part")]

use oxy_graph::{DType, Device, meta::contiguous_strides};
use oxy_torch::{Schema, Tensor, TensorRef, Torch};
use std::{ffi::CString, path::PathBuf, process::Command};

pub fn torch() -> &'static Torch {
    if let Ok(torch) = Torch::load() {
        return torch;
    }
    let library = find_library();
    let path = CString::new(library.to_str().expect("the path is UTF-8")).expect("no NUL in a path");
    // SAFETY: loads libtorch, whose initialisers have no preconditions.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: dlopen failed, so there is a message.
        let message = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
        panic!("can't load torch from {}: {message}", library.display());
    }
    Torch::load().expect("torch is supported")
}

fn find_library() -> PathBuf {
    if let Some(given) = std::env::var_os("OXY_TORCH_LIB").map(PathBuf::from) {
        let library = if given.is_dir() { given.join("libtorch_cpu.so") } else { given };
        assert!(library.is_file(), "OXY_TORCH_LIB: there is no {}", library.display());
        return library;
    }
    let venv = std::env::var_os("OXYFUEL_VENV")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/oxyfuel/venv-3.11")));
    let pythons = venv.map(|venv| venv.join("bin/python")).into_iter().chain([PathBuf::from("python3")]);
    let script = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    for python in pythons {
        let Ok(output) = Command::new(&python).args(["-c", script]).output() else { continue };
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let library = folder.join("lib/libtorch_cpu.so");
        if output.status.success() && library.is_file() {
            return library;
        }
    }
    panic!("these tests need torch: run `make setup`, or set OXY_TORCH_LIB to the folder of libtorch_cpu.so")
}

pub fn schema(text: &str) -> Schema {
    Schema::parse(text).expect("a schema")
}

/// A contiguous float32 tensor.
pub fn floats(sizes: &[i64], values: &[f32]) -> Tensor {
    let tensor =
        Tensor::empty_strided(torch(), sizes, &contiguous_strides(sizes), DType::F32, Device::CPU).expect("a tensor");
    assert_eq!(tensor.as_ref().numel() as usize, values.len());
    // SAFETY: the new tensor has room for the values and nobody else uses it.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), tensor.as_ref().data_ptr().cast(), values.len()) };
    tensor
}

/// A contiguous int64 tensor.
pub fn ints(sizes: &[i64], values: &[i64]) -> Tensor {
    let tensor =
        Tensor::empty_strided(torch(), sizes, &contiguous_strides(sizes), DType::I64, Device::CPU).expect("a tensor");
    assert_eq!(tensor.as_ref().numel() as usize, values.len());
    // SAFETY: the new tensor has room for the values and nobody else uses it.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), tensor.as_ref().data_ptr().cast(), values.len()) };
    tensor
}

/// Elements of a float32 tensor in row-major order of its indices.
pub fn values(tensor: TensorRef<'_>) -> Vec<f32> {
    assert_eq!(tensor.dtype(), Some(DType::F32));
    let (sizes, strides) = (tensor.sizes(), tensor.strides());
    let data = tensor.data_ptr().cast::<f32>();
    (0..tensor.numel())
        .map(|i| {
            let (mut rest, mut offset) = (i, 0);
            for (size, stride) in sizes.iter().zip(&strides).rev() {
                offset += rest % size * stride;
                rest /= size;
            }
            // SAFETY: the offset is that of an element.
            unsafe { *data.add(offset as usize) }
        })
        .collect()
}

pub fn close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 1e-5 * e.abs().max(1.0), "{actual:?} is not {expected:?}");
    }
}

//! torch's C ABI as it is: one field per function, in the order of torch's headers.
//!
//! The headers are `torch/csrc/inductor/aoti_torch/c/shim.h`, `torch/csrc/stable/c/shim.h` and, for a handful of facts
//! that the C ABI does not tell, C++ symbols by their mangled names (a changed signature is a missing symbol). Fields
//! are found with `dlsym` in libraries that are already loaded; nothing here loads torch. Operator shims
//! (`generated/c_shim_*.h`) are in `shims.rs`.
//!
//! 1. `required` functions exist in every supported torch (2.11 and newer).
//! 2. `optional` functions came later, or are C++ symbols; whoever uses one says what happens without it.

use crate::error::Error;
use libc::{c_char, c_void};
use std::ffi::CString;

#[repr(C)]
pub struct AtenTensorOpaque {
    _private: [u8; 0],
}
pub type AtenTensorHandle = *mut AtenTensorOpaque;
pub type AOTITorchError = i32;
pub type StableIValue = u64;
pub type StableListHandle = *mut c_void;
pub type StringHandle = *mut c_void;
pub type ParallelFunc = unsafe extern "C" fn(i64, i64, *mut c_void);
pub type BlobDeleter = unsafe extern "C" fn(data: *mut c_void, ctx: *mut c_void);

/// An already loaded shared library.
#[derive(Clone, Copy)]
pub struct Library {
    handle: *mut c_void,
    pub name: &'static str,
}

// SAFETY: a dlopen handle may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The library with this soname, if the process has loaded it. It stays loaded from here on.
    pub fn find(name: &'static str) -> Option<Library> {
        let soname = CString::new(name).ok()?;
        // SAFETY: RTLD_NOLOAD only looks the name up among loaded libraries; the string outlives the call.
        let handle = unsafe { libc::dlopen(soname.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Library { handle, name })
    }

    /// The address of a symbol in the library or one that it depends on.
    pub fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is valid for the life of the process; the string outlives the call.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

macro_rules! field_type {
    (required $f:ty) => { $f };
    (optional $f:ty) => { Option<$f> };
}

macro_rules! field_load {
    (required $lib:expr, $symbol:expr, $f:ty) => {{
        let symbol: &'static str = $symbol;
        let address =
            $lib.symbol(symbol).ok_or(Error::MissingSymbol { library: $lib.name, symbol: symbol.to_owned() })?;
        // SAFETY: the field's type is the function's signature in torch's header.
        unsafe { std::mem::transmute::<*mut c_void, $f>(address) }
    }};
    (optional $lib:expr, $symbol:expr, $f:ty) => {
        // SAFETY: as for required functions.
        $lib.symbol($symbol).map(|address| unsafe { std::mem::transmute::<*mut c_void, $f>(address) })
    };
}

macro_rules! symbol_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $symbol:literal) => {
        $symbol
    };
}

macro_rules! functions {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($need:ident $field:ident $(= $symbol:literal)? : ($($arg:ty),*) $(-> $ret:ty)?;)*
    }) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "fields carry torch's own names")]
        pub struct $name {
            $(pub $field: field_type!($need unsafe extern "C" fn($($arg),*) $(-> $ret)?),)*
        }

        impl $name {
            pub fn load(library: &Library) -> Result<$name, Error> {
                Ok($name {
                    $($field: field_load!(
                        $need library, symbol_name!($field $($symbol)?), unsafe extern "C" fn($($arg),*) $(-> $ret)?
                    ),)*
                })
            }
        }
    };
}

functions! {
    /// `libtorch_cpu.so`.
    pub struct CpuSymbols {
        // torch/csrc/inductor/aoti_torch/c/shim.h
        required aoti_torch_device_type_cpu: () -> i32;
        required aoti_torch_device_type_cuda: () -> i32;
        required aoti_torch_device_type_meta: () -> i32;
        required aoti_torch_dtype_float8_e5m2: () -> i32;
        required aoti_torch_dtype_float8_e4m3fn: () -> i32;
        required aoti_torch_dtype_bfloat16: () -> i32;
        required aoti_torch_dtype_float16: () -> i32;
        required aoti_torch_dtype_float32: () -> i32;
        required aoti_torch_dtype_float64: () -> i32;
        required aoti_torch_dtype_uint8: () -> i32;
        required aoti_torch_dtype_uint16: () -> i32;
        required aoti_torch_dtype_uint32: () -> i32;
        required aoti_torch_dtype_uint64: () -> i32;
        required aoti_torch_dtype_int8: () -> i32;
        required aoti_torch_dtype_int16: () -> i32;
        required aoti_torch_dtype_int32: () -> i32;
        required aoti_torch_dtype_int64: () -> i32;
        required aoti_torch_dtype_bool: () -> i32;
        required aoti_torch_dtype_complex32: () -> i32;
        required aoti_torch_dtype_complex64: () -> i32;
        required aoti_torch_dtype_complex128: () -> i32;
        required aoti_torch_layout_strided: () -> i32;
        required aoti_torch_layout_sparse_coo: () -> i32;
        required aoti_torch_memory_format_contiguous_format: () -> i32;
        required aoti_torch_memory_format_channels_last: () -> i32;
        required aoti_torch_memory_format_channels_last_3d: () -> i32;
        required aoti_torch_memory_format_preserve_format: () -> i32;
        required aoti_torch_abi_version: () -> u64;
        required aoti_torch_grad_mode_is_enabled: () -> bool;
        required aoti_torch_grad_mode_set_enabled: (bool);
        required aoti_torch_delete_tensor_object: (AtenTensorHandle) -> AOTITorchError;
        required aoti_torch_get_data_ptr: (AtenTensorHandle, *mut *mut c_void) -> AOTITorchError;
        required aoti_torch_get_storage_size: (AtenTensorHandle, *mut i64) -> AOTITorchError;
        required aoti_torch_get_dim: (AtenTensorHandle, *mut i64) -> AOTITorchError;
        required aoti_torch_get_numel: (AtenTensorHandle, *mut i64) -> AOTITorchError;
        required aoti_torch_get_sizes: (AtenTensorHandle, *mut *mut i64) -> AOTITorchError;
        required aoti_torch_get_strides: (AtenTensorHandle, *mut *mut i64) -> AOTITorchError;
        required aoti_torch_get_dtype: (AtenTensorHandle, *mut i32) -> AOTITorchError;
        required aoti_torch_get_device_type: (AtenTensorHandle, *mut i32) -> AOTITorchError;
        required aoti_torch_get_device_index: (AtenTensorHandle, *mut i32) -> AOTITorchError;
        required aoti_torch_get_layout: (AtenTensorHandle, *mut i32) -> AOTITorchError;
        required aoti_torch_get_storage_offset: (AtenTensorHandle, *mut i64) -> AOTITorchError;
        required aoti_torch_is_contiguous: (AtenTensorHandle, *mut bool) -> AOTITorchError;
        required aoti_torch_is_defined: (AtenTensorHandle, *mut bool) -> AOTITorchError;
        required aoti_torch_new_tensor_handle: (AtenTensorHandle, *mut AtenTensorHandle) -> AOTITorchError;
        required aoti_torch__reinterpret_tensor:
            (AtenTensorHandle, i64, *const i64, *const i64, i64, *mut AtenTensorHandle) -> AOTITorchError;
        required aoti_torch_empty_strided:
            (i64, *const i64, *const i64, i32, i32, i32, *mut AtenTensorHandle) -> AOTITorchError;
        required aoti_torch_clone_preserve_strides: (AtenTensorHandle, *mut AtenTensorHandle) -> AOTITorchError;
        required aoti_torch_copy_: (AtenTensorHandle, AtenTensorHandle, i32) -> AOTITorchError;
        // torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h
        required aoti_torch_cpu_view_dtype: (AtenTensorHandle, i32, *mut AtenTensorHandle) -> AOTITorchError;
        // torch/csrc/stable/c/shim.h, 2.10
        required torch_call_dispatcher:
            (*const c_char, *const c_char, *mut StableIValue, u64) -> AOTITorchError;
        required torch_new_list_reserve_size: (usize, *mut StableListHandle) -> AOTITorchError;
        required torch_list_size: (StableListHandle, *mut usize) -> AOTITorchError;
        required torch_list_get_item: (StableListHandle, usize, *mut StableIValue) -> AOTITorchError;
        required torch_list_push_back: (StableListHandle, StableIValue) -> AOTITorchError;
        required torch_delete_list: (StableListHandle) -> AOTITorchError;
        required torch_parallel_for: (i64, i64, i64, ParallelFunc, *mut c_void) -> AOTITorchError;
        required torch_get_thread_idx: (*mut u32) -> AOTITorchError;
        required torch_get_num_threads: (*mut u32) -> AOTITorchError;
        required torch_new_string_handle: (*const c_char, usize, *mut StringHandle) -> AOTITorchError;
        required torch_delete_string: (StringHandle) -> AOTITorchError;
        required torch_set_requires_grad: (AtenTensorHandle, bool) -> AOTITorchError;
        // 2.11
        required torch_from_blob: (
            *mut c_void, i64, *const i64, *const i64, i64, i32, i32, i32, *mut AtenTensorHandle, i32, *const u8, i64,
            Option<BlobDeleter>, *mut c_void
        ) -> AOTITorchError;
        // 2.13
        optional torch_exception_get_what_without_backtrace: () -> *const c_char;
        optional torch_new_stable_ivalue: (*mut *mut StableIValue) -> AOTITorchError;
        // 2.14
        optional torch_tensor_from_pyobject: (*mut c_void, *mut AtenTensorHandle) -> AOTITorchError;
        optional torch_tensor_to_pyobject: (AtenTensorHandle, *mut c_void, *mut *mut c_void) -> AOTITorchError;
        // C++: bool at::native::is_conj(const at::Tensor&) and friends; none of them throws.
        optional native_is_conj = "_ZN2at6native7is_conjERKNS_6TensorE": (AtenTensorHandle) -> bool;
        optional native_is_neg = "_ZN2at6native6is_negERKNS_6TensorE": (AtenTensorHandle) -> bool;
        optional native_is_inference = "_ZN2at6native12is_inferenceERKNS_6TensorE": (AtenTensorHandle) -> bool;
        // C++: bool at::TensorBase::is_view() const
        optional tensor_is_view = "_ZNK2at10TensorBase7is_viewEv": (AtenTensorHandle) -> bool;
        // C++: void torch::autograd::impl::bump_version(const at::Tensor&); throws for an inference tensor outside
        // inference mode, which the caller excludes.
        optional autograd_bump_version = "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE": (AtenTensorHandle);
        // C++: at::autocast::is_autocast_enabled(c10::DeviceType), set_autocast_enabled(c10::DeviceType, bool)
        optional is_autocast_enabled = "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE": (i8) -> bool;
        optional set_autocast_enabled = "_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb": (i8, bool);
        // C++: operator new(unsigned long), from the C++ runtime that torch links.
        optional operator_new = "_Znwm": (usize) -> *mut c_void;
    }
}

functions! {
    /// `libc10.so`. C++ symbols all; none of them throws.
    pub struct C10Symbols {
        // bool c10::TensorImpl::requires_grad() const
        optional tensor_impl_requires_grad = "_ZNK3c1010TensorImpl13requires_gradEv": (*const c_void) -> bool;
        // static bool c10::InferenceMode::is_enabled()
        optional inference_mode_is_enabled = "_ZN3c1013InferenceMode10is_enabledEv": () -> bool;
    }
}

functions! {
    /// `libtorch_python.so`.
    pub struct PythonSymbols {
        // PyObject* THPVariable_Wrap(const at::TensorBase&)
        optional THPVariable_Wrap = "_Z16THPVariable_WrapRKN2at10TensorBaseE": (AtenTensorHandle) -> *mut c_void;
    }
}

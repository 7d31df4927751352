//! The loaded torch: its functions, version and modes.

use crate::{
    error::Error,
    sys::{AOTITorchError, C10Symbols, CpuSymbols, Library, PythonSymbols},
};
use libc::c_void;
use oxy_graph::{DType, Device, DeviceType, Layout, MemoryFormat};
use std::{
    any::Any,
    ffi::CStr,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Mutex, OnceLock},
};

/// torch, as loaded in this process.
pub struct Torch {
    pub(crate) cpu: CpuSymbols,
    c10: C10Symbols,
    pub(crate) python: Option<PythonSymbols>,
    /// Where operator shims are looked up.
    pub(crate) cpu_library: Library,
    /// `TORCH_ABI_VERSION` of the loaded torch; calls through the dispatcher use its schemas.
    pub(crate) abi_version: u64,
}

/// Where a process's one torch is kept: addresses of a library that is never unloaded, hence constants.
static LOADED: OnceLock<Result<Torch, Error>> = OnceLock::new();

impl Torch {
    /// The torch that this process has loaded. A failure is not remembered only while torch isn't loaded at all.
    pub fn load() -> Result<&'static Torch, Error> {
        let cpu = Library::find("libtorch_cpu.so").ok_or(Error::NotLoaded { library: "libtorch_cpu.so" })?;
        LOADED.get_or_init(|| Torch::from_libraries(cpu)).as_ref().map_err(Error::clone)
    }

    fn from_libraries(cpu_library: Library) -> Result<Torch, Error> {
        let c10 = Library::find("libc10.so").ok_or(Error::NotLoaded { library: "libc10.so" })?;
        let cpu = CpuSymbols::load(&cpu_library)?;
        // SAFETY: a getter of a constant.
        let abi_version = unsafe { (cpu.aoti_torch_abi_version)() };
        let python = match Library::find("libtorch_python.so") {
            Some(library) => Some(PythonSymbols::load(&library)?),
            None => None,
        };
        let torch = Torch { cpu, c10: C10Symbols::load(&c10)?, python, cpu_library, abi_version };
        torch.check_encodings()?;
        Ok(torch)
    }

    /// (major, minor) of the loaded torch.
    pub fn version(&self) -> (u32, u32) {
        ((self.abi_version >> 56) as u32, (self.abi_version >> 48 & 0xff) as u32)
    }

    /// Our codes of dtypes and devices are c10's; the ABI hides them behind getters, so compare once.
    fn check_encodings(&self) -> Result<(), Error> {
        let cpu = &self.cpu;
        // SAFETY: getters of constants.
        let dtypes = unsafe {
            [
                (DType::U8, (cpu.aoti_torch_dtype_uint8)()),
                (DType::I8, (cpu.aoti_torch_dtype_int8)()),
                (DType::I16, (cpu.aoti_torch_dtype_int16)()),
                (DType::I32, (cpu.aoti_torch_dtype_int32)()),
                (DType::I64, (cpu.aoti_torch_dtype_int64)()),
                (DType::F16, (cpu.aoti_torch_dtype_float16)()),
                (DType::F32, (cpu.aoti_torch_dtype_float32)()),
                (DType::F64, (cpu.aoti_torch_dtype_float64)()),
                (DType::C32, (cpu.aoti_torch_dtype_complex32)()),
                (DType::C64, (cpu.aoti_torch_dtype_complex64)()),
                (DType::C128, (cpu.aoti_torch_dtype_complex128)()),
                (DType::Bool, (cpu.aoti_torch_dtype_bool)()),
                (DType::BF16, (cpu.aoti_torch_dtype_bfloat16)()),
                (DType::F8E5M2, (cpu.aoti_torch_dtype_float8_e5m2)()),
                (DType::F8E4M3FN, (cpu.aoti_torch_dtype_float8_e4m3fn)()),
                (DType::U16, (cpu.aoti_torch_dtype_uint16)()),
                (DType::U32, (cpu.aoti_torch_dtype_uint32)()),
                (DType::U64, (cpu.aoti_torch_dtype_uint64)()),
            ]
        };
        // SAFETY: getters of constants.
        let devices = unsafe {
            [
                (DeviceType::Cpu, (cpu.aoti_torch_device_type_cpu)()),
                (DeviceType::Cuda, (cpu.aoti_torch_device_type_cuda)()),
                (DeviceType::Meta, (cpu.aoti_torch_device_type_meta)()),
            ]
        };
        let (major, minor) = self.version();
        let refuse = |what: String| Error::Encoding { version: format!("{major}.{minor}"), what };
        if let Some((dtype, code)) = dtypes.iter().find(|(dtype, code)| *dtype as i32 != *code) {
            return Err(refuse(format!("{} (as {code})", dtype.torch_name())));
        }
        match devices.iter().find(|(kind, code)| device_type_code(*kind) != *code) {
            Some((kind, code)) => Err(refuse(format!("the device {kind:?} (as {code})"))),
            None => Ok(()),
        }
    }

    pub fn layout_code(&self, layout: Layout) -> i32 {
        // SAFETY: getters of constants.
        unsafe {
            match layout {
                Layout::Strided => (self.cpu.aoti_torch_layout_strided)(),
                Layout::Sparse => (self.cpu.aoti_torch_layout_sparse_coo)(),
            }
        }
    }

    pub fn memory_format_code(&self, format: MemoryFormat) -> i32 {
        // SAFETY: getters of constants.
        unsafe {
            match format {
                MemoryFormat::Contiguous => (self.cpu.aoti_torch_memory_format_contiguous_format)(),
                MemoryFormat::Preserve => (self.cpu.aoti_torch_memory_format_preserve_format)(),
                MemoryFormat::ChannelsLast => (self.cpu.aoti_torch_memory_format_channels_last)(),
                MemoryFormat::ChannelsLast3d => (self.cpu.aoti_torch_memory_format_channels_last_3d)(),
            }
        }
    }

    /// torch's message for the last failure in this thread, if this torch keeps it.
    pub(crate) fn last_message(&self) -> Option<String> {
        let get = self.cpu.torch_exception_get_what_without_backtrace?;
        // SAFETY: returns null or a string that lives until the thread's next failure; it is copied right away.
        let text = unsafe {
            let text = get();
            if text.is_null() {
                return None;
            }
            CStr::from_ptr(text)
        };
        Some(text.to_string_lossy().into_owned())
    }

    /// Turns the result of a function of the ABI into ours.
    pub(crate) fn check(&self, function: &'static str, code: AOTITorchError) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(Error::Failed { function, message: self.last_message() }) }
    }

    pub fn is_grad_enabled(&self) -> bool {
        // SAFETY: reads thread-local state.
        unsafe { (self.cpu.aoti_torch_grad_mode_is_enabled)() }
    }

    pub fn set_grad_enabled(&self, enabled: bool) {
        // SAFETY: writes thread-local state.
        unsafe { (self.cpu.aoti_torch_grad_mode_set_enabled)(enabled) }
    }

    /// None if this torch doesn't tell.
    pub fn is_inference_mode_enabled(&self) -> Option<bool> {
        // SAFETY: reads thread-local state.
        self.c10.inference_mode_is_enabled.map(|get| unsafe { get() })
    }

    /// None if this torch doesn't tell.
    pub fn is_autocast_enabled(&self, device: DeviceType) -> Option<bool> {
        if device == DeviceType::Meta {
            return Some(false); // torch has no autocast for it and would throw
        }
        // SAFETY: reads thread-local state; the code is one of c10::DeviceType's.
        self.cpu.is_autocast_enabled.map(|get| unsafe { get(device_type_code(device) as i8) })
    }

    /// Gradients off until the guard is dropped.
    pub fn no_grad(&'static self) -> GradGuard {
        let previous = self.is_grad_enabled();
        if previous {
            self.set_grad_enabled(false);
        }
        GradGuard { torch: self, previous, _thread: std::marker::PhantomData }
    }

    /// Autocast off for a device until the guard is dropped. Does nothing if this torch hides the setting.
    pub fn no_autocast(&'static self, device: DeviceType) -> AutocastGuard {
        let was_on = self.is_autocast_enabled(device) == Some(true);
        if was_on {
            self.set_autocast(device, false);
        }
        AutocastGuard { torch: self, device, was_on, _thread: std::marker::PhantomData }
    }

    fn set_autocast(&self, device: DeviceType, enabled: bool) {
        if let Some(set) = self.cpu.set_autocast_enabled {
            // SAFETY: writes thread-local state; the code is one of c10::DeviceType's.
            unsafe { set(device_type_code(device) as i8, enabled) }
        }
    }

    pub fn num_threads(&self) -> usize {
        let mut count = 1;
        // SAFETY: `count` is a valid out pointer.
        unsafe { (self.cpu.torch_get_num_threads)(&mut count) };
        count as usize
    }

    /// Runs `body` over disjoint parts of `begin..end` that cover it, each of at least `grain` items if possible, on
    /// torch's thread pool. A panic of `body` is raised again here.
    pub fn parallel_for(
        &self,
        begin: i64,
        end: i64,
        grain: i64,
        body: &(dyn Fn(i64, i64) + Sync),
    ) -> Result<(), Error> {
        struct Context<'a> {
            body: &'a (dyn Fn(i64, i64) + Sync),
            panic: Mutex<Option<Box<dyn Any + Send>>>,
        }
        unsafe extern "C" fn part(begin: i64, end: i64, context: *mut c_void) {
            // SAFETY: the context below, which outlives the parallel region.
            let context = unsafe { &*context.cast::<Context>() };
            // Unwinding through torch's frames is undefined: carry the panic over.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (context.body)(begin, end)))
                && let Ok(mut slot) = context.panic.lock()
            {
                slot.get_or_insert(panic);
            }
        }
        let mut context = Context { body, panic: Mutex::new(None) };
        let pointer = (&raw mut context).cast::<c_void>();
        // SAFETY: torch calls `part` with this context, on any thread, only until the call returns; `body` is Sync.
        let code = unsafe { (self.cpu.torch_parallel_for)(begin, end, grain, part, pointer) };
        if let Some(panic) = context.panic.into_inner().ok().flatten() {
            resume_unwind(panic);
        }
        self.check("torch_parallel_for", code)
    }

    /// `requires_grad` of the TensorImpl that a handle points to. None if this torch doesn't tell.
    pub(crate) fn requires_grad(&self, handle: crate::sys::AtenTensorHandle) -> Option<bool> {
        let get = self.c10.tensor_impl_requires_grad?;
        // SAFETY: a handle is a pointer to an at::Tensor, whose only member is the pointer to its TensorImpl
        // (verified by `verify_layout` for Python's tensors); the method only reads.
        unsafe { Some(get(*handle.cast::<*const c_void>())) }
    }
}

/// Restores the thread's grad mode when dropped.
pub struct GradGuard {
    torch: &'static Torch,
    previous: bool,
    /// Modes are thread-local: the guard stays in its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for GradGuard {
    fn drop(&mut self) {
        if self.previous {
            self.torch.set_grad_enabled(true);
        }
    }
}

/// Restores the thread's autocast setting when dropped.
pub struct AutocastGuard {
    torch: &'static Torch,
    device: DeviceType,
    was_on: bool,
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        if self.was_on {
            self.torch.set_autocast(self.device, true);
        }
    }
}

/// c10::DeviceType's values; compared with torch's own at load.
pub fn device_type_code(kind: DeviceType) -> i32 {
    match kind {
        DeviceType::Cpu => 0,
        DeviceType::Cuda => 1,
        DeviceType::Meta => 14,
    }
}

/// The index to pass for a device: the ABI takes an int and -1 for "none"; the CPU's is always "none".
pub(crate) fn device_index_code(device: Device) -> i32 {
    i32::from(device.index)
}

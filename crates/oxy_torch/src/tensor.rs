//! Tensors: owned handles, borrowed handles, and how they are made.
//!
//! A handle is a `const at::Tensor*`. `Tensor` owns the `at::Tensor` behind it (not the TensorImpl, which is reference
//! counted); `TensorRef` borrows one, for instance the one inside a Python tensor. Reading metadata copies it out,
//! because anyone who shares the TensorImpl may change it between calls.

use crate::{
    error::Error,
    sys::{AtenTensorHandle, AtenTensorOpaque, BlobDeleter},
    torch::{Torch, device_index_code, device_type_code},
};
use libc::c_void;
use oxy_graph::{DType, Device, DeviceType, Layout, TensorMeta, meta::Dims};
use std::{marker::PhantomData, ptr::NonNull};

/// Where a Python tensor keeps its `at::Tensor`: after the object header.
const PYOBJECT_OFFSET: usize = 16;

/// An owned tensor.
pub struct Tensor {
    handle: NonNull<AtenTensorOpaque>,
    torch: &'static Torch,
}

// SAFETY: a TensorImpl's reference count is atomic, and torch allows using a tensor from any thread.
unsafe impl Send for Tensor {}
// SAFETY: shared access only reads metadata or copies handles.
unsafe impl Sync for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and not used again.
        unsafe { (self.torch.cpu.aoti_torch_delete_tensor_object)(self.handle.as_ptr()) };
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// A borrowed tensor.
#[derive(Clone, Copy)]
pub struct TensorRef<'a> {
    handle: NonNull<AtenTensorOpaque>,
    torch: &'static Torch,
    _life: PhantomData<&'a Tensor>,
}

impl std::fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.meta() {
            Some(meta) => write!(f, "Tensor({meta})"),
            None => f.write_str("Tensor(?)"),
        }
    }
}

impl Tensor {
    /// Takes over a handle that torch handed out as a new reference.
    ///
    /// # Safety
    /// `handle` is null or an owned handle that nobody else deletes.
    pub unsafe fn from_raw(torch: &'static Torch, handle: AtenTensorHandle) -> Option<Tensor> {
        NonNull::new(handle).map(|handle| Tensor { handle, torch })
    }

    /// The owned handle; the caller deletes it or passes ownership on.
    pub fn into_raw(self) -> AtenTensorHandle {
        let handle = self.handle.as_ptr();
        std::mem::forget(self);
        handle
    }

    pub fn as_ref(&self) -> TensorRef<'_> {
        TensorRef { handle: self.handle, torch: self.torch, _life: PhantomData }
    }

    /// A new tensor with undefined contents.
    pub fn empty_strided(
        torch: &'static Torch,
        sizes: &[i64],
        strides: &[i64],
        dtype: DType,
        device: Device,
    ) -> Result<Tensor, Error> {
        debug_assert_eq!(sizes.len(), strides.len());
        let mut handle = std::ptr::null_mut();
        // SAFETY: sizes and strides have the stated length and outlive the call; the out pointer is valid.
        let code = unsafe {
            (torch.cpu.aoti_torch_empty_strided)(
                sizes.len() as i64,
                sizes.as_ptr(),
                strides.as_ptr(),
                dtype as i32,
                device_type_code(device.kind),
                device_index_code(device),
                &mut handle,
            )
        };
        // SAFETY: a new reference on success.
        unsafe { torch.adopt("aoti_torch_empty_strided", code, handle) }
    }

    /// A tensor over foreign memory, which torch returns by `deleter(data, context)`, on any thread, when the storage
    /// dies.
    ///
    /// # Safety
    /// `data` is valid and writable for every element that sizes and strides reach, until the deleter is called (until
    /// the storage dies if there is none). The deleter may be called from any thread.
    pub unsafe fn from_blob(
        torch: &'static Torch,
        data: *mut c_void,
        sizes: &[i64],
        strides: &[i64],
        dtype: DType,
        deleter: Option<(BlobDeleter, *mut c_void)>,
    ) -> Result<Tensor, Error> {
        let mut handle = std::ptr::null_mut();
        let (deleter, context) = match deleter {
            Some((deleter, context)) => (Some(deleter), context),
            None => (None, std::ptr::null_mut()),
        };
        // SAFETY: sizes and strides have the stated length and outlive the call; layout 0 is strided; the rest is the
        // caller's promise.
        let code = unsafe {
            (torch.cpu.torch_from_blob)(
                data,
                sizes.len() as i64,
                sizes.as_ptr(),
                strides.as_ptr(),
                0,
                dtype as i32,
                device_type_code(DeviceType::Cpu),
                -1,
                &mut handle,
                torch.layout_code(Layout::Strided),
                std::ptr::null(),
                0,
                deleter,
                context,
            )
        };
        // SAFETY: a new reference on success.
        unsafe { torch.adopt("torch_from_blob", code, handle) }
    }

    /// Wraps the tensor in a Python object: the existing one if its TensorImpl has one.
    ///
    /// # Safety
    /// The GIL is held, and a Python error is not set.
    pub unsafe fn into_pyobject(self) -> Result<NonNull<c_void>, Error> {
        // SAFETY: the caller holds the GIL.
        unsafe { self.as_ref().to_pyobject() }
    }
}

impl Torch {
    /// # Safety
    /// `handle` is an owned handle if `code` is success.
    pub(crate) unsafe fn adopt(
        &'static self,
        function: &'static str,
        code: i32,
        handle: AtenTensorHandle,
    ) -> Result<Tensor, Error> {
        self.check(function, code)?;
        // SAFETY: the caller's promise.
        unsafe { Tensor::from_raw(self, handle) }.ok_or(Error::Failed { function, message: None })
    }
}

/// Calls a getter `function(handle, &mut out)`. Getters of defined strided tensors don't fail.
macro_rules! get {
    ($self:ident.$function:ident, $initial:expr) => {{
        let mut out = $initial;
        // SAFETY: the handle is alive for 'a and the out pointer is valid.
        unsafe { ($self.torch.cpu.$function)($self.handle.as_ptr(), &mut out) };
        out
    }};
}

impl<'a> TensorRef<'a> {
    /// Borrows a handle.
    ///
    /// # Safety
    /// `handle` points to an `at::Tensor` that lives for 'a.
    pub unsafe fn from_raw(torch: &'static Torch, handle: AtenTensorHandle) -> Option<TensorRef<'a>> {
        NonNull::new(handle).map(|handle| TensorRef { handle, torch, _life: PhantomData })
    }

    /// Borrows the `at::Tensor` inside a Python tensor.
    ///
    /// # Safety
    /// `object` is a Python object of type `torch.Tensor` (or a subclass) that lives for 'a, and `verify_layout` has
    /// succeeded in this process.
    pub unsafe fn from_pyobject(torch: &'static Torch, object: NonNull<c_void>) -> TensorRef<'a> {
        // SAFETY: the tensor is inside the object, `PYOBJECT_OFFSET` bytes from its start.
        let handle = unsafe { object.cast::<u8>().add(PYOBJECT_OFFSET) }.cast();
        TensorRef { handle, torch, _life: PhantomData }
    }

    pub fn as_raw(self) -> AtenTensorHandle {
        self.handle.as_ptr()
    }

    pub fn torch(self) -> &'static Torch {
        self.torch
    }

    /// A second owned handle on the same TensorImpl.
    pub fn to_tensor(self) -> Result<Tensor, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is alive and the out pointer valid.
        let code = unsafe { (self.torch.cpu.aoti_torch_new_tensor_handle)(self.as_raw(), &mut handle) };
        // SAFETY: a new reference on success.
        unsafe { self.torch.adopt("aoti_torch_new_tensor_handle", code, handle) }
    }

    pub fn is_defined(self) -> bool {
        get!(self.aoti_torch_is_defined, false)
    }

    pub fn rank(self) -> usize {
        get!(self.aoti_torch_get_dim, 0) as usize
    }

    pub fn numel(self) -> i64 {
        get!(self.aoti_torch_get_numel, 0)
    }

    pub fn sizes(self) -> Dims {
        self.with_layout(|sizes, _| sizes.into())
    }

    pub fn strides(self) -> Dims {
        self.with_layout(|_, strides| strides.into())
    }

    /// Has exactly these sizes and strides.
    pub fn has_layout(self, sizes: &[i64], strides: &[i64]) -> bool {
        self.with_layout(|own_sizes, own_strides| own_sizes == sizes && own_strides == strides)
    }

    /// Calls `f` with sizes and strides. `f` must not run torch code that could change them (it can't be given any).
    fn with_layout<T>(self, f: impl FnOnce(&[i64], &[i64]) -> T) -> T {
        let rank = self.rank();
        let sizes = get!(self.aoti_torch_get_sizes, std::ptr::null_mut());
        let strides = get!(self.aoti_torch_get_strides, std::ptr::null_mut());
        if sizes.is_null() || strides.is_null() {
            return f(&[], &[]);
        }
        // SAFETY: both point to `rank` numbers inside the live TensorImpl.
        let (sizes, strides) =
            unsafe { (std::slice::from_raw_parts(sizes, rank), std::slice::from_raw_parts(strides, rank)) };
        f(sizes, strides)
    }

    /// c10::ScalarType's number.
    pub fn dtype_code(self) -> i32 {
        get!(self.aoti_torch_get_dtype, -1)
    }

    /// None for dtypes that we don't model (quantised, bits).
    pub fn dtype(self) -> Option<DType> {
        DType::from_code(self.dtype_code())
    }

    pub fn device_type_code(self) -> i32 {
        get!(self.aoti_torch_get_device_type, -1)
    }

    /// None for devices that we don't model.
    pub fn device(self) -> Option<Device> {
        let code = self.device_type_code();
        let kinds = [DeviceType::Cpu, DeviceType::Cuda, DeviceType::Meta];
        let kind = kinds.into_iter().find(|kind| device_type_code(*kind) == code)?;
        let index = get!(self.aoti_torch_get_device_index, -1);
        Some(Device { kind, index: index as i16 })
    }

    pub fn is_cpu(self) -> bool {
        self.device_type_code() == device_type_code(DeviceType::Cpu)
    }

    /// None for layouts that we don't model.
    pub fn layout(self) -> Option<Layout> {
        let code = get!(self.aoti_torch_get_layout, -1);
        [Layout::Strided, Layout::Sparse].into_iter().find(|layout| self.torch.layout_code(*layout) == code)
    }

    pub fn storage_offset(self) -> i64 {
        get!(self.aoti_torch_get_storage_offset, 0)
    }

    /// Bytes of the storage.
    pub fn storage_bytes(self) -> i64 {
        get!(self.aoti_torch_get_storage_size, 0)
    }

    /// Address of the first element (the storage offset is in it). Makes a lazy copy-on-write storage real.
    pub fn data_ptr(self) -> *mut u8 {
        get!(self.aoti_torch_get_data_ptr, std::ptr::null_mut()).cast()
    }

    pub fn is_contiguous(self) -> bool {
        get!(self.aoti_torch_is_contiguous, false)
    }

    /// None if this torch doesn't tell.
    pub fn requires_grad(self) -> Option<bool> {
        self.torch.requires_grad(self.as_raw())
    }

    /// The lazy conjugate bit. None if this torch doesn't tell.
    pub fn is_conj(self) -> Option<bool> {
        // SAFETY: a handle is a const at::Tensor&; the function only reads.
        self.torch.cpu.native_is_conj.map(|f| unsafe { f(self.as_raw()) })
    }

    /// The lazy negative bit. None if this torch doesn't tell.
    pub fn is_neg(self) -> Option<bool> {
        // SAFETY: as above.
        self.torch.cpu.native_is_neg.map(|f| unsafe { f(self.as_raw()) })
    }

    /// Made in inference mode. None if this torch doesn't tell.
    pub fn is_inference(self) -> Option<bool> {
        // SAFETY: as above.
        self.torch.cpu.native_is_inference.map(|f| unsafe { f(self.as_raw()) })
    }

    /// A view in autograd's sense (`Tensor._is_view()`). None if this torch doesn't tell.
    pub fn is_view(self) -> Option<bool> {
        // SAFETY: as above.
        self.torch.cpu.tensor_is_view.map(|f| unsafe { f(self.as_raw()) })
    }

    /// Metadata, if dtype, device and layout are ones that we model.
    pub fn meta(self) -> Option<TensorMeta> {
        if self.layout() != Some(Layout::Strided) {
            return None;
        }
        Some(TensorMeta {
            dtype: self.dtype()?,
            device: self.device()?,
            sizes: self.sizes(),
            strides: self.strides(),
            storage_offset: self.storage_offset(),
            requires_grad: self.requires_grad().unwrap_or(false),
        })
    }

    /// A tensor over the same storage with other sizes and strides, whose first element is `offset` elements after
    /// this one's. Autograd doesn't know it as a view.
    ///
    /// Addresses are not checked against the storage (torch checks them for its own `as_strided` only); the caller's
    /// metadata must stay inside it.
    pub fn reinterpret(self, sizes: &[i64], strides: &[i64], offset: i64) -> Result<Tensor, Error> {
        debug_assert_eq!(sizes.len(), strides.len());
        let mut handle = std::ptr::null_mut();
        // SAFETY: sizes and strides have the stated length and outlive the call; the out pointer is valid.
        let code = unsafe {
            (self.torch.cpu.aoti_torch__reinterpret_tensor)(
                self.as_raw(),
                sizes.len() as i64,
                sizes.as_ptr(),
                strides.as_ptr(),
                offset,
                &mut handle,
            )
        };
        // SAFETY: a new reference on success.
        unsafe { self.torch.adopt("aoti_torch__reinterpret_tensor", code, handle) }
    }

    /// The same bytes as another dtype (`Tensor.view(dtype)`).
    pub fn view_dtype(self, dtype: DType) -> Result<Tensor, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is alive and the out pointer valid.
        let code = unsafe { (self.torch.cpu.aoti_torch_cpu_view_dtype)(self.as_raw(), dtype as i32, &mut handle) };
        // SAFETY: a new reference on success.
        unsafe { self.torch.adopt("aoti_torch_cpu_view_dtype", code, handle) }
    }

    /// A copy with the same strides.
    pub fn clone_preserve_strides(self) -> Result<Tensor, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is alive and the out pointer valid.
        let code = unsafe { (self.torch.cpu.aoti_torch_clone_preserve_strides)(self.as_raw(), &mut handle) };
        // SAFETY: a new reference on success.
        unsafe { self.torch.adopt("aoti_torch_clone_preserve_strides", code, handle) }
    }

    /// `self.copy_(source)`.
    pub fn copy_from(self, source: TensorRef<'_>) -> Result<(), Error> {
        // SAFETY: both handles are alive.
        let code = unsafe { (self.torch.cpu.aoti_torch_copy_)(self.as_raw(), source.as_raw(), 0) };
        self.torch.check("aoti_torch_copy_", code)
    }

    pub fn set_requires_grad(self, requires_grad: bool) -> Result<(), Error> {
        // SAFETY: the handle is alive.
        let code = unsafe { (self.torch.cpu.torch_set_requires_grad)(self.as_raw(), requires_grad) };
        self.torch.check("torch_set_requires_grad", code)
    }

    /// Tells autograd that the contents were written, as eager's in-place operators do, with eager's error for an
    /// inference tensor outside inference mode.
    pub fn bump_version(self) -> Result<(), Error> {
        let unsupported = || Error::Unsupported { op: "bump_version".into(), what: "a version counter".into() };
        let bump = self.torch.cpu.autograd_bump_version.ok_or_else(unsupported)?;
        let is_inference = self.is_inference().ok_or_else(unsupported)?;
        if is_inference && self.torch.is_inference_mode_enabled() != Some(true) {
            let message = "Inplace update to inference tensor outside InferenceMode is not allowed.\
                           You can make a clone to get a normal tensor before doing inplace update.\
                           See https://github.com/pytorch/rfcs/pull/17 for more details.";
            return Err(Error::Operator { op: "bump_version".into(), message: Some(message.into()) });
        }
        // SAFETY: a handle is a const at::Tensor&; the function throws only in the case excluded above.
        unsafe { bump(self.as_raw()) };
        Ok(())
    }

    /// Wraps the tensor in a new reference to a Python object: the existing one if its TensorImpl has one.
    ///
    /// # Safety
    /// The GIL is held, and a Python error is not set.
    pub unsafe fn to_pyobject(self) -> Result<NonNull<c_void>, Error> {
        if let Some(wrap) = self.torch.cpu.torch_tensor_to_pyobject {
            let mut object = std::ptr::null_mut();
            // SAFETY: the caller holds the GIL; a null type means torch.Tensor.
            let code = unsafe { wrap(self.as_raw(), std::ptr::null_mut(), &mut object) };
            self.torch.check("torch_tensor_to_pyobject", code)?;
            return NonNull::new(object).ok_or(Error::Failed { function: "torch_tensor_to_pyobject", message: None });
        }
        let library = "libtorch_python.so";
        let python = self.torch.python.as_ref().ok_or(Error::NotLoaded { library })?;
        let wrap = python.THPVariable_Wrap.ok_or_else(|| Error::MissingSymbol {
            library,
            symbol: "THPVariable_Wrap(at::TensorBase const&)".into(),
        })?;
        // SAFETY: the caller holds the GIL; a handle is a const at::TensorBase&.
        let object = unsafe { wrap(self.as_raw()) };
        NonNull::new(object).ok_or(Error::Failed { function: "THPVariable_Wrap", message: None })
    }
}

/// What a tensor made by Python says of itself, to compare with what we read.
#[derive(Clone, Debug)]
pub struct KnownTensor<'a> {
    pub object: NonNull<c_void>,
    pub dtype: DType,
    pub sizes: &'a [i64],
    pub strides: &'a [i64],
    pub data_ptr: usize,
}

/// Checks that Python tensors are laid out as `from_pyobject` assumes, against a tensor whose facts are known. Every
/// step is safe on a tensor that is laid out differently.
///
/// # Safety
/// `known.object` is a live `torch.Tensor`, and the GIL is held.
pub unsafe fn verify_layout(torch: &'static Torch, known: &KnownTensor<'_>) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::Layout(what.to_owned()));
    // SAFETY: a torch.Tensor is larger than its header and one pointer.
    let tensor_impl: *const c_void = unsafe { *known.object.cast::<u8>().add(PYOBJECT_OFFSET).cast().as_ref() };
    if tensor_impl.is_null() || !(tensor_impl as usize).is_multiple_of(align_of::<usize>()) {
        return refuse("no TensorImpl behind the object header");
    }
    if let (Some(unwrap), Some(_)) = (torch.cpu.torch_tensor_from_pyobject, &torch.python) {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the object is a live tensor and the GIL is held.
        let code = unsafe { unwrap(known.object.as_ptr(), &mut handle) };
        // SAFETY: a new reference on success.
        let owned = unsafe { torch.adopt("torch_tensor_from_pyobject", code, handle) }?;
        // SAFETY: a handle is a pointer to an at::Tensor, at least one pointer large.
        if unsafe { *owned.as_ref().as_raw().cast::<*const c_void>() } != tensor_impl {
            return refuse("torch finds another TensorImpl");
        }
    } else if !is_torch_object(tensor_impl) {
        return refuse("no C++ object of torch behind the object header");
    }
    // SAFETY: the pointer is a TensorImpl of torch by the checks above, so the object holds an at::Tensor.
    let tensor = unsafe { TensorRef::from_pyobject(torch, known.object) };
    if tensor.dtype() != Some(known.dtype) {
        return refuse("the dtype reads differently");
    }
    if !tensor.has_layout(known.sizes, known.strides) {
        return refuse("sizes or strides read differently");
    }
    if tensor.data_ptr() as usize != known.data_ptr {
        return refuse("the data pointer reads differently");
    }
    Ok(())
}

/// Points to mapped memory whose first word, a vtable if it is a C++ object, is inside one of torch's libraries.
fn is_torch_object(object: *const c_void) -> bool {
    if !is_mapped(object as usize) {
        return false;
    }
    // SAFETY: the word is mapped and aligned.
    let vtable = unsafe { *object.cast::<*const c_void>() };
    // SAFETY: an all-zero Dl_info is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr accepts any address.
    if unsafe { libc::dladdr(vtable, &mut info) } == 0 || info.dli_fname.is_null() {
        return false;
    }
    // SAFETY: dladdr gave a string that lives as long as the library.
    let library = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    library.contains("libc10") || library.contains("libtorch")
}

fn is_mapped(address: usize) -> bool {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    let start = address / page * page;
    // SAFETY: msync changes nothing here, and reports unmapped pages by an error.
    unsafe { libc::msync(start as *mut c_void, page, libc::MS_ASYNC) == 0 }
}

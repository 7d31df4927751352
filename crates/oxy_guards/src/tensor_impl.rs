//! The words of a TensorImpl that hold a tensor's metadata, for comparing whole tensors at once.
//!
//! torch's C ABI tells one fact a call. A guard that has asked once may remember the words behind the answers: a tensor
//! with the same words gives the same answers. Which words these are is found by looking at tensors that differ in
//! one known respect; where that doesn't come out as expected there is no layout, and every fact is asked for.
//!
//! Promises: no word is interpreted beyond "equal" and "not equal", except the number of dimensions, whether there is
//! autograd data, and in it what says that gradients are required (found in the same way, else torch is asked). Not here: tensors of more than five dimensions, whose sizes torch keeps elsewhere.

use oxy_graph::DType;
use oxy_torch::{KnownTensor, TensorRef, Torch, sys::Library, verify_layout};
use pyo3::{
    ffi::PyObject,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyList},
};
use std::{ffi::c_void, ptr::NonNull};

/// Dimensions that SizesAndStrides keeps inside.
const INLINE_DIMS: usize = 5;
/// Index of the first size, the first stride, the storage offset and the number of elements, in words of the block.
const SIZES: usize = 1;
const STRIDES: usize = SIZES + INLINE_DIMS;
const OFFSET: usize = STRIDES + INLINE_DIMS;
const NUMEL: usize = OFFSET + 1;
/// The word that the dtype is in; device and flags follow.
const TYPE: usize = NUMEL + 1;
const WORDS_MAX: usize = TYPE + 4;

/// Where a TensorImpl keeps its metadata.
pub struct ImplLayout {
    torch: &'static Torch,
    /// Bytes from the TensorImpl to `sizes_and_strides_`, which begins with the number of dimensions.
    block: usize,
    /// Bytes from the TensorImpl to `autograd_meta_`.
    autograd: usize,
    /// Index of the key set: the last word. Only where it follows the type word are words compared.
    keys: usize,
    /// The key set of an ordinary CPU tensor.
    cpu_keys: u64,
    /// Keys of lazy conjugation and negation.
    lazy_keys: u64,
    gradients: Option<Gradients>,
}

/// Where plain autograd data, that of tensors that aren't views, tells whether gradients are required.
#[derive(Clone, Copy)]
struct Gradients {
    vtable: usize,
    /// Byte offset of `requires_grad_`.
    flag: usize,
    /// Byte offset of `grad_fn_`.
    grad_fn: usize,
}

/// Bytes of autograd data that are looked at; it is larger in all supported versions.
const AUTOGRAD_BYTES: usize = 160;

/// Bits of the type word above dtype and device: flags, and padding with anything in it.
const FLAGS: u64 = u64::MAX << 40;

/// What a tensor's words must be: those that matter for its number of dimensions.
#[derive(Clone, Copy)]
pub struct Words {
    dims: u64,
    /// Sizes and strides by dimension.
    extents: [(u64, u64); INLINE_DIMS],
    offset: u64,
    offset_mask: u64,
    kind: u64,
    kind_mask: u64,
    keys: u64,
}

impl Words {
    /// What either tensor's words may be, if they differ in one bit of the flags: then nothing else is let through.
    pub fn merged(&self, other: &Words) -> Option<Words> {
        let same = self.dims == other.dims
            && self.extents == other.extents
            && self.offset_mask == other.offset_mask
            && (self.offset ^ other.offset) & self.offset_mask == 0
            && self.kind_mask == u64::MAX
            && other.kind_mask == u64::MAX
            && self.keys == other.keys;
        let different = self.kind ^ other.kind;
        (same && different.count_ones() == 1 && different & FLAGS != 0)
            .then_some(Words { kind_mask: !different, ..*self })
    }
}

static LAYOUT: PyOnceLock<ImplLayout> = PyOnceLock::new();

static VERIFIED: PyOnceLock<Result<&'static Torch, String>> = PyOnceLock::new();

/// torch, after checking that its Python tensors are laid out as reading them assumes. `None`: torch isn't loaded.
pub fn verified_torch(py: Python<'_>) -> Result<Option<&'static Torch>, String> {
    let Ok(torch) = Torch::load() else { return Ok(None) };
    VERIFIED.get_or_init(py, || verify(py, torch).map(|()| torch)).clone().map(Some)
}

fn verify(py: Python<'_>, torch: &'static Torch) -> Result<(), String> {
    let sample = || -> PyResult<(Bound<'_, PyAny>, usize)> {
        let globals = PyDict::new(py);
        globals.set_item("torch", py.import("torch")?)?;
        let sample =
            py.eval(c"torch.empty_strided((2, 3), (1, 2), dtype=torch.float64, device='cpu')", Some(&globals), None)?;
        let address = sample.call_method0("data_ptr")?.extract()?;
        Ok((sample, address))
    };
    let (object, data_ptr) = sample().map_err(|error| error.to_string())?;
    let Some(pointer) = NonNull::new(object.as_ptr()) else { return Err("no tensor".to_owned()) };
    let known = KnownTensor { object: pointer.cast(), dtype: DType::F64, sizes: &[2, 3], strides: &[1, 2], data_ptr };
    // SAFETY: a live torch.Tensor, and attached.
    unsafe { verify_layout(torch, &known) }.map_err(|error| error.to_string())
}

/// Tensors that differ from the first in one respect each.
const SAMPLES: &std::ffi::CStr = c"[
    torch.empty_strided((2, 3), (3, 1), dtype=torch.float32, device='cpu'),
    torch.empty_strided((2, 3), (3, 1), dtype=torch.float32, device='cpu').requires_grad_(),
    torch.empty_strided((3, 3), (3, 1), dtype=torch.float32, device='cpu')[1:],
    torch.empty_strided((2, 3), (3, 1), dtype=torch.int64, device='cpu'),
    torch.empty_strided((2, 3), (3, 1), dtype=torch.float32, device='meta'),
    torch._neg_view(torch.empty_strided((2, 3), (3, 1), dtype=torch.float32, device='cpu')),
    torch.empty_strided((2, 3), (3, 1), dtype=torch.complex64, device='cpu'),
    torch._conj(torch.empty_strided((2, 3), (3, 1), dtype=torch.complex64, device='cpu')),
]";

impl ImplLayout {
    /// The layout of the loaded torch, if it could be made out.
    pub fn get(py: Python<'_>, torch: &'static Torch) -> Option<&'static ImplLayout> {
        LAYOUT.get_or_try_init(py, || ImplLayout::probe(py, torch).ok().flatten().ok_or(())).ok()
    }

    fn probe(py: Python<'_>, torch: &'static Torch) -> PyResult<Option<ImplLayout>> {
        let globals = PyDict::new(py);
        let module = py.import("torch")?;
        globals.set_item("torch", &module)?;
        let samples = py.eval(SAMPLES, Some(&globals), None)?.cast_into::<PyList>()?;
        let class = module.getattr("Tensor")?;
        if !samples.iter().all(|sample| sample.get_type().is(&class)) {
            return Ok(None);
        }
        let samples: Vec<Sample> = samples.iter().map(|sample| Sample::new(torch, &sample)).collect();
        let [plain, grad, offset, int, meta, neg, complex, conj] = samples.as_slice() else { return Ok(None) };
        let Some(mut layout) = find(torch, [plain, grad, offset, int, meta, neg, complex, conj]) else {
            return Ok(None);
        };
        layout.gradients = layout.find_gradients(&globals).unwrap_or(None);
        Ok(Some(layout))
    }

    /// Finds what turning gradients off, and detaching, changes in the autograd data of one tensor.
    fn find_gradients(&self, globals: &Bound<'_, PyDict>) -> PyResult<Option<Gradients>> {
        let py = globals.py();
        let leaf =
            py.eval(c"torch.empty(2, dtype=torch.float32, device='cpu').requires_grad_()", Some(globals), None)?;
        let result = py.eval(
            c"torch.enable_grad()(lambda: torch.empty(2, dtype=torch.float32, device='cpu').requires_grad_().clone())()",
            Some(globals),
            None,
        )?;
        let on = self.autograd_bytes(&leaf);
        leaf.call_method1("requires_grad_", (false,))?;
        let off = self.autograd_bytes(&leaf);
        let attached = self.autograd_bytes(&result);
        result.call_method0("detach_")?;
        let detached = self.autograd_bytes(&result);
        let (Some(on), Some(off), Some(attached), Some(detached)) = (on, off, attached, detached) else {
            return Ok(None);
        };
        let word = |bytes: &[u8; AUTOGRAD_BYTES], at: usize| {
            bytes[at..at + 8].iter().rev().fold(0, |word, byte| (word << 8) | usize::from(*byte))
        };
        let mut flags = (8..AUTOGRAD_BYTES).filter(|&at| on[at] != off[at]);
        let mut functions = (8..AUTOGRAD_BYTES)
            .step_by(8)
            .filter(|&at| word(&attached, at) != 0 && word(&detached, at) == 0 && word(&on, at) == 0);
        let (Some(flag), None, Some(grad_fn), None) = (flags.next(), flags.next(), functions.next(), functions.next())
        else {
            return Ok(None);
        };
        let plausible = (on[flag], off[flag], attached[flag], detached[flag]) == (1, 0, 0, 0)
            && word(&on, 0) == word(&attached, 0)
            && !(grad_fn..grad_fn + 8).contains(&flag);
        Ok(plausible.then_some(Gradients { vtable: word(&on, 0), flag, grad_fn }))
    }

    /// A copy of the first bytes of a tensor's autograd data.
    fn autograd_bytes(&self, tensor: &Bound<'_, PyAny>) -> Option<[u8; AUTOGRAD_BYTES]> {
        // SAFETY: attached, and a live tensor; autograd data is larger than what is copied.
        unsafe {
            let autograd: *const [u8; AUTOGRAD_BYTES] =
                *tensor_impl(self.torch, tensor.as_ptr()).byte_add(self.autograd).cast();
            autograd.as_ref().copied()
        }
    }

    /// # Safety
    /// Attached; `value` is a live tensor.
    #[inline]
    unsafe fn block_of(&self, value: *mut PyObject) -> *const u64 {
        // SAFETY: the caller's promise; the block is inside of the TensorImpl.
        unsafe { tensor_impl(self.torch, value).byte_add(self.block).cast() }
    }

    /// Whether a tensor has these words.
    ///
    /// # Safety
    /// Attached; `value` is a live tensor.
    #[inline]
    pub unsafe fn matches(&self, words: &Words, value: *mut PyObject) -> bool {
        // SAFETY: the caller's promise; all words up to the key set are inside of the TensorImpl.
        unsafe {
            let block = self.block_of(value);
            if *block != words.dims {
                return false;
            }
            let mut different = ((*block.add(TYPE) ^ words.kind) & words.kind_mask)
                | (*block.add(self.keys) ^ words.keys)
                | ((*block.add(OFFSET) ^ words.offset) & words.offset_mask);
            for (dim, (size, stride)) in words.extents.iter().take(words.dims as usize).enumerate() {
                different |= (*block.add(SIZES + dim) ^ size) | (*block.add(STRIDES + dim) ^ stride);
            }
            different == 0
        }
    }

    /// A tensor's words. `None` for tensors that keep their sizes elsewhere.
    ///
    /// # Safety
    /// Attached; `value` is a live tensor.
    pub unsafe fn words(&self, value: *mut PyObject, with_offset: bool) -> Option<Words> {
        // SAFETY: the caller's promise; all words up to the key set are inside of the TensorImpl.
        unsafe {
            let block = self.block_of(value);
            let dims = *block;
            if dims > INLINE_DIMS as u64 || self.keys != TYPE + 1 {
                return None;
            }
            let mut extents = [(0, 0); INLINE_DIMS];
            for (dim, extent) in extents.iter_mut().take(dims as usize).enumerate() {
                *extent = (*block.add(SIZES + dim), *block.add(STRIDES + dim));
            }
            Some(Words {
                dims,
                extents,
                offset: *block.add(OFFSET),
                offset_mask: if with_offset { u64::MAX } else { 0 },
                kind: *block.add(TYPE),
                kind_mask: u64::MAX,
                keys: *block.add(self.keys),
            })
        }
    }

    /// Whether the way to tell gradients without asking torch is known.
    pub fn knows_gradients(&self) -> bool {
        self.gradients.is_some()
    }

    /// # Safety
    /// Attached; `value` is a live tensor.
    #[inline]
    pub unsafe fn requires_grad(&self, value: *mut PyObject) -> bool {
        // SAFETY: the caller's promise; the pointer is inside of the TensorImpl.
        unsafe {
            let autograd: *const u8 = *tensor_impl(self.torch, value).byte_add(self.autograd).cast();
            if autograd.is_null() {
                return false;
            }
            if let Some(gradients) = &self.gradients
                && *autograd.cast::<usize>() == gradients.vtable
            {
                let grad_fn: usize = *autograd.add(gradients.grad_fn).cast();
                return *autograd.add(gradients.flag) != 0 || grad_fn != 0;
            }
            let Some(object) = NonNull::new(value) else { return false };
            TensorRef::from_pyobject(self.torch, object.cast()).requires_grad().unwrap_or(true)
        }
    }

    /// Whether a tensor's keys are those of an ordinary dense tensor of its device: no transform wraps it.
    ///
    /// # Safety
    /// Attached; `value` is a live tensor.
    pub unsafe fn is_ordinary(&self, value: *mut PyObject) -> bool {
        // SAFETY: the caller's promise; the key set is inside of the TensorImpl.
        let (keys, tensor) = unsafe {
            let Some(object) = NonNull::new(value) else { return false };
            (*self.block_of(value).add(self.keys), TensorRef::from_pyobject(self.torch, object.cast()))
        };
        if tensor.is_inference() == Some(true) {
            return true;
        }
        let different = (keys ^ self.cpu_keys) & !self.lazy_keys;
        // The low bits name the backend; above them, each backend has its own autocast key, and some have none.
        different == 0 || (!tensor.is_cpu() && (different >> 16).count_ones() <= 2)
    }
}

/// # Safety
/// Attached; `value` is a live tensor.
#[inline]
unsafe fn tensor_impl(torch: &'static Torch, value: *mut PyObject) -> *const u8 {
    // SAFETY: the caller's promise; a handle points to an at::Tensor, which is a pointer to its TensorImpl.
    unsafe {
        let object = NonNull::new_unchecked(value);
        *TensorRef::from_pyobject(torch, object.cast()).as_raw().cast::<*const u8>()
    }
}

/// A tensor to look at.
struct Sample<'py> {
    _object: Bound<'py, PyAny>,
    base: *const u8,
    block: usize,
    strides: usize,
}

impl<'py> Sample<'py> {
    fn new(torch: &'static Torch, object: &Bound<'py, PyAny>) -> Sample<'py> {
        // SAFETY: attached, and a live torch.Tensor.
        let (base, tensor) = unsafe {
            let pointer = NonNull::new_unchecked(object.as_ptr());
            (tensor_impl(torch, object.as_ptr()), TensorRef::from_pyobject(torch, pointer.cast()))
        };
        let address = |name: &str| -> Option<usize> {
            let get = Library::find("libtorch_cpu.so")?.symbol(name)?;
            // SAFETY: `AOTITorchError name(AtenTensorHandle, int64_t**)`, of torch's C ABI.
            let get: unsafe extern "C" fn(*const c_void, *mut *mut i64) -> i32 = unsafe { std::mem::transmute(get) };
            let mut address = std::ptr::null_mut();
            // SAFETY: the handle is alive and the out pointer valid.
            unsafe { get(tensor.as_raw().cast(), &mut address) };
            Some(address as usize)
        };
        let sizes = address("aoti_torch_get_sizes").unwrap_or(0);
        let strides = address("aoti_torch_get_strides").unwrap_or(0);
        Sample {
            _object: object.clone(),
            base,
            block: sizes.wrapping_sub(base as usize).wrapping_sub(SIZES * 8),
            strides: strides.wrapping_sub(base as usize),
        }
    }

    /// A word of the block.
    fn word(&self, index: usize) -> u64 {
        // SAFETY: `find` goes no further than the last word, the key set.
        unsafe { *self.base.add(self.block + index * 8).cast() }
    }

    /// The pointer at an offset before the block.
    fn pointer(&self, offset: usize) -> usize {
        // SAFETY: offsets are below the block's.
        unsafe { *self.base.add(offset).cast() }
    }
}

fn find(torch: &'static Torch, samples: [&Sample<'_>; 8]) -> Option<ImplLayout> {
    let [plain, grad, offset, int, meta, neg, complex, conj] = samples;
    let block = plain.block;
    let placed = |sample: &&Sample<'_>| sample.block == block && sample.strides == block + STRIDES * 8;
    if !block.is_multiple_of(8) || !(32..256).contains(&block) || !samples.iter().all(placed) {
        return None;
    }
    for sample in samples {
        let start: Vec<u64> = (0..=NUMEL).map(|index| sample.word(index)).collect();
        let expected_offset = if std::ptr::eq(sample, offset) { 3 } else { 0 };
        if start[0] != 2
            || start[SIZES..SIZES + 2] != [2, 3]
            || start[STRIDES..STRIDES + 2] != [3, 1]
            || start[OFFSET] != expected_offset
            || start[NUMEL] != 6
        {
            return None;
        }
    }
    let keys = (TYPE + 1..WORDS_MAX).find(|&index| plain.word(index) != neg.word(index))?;
    let same = |left: &Sample<'_>, right: &Sample<'_>, from: usize, to: usize| {
        (from..to).all(|index| left.word(index) == right.word(index))
    };
    let lazy_keys = (plain.word(keys) ^ neg.word(keys)) | (complex.word(keys) ^ conj.word(keys));
    let seen = (plain.word(TYPE) ^ int.word(TYPE)) & 0xffff != 0
        && (plain.word(TYPE) ^ meta.word(TYPE)) & !FLAGS & !0xffff != 0
        && plain.word(keys) != meta.word(keys)
        && plain.word(keys) == int.word(keys)
        && plain.word(keys) == grad.word(keys)
        && complex.word(keys) != conj.word(keys)
        && (plain.word(TYPE) ^ grad.word(TYPE)) & !FLAGS == 0
        && same(plain, grad, TYPE + 1, keys)
        && lazy_keys.count_ones() == 2;
    if !seen {
        return None;
    }
    let mut autograd = (16..block).step_by(8).filter(|&at| plain.pointer(at) == 0 && grad.pointer(at) != 0);
    let (Some(autograd), None) = (autograd.next(), autograd.next()) else { return None };
    Some(ImplLayout { torch, block, autograd, keys, cpu_keys: plain.word(keys), lazy_keys, gradients: None })
}

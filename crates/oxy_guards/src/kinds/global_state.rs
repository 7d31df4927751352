//! `GlobalState`: torch's global state that a trace depends on.
//!
//! The state is read in full through Python once, when a program is made. A call compares what torch's C++ functions
//! say (a few nanoseconds) with what they said then. A function that is missing, or that disagreed with Python then,
//! means that the whole state is read through Python on each call: slower, but right.

use crate::{PyObj, object::truth};
use oxy_torch::{Torch, sys::Library};
use pyo3::{prelude::*, sync::PyOnceLock};
use std::{
    cell::Cell,
    ffi::c_void,
    fmt::{self, Debug, Formatter},
    mem, ptr,
};

/// A device type's autocast setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Autocast {
    /// torch's name of the device type.
    pub device: &'static str,
    /// The `torch.dtype` that it casts to; `None` where it is off.
    pub dtype: Option<PyObj>,
}

/// torch's global state. The number of threads is no part of it.
#[derive(Clone)]
pub struct GlobalState {
    pub grad_enabled: bool,
    pub inference_mode: bool,
    pub autocast: Vec<Autocast>,
    /// Irrelevant, and false, where autocast is off.
    pub autocast_cache: bool,
    pub default_dtype: PyObj,
    pub deterministic: bool,
    pub deterministic_warn_only: bool,
    /// False inside `torch._C.DisableTorchFunction`.
    pub torch_function_enabled: bool,
    /// Active `TorchFunctionMode`s, outermost first. The default device is one of them.
    pub function_modes: Vec<PyObj>,
    /// Active `TorchDispatchMode`s.
    pub dispatch_modes: Vec<PyObj>,
    native: Option<Native>,
}

impl PartialEq for GlobalState {
    fn eq(&self, other: &GlobalState) -> bool {
        self.differences(other).is_empty() && self.native == other.native
    }
}

impl Debug for GlobalState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalState")
            .field("grad_enabled", &self.grad_enabled)
            .field("inference_mode", &self.inference_mode)
            .field("autocast", &self.autocast)
            .field("default_dtype", &self.default_dtype)
            .field("function_modes", &self.function_modes)
            .field("dispatch_modes", &self.dispatch_modes)
            .finish_non_exhaustive()
    }
}

/// Device types that have autocast settings of their own here.
const AUTOCAST_DEVICES: [(&str, i8); 2] = [("cpu", 0), ("cuda", 1)];

impl GlobalState {
    /// The state of the current thread.
    pub fn current(py: Python<'_>) -> PyResult<GlobalState> {
        let mut state = GlobalState::from_python(py)?;
        if let Some(functions) = Functions::get(py) {
            let native = functions.read(state.autocast.iter().any(|autocast| autocast.dtype.is_some()));
            if state.agrees(&native) {
                state.native = Some(native);
            }
        }
        Ok(state)
    }

    fn from_python(py: Python<'_>) -> PyResult<GlobalState> {
        let torch = py.import("torch")?;
        let inner = torch.getattr("_C")?;
        let flag = |name: &str| -> PyResult<bool> { torch.call_method0(name)?.extract() };
        let mut autocast = Vec::with_capacity(AUTOCAST_DEVICES.len());
        for (device, _) in AUTOCAST_DEVICES {
            let enabled: bool = torch.call_method1("is_autocast_enabled", (device,))?.extract()?;
            let dtype =
                if enabled { Some(PyObj::new(&torch.call_method1("get_autocast_dtype", (device,))?)) } else { None };
            autocast.push(Autocast { device, dtype });
        }
        let casts = autocast.iter().any(|autocast| autocast.dtype.is_some());
        let stack = |length: &str, at: &str| -> PyResult<Vec<PyObj>> {
            let length: usize = inner.call_method0(length)?.extract()?;
            (0..length).map(|index| Ok(PyObj::new(&inner.call_method1(at, (index,))?))).collect()
        };
        Ok(GlobalState {
            grad_enabled: flag("is_grad_enabled")?,
            inference_mode: flag("is_inference_mode_enabled")?,
            autocast,
            autocast_cache: casts && flag("is_autocast_cache_enabled")?,
            default_dtype: PyObj::new(&torch.call_method0("get_default_dtype")?),
            deterministic: flag("are_deterministic_algorithms_enabled")?,
            deterministic_warn_only: flag("is_deterministic_algorithms_warn_only_enabled")?,
            torch_function_enabled: inner.call_method0("_is_torch_function_enabled")?.extract()?,
            function_modes: stack("_len_torch_function_stack", "_get_function_stack_at")?,
            dispatch_modes: stack("_len_torch_dispatch_stack", "_get_dispatch_stack_at")?,
            native: None,
        })
    }

    /// Whether calls compare what torch's C++ functions say.
    pub(crate) fn is_native(&self) -> bool {
        self.native.is_some()
    }

    /// Whether torch's C++ functions say what Python said.
    fn agrees(&self, native: &Native) -> bool {
        native.grad_enabled == self.grad_enabled
            && native.inference_mode == self.inference_mode
            && native.deterministic == self.deterministic
            && native.deterministic_warn_only == self.deterministic_warn_only
            && native.function_modes == self.function_modes.len() as i64
            && native.dispatch_modes == self.dispatch_modes.len() as i64
            && (native.torch_function_state == 0) == self.torch_function_enabled
            && native
                .autocast
                .iter()
                .zip(&self.autocast)
                .all(|(native, python)| (*native >= 0) == python.dtype.is_some())
    }

    /// Whether the current thread's state is this one. No Python code of the user's runs.
    pub fn holds(&self, py: Python<'_>) -> bool {
        let Some(native) = &self.native else { return self.holds_slowly(py) };
        let Some(functions) = Functions::get(py) else { return self.holds_slowly(py) };
        if !functions.matches(native) {
            return false;
        }
        // Equal numbers of modes may be other modes.
        (native.function_modes == 0 && native.dispatch_modes == 0) || self.holds_slowly(py)
    }

    #[cold]
    fn holds_slowly(&self, py: Python<'_>) -> bool {
        GlobalState::from_python(py).is_ok_and(|now| self.differences(&now).is_empty())
    }

    /// The sentences for what differs now.
    pub fn difference(&self, py: Python<'_>) -> Vec<String> {
        match GlobalState::current(py) {
            Ok(now) => {
                let mut found = self.differences(&now);
                let keys = |state: &GlobalState| state.native.as_ref().map(|native| native.keys);
                if found.is_empty() && keys(self) != keys(&now) {
                    found.push(
                        "torch's dispatch keys differ (a transform such as vmap, or a dispatch guard, is active)"
                            .to_owned(),
                    );
                }
                found
            }
            Err(error) => vec![format!("torch's state can't be read: {error}")],
        }
    }

    fn differences(&self, now: &GlobalState) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |name: &str, expected: bool, actual: bool| {
            if expected != actual {
                found.push(format!("{name}: expected {}, got {}", truth(expected), truth(actual)));
            }
        };
        compare("grad mode", self.grad_enabled, now.grad_enabled);
        compare("inference mode", self.inference_mode, now.inference_mode);
        compare("autocast cache", self.autocast_cache, now.autocast_cache);
        compare("deterministic algorithms", self.deterministic, now.deterministic);
        compare("deterministic algorithms only warn", self.deterministic_warn_only, now.deterministic_warn_only);
        compare("torch function", self.torch_function_enabled, now.torch_function_enabled);
        for (expected, actual) in self.autocast.iter().zip(&now.autocast) {
            if expected.dtype != actual.dtype {
                let text = |dtype: &Option<PyObj>| dtype.as_ref().map_or("off".to_owned(), PyObj::repr);
                let (old, new) = (text(&expected.dtype), text(&actual.dtype));
                found.push(format!("autocast of {}: expected {old}, got {new}", expected.device));
            }
        }
        if self.default_dtype != now.default_dtype {
            let (old, new) = (self.default_dtype.repr(), now.default_dtype.repr());
            found.push(format!("default dtype: expected {old}, got {new}"));
        }
        for (name, expected, actual) in [
            ("torch function modes (the default device is one)", &self.function_modes, &now.function_modes),
            ("torch dispatch modes", &self.dispatch_modes, &now.dispatch_modes),
        ] {
            if expected != actual {
                found.push(format!("{name}: expected {expected:?}, got {actual:?}"));
            }
        }
        found
    }
}

/// What torch's C++ functions say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Native {
    /// Dispatch keys that the thread includes and excludes: autocast and inference mode are in them, and transforms.
    keys: [u64; 2],
    grad_enabled: bool,
    inference_mode: bool,
    default_dtype: i8,
    deterministic: bool,
    deterministic_warn_only: bool,
    torch_function_state: i32,
    function_modes: i64,
    dispatch_modes: i64,
    /// The dtype of each device; -1 where autocast is off.
    autocast: [i8; 2],
    autocast_cache: bool,
    casts: bool,
}

type Flag = unsafe extern "C" fn() -> bool;

/// torch's C++ functions by their mangled names: a changed signature is a missing symbol. None of them throws.
struct Functions {
    c10: Library,
    grad_mode: Flag,
    inference_mode: Flag,
    default_dtype: unsafe extern "C" fn() -> i8,
    /// at::Context, the process's one.
    context: *const c_void,
    deterministic: unsafe extern "C" fn(*const c_void) -> bool,
    deterministic_warn_only: unsafe extern "C" fn(*const c_void) -> bool,
    torch_function_state: unsafe extern "C" fn() -> i32,
    function_modes: unsafe extern "C" fn() -> i64,
    dispatch_modes: unsafe extern "C" fn() -> i64,
    is_autocast_enabled: unsafe extern "C" fn(i8) -> bool,
    autocast_dtype: unsafe extern "C" fn(i8) -> i8,
    autocast_cache: Flag,
}

// SAFETY: addresses of functions and of a static.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static FUNCTIONS: PyOnceLock<Option<Functions>> = PyOnceLock::new();

/// The bits of backends in a key set, and the first functionality above them, `c10::DispatchKey::Dense`.
const BACKENDS: u64 = 0xffff;
const DENSE: u64 = 1 << 16;

/// c10::impl::raw_local_dispatch_key_set: two words, thread-local.
const LOCAL_KEYS: &str = "_ZN3c104impl26raw_local_dispatch_key_setE";

thread_local! {
    /// Where this thread's `LOCAL_KEYS` are.
    static LOCAL_KEYS_AT: Cell<*const [u64; 2]> = const { Cell::new(ptr::null()) };
}

impl Functions {
    fn get(py: Python<'_>) -> Option<&'static Functions> {
        if let Some(functions) = FUNCTIONS.get(py) {
            return functions.as_ref();
        }
        // While torch isn't loaded nothing is remembered.
        Torch::load().ok()?;
        FUNCTIONS.get_or_init(py, Functions::find).as_ref()
    }

    fn find() -> Option<Functions> {
        let c10 = Library::find("libc10.so")?;
        let cpu = Library::find("libtorch_cpu.so")?;
        c10.symbol(LOCAL_KEYS)?;
        /// # Safety
        /// The symbol is a function of type `F`.
        unsafe fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
            let address = library.symbol(name)?;
            debug_assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
            // SAFETY: the caller's promise.
            Some(unsafe { mem::transmute_copy::<*mut c_void, F>(&address) })
        }
        // SAFETY: the mangled names say the parameters' types; the results' are those of torch's headers.
        unsafe {
            let context: unsafe extern "C" fn() -> *const c_void = function(&cpu, "_ZN2at13globalContextEv")?;
            Some(Functions {
                grad_mode: function(&c10, "_ZN3c108GradMode10is_enabledEv")?,
                inference_mode: function(&c10, "_ZN3c1013InferenceMode10is_enabledEv")?,
                default_dtype: function(&c10, "_ZN3c1031get_default_dtype_as_scalartypeEv")?,
                context: context(),
                deterministic: function(&cpu, "_ZNK2at7Context23deterministicAlgorithmsEv")?,
                deterministic_warn_only: function(&cpu, "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv")?,
                torch_function_state: function(&cpu, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv")?,
                function_modes: function(&cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv")?,
                dispatch_modes: function(&c10, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv")?,
                is_autocast_enabled: function(&cpu, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE")?,
                autocast_dtype: function(&cpu, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE")?,
                autocast_cache: function(&cpu, "_ZN2at8autocast25is_autocast_cache_enabledEv")?,
                c10,
            })
        }
    }

    /// This thread's included and excluded keys.
    #[inline]
    fn keys(&self) -> [u64; 2] {
        let mut at = LOCAL_KEYS_AT.get();
        if at.is_null() {
            // The address of a thread-local symbol is the calling thread's.
            at = self.c10.symbol(LOCAL_KEYS).map_or(ptr::null(), |at| at.cast_const().cast());
            LOCAL_KEYS_AT.set(at);
        }
        // SAFETY: this thread's two words, which live as long as the thread.
        let [mut included, excluded] = if at.is_null() { [0; 2] } else { unsafe { *at } };
        // A meta kernel run on fakes leaves "dense" behind, of no backend: that means nothing.
        if included & BACKENDS == 0 {
            included &= !DENSE;
        }
        [included, excluded]
    }

    fn read(&self, casts: bool) -> Native {
        // SAFETY: getters of thread-local and global state.
        unsafe {
            Native {
                keys: self.keys(),
                grad_enabled: (self.grad_mode)(),
                inference_mode: (self.inference_mode)(),
                default_dtype: (self.default_dtype)(),
                deterministic: (self.deterministic)(self.context),
                deterministic_warn_only: (self.deterministic_warn_only)(self.context),
                torch_function_state: (self.torch_function_state)(),
                function_modes: (self.function_modes)(),
                dispatch_modes: (self.dispatch_modes)(),
                autocast: self.autocast(casts),
                autocast_cache: casts && (self.autocast_cache)(),
                casts,
            }
        }
    }

    fn autocast(&self, casts: bool) -> [i8; 2] {
        AUTOCAST_DEVICES.map(|(_, code)| {
            // SAFETY: getters of thread-local state; the codes are c10::DeviceType's.
            unsafe { if casts && (self.is_autocast_enabled)(code) { (self.autocast_dtype)(code) } else { -1 } }
        })
    }

    /// Whether the state is this one. Which devices autocast, inference mode, and whether there are dispatch modes, are in
    /// the keys.
    #[inline]
    fn matches(&self, native: &Native) -> bool {
        // SAFETY: getters of thread-local and global state.
        unsafe {
            self.keys() == native.keys
                && (self.grad_mode)() == native.grad_enabled
                && (self.default_dtype)() == native.default_dtype
                && (self.torch_function_state)() == native.torch_function_state
                && (self.function_modes)() == native.function_modes
                && (native.dispatch_modes == 0 || (self.dispatch_modes)() == native.dispatch_modes)
                && (self.deterministic)(self.context) == native.deterministic
                && (!native.deterministic
                    || (self.deterministic_warn_only)(self.context) == native.deterministic_warn_only)
                && (!native.casts
                    || (self.autocast(true) == native.autocast && (self.autocast_cache)() == native.autocast_cache))
        }
    }
}

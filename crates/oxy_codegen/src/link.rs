//! Unsafe room: linking objects into the process with ORC.
//!
//! Promises: the addresses of a `Linked` stay valid until it is dropped, and dropping it frees the code. Objects
//! see only the symbols in `SYMBOLS` (libm and a few of ours), never whatever else the process has loaded, so a
//! cached object means the same in every process.

use crate::{
    compile::Object,
    error::CodegenError,
    llvm::{c_string, check, ignore, initialize},
};
use inkwell::llvm_sys::{
    core::LLVMCreateMemoryBufferWithMemoryRangeCopy,
    error::LLVMErrorRef,
    orc2::{lljit::*, *},
    prelude::LLVMMemoryBufferRef,
};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// A linker: one per process is enough. Cheap to clone.
#[derive(Clone)]
pub struct Linker {
    session: Arc<Session>,
}

/// Code in executable memory.
pub struct Linked {
    addresses: Vec<usize>,
    tracker: LLVMOrcResourceTrackerRef,
    library: LLVMOrcJITDylibRef,
    session: Arc<Session>,
}

struct Session {
    jit: LLVMOrcLLJITRef,
    /// Emptied libraries (each still holds `SYMBOLS`), to use again: ORC's C interface can't remove one.
    idle: Mutex<Idle>,
}

struct Idle {
    libraries: Vec<Library>,
    created: usize,
}

struct Library(LLVMOrcJITDylibRef);

// SAFETY: a JITDylib belongs to its execution session, whose operations lock internally.
unsafe impl Send for Library {}
// SAFETY: ORC's session, LLJIT and JITDylib operations used here lock internally.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}
// SAFETY: the pointers refer to session-owned objects; removal goes through the locking session.
unsafe impl Send for Linked {}
// SAFETY: `&Linked` gives out plain addresses only.
unsafe impl Sync for Linked {}

/// Links the object in `bytes` (see `Object::as_bytes`) with a linker of its own and looks up `symbols`.
pub fn link(bytes: &[u8], symbols: &[&str]) -> Result<Linked, CodegenError> {
    Linker::new()?.link(bytes, symbols)
}

impl Linker {
    pub fn new() -> Result<Linker, CodegenError> {
        initialize();
        let mut jit = ptr::null_mut();
        // SAFETY: a null builder means default settings; the out-pointer is valid.
        check(unsafe { LLVMOrcCreateLLJIT(&mut jit, ptr::null_mut()) })?;
        // Errors come back as results; ORC would also print them.
        extern "C" fn quiet(_: *mut c_void, error: LLVMErrorRef) {
            ignore(error);
        }
        // SAFETY: a live session; the reporter consumes each error and uses no context.
        unsafe {
            let session = LLVMOrcLLJITGetExecutionSession(jit);
            LLVMOrcExecutionSessionSetErrorReporter(session, quiet, ptr::null_mut());
        }
        let idle = Mutex::new(Idle { libraries: Vec::new(), created: 0 });
        Ok(Linker { session: Arc::new(Session { jit, idle }) })
    }

    pub fn link(&self, bytes: &[u8], symbols: &[&str]) -> Result<Linked, CodegenError> {
        let files = Object::unpack(bytes)?;
        let session = &self.session;
        let library = session.library()?;
        // SAFETY: a live library of this session; the tracker is released by `Linked::drop`.
        let tracker = unsafe { LLVMOrcJITDylibCreateResourceTracker(library) };
        let mut linked = Linked { addresses: Vec::new(), tracker, library, session: session.clone() };
        for file in files {
            let buffer = copy_to_buffer(file);
            // SAFETY: ownership of the buffer passes to ORC, also on failure.
            check(unsafe { LLVMOrcLLJITAddObjectFileWithRT(session.jit, tracker, buffer) })?;
        }
        for symbol in symbols {
            linked.addresses.push(session.look_up(library, symbol)?);
        }
        Ok(linked)
    }
}

impl Linked {
    /// Address of the i-th symbol asked for.
    pub fn address(&self, index: usize) -> Option<usize> {
        self.addresses.get(index).copied()
    }

    pub fn addresses(&self) -> &[usize] {
        &self.addresses
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        // SAFETY: the tracker was made in `link` and is removed and released once; whoever called the code kept
        // this `Linked` alive.
        let error = unsafe { LLVMOrcResourceTrackerRemove(self.tracker) };
        let is_empty = error.is_null();
        ignore(error);
        // SAFETY: as above.
        unsafe { LLVMOrcReleaseResourceTracker(self.tracker) };
        if is_empty {
            let mut idle = self.session.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.libraries.push(Library(self.library));
        }
    }
}

impl Session {
    fn library(&self) -> Result<LLVMOrcJITDylibRef, CodegenError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = idle.libraries.pop() {
            return Ok(library.0);
        }
        idle.created += 1;
        let name = c_string(&format!("oxy{}", idle.created))?;
        let mut library = ptr::null_mut();
        // SAFETY: a live session; the name is unique in it and copied; the out-pointer is valid.
        let error = unsafe {
            LLVMOrcExecutionSessionCreateJITDylib(
                LLVMOrcLLJITGetExecutionSession(self.jit),
                &mut library,
                name.as_ptr(),
            )
        };
        check(error)?;
        self.define_symbols(library)?;
        Ok(library)
    }

    fn define_symbols(&self, library: LLVMOrcJITDylibRef) -> Result<(), CodegenError> {
        let mut pairs: Vec<LLVMOrcCSymbolMapPair> = SYMBOLS
            .iter()
            .map(|symbol| LLVMOrcCSymbolMapPair {
                // SAFETY: a live LLJIT and a C string; the entry's reference passes to the definition below.
                Name: unsafe { LLVMOrcLLJITMangleAndIntern(self.jit, symbol.0.as_ptr()) },
                Sym: inkwell::llvm_sys::orc2::LLVMJITEvaluatedSymbol {
                    Address: (symbol.1)() as u64,
                    Flags: LLVMJITSymbolFlags {
                        GenericFlags: LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsExported as u8
                            | LLVMJITSymbolGenericFlags::LLVMJITSymbolGenericFlagsCallable as u8,
                        TargetFlags: 0,
                    },
                },
            })
            .collect();
        // SAFETY: `pairs` is read during the call; the unit passes to the library.
        check(unsafe {
            let unit = LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len());
            LLVMOrcJITDylibDefine(library, unit)
        })
    }

    fn look_up(&self, library: LLVMOrcJITDylibRef, symbol: &str) -> Result<usize, CodegenError> {
        struct Found {
            address: u64,
            error: LLVMErrorRef,
        }
        extern "C" fn take(error: LLVMErrorRef, symbols: LLVMOrcCSymbolMapPairs, n: usize, found: *mut c_void) {
            // SAFETY: `found` is the `Found` of the frame below, which waits for this call; `symbols` has `n` entries.
            unsafe {
                let found = &mut *found.cast::<Found>();
                found.error = error;
                if error.is_null() && n > 0 {
                    found.address = (*symbols).Sym.Address;
                }
            }
        }
        let name = c_string(symbol)?;
        let flags = LLVMOrcJITDylibLookupFlags::LLVMOrcJITDylibLookupFlagsMatchExportedSymbolsOnly;
        let mut order = [LLVMOrcCJITDylibSearchOrderElement { JD: library, JDLookupFlags: flags }];
        let mut found = Found { address: 0, error: ptr::null_mut() };
        // SAFETY: arrays and `found` outlive the call, which completes before it returns (ORC's default
        // dispatcher runs tasks in place); the interned name's reference passes to the lookup.
        unsafe {
            let mut names = [LLVMOrcCLookupSetElement {
                Name: LLVMOrcLLJITMangleAndIntern(self.jit, name.as_ptr()),
                LookupFlags: LLVMOrcSymbolLookupFlags::LLVMOrcSymbolLookupFlagsRequiredSymbol,
            }];
            LLVMOrcExecutionSessionLookup(
                LLVMOrcLLJITGetExecutionSession(self.jit),
                LLVMOrcLookupKind::LLVMOrcLookupKindStatic,
                order.as_mut_ptr(),
                order.len(),
                names.as_mut_ptr(),
                names.len(),
                take,
                ptr::from_mut(&mut found).cast(),
            );
        }
        check(found.error)?;
        if found.address == 0 {
            return Err(CodegenError::MissingSymbol(symbol.to_string()));
        }
        Ok(found.address as usize)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: made in `Linker::new`, disposed once; every `Linked` held a reference and is gone.
        ignore(unsafe { LLVMOrcDisposeLLJIT(self.jit) });
    }
}

fn copy_to_buffer(bytes: &[u8]) -> LLVMMemoryBufferRef {
    // SAFETY: LLVM copies `bytes`; the name is a literal.
    unsafe { LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), c"oxy".as_ptr()) }
}

/// C functions that generated code may call.
macro_rules! symbols {
    ($($name:ident: fn($($arg:ty),*) -> $out:ty;)*) => {
        unsafe extern "C" {
            $(fn $name($(_: $arg),*) -> $out;)*
        }

        static SYMBOLS: &[(&CStr, fn() -> usize)] = &[
            (c"oxy_digamma", || oxy_digamma as *const () as usize),
            $((
                // Every name is an identifier: the bytes hold exactly one NUL.
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
                || $name as *const () as usize,
            ),)*
        ];
    };
}

symbols! {
    acos: fn(f64) -> f64;
    acosh: fn(f64) -> f64;
    asin: fn(f64) -> f64;
    asinh: fn(f64) -> f64;
    atan: fn(f64) -> f64;
    atan2: fn(f64, f64) -> f64;
    atanh: fn(f64) -> f64;
    ceil: fn(f64) -> f64;
    ceilf: fn(f32) -> f32;
    cos: fn(f64) -> f64;
    cosh: fn(f64) -> f64;
    erf: fn(f64) -> f64;
    erfc: fn(f64) -> f64;
    exp2: fn(f64) -> f64;
    exp: fn(f64) -> f64;
    expm1: fn(f64) -> f64;
    floor: fn(f64) -> f64;
    floorf: fn(f32) -> f32;
    fma: fn(f64, f64, f64) -> f64;
    fmaf: fn(f32, f32, f32) -> f32;
    fmod: fn(f64, f64) -> f64;
    fmodf: fn(f32, f32) -> f32;
    lgamma: fn(f64) -> f64;
    log10: fn(f64) -> f64;
    log1p: fn(f64) -> f64;
    log2: fn(f64) -> f64;
    log: fn(f64) -> f64;
    memcpy: fn(*mut u8, *const u8, usize) -> *mut u8;
    memmove: fn(*mut u8, *const u8, usize) -> *mut u8;
    memset: fn(*mut u8, i32, usize) -> *mut u8;
    pow: fn(f64, f64) -> f64;
    roundeven: fn(f64) -> f64;
    roundevenf: fn(f32) -> f32;
    sin: fn(f64) -> f64;
    sinh: fn(f64) -> f64;
    tan: fn(f64) -> f64;
    tanh: fn(f64) -> f64;
    trunc: fn(f64) -> f64;
    truncf: fn(f32) -> f32;
}

extern "C" fn oxy_digamma(x: f64) -> f64 {
    oxy_loops::special::digamma(x)
}

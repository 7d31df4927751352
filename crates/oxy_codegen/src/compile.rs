//! Kernels to object code.
//!
//! Kernels are grouped into LLVM modules; several groups compile on several threads, each with its own context and
//! machine. An `Object` is the list of the resulting ELF files and can be stored as bytes.

use crate::{
    emit::Emit,
    error::CodegenError,
    llvm::{self, Context, FileKind, Function, Machine, Module},
    memory::Buffer,
    nest, spell,
    target::HostTarget,
};
use oxy_loops::Kernel;
use std::{ffi::CStr, thread};

/// Cheap clean-up of what the emitter leaves: common subexpressions, and invariants out of loops. Instruction
/// selection does the rest; `instcombine` cost 10 % more compile time and made exp slower (measured).
/// (`licm` outside `loop-mssa` aborts the process.)
const PASSES: &CStr = c"function(early-cse,loop-mssa(licm))";

/// Modules smaller than this aren't worth a thread of their own.
const KERNELS_PER_THREAD: usize = 3;

const MAGIC: &[u8; 8] = b"oxyobj1\0";

/// Machine code of some kernels, not yet linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    bytes: Vec<u8>,
}

impl Object {
    /// What the artifact cache stores.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn pack(files: &[Vec<u8>]) -> Object {
        let mut bytes = MAGIC.to_vec();
        for file in files {
            bytes.extend((file.len() as u64).to_le_bytes());
            bytes.extend(file);
        }
        Object { bytes }
    }

    /// The ELF files inside an object's bytes.
    pub(crate) fn unpack(bytes: &[u8]) -> Result<Vec<&[u8]>, CodegenError> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(CodegenError::MalformedObject)?;
        let mut files = Vec::new();
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk::<8>().ok_or(CodegenError::MalformedObject)?;
            let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| CodegenError::MalformedObject)?;
            let (file, after) = after.split_at_checked(len).ok_or(CodegenError::MalformedObject)?;
            files.push(file);
            rest = after;
        }
        Ok(files)
    }
}

/// Compiles kernels: one entry symbol each, named like the kernel,
/// `extern "C" fn(buffers: *const *mut u8, lo: i64, hi: i64)`.
pub fn compile(kernels: &[&Kernel], target: &HostTarget) -> Result<Object, CodegenError> {
    for (i, kernel) in kernels.iter().enumerate() {
        check(kernel)?;
        if kernels[..i].iter().any(|other| other.name == kernel.name) {
            return Err(CodegenError::DuplicateName(kernel.name.clone()));
        }
    }
    let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(kernels.len() / KERNELS_PER_THREAD);
    if threads <= 1 {
        return Ok(Object::pack(&[compile_module(kernels, target, FileKind::Object)?]));
    }
    // Dealt out like cards: neighbouring kernels tend to be of like size.
    let hands: Vec<Vec<&Kernel>> =
        (0..threads).map(|t| kernels.iter().skip(t).step_by(threads).copied().collect()).collect();
    let files: Result<Vec<Vec<u8>>, CodegenError> = thread::scope(|scope| {
        let running: Vec<_> =
            hands.iter().map(|hand| scope.spawn(|| compile_module(hand, target, FileKind::Object))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect()
    });
    Ok(Object::pack(&files?))
}

/// The assembly of one kernel, for dumps.
pub fn assembly(kernel: &Kernel, target: &HostTarget) -> Result<String, CodegenError> {
    check(kernel)?;
    let bytes = compile_module(&[kernel], target, FileKind::Assembly)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The LLVM IR of one kernel before optimisation, for dumps.
pub fn llvm_ir(kernel: &Kernel, target: &HostTarget) -> Result<String, CodegenError> {
    check(kernel)?;
    let machine = Machine::new(&target.triple, &target.cpu, &target.features)?;
    let context = Context::new();
    Ok(build(kernel, target, &context, context.module(&machine))?.text())
}

fn compile_module(kernels: &[&Kernel], target: &HostTarget, file: FileKind) -> Result<Vec<u8>, CodegenError> {
    let machine = Machine::new(&target.triple, &target.cpu, &target.features)?;
    let context = Context::new();
    let mut module = context.module(&machine);
    for kernel in kernels {
        module = build(kernel, target, &context, module)?;
    }
    module.emit(&machine, PASSES, file)
}

/// What code generation needs beyond the kernel verifier's rules.
fn check(kernel: &Kernel) -> Result<(), CodegenError> {
    oxy_loops::verify(kernel)
        .map_err(|error| CodegenError::Invalid { kernel: kernel.name.clone(), what: error.to_string() })?;
    for param in &kernel.params {
        if spell::storage_kind(param.dtype).is_none() {
            let what = format!("dtype {}", param.dtype.name());
            return Err(CodegenError::Unsupported { kernel: kernel.name.clone(), what });
        }
    }
    Ok(())
}

fn build<'c>(
    kernel: &Kernel,
    target: &'c HostTarget,
    context: &'c Context,
    module: Module<'c>,
) -> Result<Module<'c>, CodegenError> {
    let (pointer, int) = (context.pointer(), context.int(64));
    let name = llvm::c_string(&kernel.name)?;
    let function = module.function(&name, context.void().function(&[pointer, int, int]));
    set_attributes(&module, function, target);
    let e = Emit::new(context, target, module, function);
    let buffers = (0i64..)
        .zip(&kernel.params)
        .filter_map(|(i, param)| {
            let address = e.builder.gep(pointer, e.param(0), e.index(i));
            let pointer = e.builder.load(pointer, address, 8);
            Some(Buffer { pointer, dtype: param.dtype, storage: spell::storage_kind(param.dtype)? })
        })
        .collect();
    nest::emit(&e, kernel, buffers);
    Ok(e.finish())
}

fn set_attributes<'c>(module: &Module<'c>, function: Function<'c>, target: &HostTarget) {
    let width = target.vector_bits.to_string();
    for (key, value) in [
        ("target-cpu", target.cpu.as_str()),
        ("target-features", target.features.as_str()),
        ("prefer-vector-width", width.as_str()),
        ("min-legal-vector-width", width.as_str()),
    ] {
        if !value.is_empty() {
            module.add_string_attribute(function, key, value);
        }
    }
    module.add_attribute(function, "nounwind");
}

//! Unsafe room: LLVM's C API behind values that can't outlive their context.
//!
//! Promises: every handle carries the lifetime of its `Context`; whatever LLVM allocates is freed on drop;
//! a module leaves this room only through `Module::emit`, which verifies it first, so ill-typed IR is an error
//! and never reaches the optimiser. One thread uses one `Context`; distinct contexts are independent.
//! It knows nothing of kernels. Linking is in `link.rs`.

use crate::error::CodegenError;
use inkwell::llvm_sys::{
    LLVMIntPredicate, LLVMOpcode, LLVMRealPredicate,
    analysis::{LLVMVerifierFailureAction, LLVMVerifyModule},
    core::*,
    error::{LLVMConsumeError, LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage},
    prelude::*,
    target::*,
    target_machine::*,
    transforms::pass_builder::*,
};
use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::ptr;
use std::sync::Once;

pub use inkwell::llvm_sys::{LLVMIntPredicate as IntPredicate, LLVMRealPredicate as FloatPredicate};

/// Values get no names: fewer allocations, stable output.
const UNNAMED: *const c_char = c"".as_ptr();

/// LLVM's index of a function's own attributes (`LLVMAttributeFunctionIndex`).
const FUNCTION_ATTRIBUTES: u32 = u32::MAX;

/// An LLVM context: owns every type, value and module made in it.
pub struct Context {
    raw: LLVMContextRef,
}

impl Context {
    pub fn new() -> Context {
        // SAFETY: creates a fresh context that `Drop` disposes; the flag applies to that context alone.
        unsafe {
            let raw = LLVMContextCreate();
            LLVMContextSetDiscardValueNames(raw, 1);
            Context { raw }
        }
    }

    pub fn int(&self, bits: u32) -> Type<'_> {
        // SAFETY: the context is alive for the lifetime of the returned type.
        Type::new(unsafe { LLVMIntTypeInContext(self.raw, bits) })
    }

    pub fn half(&self) -> Type<'_> {
        // SAFETY: as for `int`.
        Type::new(unsafe { LLVMHalfTypeInContext(self.raw) })
    }

    pub fn float(&self) -> Type<'_> {
        // SAFETY: as for `int`.
        Type::new(unsafe { LLVMFloatTypeInContext(self.raw) })
    }

    pub fn double(&self) -> Type<'_> {
        // SAFETY: as for `int`.
        Type::new(unsafe { LLVMDoubleTypeInContext(self.raw) })
    }

    pub fn pointer(&self) -> Type<'_> {
        // SAFETY: as for `int`.
        Type::new(unsafe { LLVMPointerTypeInContext(self.raw, 0) })
    }

    pub fn void(&self) -> Type<'_> {
        // SAFETY: as for `int`.
        Type::new(unsafe { LLVMVoidTypeInContext(self.raw) })
    }

    pub fn module(&self, machine: &Machine) -> Module<'_> {
        // SAFETY: the module belongs to this context and is disposed before it (lifetime); the data layout is a
        // temporary that LLVM copies.
        unsafe {
            let raw = LLVMModuleCreateWithNameInContext(c"oxy".as_ptr(), self.raw);
            LLVMSetTarget(raw, machine.triple.as_ptr());
            let layout = LLVMCreateTargetDataLayout(machine.raw);
            LLVMSetModuleDataLayout(raw, layout);
            LLVMDisposeTargetData(layout);
            Module { raw, context: self }
        }
    }

    pub fn builder(&self) -> Builder<'_> {
        // SAFETY: the builder belongs to this context and is disposed before it.
        let raw = unsafe { LLVMCreateBuilderInContext(self.raw) };
        Builder { raw, context: self }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by LLVMContextCreate, disposed once; everything borrowed from it is gone.
        unsafe { LLVMContextDispose(self.raw) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type<'c> {
    raw: LLVMTypeRef,
    context: PhantomData<&'c Context>,
}

impl<'c> Type<'c> {
    fn new(raw: LLVMTypeRef) -> Type<'c> {
        Type { raw, context: PhantomData }
    }

    /// `<lanes x self>`, or the type itself for one lane.
    pub fn vector(self, lanes: u32) -> Type<'c> {
        if lanes == 1 {
            return self;
        }
        // SAFETY: an element type of a live context; lanes > 1.
        Type::new(unsafe { LLVMVectorType(self.raw, lanes) })
    }

    pub fn array(self, len: u64) -> Type<'c> {
        // SAFETY: an element type of a live context.
        Type::new(unsafe { LLVMArrayType2(self.raw, len) })
    }

    pub fn function(self, params: &[Type<'c>]) -> Type<'c> {
        let mut raw: Vec<LLVMTypeRef> = params.iter().map(|t| t.raw).collect();
        // SAFETY: the pointer and count describe `raw`, which LLVM copies.
        Type::new(unsafe { LLVMFunctionType(self.raw, raw.as_mut_ptr(), raw.len() as u32, 0) })
    }

    /// An integer constant (scalar types).
    pub fn int_const(self, value: i64) -> Value<'c> {
        // SAFETY: callers use it on integer types; the verifier rejects anything else before use.
        Value::new(unsafe { LLVMConstInt(self.raw, value as u64, 1) })
    }

    pub fn null(self) -> Value<'c> {
        // SAFETY: a live first-class type.
        Value::new(unsafe { LLVMConstNull(self.raw) })
    }

    pub fn poison(self) -> Value<'c> {
        // SAFETY: a live first-class type.
        Value::new(unsafe { LLVMGetPoison(self.raw) })
    }

    /// The constant of this float type with the given bits of an integer of the same width.
    pub fn float_from_bits(self, bits: Value<'c>) -> Value<'c> {
        // SAFETY: a constant integer of this type's width.
        Value::new(unsafe { LLVMConstBitCast(bits.raw, self.raw) })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'c> {
    raw: LLVMValueRef,
    context: PhantomData<&'c Context>,
}

impl<'c> Value<'c> {
    fn new(raw: LLVMValueRef) -> Value<'c> {
        Value { raw, context: PhantomData }
    }

    pub fn ty(self) -> Type<'c> {
        // SAFETY: a live value.
        Type::new(unsafe { LLVMTypeOf(self.raw) })
    }

    pub fn is_constant(self) -> bool {
        // SAFETY: a live value.
        unsafe { LLVMIsConstant(self.raw) != 0 }
    }

    /// A constant vector with these constant elements.
    pub fn const_vector(elements: &[Value<'c>]) -> Value<'c> {
        let mut raw: Vec<LLVMValueRef> = elements.iter().map(|v| v.raw).collect();
        // SAFETY: the pointer and count describe `raw`, which LLVM copies.
        Value::new(unsafe { LLVMConstVector(raw.as_mut_ptr(), raw.len() as u32) })
    }

    /// Adds edges to a phi.
    pub fn add_incoming(self, edges: &[(Value<'c>, Block<'c>)]) {
        let mut values: Vec<LLVMValueRef> = edges.iter().map(|e| e.0.raw).collect();
        let mut blocks: Vec<LLVMBasicBlockRef> = edges.iter().map(|e| e.1.raw).collect();
        // SAFETY: `self` comes from `Builder::phi`; both arrays have `edges.len()` entries and are copied.
        unsafe { LLVMAddIncoming(self.raw, values.as_mut_ptr(), blocks.as_mut_ptr(), edges.len() as u32) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block<'c> {
    raw: LLVMBasicBlockRef,
    context: PhantomData<&'c Context>,
}

#[derive(Clone, Copy)]
pub struct Function<'c> {
    pub value: Value<'c>,
    pub ty: Type<'c>,
}

/// A module: functions to compile into one object.
pub struct Module<'c> {
    raw: LLVMModuleRef,
    context: &'c Context,
}

impl<'c> Module<'c> {
    /// The function of this name, declared with external linkage if new.
    pub fn function(&self, name: &CStr, ty: Type<'c>) -> Function<'c> {
        // SAFETY: a live module and function type; LLVM copies the name.
        let raw = unsafe {
            let found = LLVMGetNamedFunction(self.raw, name.as_ptr());
            if found.is_null() { LLVMAddFunction(self.raw, name.as_ptr(), ty.raw) } else { found }
        };
        Function { value: Value::new(raw), ty }
    }

    pub fn append_block(&self, function: Function<'c>) -> Block<'c> {
        // SAFETY: the function belongs to this context.
        let raw = unsafe { LLVMAppendBasicBlockInContext(self.context.raw, function.value.raw, UNNAMED) };
        Block { raw, context: PhantomData }
    }

    pub fn param(&self, function: Function<'c>, index: u32) -> Value<'c> {
        // SAFETY: callers ask for parameters of the type the function was made with.
        Value::new(unsafe { LLVMGetParam(function.value.raw, index) })
    }

    pub fn add_string_attribute(&self, function: Function<'c>, key: &str, value: &str) {
        // SAFETY: key and value are passed with their lengths and copied.
        unsafe {
            let attribute = LLVMCreateStringAttribute(
                self.context.raw,
                key.as_ptr().cast(),
                key.len() as u32,
                value.as_ptr().cast(),
                value.len() as u32,
            );
            LLVMAddAttributeAtIndex(function.value.raw, FUNCTION_ATTRIBUTES, attribute);
        }
    }

    pub fn add_attribute(&self, function: Function<'c>, name: &str) {
        // SAFETY: the name is passed with its length; kind 0 (unknown) is not added.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            if kind != 0 {
                let attribute = LLVMCreateEnumAttribute(self.context.raw, kind, 0);
                LLVMAddAttributeAtIndex(function.value.raw, FUNCTION_ATTRIBUTES, attribute);
            }
        }
    }

    /// The module as text, for dumps and tests.
    pub fn text(&self) -> String {
        // SAFETY: LLVM returns an owned message, freed by `take_message`.
        unsafe { take_message(LLVMPrintModuleToString(self.raw)) }
    }

    /// Verifies, runs `passes` and emits an object (or assembly) file.
    pub fn emit(&self, machine: &Machine, passes: &CStr, file: FileKind) -> Result<Vec<u8>, CodegenError> {
        self.verify()?;
        if !passes.is_empty() {
            // SAFETY: live module and machine; the options are disposed; the pass string is one of ours, all of
            // which are covered by tests (LLVM aborts on some malformed pipelines).
            let error = unsafe {
                let options = LLVMCreatePassBuilderOptions();
                let error = LLVMRunPasses(self.raw, passes.as_ptr(), machine.raw, options);
                LLVMDisposePassBuilderOptions(options);
                error
            };
            check(error)?;
        }
        let kind = match file {
            FileKind::Object => LLVMCodeGenFileType::LLVMObjectFile,
            FileKind::Assembly => LLVMCodeGenFileType::LLVMAssemblyFile,
        };
        let mut message = ptr::null_mut();
        let mut buffer = ptr::null_mut();
        // SAFETY: out-pointers are valid; on failure `message` is owned by us, on success `buffer` is.
        unsafe {
            if LLVMTargetMachineEmitToMemoryBuffer(machine.raw, self.raw, kind, &mut message, &mut buffer) != 0 {
                return Err(CodegenError::Llvm(take_message(message)));
            }
            let start = LLVMGetBufferStart(buffer).cast::<u8>();
            let bytes = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(bytes)
        }
    }

    fn verify(&self) -> Result<(), CodegenError> {
        let mut message = ptr::null_mut();
        // SAFETY: a live module; the message is always set and owned by us.
        unsafe {
            let action = LLVMVerifierFailureAction::LLVMReturnStatusAction;
            let bad = LLVMVerifyModule(self.raw, action, &mut message) != 0;
            let text = take_message(message);
            if bad { Err(CodegenError::Llvm(text)) } else { Ok(()) }
        }
    }

    fn intrinsic(&self, name: &str, types: &[Type<'c>]) -> Function<'c> {
        let mut raw: Vec<LLVMTypeRef> = types.iter().map(|t| t.raw).collect();
        // SAFETY: the name is passed with its length; an unknown intrinsic has id 0, for which LLVM would abort,
        // so names are literals of this crate, each covered by a test. `raw` is read only during the calls.
        unsafe {
            let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            debug_assert!(id != 0, "unknown intrinsic {name}");
            let value = LLVMGetIntrinsicDeclaration(self.raw, id, raw.as_mut_ptr(), raw.len());
            Function { value: Value::new(value), ty: Type::new(LLVMGlobalGetValueType(value)) }
        }
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `Context::module`, disposed once, before its context.
        unsafe { LLVMDisposeModule(self.raw) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    Object,
    Assembly,
}

pub struct Builder<'c> {
    raw: LLVMBuilderRef,
    context: &'c Context,
}

/// Instructions with two operands of one type.
macro_rules! binary {
    ($($name:ident => $llvm:ident;)*) => {
        impl<'c> Builder<'c> {
            $(pub fn $name(&self, a: Value<'c>, b: Value<'c>) -> Value<'c> {
                debug_assert_eq!(a.ty(), b.ty());
                // SAFETY: live values of one type and context; the builder stands at the end of a block.
                Value::new(unsafe { $llvm(self.raw, a.raw, b.raw, UNNAMED) })
            })*
        }
    };
}

binary! {
    fadd => LLVMBuildFAdd;
    fsub => LLVMBuildFSub;
    fmul => LLVMBuildFMul;
    fdiv => LLVMBuildFDiv;
    add => LLVMBuildAdd;
    sub => LLVMBuildSub;
    mul => LLVMBuildMul;
    sdiv => LLVMBuildSDiv;
    srem => LLVMBuildSRem;
    udiv => LLVMBuildUDiv;
    urem => LLVMBuildURem;
    and => LLVMBuildAnd;
    or => LLVMBuildOr;
    xor => LLVMBuildXor;
    shl => LLVMBuildShl;
    lshr => LLVMBuildLShr;
    ashr => LLVMBuildAShr;
}

/// Conversions to another type.
macro_rules! conversion {
    ($($name:ident => $opcode:ident;)*) => {
        impl<'c> Builder<'c> {
            $(pub fn $name(&self, a: Value<'c>, to: Type<'c>) -> Value<'c> {
                // SAFETY: a live value and type of one context; the verifier rejects impossible casts.
                Value::new(unsafe { LLVMBuildCast(self.raw, LLVMOpcode::$opcode, a.raw, to.raw, UNNAMED) })
            })*
        }
    };
}

conversion! {
    trunc => LLVMTrunc;
    zext => LLVMZExt;
    sext => LLVMSExt;
    fptrunc => LLVMFPTrunc;
    fpext => LLVMFPExt;
    fptosi => LLVMFPToSI;
    sitofp => LLVMSIToFP;
    uitofp => LLVMUIToFP;
    bitcast => LLVMBitCast;
}

impl<'c> Builder<'c> {
    pub fn position_at_end(&self, block: Block<'c>) {
        // SAFETY: a live block of this context.
        unsafe { LLVMPositionBuilderAtEnd(self.raw, block.raw) }
    }

    pub fn block(&self) -> Block<'c> {
        // SAFETY: the builder has been positioned.
        let raw = unsafe { LLVMGetInsertBlock(self.raw) };
        Block { raw, context: PhantomData }
    }

    pub fn fneg(&self, a: Value<'c>) -> Value<'c> {
        // SAFETY: a live value of this context.
        Value::new(unsafe { LLVMBuildFNeg(self.raw, a.raw, UNNAMED) })
    }

    pub fn icmp(&self, predicate: LLVMIntPredicate, a: Value<'c>, b: Value<'c>) -> Value<'c> {
        debug_assert_eq!(a.ty(), b.ty());
        // SAFETY: live values of one type and context.
        Value::new(unsafe { LLVMBuildICmp(self.raw, predicate, a.raw, b.raw, UNNAMED) })
    }

    pub fn fcmp(&self, predicate: LLVMRealPredicate, a: Value<'c>, b: Value<'c>) -> Value<'c> {
        debug_assert_eq!(a.ty(), b.ty());
        // SAFETY: live values of one type and context.
        Value::new(unsafe { LLVMBuildFCmp(self.raw, predicate, a.raw, b.raw, UNNAMED) })
    }

    pub fn select(&self, condition: Value<'c>, a: Value<'c>, b: Value<'c>) -> Value<'c> {
        debug_assert_eq!(a.ty(), b.ty());
        // SAFETY: live values of one context.
        Value::new(unsafe { LLVMBuildSelect(self.raw, condition.raw, a.raw, b.raw, UNNAMED) })
    }

    pub fn phi(&self, ty: Type<'c>) -> Value<'c> {
        // SAFETY: a live type; callers place phis first in their block (verified).
        Value::new(unsafe { LLVMBuildPhi(self.raw, ty.raw, UNNAMED) })
    }

    pub fn branch(&self, to: Block<'c>) {
        // SAFETY: a block of the current function.
        unsafe { LLVMBuildBr(self.raw, to.raw) };
    }

    pub fn cond_branch(&self, condition: Value<'c>, then: Block<'c>, otherwise: Block<'c>) {
        // SAFETY: blocks of the current function and an i1.
        unsafe { LLVMBuildCondBr(self.raw, condition.raw, then.raw, otherwise.raw) };
    }

    pub fn ret_void(&self) {
        // SAFETY: the builder stands in a block.
        unsafe { LLVMBuildRetVoid(self.raw) };
    }

    /// Stack memory; call it in the entry block.
    pub fn alloca(&self, ty: Type<'c>, align: u32) -> Value<'c> {
        // SAFETY: a live sized type.
        unsafe {
            let raw = LLVMBuildAlloca(self.raw, ty.raw, UNNAMED);
            LLVMSetAlignment(raw, align);
            Value::new(raw)
        }
    }

    /// Address of element `index` of an array of `element` at `base`.
    pub fn gep(&self, element: Type<'c>, base: Value<'c>, index: Value<'c>) -> Value<'c> {
        let mut indices = [index.raw];
        // SAFETY: a pointer and an integer; no `inbounds` claim is made, so any result is defined.
        Value::new(unsafe { LLVMBuildGEP2(self.raw, element.raw, base.raw, indices.as_mut_ptr(), 1, UNNAMED) })
    }

    pub fn load(&self, ty: Type<'c>, address: Value<'c>, align: u32) -> Value<'c> {
        // SAFETY: a pointer value; whether it is readable when the code runs is the kernel's contract.
        unsafe {
            let raw = LLVMBuildLoad2(self.raw, ty.raw, address.raw, UNNAMED);
            LLVMSetAlignment(raw, align);
            Value::new(raw)
        }
    }

    pub fn store(&self, value: Value<'c>, address: Value<'c>, align: u32) {
        // SAFETY: as for `load`.
        unsafe {
            let raw = LLVMBuildStore(self.raw, value.raw, address.raw);
            LLVMSetAlignment(raw, align);
        }
    }

    pub fn extract(&self, vector: Value<'c>, lane: Value<'c>) -> Value<'c> {
        // SAFETY: a vector and an integer of this context.
        Value::new(unsafe { LLVMBuildExtractElement(self.raw, vector.raw, lane.raw, UNNAMED) })
    }

    pub fn insert(&self, vector: Value<'c>, element: Value<'c>, lane: Value<'c>) -> Value<'c> {
        // SAFETY: a vector, an element of its type and an integer.
        Value::new(unsafe { LLVMBuildInsertElement(self.raw, vector.raw, element.raw, lane.raw, UNNAMED) })
    }

    /// Lanes of `a ++ b` picked by constant lane numbers.
    pub fn shuffle(&self, a: Value<'c>, b: Value<'c>, lanes: &[u32]) -> Value<'c> {
        let i32_type = self.context.int(32);
        let mask: Vec<Value> = lanes.iter().map(|l| i32_type.int_const(i64::from(*l))).collect();
        let mask = Value::const_vector(&mask);
        // SAFETY: two vectors of one type and a constant mask.
        Value::new(unsafe { LLVMBuildShuffleVector(self.raw, a.raw, b.raw, mask.raw, UNNAMED) })
    }

    pub fn call(&self, function: Function<'c>, args: &[Value<'c>]) -> Value<'c> {
        let mut raw: Vec<LLVMValueRef> = args.iter().map(|v| v.raw).collect();
        // SAFETY: a function with its own type; argument types are checked by the verifier.
        Value::new(unsafe {
            LLVMBuildCall2(self.raw, function.ty.raw, function.value.raw, raw.as_mut_ptr(), raw.len() as u32, UNNAMED)
        })
    }

    /// Calls an intrinsic overloaded on `types`.
    pub fn intrinsic(&self, module: &Module<'c>, name: &str, types: &[Type<'c>], args: &[Value<'c>]) -> Value<'c> {
        self.call(module.intrinsic(name, types), args)
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `Context::builder`, disposed once.
        unsafe { LLVMDisposeBuilder(self.raw) }
    }
}

/// A target machine: emits code for one CPU.
pub struct Machine {
    raw: LLVMTargetMachineRef,
    triple: CString,
}

impl Machine {
    pub fn new(triple: &str, cpu: &str, features: &str) -> Result<Machine, CodegenError> {
        initialize();
        let (triple, cpu, features) = (c_string(triple)?, c_string(cpu)?, c_string(features)?);
        let mut target = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: C strings outlive the calls; out-pointers are valid; the machine is disposed on drop.
        unsafe {
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut target, &mut message) != 0 {
                return Err(CodegenError::Llvm(take_message(message)));
            }
            let raw = LLVMCreateTargetMachine(
                target,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
                LLVMRelocMode::LLVMRelocPIC,
                LLVMCodeModel::LLVMCodeModelSmall,
            );
            if raw.is_null() {
                return Err(CodegenError::Llvm("LLVM has no machine for this target".into()));
            }
            Ok(Machine { raw, triple })
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: made in `Machine::new`, disposed once.
        unsafe { LLVMDisposeTargetMachine(self.raw) }
    }
}

/// Triple, CPU name and feature string of this machine.
pub fn host() -> (String, String, String) {
    initialize();
    // SAFETY: each call returns an owned message, freed by `take_message`.
    unsafe {
        (
            take_message(LLVMGetDefaultTargetTriple()),
            take_message(LLVMGetHostCPUName()),
            take_message(LLVMGetHostCPUFeatures()),
        )
    }
}

/// LLVM's version, e.g. "19.1.7".
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid out-pointers.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Registers the host's target once per process (LLVM's own registry).
pub(crate) fn initialize() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: registration functions without arguments, run once.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            LLVMInitializeX86TargetInfo();
            LLVMInitializeX86Target();
            LLVMInitializeX86TargetMC();
            LLVMInitializeX86AsmPrinter();
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            LLVMInitializeAArch64TargetInfo();
            LLVMInitializeAArch64Target();
            LLVMInitializeAArch64TargetMC();
            LLVMInitializeAArch64AsmPrinter();
        }
    });
}

/// Turns an LLVM error into ours; null is success.
pub(crate) fn check(error: LLVMErrorRef) -> Result<(), CodegenError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a non-null error is consumed by LLVMGetErrorMessage, which returns a message we free.
    let text = unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        text
    };
    Err(CodegenError::Llvm(text))
}

/// Drops an LLVM error nobody can act on.
pub(crate) fn ignore(error: LLVMErrorRef) {
    if !error.is_null() {
        // SAFETY: a non-null error is consumed once.
        unsafe { LLVMConsumeError(error) }
    }
}

pub(crate) fn c_string(text: &str) -> Result<CString, CodegenError> {
    CString::new(text).map_err(|_| CodegenError::BadName(text.to_string()))
}

/// Copies and frees a message of LLVM's.
///
/// # Safety
/// `message` is a message owned by the caller, or null.
unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: a NUL-terminated string by the contract above, freed once.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}

//! Structs of CPython 3.13 (`pystate.h`, `pycore_frame.h`, `code.h`, `funcobject.h`), fields in the headers' order.
//!
//! Sizes and offsets were printed by a C program against the headers of 3.13.0 and 3.13.5, which agree.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use pyo3::ffi::{Py_ssize_t, PyObject};

/// `_Py_CODEUNIT`
pub type CodeUnitWord = u16;

/// `_PyErr_StackItem`
#[repr(C)]
pub struct ErrStackItem {
    pub exc_value: *mut PyObject,
    pub previous_item: *mut ErrStackItem,
}

/// `_PyStackChunk`
#[repr(C)]
pub struct StackChunk {
    pub previous: *mut StackChunk,
    pub size: usize,
    pub top: usize,
    pub data: [*mut PyObject; 1],
}

/// `PyThreadState`
#[repr(C)]
pub struct ThreadState {
    pub prev: *mut ThreadState,
    pub next: *mut ThreadState,
    pub interp: *mut c_void,
    pub eval_breaker: usize,
    pub status: c_uint,
    pub whence: c_int,
    pub state: c_int,
    pub py_recursion_remaining: c_int,
    pub py_recursion_limit: c_int,
    pub c_recursion_remaining: c_int,
    pub recursion_headroom: c_int,
    pub tracing: c_int,
    pub what_event: c_int,
    pub current_frame: *mut InterpreterFrame,
    pub c_profilefunc: *mut c_void,
    pub c_tracefunc: *mut c_void,
    pub c_profileobj: *mut PyObject,
    pub c_traceobj: *mut PyObject,
    pub current_exception: *mut PyObject,
    pub exc_info: *mut ErrStackItem,
    pub dict: *mut PyObject,
    pub gilstate_counter: c_int,
    pub async_exc: *mut PyObject,
    pub thread_id: c_ulong,
    pub native_thread_id: c_ulong,
    pub delete_later: *mut PyObject,
    pub critical_section: usize,
    pub coroutine_origin_tracking_depth: c_int,
    pub async_gen_firstiter: *mut PyObject,
    pub async_gen_finalizer: *mut PyObject,
    pub context: *mut PyObject,
    pub context_ver: u64,
    pub id: u64,
    pub datastack_chunk: *mut StackChunk,
    pub datastack_top: *mut *mut PyObject,
    pub datastack_limit: *mut *mut PyObject,
    pub exc_state: ErrStackItem,
    pub previous_executor: *mut PyObject,
    pub dict_global_version: u64,
    pub threading_local_key: *mut PyObject,
    pub threading_local_sentinel: *mut PyObject,
}

/// The beginning of `_PyCoMonitoringData`.
#[repr(C)]
pub struct CoMonitoringData {
    pub local_monitors: [u8; 10],
    pub active_monitors: [u8; 10],
}

/// `_PyInterpreterFrame`
#[repr(C)]
pub struct InterpreterFrame {
    pub f_executable: *mut CodeObject,
    pub previous: *mut InterpreterFrame,
    pub f_funcobj: *mut PyObject,
    pub f_globals: *mut PyObject,
    pub f_builtins: *mut PyObject,
    pub f_locals: *mut PyObject,
    pub frame_obj: *mut FrameObject,
    pub instr_ptr: *mut CodeUnitWord,
    pub stacktop: c_int,
    pub return_offset: u16,
    pub owner: c_char,
    pub localsplus: [*mut PyObject; 1],
}

/// `PyFrameObject`
#[repr(C)]
pub struct FrameObject {
    pub ob_base: PyObject,
    pub f_back: *mut FrameObject,
    pub f_frame: *mut InterpreterFrame,
    pub f_trace: *mut PyObject,
    pub f_lineno: c_int,
    pub f_trace_lines: c_char,
    pub f_trace_opcodes: c_char,
    pub f_extra_locals: *mut PyObject,
    pub f_locals_cache: *mut PyObject,
    pub f_frame_data: [*mut PyObject; 1],
}

/// `PyCodeObject`
#[repr(C)]
pub struct CodeObject {
    pub ob_base: PyObject,
    pub ob_size: Py_ssize_t,
    pub co_consts: *mut PyObject,
    pub co_names: *mut PyObject,
    pub co_exceptiontable: *mut PyObject,
    pub co_flags: c_int,
    pub co_argcount: c_int,
    pub co_posonlyargcount: c_int,
    pub co_kwonlyargcount: c_int,
    pub co_stacksize: c_int,
    pub co_firstlineno: c_int,
    pub co_nlocalsplus: c_int,
    pub co_framesize: c_int,
    pub co_nlocals: c_int,
    pub co_ncellvars: c_int,
    pub co_nfreevars: c_int,
    pub co_version: u32,
    pub co_localsplusnames: *mut PyObject,
    pub co_localspluskinds: *mut PyObject,
    pub co_filename: *mut PyObject,
    pub co_name: *mut PyObject,
    pub co_qualname: *mut PyObject,
    pub co_linetable: *mut PyObject,
    pub co_weakreflist: *mut PyObject,
    pub co_executors: *mut c_void,
    pub co_cached: *mut c_void,
    pub co_instrumentation_version: usize,
    pub co_monitoring: *mut CoMonitoringData,
    pub co_firsttraceable: c_int,
    pub co_extra: *mut c_void,
    pub co_code_adaptive: [CodeUnitWord; 1],
}

/// `PyFunctionObject`
#[repr(C)]
pub struct FunctionObject {
    pub ob_base: PyObject,
    pub func_globals: *mut PyObject,
    pub func_builtins: *mut PyObject,
    pub func_name: *mut PyObject,
    pub func_qualname: *mut PyObject,
    pub func_code: *mut PyObject,
    pub func_defaults: *mut PyObject,
    pub func_kwdefaults: *mut PyObject,
    pub func_closure: *mut PyObject,
    pub func_doc: *mut PyObject,
    pub func_dict: *mut PyObject,
    pub func_weakreflist: *mut PyObject,
    pub func_module: *mut PyObject,
    pub func_annotations: *mut PyObject,
    pub func_typeparams: *mut PyObject,
    pub vectorcall: *mut c_void,
    pub func_version: u32,
}

/// `enum _frameowner`: the frame lives on the thread's data stack.
pub const FRAME_OWNED_BY_THREAD: c_char = 0;
/// `enum _frameowner`: the frame lives in its frame object.
pub const FRAME_OWNED_BY_FRAME_OBJECT: c_char = 2;

#[cfg(all(target_pointer_width = "64", target_os = "linux"))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<ThreadState>() == 304);
    assert!(offset_of!(ThreadState, eval_breaker) == 24);
    assert!(offset_of!(ThreadState, py_recursion_remaining) == 44);
    assert!(offset_of!(ThreadState, current_frame) == 72);
    assert!(offset_of!(ThreadState, c_tracefunc) == 88);
    assert!(offset_of!(ThreadState, exc_info) == 120);
    assert!(offset_of!(ThreadState, async_exc) == 144);
    assert!(offset_of!(ThreadState, datastack_chunk) == 232);
    assert!(offset_of!(ThreadState, previous_executor) == 272);
    assert!(offset_of!(CoMonitoringData, active_monitors) == 10);
    assert!(size_of::<StackChunk>() == 32);
    assert!(size_of::<InterpreterFrame>() == 80);
    assert!(offset_of!(InterpreterFrame, instr_ptr) == 56);
    assert!(offset_of!(InterpreterFrame, owner) == 70);
    assert!(offset_of!(InterpreterFrame, localsplus) == 72);
    assert!(size_of::<FrameObject>() == 72);
    assert!(offset_of!(FrameObject, f_frame_data) == 64);
    assert!(size_of::<CodeObject>() == 208);
    assert!(offset_of!(CodeObject, co_nlocalsplus) == 72);
    assert!(offset_of!(CodeObject, co_linetable) == 136);
    assert!(offset_of!(CodeObject, co_instrumentation_version) == 168);
    assert!(offset_of!(CodeObject, co_firsttraceable) == 184);
    assert!(offset_of!(CodeObject, co_code_adaptive) == 200);
    assert!(size_of::<FunctionObject>() == 144);
    assert!(offset_of!(FunctionObject, func_closure) == 72);
    assert!(offset_of!(FunctionObject, func_annotations) == 112);
};

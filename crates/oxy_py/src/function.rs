//! `CompiledFunction`: a vectorcall object (PEP 590). PyO3's classes are called through a tuple and a dict, which would
//! cost more than guards and plan together; so the type is made by hand.
//!
//! An unsafe room: the object's layout is this file's business alone.

use oxy_driver::call::{Target, call, call_positional};
use oxy_driver::compiled::{CompileOptions, Compiled};
use oxy_driver::engine::engine;
use pyo3::exceptions::PySystemError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// What a compiled function runs.
struct Inner {
    compiled: Arc<Compiled>,
    target: Target,
    wrapped: Py<PyAny>,
    bind: bool,
}

#[repr(C)]
struct FunctionObject {
    ob_base: PyObject,
    vectorcall: Option<ffi::vectorcallfunc>,
    dict: *mut PyObject,
    weakrefs: *mut PyObject,
    /// Made by `new`; NULL after `clear`.
    inner: *mut Inner,
}

/// Runs `f`, turning errors and panics into a set exception and NULL.
fn guarded(py: Python<'_>, f: impl FnOnce() -> PyResult<*mut PyObject>) -> *mut PyObject {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(object)) => object,
        Ok(Err(error)) => {
            error.restore(py);
            ptr::null_mut()
        }
        Err(_) => {
            PySystemError::new_err("oxyfuel: panic in a compiled call").restore(py);
            ptr::null_mut()
        }
    }
}

/// # Safety
/// `object` is a `FunctionObject`, alive for 'a.
unsafe fn inner<'a>(object: *mut PyObject) -> PyResult<&'a Inner> {
    // SAFETY: the caller's promise; `inner` is NULL or a box that lives as long as the object.
    unsafe { (*object.cast::<FunctionObject>()).inner.as_ref() }
        .ok_or_else(|| pyo3::exceptions::PyReferenceError::new_err("the compiled function has been cleared"))
}

unsafe extern "C" fn vectorcall(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // The interpreter calls it attached; PyO3 has to know, or it puts dropped references off.
    Python::attach(|py| {
        guarded(py, || {
            // SAFETY: vectorcall's contract: the callable, and the arguments and names, live for the call.
            unsafe {
                let inner = inner(callable)?;
                let count = ffi::PyVectorcall_NARGS(nargsf) as usize;
                let positional = if count == 0 { &[] } else { std::slice::from_raw_parts(args, count) };
                if kwnames.is_null()
                    && let Some(value) = call_positional(py, &inner.compiled, &inner.target, positional)?
                {
                    return Ok(value.into_ptr());
                }
                let items = positional.iter().map(|item| Bound::from_borrowed_ptr(py, *item));
                let tuple = PyTuple::new(py, items.collect::<Vec<_>>())?;
                let mut named = None;
                if !kwnames.is_null() {
                    let dict = PyDict::new(py);
                    let names = Bound::from_borrowed_ptr(py, kwnames);
                    for (index, name) in names.try_iter()?.enumerate() {
                        dict.set_item(name?, Bound::from_borrowed_ptr(py, *args.add(count + index)))?;
                    }
                    named = Some(dict);
                }
                // What runs may drop the last reference to the callable.
                let _alive = Bound::from_borrowed_ptr(py, callable);
                Ok(call(py, &inner.compiled, &inner.target, &tuple, named.as_ref())?.into_ptr())
            }
        })
    })
}

unsafe extern "C" fn new(class: *mut ffi::PyTypeObject, args: *mut PyObject, kwargs: *mut PyObject) -> *mut PyObject {
    Python::attach(|py| {
        guarded(py, || {
            // SAFETY: `args` is a tuple and `kwargs` NULL or a dict, by tp_new's contract.
            let (args, kwargs) =
                unsafe { (Bound::from_borrowed_ptr(py, args), Bound::from_borrowed_ptr_or_opt(py, kwargs)) };
            let made = parse(&args, kwargs.as_ref())?;
            // SAFETY: the class is ours or derives from it; tp_alloc zeroes the object.
            unsafe {
                let object = ffi::PyType_GenericAlloc(class, 0);
                if object.is_null() {
                    return Err(PyErr::fetch(py));
                }
                let function = object.cast::<FunctionObject>();
                (*function).vectorcall = Some(vectorcall);
                (*function).inner = Box::into_raw(Box::new(made));
                Ok(object)
            }
        })
    })
}

/// `CompiledFunction(fn, *, fullgraph, dynamic, backend, options, name, bind)`
fn parse(args: &Bound<'_, PyAny>, kwargs: Option<&Bound<'_, PyAny>>) -> PyResult<Inner> {
    let py = args.py();
    let args = args.cast::<PyTuple>()?;
    let kwargs = match kwargs {
        Some(kwargs) => kwargs.cast::<PyDict>()?.clone(),
        None => PyDict::new(py),
    };
    let get = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        Ok(kwargs.get_item(name)?.filter(|value| !value.is_none()))
    };
    let missing = || pyo3::exceptions::PyTypeError::new_err("CompiledFunction() takes one callable");
    let function = args.get_item(0).map_err(|_| missing())?;
    let options = get("options")?;
    let recompile_limit = match &options {
        Some(options) => match options.cast::<PyDict>()?.get_item("recompile_limit")? {
            Some(limit) => limit.extract()?,
            None => None,
        },
        None => None,
    };
    let flag = |name: &str| -> PyResult<bool> { get(name)?.map_or(Ok(false), |value| value.is_truthy()) };
    let options = CompileOptions {
        fullgraph: flag("fullgraph")?,
        dynamic: get("dynamic")?.map(|value| value.extract()).transpose()?,
        backend: get("backend")?.map(Bound::unbind),
        recompile_limit,
        name: get("name")?.map(|value| value.extract()).transpose()?,
    };
    let target = Target::new(&function)?;
    let compiled = Arc::new(Compiled::new(options));
    engine(py).register(&compiled);
    Ok(Inner { compiled, target, wrapped: function.unbind(), bind: flag("bind")? })
}

unsafe extern "C" fn traverse(object: *mut PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the collector passes live objects of this type; visiting reads pointers only.
    unsafe {
        let function = object.cast::<FunctionObject>();
        let mut targets = vec![(*function).dict, ffi::Py_TYPE(object).cast()];
        if let Some(inner) = (*function).inner.as_ref() {
            targets.push(inner.wrapped.as_ptr());
        }
        for target in targets {
            if !target.is_null() {
                let result = visit(target, arg);
                if result != 0 {
                    return result;
                }
            }
        }
    }
    0
}

unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: the collector and dealloc pass live objects of this type; fields are emptied before they are dropped.
    unsafe {
        let function = object.cast::<FunctionObject>();
        let dict = ptr::replace(&raw mut (*function).dict, ptr::null_mut());
        ffi::Py_XDECREF(dict);
        let inner = ptr::replace(&raw mut (*function).inner, ptr::null_mut());
        if !inner.is_null() {
            // Attached in PyO3's books, too: otherwise it would put the references off until someone attaches.
            Python::attach(|_| drop(Box::from_raw(inner)));
        }
    }
    0
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the last reference is gone; heap types own a reference to their type.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        if !(*object.cast::<FunctionObject>()).weakrefs.is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        clear(object);
        let class = ffi::Py_TYPE(object);
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn descr_get(object: *mut PyObject, instance: *mut PyObject, _owner: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter calls it attached, with a live object of this type.
    unsafe {
        let py = Python::assume_attached();
        guarded(py, || {
            if instance.is_null() || ffi::Py_IsNone(instance) != 0 || !inner(object)?.bind {
                ffi::Py_INCREF(object);
                return Ok(object);
            }
            let method = py.import("types")?.getattr("MethodType")?;
            let bound = method.call1((Bound::from_borrowed_ptr(py, object), Bound::from_borrowed_ptr(py, instance)))?;
            Ok(bound.into_ptr())
        })
    }
}

unsafe extern "C" fn repr(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter calls it attached, with a live object of this type.
    unsafe {
        let py = Python::assume_attached();
        guarded(py, || {
            let text = format!("<compiled {}>", inner(object)?.wrapped.bind(py).repr()?);
            Ok(text.into_pyobject(py)?.into_any().into_ptr())
        })
    }
}

unsafe extern "C" fn get_wrapped(object: *mut PyObject, _closure: *mut c_void) -> *mut PyObject {
    // SAFETY: the interpreter calls it attached, with a live object of this type.
    unsafe {
        let py = Python::assume_attached();
        guarded(py, || Ok(inner(object)?.wrapped.clone_ref(py).into_ptr()))
    }
}

const fn member(name: &'static std::ffi::CStr, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as ffi::Py_ssize_t,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    }
}

/// Makes the type and adds it to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let mut members = [
        member(c"__vectorcalloffset__", std::mem::offset_of!(FunctionObject, vectorcall)),
        member(c"__dictoffset__", std::mem::offset_of!(FunctionObject, dict)),
        member(c"__weaklistoffset__", std::mem::offset_of!(FunctionObject, weakrefs)),
        ffi::PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
    ];
    let end = ffi::PyGetSetDef { name: ptr::null(), get: None, set: None, doc: ptr::null(), closure: ptr::null_mut() };
    // The type keeps pointers into this table for as long as it lives, which is until the process ends.
    let getsets: &'static mut [ffi::PyGetSetDef; 3] = Box::leak(Box::new([
        ffi::PyGetSetDef { name: c"__wrapped__".as_ptr(), get: Some(get_wrapped), ..end },
        ffi::PyGetSetDef {
            name: c"__dict__".as_ptr(),
            get: Some(ffi::PyObject_GenericGetDict),
            set: Some(ffi::PyObject_GenericSetDict),
            ..end
        },
        end,
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let doc = c"A compiled callable. Nothing happens before the first call.";
    let mut slots = [
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
        slot(ffi::Py_tp_descr_get, descr_get as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getsets.as_mut_ptr().cast()),
        slot(ffi::Py_tp_doc, doc.as_ptr().cast_mut().cast()),
        slot(0, ptr::null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_HAVE_VECTORCALL;
    let mut spec = ffi::PyType_Spec {
        name: c"oxyfuel._engine.CompiledFunction".as_ptr(),
        basicsize: size_of::<FunctionObject>() as c_int,
        itemsize: 0,
        flags: flags as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; the spec is complete and matches `FunctionObject`.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec))? };
    module.add("CompiledFunction", class.cast::<PyType>()?)
}

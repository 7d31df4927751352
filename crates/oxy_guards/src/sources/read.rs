//! Reading a source from what it is based on.

use super::{SourceKind, cells, dicts, functions, instances, partials, sequences, tensors, types, weakrefs};
use crate::{cpython, program::Env};
use pyo3::ffi::PyObject;
use std::ptr;

/// A read, with what can be prepared for it. Pointers in it are to objects that the source holds.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    Local(u32),
    Stack(u32),
    Object(*mut PyObject),
    Globals,
    Builtins,
    Function,
    Cell,
    InstanceDict,
    InstanceAttr(*mut PyObject, isize),
    DictItem(*mut PyObject, isize),
    DictKeyAt(u32),
    ListItem(u32),
    TupleItem(u32),
    TypeOf,
    TypeAttr(*mut PyObject),
    Member(*mut PyObject),
    Attr(*mut PyObject),
    FunctionCode,
    FunctionDefaults,
    FunctionKwDefaults,
    FunctionClosure,
    FunctionGlobals,
    MethodSelf,
    MethodFunction,
    TensorGrad,
    WeakrefTarget,
    PartialFunc,
    PartialArgs,
    PartialKeywords,
}

// SAFETY: pointers to objects that the source, and so whoever keeps the read, holds; used by attached threads only.
unsafe impl Send for Read {}
// SAFETY: as above.
unsafe impl Sync for Read {}

impl Read {
    /// # Safety
    /// Attached. Keys of dictionary items have no user-defined `__hash__`.
    pub unsafe fn new(kind: &SourceKind) -> Read {
        match kind {
            SourceKind::Local(slot) => Read::Local(*slot),
            SourceKind::Stack(index) => Read::Stack(*index),
            SourceKind::Object(object) => Read::Object(object.as_ptr()),
            SourceKind::Globals => Read::Globals,
            SourceKind::Builtins => Read::Builtins,
            SourceKind::Function => Read::Function,
            SourceKind::CellContents(_) => Read::Cell,
            SourceKind::InstanceDict(_) => Read::InstanceDict,
            SourceKind::InstanceAttr(_, name) => {
                // SAFETY: the source holds the key; attached by the caller's promise.
                Read::InstanceAttr(name.as_ptr(), unsafe { cpython::hash(name.as_ptr()) })
            }
            SourceKind::DictItem(_, key) => {
                // SAFETY: as above.
                Read::DictItem(key.as_ptr(), unsafe { cpython::hash(key.as_ptr()) })
            }
            SourceKind::DictKeyAt(_, index) => Read::DictKeyAt(*index),
            SourceKind::ListItem(_, index) => Read::ListItem(*index),
            SourceKind::TupleItem(_, index) => Read::TupleItem(*index),
            SourceKind::TypeOf(_) => Read::TypeOf,
            SourceKind::TypeAttr(_, name) => Read::TypeAttr(name.as_ptr()),
            SourceKind::Member(_, name) => Read::Member(name.as_ptr()),
            SourceKind::Attr(_, name) => Read::Attr(name.as_ptr()),
            SourceKind::FunctionCode(_) => Read::FunctionCode,
            SourceKind::FunctionDefaults(_) => Read::FunctionDefaults,
            SourceKind::FunctionKwDefaults(_) => Read::FunctionKwDefaults,
            SourceKind::FunctionClosure(_) => Read::FunctionClosure,
            SourceKind::FunctionGlobals(_) => Read::FunctionGlobals,
            SourceKind::MethodSelf(_) => Read::MethodSelf,
            SourceKind::MethodFunction(_) => Read::MethodFunction,
            SourceKind::TensorGrad(_) => Read::TensorGrad,
            SourceKind::WeakrefTarget(_) => Read::WeakrefTarget,
            SourceKind::PartialFunc(_) => Read::PartialFunc,
            SourceKind::PartialArgs(_) => Read::PartialArgs,
            SourceKind::PartialKeywords(_) => Read::PartialKeywords,
        }
    }

    /// Whether reading may run Python code.
    pub fn may_run_code(self) -> bool {
        matches!(self, Read::Attr(_) | Read::TensorGrad)
    }
}

/// The value of a read: borrowed, or owned by `owned`; NULL if it isn't there. A base that isn't of the type that the
/// read needs has nothing there.
///
/// # Safety
/// Attached; `env` is valid; `base` is the live value of the source's base (NULL for sources without one).
#[inline]
pub unsafe fn read(read: Read, env: &Env, base: *mut PyObject, owned: &mut Vec<*mut PyObject>) -> *mut PyObject {
    // SAFETY: the caller's promise; each function checks the type of its base.
    unsafe {
        match read {
            Read::Local(slot) => env.local(slot),
            Read::Stack(index) => env.stack(index),
            Read::Object(object) => object,
            Read::Globals => env.globals,
            Read::Builtins => env.builtins,
            Read::Function => env.function,
            _ if base.is_null() => ptr::null_mut(),
            Read::Cell => cells::contents(base),
            Read::InstanceDict => instances::dict(base),
            Read::InstanceAttr(name, hash) => instances::attr(base, name, hash),
            Read::DictItem(key, hash) => dicts::item(base, key, hash),
            Read::DictKeyAt(index) => dicts::key_at(base, index),
            Read::ListItem(index) => sequences::list_item(base, index),
            Read::TupleItem(index) => sequences::tuple_item(base, index),
            Read::TypeOf => types::type_of(base),
            Read::TypeAttr(name) => types::attr(base, name),
            Read::Member(name) => instances::member(base, name, owned),
            Read::Attr(name) => instances::any_attr(base, name, owned),
            Read::FunctionCode => functions::code(base),
            Read::FunctionDefaults => functions::defaults(base),
            Read::FunctionKwDefaults => functions::kwdefaults(base),
            Read::FunctionClosure => functions::closure(base),
            Read::FunctionGlobals => functions::globals(base),
            Read::MethodSelf => functions::method_self(base),
            Read::MethodFunction => functions::method_function(base),
            Read::TensorGrad => tensors::grad(base, owned),
            Read::WeakrefTarget => weakrefs::target(base),
            Read::PartialFunc => partials::func(base, owned),
            Read::PartialArgs => partials::args(base, owned),
            Read::PartialKeywords => partials::keywords(base, owned),
        }
    }
}

//! The C API as the steps use it: borrowed and owned references as types, errors as `Result`.
//!
//! Everything here assumes an attached thread. `Raised` means that Python's error indicator is set.

use std::{ffi::CStr, ffi::c_char, ffi::c_int, marker::PhantomData, mem, ptr, ptr::NonNull};

use pyo3::{
    Bound, PyAny, Python,
    ffi::{self, PyObject},
};

use crate::version;

/// A Python exception is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised;

pub(crate) type Outcome<T> = Result<T, Raised>;

/// A borrowed reference that someone else keeps alive for `'a`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ref<'a>(NonNull<PyObject>, PhantomData<&'a PyObject>);

/// An owned reference.
pub(crate) struct Owned(NonNull<PyObject>);

impl<'a> Ref<'a> {
    /// # Safety
    /// `pointer` is NULL or an object that lives for `'a`.
    pub(crate) unsafe fn new(pointer: *mut PyObject) -> Option<Ref<'a>> {
        NonNull::new(pointer).map(|object| Ref(object, PhantomData))
    }

    pub(crate) fn as_ptr(self) -> *mut PyObject {
        self.0.as_ptr()
    }

    pub(crate) fn to_owned(self) -> Owned {
        // SAFETY: the object is live.
        unsafe { ffi::Py_INCREF(self.as_ptr()) };
        Owned(self.0)
    }

    pub(crate) fn type_ptr(self) -> *mut ffi::PyTypeObject {
        // SAFETY: the object is live.
        unsafe { ffi::Py_TYPE(self.as_ptr()) }
    }

    /// `Py_TYPE(object)->tp_name`, for messages.
    pub(crate) fn type_name(self) -> *const c_char {
        // SAFETY: a live object's type is live and has a name.
        unsafe { (*self.type_ptr()).tp_name }
    }

    pub(crate) fn is_none(self) -> bool {
        // SAFETY: None always exists.
        ptr::eq(self.as_ptr(), unsafe { ffi::Py_None() })
    }
}

impl Owned {
    /// # Safety
    /// `pointer` is an owned reference, or NULL with an exception set.
    pub(crate) unsafe fn from_new(pointer: *mut PyObject) -> Outcome<Owned> {
        NonNull::new(pointer).map(Owned).ok_or(Raised)
    }

    pub(crate) fn borrow(&self) -> Ref<'_> {
        Ref(self.0, PhantomData)
    }

    pub(crate) fn into_ptr(self) -> *mut PyObject {
        let pointer = self.0.as_ptr();
        mem::forget(self);
        pointer
    }

    pub(crate) fn into_bound(self, py: Python<'_>) -> Bound<'_, PyAny> {
        // SAFETY: the reference is owned, and given up.
        unsafe { Bound::from_owned_ptr(py, self.into_ptr()) }
    }

    pub(crate) fn none() -> Owned {
        // SAFETY: None always exists; its count is raised like any other's.
        unsafe {
            ffi::Py_INCREF(ffi::Py_None());
            Owned(NonNull::new_unchecked(ffi::Py_None()))
        }
    }

    pub(crate) fn bool(value: bool) -> Owned {
        // SAFETY: the two singletons always exist.
        unsafe {
            let object = if value { ffi::Py_True() } else { ffi::Py_False() };
            ffi::Py_INCREF(object);
            Owned(NonNull::new_unchecked(object))
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the reference is owned.
        unsafe { ffi::Py_DECREF(self.0.as_ptr()) }
    }
}

/// The pointer of an optional reference; NULL stands for none.
pub(crate) fn or_null(object: Option<Ref<'_>>) -> *mut PyObject {
    object.map_or(ptr::null_mut(), Ref::as_ptr)
}

/// Nonzero (or negative) is an error.
pub(crate) fn status(result: c_int) -> Outcome<()> {
    if result == 0 { Ok(()) } else { Err(Raised) }
}

/// Negative is an error, otherwise a truth value.
pub(crate) fn truth(result: c_int) -> Outcome<bool> {
    if result < 0 { Err(Raised) } else { Ok(result != 0) }
}

unsafe extern "C" {
    fn _PyObject_GetMethod(object: *mut PyObject, name: *mut PyObject, method: *mut *mut PyObject) -> c_int;
    fn _PyObject_LookupSpecial(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    fn _PyObject_FunctionStr(object: *mut PyObject) -> *mut PyObject;
    fn _PyList_Extend(list: *mut PyObject, iterable: *mut PyObject) -> *mut PyObject;
    fn _PySet_Update(set: *mut PyObject, iterable: *mut PyObject) -> c_int;
    fn _PyDict_MergeEx(dict: *mut PyObject, update: *mut PyObject, overwrite: c_int) -> c_int;
}

/// Safe spellings of API functions that take live objects.
macro_rules! api {
    ($($(#[$doc:meta])* $name:ident = $path:path, ($($arg:ident),*) => new;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($arg: Ref<'_>),*) -> Outcome<Owned> {
            // SAFETY: the arguments are live; the result is a new reference, or NULL with an exception set.
            unsafe { Owned::from_new($path($($arg.as_ptr()),*)) }
        }
    )*};
    ($($(#[$doc:meta])* $name:ident = $path:path, ($($arg:ident),*) => $convert:ident -> $result:ty;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($arg: Ref<'_>),*) -> $result {
            // SAFETY: the arguments are live.
            $convert(unsafe { $path($($arg.as_ptr()),*) })
        }
    )*};
}

api! {
    number_add = ffi::PyNumber_Add, (a, b) => new;
    number_and = ffi::PyNumber_And, (a, b) => new;
    number_floor_divide = ffi::PyNumber_FloorDivide, (a, b) => new;
    number_lshift = ffi::PyNumber_Lshift, (a, b) => new;
    number_matrix_multiply = ffi::PyNumber_MatrixMultiply, (a, b) => new;
    number_multiply = ffi::PyNumber_Multiply, (a, b) => new;
    number_remainder = ffi::PyNumber_Remainder, (a, b) => new;
    number_or = ffi::PyNumber_Or, (a, b) => new;
    number_rshift = ffi::PyNumber_Rshift, (a, b) => new;
    number_subtract = ffi::PyNumber_Subtract, (a, b) => new;
    number_true_divide = ffi::PyNumber_TrueDivide, (a, b) => new;
    number_xor = ffi::PyNumber_Xor, (a, b) => new;
    number_inplace_add = ffi::PyNumber_InPlaceAdd, (a, b) => new;
    number_inplace_and = ffi::PyNumber_InPlaceAnd, (a, b) => new;
    number_inplace_floor_divide = ffi::PyNumber_InPlaceFloorDivide, (a, b) => new;
    number_inplace_lshift = ffi::PyNumber_InPlaceLshift, (a, b) => new;
    number_inplace_matrix_multiply = ffi::PyNumber_InPlaceMatrixMultiply, (a, b) => new;
    number_inplace_multiply = ffi::PyNumber_InPlaceMultiply, (a, b) => new;
    number_inplace_remainder = ffi::PyNumber_InPlaceRemainder, (a, b) => new;
    number_inplace_or = ffi::PyNumber_InPlaceOr, (a, b) => new;
    number_inplace_rshift = ffi::PyNumber_InPlaceRshift, (a, b) => new;
    number_inplace_subtract = ffi::PyNumber_InPlaceSubtract, (a, b) => new;
    number_inplace_true_divide = ffi::PyNumber_InPlaceTrueDivide, (a, b) => new;
    number_inplace_xor = ffi::PyNumber_InPlaceXor, (a, b) => new;
    number_negative = ffi::PyNumber_Negative, (a) => new;
    number_positive = ffi::PyNumber_Positive, (a) => new;
    number_invert = ffi::PyNumber_Invert, (a) => new;
    get_attr = ffi::PyObject_GetAttr, (object, name) => new;
    get_item = ffi::PyObject_GetItem, (object, key) => new;
    get_iter = ffi::PyObject_GetIter, (object) => new;
    object_str = ffi::PyObject_Str, (object) => new;
    object_repr = ffi::PyObject_Repr, (object) => new;
    object_ascii = ffi::PyObject_ASCII, (object) => new;
    sequence_tuple = ffi::PySequence_Tuple, (object) => new;
    sequence_list = ffi::PySequence_List, (object) => new;
    list_as_tuple = ffi::PyList_AsTuple, (list) => new;
    new_cell_of = ffi::PyCell_New, (object) => new;
    new_function = ffi::PyFunction_New, (code, globals) => new;
    unicode_join = ffi::PyUnicode_Join, (separator, strings) => new;
    function_str = _PyObject_FunctionStr, (callable) => new;
    list_extend_raw = _PyList_Extend, (list, iterable) => new;
}

api! {
    is_true = ffi::PyObject_IsTrue, (object) => truth -> Outcome<bool>;
    set_item = ffi::PyObject_SetItem, (object, key, value) => status -> Outcome<()>;
    delete_item = ffi::PyObject_DelItem, (object, key) => status -> Outcome<()>;
    set_attr = ffi::PyObject_SetAttr, (object, name, value) => status -> Outcome<()>;
    dict_set_item = ffi::PyDict_SetItem, (dict, key, value) => status -> Outcome<()>;
    dict_delete_item = ffi::PyDict_DelItem, (dict, key) => status -> Outcome<()>;
    dict_update = ffi::PyDict_Update, (dict, update) => status -> Outcome<()>;
    list_append = ffi::PyList_Append, (list, value) => status -> Outcome<()>;
    set_add = ffi::PySet_Add, (set, value) => status -> Outcome<()>;
    set_contains = ffi::PySet_Contains, (set, value) => truth -> Outcome<bool>;
    set_update = _PySet_Update, (set, iterable) => truth -> Outcome<bool>;
    contains = ffi::PySequence_Contains, (container, item) => truth -> Outcome<bool>;
    is_instance = ffi::PyObject_IsInstance, (object, class) => truth -> Outcome<bool>;
    is_subclass = ffi::PyObject_IsSubclass, (class, of) => truth -> Outcome<bool>;
}

fn nonzero(result: c_int) -> bool {
    result != 0
}

api! {
    is_sequence = ffi::PySequence_Check, (object) => nonzero -> bool;
    is_tuple = ffi::PyTuple_Check, (object) => nonzero -> bool;
    is_exact_tuple = ffi::PyTuple_CheckExact, (object) => nonzero -> bool;
    is_exact_dict = ffi::PyDict_CheckExact, (object) => nonzero -> bool;
    is_str = ffi::PyUnicode_Check, (object) => nonzero -> bool;
    is_exact_str = ffi::PyUnicode_CheckExact, (object) => nonzero -> bool;
    is_int = ffi::PyLong_Check, (object) => nonzero -> bool;
    is_list = ffi::PyList_Check, (object) => nonzero -> bool;
    is_type = ffi::PyType_Check, (object) => nonzero -> bool;
    is_cell = ffi::PyCell_Check, (object) => nonzero -> bool;
    is_function = ffi::PyFunction_Check, (object) => nonzero -> bool;
    is_exception_class = ffi::PyExceptionClass_Check, (object) => nonzero -> bool;
    is_exception_instance = ffi::PyExceptionInstance_Check, (object) => nonzero -> bool;
    exception_matches = ffi::PyErr_GivenExceptionMatches, (exception, kind) => nonzero -> bool;
}

/// `left ** right`, or in place.
pub(crate) fn number_power(left: Ref<'_>, right: Ref<'_>, inplace: bool) -> Outcome<Owned> {
    let power = if inplace { ffi::PyNumber_InPlacePower } else { ffi::PyNumber_Power };
    // SAFETY: the arguments are live, None always exists.
    unsafe { Owned::from_new(power(left.as_ptr(), right.as_ptr(), ffi::Py_None())) }
}

pub(crate) fn rich_compare(left: Ref<'_>, right: Ref<'_>, op: c_int) -> Outcome<Owned> {
    // SAFETY: the arguments are live.
    unsafe { Owned::from_new(ffi::PyObject_RichCompare(left.as_ptr(), right.as_ptr(), op)) }
}

pub(crate) fn delete_attr(object: Ref<'_>, name: Ref<'_>) -> Outcome<()> {
    // SAFETY: the arguments are live; NULL deletes.
    status(unsafe { ffi::PyObject_SetAttr(object.as_ptr(), name.as_ptr(), ptr::null_mut()) })
}

pub(crate) fn new_slice(start: Ref<'_>, stop: Ref<'_>, step: Option<Ref<'_>>) -> Outcome<Owned> {
    // SAFETY: the arguments are live; NULL is no step.
    unsafe { Owned::from_new(ffi::PySlice_New(start.as_ptr(), stop.as_ptr(), or_null(step))) }
}

pub(crate) fn format(value: Ref<'_>, spec: Option<Ref<'_>>) -> Outcome<Owned> {
    // SAFETY: the arguments are live; NULL is no spec.
    unsafe { Owned::from_new(ffi::PyObject_Format(value.as_ptr(), or_null(spec))) }
}

/// A dict entry, owned. `None`: no such key. Only for exact dicts.
pub(crate) fn dict_get(dict: Ref<'_>, key: Ref<'_>) -> Outcome<Option<Owned>> {
    // SAFETY: both are live; the borrowed result becomes owned before anything else runs.
    let found = unsafe { Ref::new(ffi::PyDict_GetItemWithError(dict.as_ptr(), key.as_ptr())) };
    match found {
        Some(value) => Ok(Some(value.to_owned())),
        None if is_raised() => Err(Raised),
        None => Ok(None),
    }
}

/// An entry of any mapping, with a KeyError as `None` (`PyMapping_GetOptionalItem`).
pub(crate) fn get_optional_item(mapping: Ref<'_>, key: Ref<'_>) -> Outcome<Option<Owned>> {
    if is_exact_dict(mapping) {
        return dict_get(mapping, key);
    }
    match get_item(mapping, key) {
        Ok(value) => Ok(Some(value)),
        Err(Raised) => catch(key_error()).map(|()| None),
    }
}

/// An attribute, with an AttributeError as `None`.
pub(crate) fn get_optional_attr(object: Ref<'_>, name: Ref<'_>) -> Outcome<Option<Owned>> {
    match get_attr(object, name) {
        Ok(value) => Ok(Some(value)),
        Err(Raised) => catch(attribute_error()).map(|()| None),
    }
}

/// A method for a call: `Ok((method, true))` if it was found unbound on the type and wants `object` as its first
/// argument, `Ok((attribute, false))` otherwise.
pub(crate) fn get_method(object: Ref<'_>, name: Ref<'_>) -> Outcome<(Owned, bool)> {
    let mut method = ptr::null_mut();
    // SAFETY: both are live; `method` receives a new reference, or NULL with an exception set.
    unsafe {
        let unbound = _PyObject_GetMethod(object.as_ptr(), name.as_ptr(), &mut method);
        Ok((Owned::from_new(method)?, unbound != 0))
    }
}

/// A method looked up on the type and bound; `None` if the type has none.
pub(crate) fn lookup_special(object: Ref<'_>, name: Ref<'_>) -> Outcome<Option<Owned>> {
    // SAFETY: both are live; NULL may come without an exception.
    let found = unsafe { Owned::from_new(_PyObject_LookupSpecial(object.as_ptr(), name.as_ptr())) };
    match found {
        Ok(method) => Ok(Some(method)),
        Err(Raised) if is_raised() => Err(Raised),
        Err(Raised) => Ok(None),
    }
}

/// Calls with the arguments at `args`, of which the last are named by `names`.
///
/// # Safety
/// `args` points to `count` live objects (named ones included); with `ARGUMENTS_OFFSET` in `flags` the word before
/// them may be written for the duration of the call.
pub(crate) unsafe fn vectorcall(
    callable: Ref<'_>,
    args: *const *mut PyObject,
    positional: usize,
    flags: usize,
    names: Option<Ref<'_>>,
) -> Outcome<Owned> {
    // SAFETY: the caller's promise.
    unsafe { Owned::from_new(ffi::PyObject_Vectorcall(callable.as_ptr(), args, positional | flags, or_null(names))) }
}

/// Lets the callee use the word before the arguments (`PY_VECTORCALL_ARGUMENTS_OFFSET`).
pub(crate) const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

/// Calls with borrowed arguments.
pub(crate) fn call(callable: Ref<'_>, args: &[Ref<'_>]) -> Outcome<Owned> {
    // SAFETY: `Ref` is a non-null pointer to a live object, laid out like one.
    unsafe { vectorcall(callable, args.as_ptr().cast(), args.len(), 0, None) }
}

pub(crate) fn call_tuple(callable: Ref<'_>, args: Ref<'_>, kwargs: Option<Ref<'_>>) -> Outcome<Owned> {
    // SAFETY: the arguments are live; `args` is a tuple (callers), NULL is no keyword arguments.
    unsafe { Owned::from_new(ffi::PyObject_Call(callable.as_ptr(), args.as_ptr(), or_null(kwargs))) }
}

/// The iterator's next value; `None` when it is exhausted, quietly or by StopIteration.
pub(crate) fn iter_next(iterator: Ref<'_>) -> Outcome<Option<Owned>> {
    // SAFETY: live; an object on which `iter()` was called has the slot, but a subclass could have lost it.
    let next = unsafe {
        match (*iterator.type_ptr()).tp_iternext {
            Some(next) => Owned::from_new(next(iterator.as_ptr())),
            None => {
                ffi::PyErr_BadInternalCall();
                return Err(Raised);
            }
        }
    };
    match next {
        Ok(value) => Ok(Some(value)),
        Err(Raised) if is_raised() => catch(stop_iteration()).map(|()| None),
        Err(Raised) => Ok(None),
    }
}

/// Merges for `**kwargs`: a repeated key is a KeyError.
pub(crate) fn dict_merge(dict: Ref<'_>, update: Ref<'_>) -> Outcome<()> {
    // SAFETY: both are live.
    truth(unsafe { _PyDict_MergeEx(dict.as_ptr(), update.as_ptr(), 2) }).map(|_| ())
}

pub(crate) fn new_dict() -> Outcome<Owned> {
    // SAFETY: attached.
    unsafe { Owned::from_new(ffi::PyDict_New()) }
}

pub(crate) fn new_set() -> Outcome<Owned> {
    // SAFETY: attached.
    unsafe { Owned::from_new(ffi::PySet_New(ptr::null_mut())) }
}

pub(crate) fn new_empty_cell() -> Outcome<Owned> {
    // SAFETY: attached; NULL makes an empty cell.
    unsafe { Owned::from_new(ffi::PyCell_New(ptr::null_mut())) }
}

pub(crate) fn new_int(value: ffi::Py_ssize_t) -> Outcome<Owned> {
    // SAFETY: attached.
    unsafe { Owned::from_new(ffi::PyLong_FromSsize_t(value)) }
}

pub(crate) fn new_str(text: &CStr) -> Outcome<Owned> {
    // SAFETY: attached; the text is ASCII (callers) and ends in NUL.
    unsafe { Owned::from_new(ffi::PyUnicode_InternFromString(text.as_ptr())) }
}

/// A tuple of new references to the given objects.
pub(crate) fn new_tuple<'a>(items: impl ExactSizeIterator<Item = Ref<'a>>) -> Outcome<Owned> {
    // SAFETY: attached; each entry of the fresh tuple is filled once with an owned reference.
    unsafe {
        let tuple = Owned::from_new(ffi::PyTuple_New(items.len() as ffi::Py_ssize_t))?;
        for (i, item) in items.enumerate() {
            ffi::PyTuple_SET_ITEM(tuple.borrow().as_ptr(), i as ffi::Py_ssize_t, item.to_owned().into_ptr());
        }
        Ok(tuple)
    }
}

/// A list of new references to the given objects.
pub(crate) fn new_list<'a>(items: impl ExactSizeIterator<Item = Ref<'a>>) -> Outcome<Owned> {
    // SAFETY: attached; each entry of the fresh list is filled once with an owned reference.
    unsafe {
        let list = Owned::from_new(ffi::PyList_New(items.len() as ffi::Py_ssize_t))?;
        for (i, item) in items.enumerate() {
            ffi::PyList_SET_ITEM(list.borrow().as_ptr(), i as ffi::Py_ssize_t, item.to_owned().into_ptr());
        }
        Ok(list)
    }
}

/// How many items a tuple has. Only for tuples.
pub(crate) fn tuple_len(tuple: Ref<'_>) -> usize {
    // SAFETY: a live tuple (callers).
    unsafe { ffi::PyTuple_GET_SIZE(tuple.as_ptr()) as usize }
}

/// An item of a tuple; `None` past its end, and for what isn't a tuple.
pub(crate) fn tuple_get<'a>(tuple: Ref<'a>, index: usize) -> Option<Ref<'a>> {
    if !is_tuple(tuple) || index >= tuple_len(tuple) {
        return None;
    }
    // SAFETY: in range; the tuple keeps the item alive.
    unsafe { Ref::new(ffi::PyTuple_GET_ITEM(tuple.as_ptr(), index as ffi::Py_ssize_t)) }
}

/// What a cell holds, owned; `None` if it is empty. Only for cells.
pub(crate) fn cell_get(cell: Ref<'_>) -> Option<Owned> {
    // SAFETY: a live cell (callers); the result is a new reference, or NULL.
    unsafe { Owned::from_new(ffi::PyCell_Get(cell.as_ptr())) }.ok()
}

pub(crate) fn length(object: Ref<'_>) -> Outcome<ffi::Py_ssize_t> {
    // SAFETY: live.
    let length = unsafe { ffi::PyObject_Size(object.as_ptr()) };
    if length < 0 { Err(Raised) } else { Ok(length) }
}

/// Whether an exception is set.
pub(crate) fn is_raised() -> bool {
    // SAFETY: attached.
    !unsafe { ffi::PyErr_Occurred() }.is_null()
}

/// Clears the exception that is set if it is of this kind; otherwise it stays.
pub(crate) fn catch(kind: Ref<'_>) -> Outcome<()> {
    if !is_raising(kind) {
        return Err(Raised);
    }
    // SAFETY: attached.
    unsafe { ffi::PyErr_Clear() };
    Ok(())
}

/// Whether the exception that is set is of this kind.
pub(crate) fn is_raising(kind: Ref<'_>) -> bool {
    // SAFETY: attached, and the class is live.
    unsafe { ffi::PyErr_ExceptionMatches(kind.as_ptr()) != 0 }
}

/// Takes the exception that is set away, with its traceback in place.
pub(crate) fn take_raised() -> Outcome<Owned> {
    // SAFETY: attached; an owned exception instance, or NULL if none is set.
    unsafe { Owned::from_new(version::take_raised()) }
}

/// Sets an exception instance, with its own traceback, in place of any that is set.
pub(crate) fn raise_again(exception: Owned) -> Raised {
    // SAFETY: attached; an owned exception instance (callers).
    unsafe {
        ffi::PyErr_Clear();
        version::restore_raised(exception.into_ptr());
    }
    Raised
}

/// Sets an exception with a constant message.
pub(crate) fn raise(kind: Ref<'_>, message: &CStr) -> Raised {
    // SAFETY: attached, the class is live, and the message ends in NUL.
    unsafe { ffi::PyErr_SetString(kind.as_ptr(), message.as_ptr()) };
    Raised
}

/// Formats an exception as `PyErr_Format` does; the arguments must fit the format.
macro_rules! raise_format {
    ($kind:expr, $format:literal $(, $arg:expr)* $(,)?) => {{
        let kind: $crate::capi::Ref<'_> = $kind;
        // SAFETY: attached; the format is a literal, and the arguments have the types it names and are live.
        unsafe { pyo3::ffi::PyErr_Format(kind.as_ptr(), $format.as_ptr() $(, $arg)*) };
        $crate::capi::Raised
    }};
}
pub(crate) use raise_format;

/// `object`
pub(crate) fn object_type() -> Ref<'static> {
    // SAFETY: a static type of the interpreter.
    unsafe { Ref(NonNull::new_unchecked((&raw mut ffi::PyBaseObject_Type).cast()), PhantomData) }
}

macro_rules! exception_classes {
    ($($name:ident = $class:ident;)*) => {$(
        pub(crate) fn $name() -> Ref<'static> {
            // SAFETY: exception classes of the interpreter are set before any extension is loaded and never die.
            unsafe { Ref(NonNull::new_unchecked(ffi::$class), PhantomData) }
        }
    )*};
}

exception_classes! {
    assertion_error = PyExc_AssertionError;
    attribute_error = PyExc_AttributeError;
    base_exception_group = PyExc_BaseExceptionGroup;
    import_error = PyExc_ImportError;
    key_error = PyExc_KeyError;
    name_error = PyExc_NameError;
    runtime_error = PyExc_RuntimeError;
    stop_iteration = PyExc_StopIteration;
    system_error = PyExc_SystemError;
    type_error = PyExc_TypeError;
    unbound_local_error = PyExc_UnboundLocalError;
    value_error = PyExc_ValueError;
}

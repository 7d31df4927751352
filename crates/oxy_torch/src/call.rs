//! Calling operators: a call site is built once from a schema and arguments, and called many times.
//!
//! A call goes through a direct shim (`shims.rs`) where one fits, else through torch's dispatcher with boxed arguments.
//! What the dispatcher's ABI can't carry (Scalar values, generators, complex numbers …) is `Error::Unsupported` when
//! the call site is built, never half a call.

use crate::{
    error::Error,
    schema::{ArgType, Argument, Default, Schema},
    shims::{self, Letter},
    sys::{AtenTensorHandle, StableIValue},
    tensor::{Tensor, TensorRef},
    torch::{Torch, device_index_code, device_type_code},
};
use libc::c_void;
use oxy_graph::{DType, Device, Layout, MemoryFormat, TensorMeta};
use smallvec::SmallVec;
use std::ffi::CString;

/// An argument of a call; tensors are named by `T` (a slot number, a handle).
#[derive(Clone, Debug, PartialEq)]
pub enum Value<T> {
    Tensor(T),
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    DType(DType),
    Device(Device),
    Layout(Layout),
    MemoryFormat(MemoryFormat),
    List(Vec<Value<T>>),
}

impl<T> Value<T> {
    /// The same value with tensors named differently.
    pub fn map<U>(&self, f: &mut impl FnMut(&T) -> U) -> Value<U> {
        let mapped: Result<Value<U>, std::convert::Infallible> = self.try_map(&mut |tensor| Ok(f(tensor)));
        match mapped {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As `map`, with the first error of `f`.
    pub fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Value<U>, E> {
        Ok(match self {
            Value::Tensor(tensor) => Value::Tensor(f(tensor)?),
            Value::None => Value::None,
            Value::Bool(value) => Value::Bool(*value),
            Value::Int(value) => Value::Int(*value),
            Value::Float(value) => Value::Float(*value),
            Value::Complex(re, im) => Value::Complex(*re, *im),
            Value::Str(value) => Value::Str(value.clone()),
            Value::DType(value) => Value::DType(*value),
            Value::Device(value) => Value::Device(*value),
            Value::Layout(value) => Value::Layout(*value),
            Value::MemoryFormat(value) => Value::MemoryFormat(*value),
            Value::List(items) => Value::List(items.iter().map(|item| item.try_map(f)).collect::<Result<_, E>>()?),
        })
    }

    /// Calls `f` for every tensor, in order.
    pub fn for_each_tensor(&self, f: &mut impl FnMut(&T)) {
        match self {
            Value::Tensor(tensor) => f(tensor),
            Value::List(items) => items.iter().for_each(|item| item.for_each_tensor(f)),
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Complex(..)
            | Value::Str(_)
            | Value::DType(_)
            | Value::Device(_)
            | Value::Layout(_)
            | Value::MemoryFormat(_) => {}
        }
    }
}

/// Tensor results of a call in order; lists are spliced in. `None`: undefined, or not a tensor.
pub type Results = SmallVec<[Option<Tensor>; 2]>;

/// One call of one operator, with everything but the tensors fixed.
pub struct CallSite {
    torch: &'static Torch,
    target: String,
    route: Route,
}

enum Route {
    Boxed(Boxed),
    Shim(Shim),
}

/// How a call reaches its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    Dispatcher,
    Shim,
    /// A shim that writes a tensor given by the caller.
    ShimOut,
}

impl CallSite {
    /// A call through the dispatcher: autograd, autocast and modes see it.
    pub fn dispatched(
        torch: &'static Torch,
        schema: &Schema,
        args: &[Value<u32>],
        kwargs: &[(String, Value<u32>)],
    ) -> Result<CallSite, Error> {
        let bound = bind(schema, args, kwargs)?;
        let route = Route::Boxed(Boxed::new(torch, schema, &bound)?);
        Ok(CallSite { torch, target: schema.target(), route })
    }

    /// A call by the quickest way that returns new tensors: CPU kernel shim or dispatcher. `metas` gives the metadata
    /// of every tensor that the arguments name.
    pub fn direct(
        torch: &'static Torch,
        schema: &Schema,
        args: &[Value<u32>],
        kwargs: &[(String, Value<u32>)],
        metas: &[TensorMeta],
    ) -> Result<CallSite, Error> {
        let bound = bind(schema, args, kwargs)?;
        let route = match shims::find(&schema.target()).filter(|row| !row.has_out()) {
            Some(row) => Shim::new(torch, row, schema, &bound, metas, None),
            None => None,
        };
        let route = match route {
            Some(shim) => Route::Shim(shim),
            None => Route::Boxed(Boxed::new(torch, schema, &bound)?),
        };
        Ok(CallSite { torch, target: schema.target(), route })
    }

    /// A call that writes its result into the tensor `out`, which has the result's metadata; None if the operator
    /// can't. The call has no results.
    pub fn into_out(
        torch: &'static Torch,
        schema: &Schema,
        args: &[Value<u32>],
        kwargs: &[(String, Value<u32>)],
        metas: &[TensorMeta],
        out: u32,
    ) -> Option<CallSite> {
        let row = shims::find(&schema.target()).filter(|row| row.has_out())?;
        let bound = bind(schema, args, kwargs).ok()?;
        let route = Route::Shim(Shim::new(torch, row, schema, &bound, metas, Some(out))?);
        Some(CallSite { torch, target: schema.target(), route })
    }

    pub fn target(&self) -> &str {
        &self.target
    }

    pub fn route(&self) -> RouteKind {
        match &self.route {
            Route::Boxed(_) => RouteKind::Dispatcher,
            Route::Shim(shim) if shim.n_results == 0 => RouteKind::ShimOut,
            Route::Shim(_) => RouteKind::Shim,
        }
    }

    /// Calls the operator; tensor number i of the arguments is `tensors[i]`.
    pub fn call(&self, tensors: &[TensorRef<'_>]) -> Result<Results, Error> {
        let handles: SmallVec<[AtenTensorHandle; 16]> = tensors.iter().map(|tensor| tensor.as_raw()).collect();
        // SAFETY: the tensors are alive during the call.
        unsafe { self.call_raw(&handles) }
    }

    /// As `call`, with handles.
    ///
    /// # Safety
    /// Every handle that the arguments name is valid, and for a shim has the dtype and device of its metadata.
    pub unsafe fn call_raw(&self, handles: &[AtenTensorHandle]) -> Result<Results, Error> {
        match &self.route {
            // SAFETY: the caller's promise.
            Route::Boxed(boxed) => unsafe { boxed.call(self.torch, &self.target, handles) },
            // SAFETY: the caller's promise.
            Route::Shim(shim) => unsafe { shim.call(self.torch, &self.target, handles) },
        }
    }
}

/// Calls an operator once, through the dispatcher.
pub fn call_dispatcher(
    torch: &'static Torch,
    schema: &Schema,
    args: &[Value<TensorRef<'_>>],
    kwargs: &[(String, Value<TensorRef<'_>>)],
) -> Result<Results, Error> {
    let mut tensors: Vec<TensorRef<'_>> = Vec::new();
    let mut number = |tensor: &TensorRef<'_>| {
        // SAFETY: the handle is alive as long as the arguments, which outlive the call.
        tensors.extend(unsafe { TensorRef::from_raw(torch, tensor.as_raw()) });
        tensors.len() as u32 - 1
    };
    let args: Vec<_> = args.iter().map(|arg| arg.map(&mut number)).collect();
    let kwargs: Vec<_> = kwargs.iter().map(|(name, arg)| (name.clone(), arg.map(&mut number))).collect();
    CallSite::dispatched(torch, schema, &args, &kwargs)?.call(&tensors)
}

/// `tensor.as_strided(sizes, strides, storage_offset)`: a view that autograd knows as one.
pub fn as_strided(tensor: TensorRef<'_>, sizes: &[i64], strides: &[i64], storage_offset: i64) -> Result<Tensor, Error> {
    let list = |values: &[i64]| StackArg::List(values.iter().map(|value| StackArg::Word(*value as u64)).collect());
    let offset = StackArg::Present(Box::new(StackArg::Word(storage_offset as u64)));
    let call = Boxed {
        name: c"aten::as_strided".to_owned(),
        overload: CString::default(),
        args: [StackArg::Tensor(0), list(sizes), list(strides), offset].into(),
        returns: [ReturnKind::Tensor].into(),
    };
    // SAFETY: the one handle is alive.
    let mut results = unsafe { call.call(tensor.torch(), "aten.as_strided.default", &[tensor.as_raw()]) }?;
    results.pop().flatten().ok_or(Error::Failed { function: "as_strided", message: None })
}

/// The value of each of the schema's arguments.
fn bind(schema: &Schema, args: &[Value<u32>], kwargs: &[(String, Value<u32>)]) -> Result<Vec<Value<u32>>, Error> {
    let unsupported = |what: String| Error::Unsupported { op: schema.target(), what };
    let n_positional = schema.arguments.iter().filter(|argument| !argument.keyword_only).count();
    if args.len() > n_positional {
        return Err(unsupported(format!("more than {n_positional} positional arguments")));
    }
    if let Some((name, _)) = kwargs.iter().find(|(name, _)| !schema.arguments.iter().any(|a| a.name == *name)) {
        return Err(unsupported(format!("an argument `{name}`, which it doesn't have,")));
    }
    let value = |(i, argument): (usize, &Argument)| {
        let given = args.get(i).or_else(|| kwargs.iter().find(|(name, _)| *name == argument.name).map(|(_, v)| v));
        match (given, &argument.default) {
            (Some(value), _) => Ok(value.clone()),
            (None, Some(default)) => default_value(default)
                .ok_or_else(|| unsupported(format!("the default {default:?} of `{}`", argument.name))),
            (None, None) => Err(unsupported(format!("a missing `{}`", argument.name))),
        }
    };
    schema.arguments.iter().enumerate().map(value).collect()
}

fn default_value(default: &Default) -> Option<Value<u32>> {
    Some(match default {
        Default::None => Value::None,
        Default::Bool(value) => Value::Bool(*value),
        Default::Int(value) => Value::Int(*value),
        Default::Float(value) => Value::Float(*value),
        Default::Str(value) => Value::Str(value.clone()),
        Default::List(items) => Value::List(items.iter().map(default_value).collect::<Option<_>>()?),
        Default::Name(name) => match name.as_str() {
            "contiguous_format" => Value::MemoryFormat(MemoryFormat::Contiguous),
            "preserve_format" => Value::MemoryFormat(MemoryFormat::Preserve),
            "strided" => Value::Layout(Layout::Strided),
            _ => return None,
        },
    })
}

fn as_int<T>(value: &Value<T>) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        Value::Bool(value) => Some(i64::from(*value)),
        _ => None,
    }
}

fn as_float<T>(value: &Value<T>) -> Option<f64> {
    match value {
        Value::Float(value) => Some(*value),
        // As Python's parser does; beyond 2^53 the nearest double.
        other => as_int(other).map(|value| value as f64),
    }
}

/// The items of a list argument; a single value stands for `int[2]`'s two.
fn list_items(value: &Value<u32>, count: Option<usize>) -> Option<SmallVec<[&Value<u32>; 4]>> {
    match (value, count) {
        (Value::List(items), _) => Some(items.iter().collect()),
        (Value::Int(_) | Value::Float(_) | Value::Bool(_), Some(count)) => {
            Some(std::iter::repeat_n(value, count).collect())
        }
        _ => None,
    }
}

// ---- through the dispatcher

/// A boxed argument: what to put on the stack. The stack owns what it holds, so all but words are made anew per call.
enum StackArg {
    Word(u64),
    Tensor(u32),
    /// A present value of an optional type: lives in a cell on the heap.
    Present(Box<StackArg>),
    List(Box<[StackArg]>),
    Str(Box<str>),
}

enum ReturnKind {
    Tensor,
    TensorList,
    /// A number: nothing to release.
    Number,
}

struct Boxed {
    name: CString,
    overload: CString,
    args: Box<[StackArg]>,
    returns: Box<[ReturnKind]>,
}

impl Boxed {
    fn new(torch: &Torch, schema: &Schema, bound: &[Value<u32>]) -> Result<Boxed, Error> {
        let unsupported = |what: String| Error::Unsupported { op: schema.target(), what };
        let can_box = torch.cpu.torch_new_stable_ivalue.is_some() || torch.cpu.operator_new.is_some();
        let mut args = Vec::with_capacity(bound.len());
        for (argument, value) in schema.arguments.iter().zip(bound) {
            let arg = encode(torch, &argument.ty, value)
                .ok_or_else(|| unsupported(format!("{:?} for `{}` of type {:?}", value, argument.name, argument.ty)))?;
            if matches!(arg, StackArg::Present(_)) && !can_box {
                return Err(unsupported("an optional value (no allocator)".into()));
            }
            args.push(arg);
        }
        let mut returns = Vec::with_capacity(schema.returns.len());
        for ty in &schema.returns {
            returns.push(match ty {
                ArgType::Tensor => ReturnKind::Tensor,
                ArgType::List(inner, _) if **inner == ArgType::Tensor => ReturnKind::TensorList,
                ArgType::Int | ArgType::Float | ArgType::Bool | ArgType::ScalarType => ReturnKind::Number,
                _ => return Err(unsupported(format!("a result of type {ty:?}"))),
            });
        }
        let c_string = |text: &str| CString::new(text).map_err(|_| unsupported("a name with a NUL".into()));
        Ok(Boxed {
            name: c_string(&schema.name)?,
            overload: c_string(&schema.overload)?,
            args: args.into(),
            returns: returns.into(),
        })
    }

    /// # Safety
    /// Every handle that the arguments name is valid.
    unsafe fn call(&self, torch: &'static Torch, target: &str, handles: &[AtenTensorHandle]) -> Result<Results, Error> {
        let mut stack: SmallVec<[StableIValue; 16]> = SmallVec::new();
        for arg in &self.args {
            // SAFETY: the caller's promise.
            stack.push(unsafe { realize(torch, arg, handles) }?);
        }
        stack.resize(stack.len().max(self.returns.len()), 0);
        // SAFETY: the stack holds one owned value per argument, encoded for the schema's types, and has room for the
        // results.
        let code = unsafe {
            (torch.cpu.torch_call_dispatcher)(
                self.name.as_ptr(),
                self.overload.as_ptr(),
                stack.as_mut_ptr(),
                torch.abi_version,
            )
        };
        if code != 0 {
            return Err(Error::Operator { op: target.to_owned(), message: torch.last_message() });
        }
        let mut results = Results::new();
        for (kind, value) in self.returns.iter().zip(&stack) {
            match kind {
                ReturnKind::Number => results.push(None),
                // SAFETY: a new reference.
                ReturnKind::Tensor => results.push(unsafe { defined(torch, *value) }),
                // SAFETY: an owned list of new references.
                ReturnKind::TensorList => unsafe { take_list(torch, *value, &mut results) }?,
            }
        }
        Ok(results)
    }
}

/// # Safety
/// `value` is an owned tensor handle.
unsafe fn defined(torch: &'static Torch, value: StableIValue) -> Option<Tensor> {
    // SAFETY: the caller's promise.
    let tensor = unsafe { Tensor::from_raw(torch, value as usize as AtenTensorHandle) }?;
    tensor.as_ref().is_defined().then_some(tensor)
}

/// # Safety
/// `value` is an owned list of owned tensor handles.
unsafe fn take_list(torch: &'static Torch, value: StableIValue, results: &mut Results) -> Result<(), Error> {
    let list = value as usize as *mut c_void;
    let mut length = 0;
    // SAFETY: the list is alive.
    torch.check("torch_list_size", unsafe { (torch.cpu.torch_list_size)(list, &mut length) })?;
    for index in 0..length {
        let mut item = 0;
        // SAFETY: the list is alive and the index in range.
        torch.check("torch_list_get_item", unsafe { (torch.cpu.torch_list_get_item)(list, index, &mut item) })?;
        // SAFETY: the list's items are ours now; deleting the list leaves them.
        results.push(unsafe { defined(torch, item) });
    }
    // SAFETY: the list is owned and not used again.
    torch.check("torch_delete_list", unsafe { (torch.cpu.torch_delete_list)(list) })
}

/// The boxed form of a value, None if the ABI has none.
fn encode(torch: &Torch, ty: &ArgType, value: &Value<u32>) -> Option<StackArg> {
    let code = |code: i32| StackArg::Word(u64::from(code as u32));
    Some(match ty {
        ArgType::Tensor => match value {
            Value::Tensor(slot) => StackArg::Tensor(*slot),
            _ => return None, // a number would have to become a wrapped number, which only eager can make
        },
        ArgType::Int => StackArg::Word(as_int(value)? as u64),
        ArgType::Float => StackArg::Word(as_float(value)?.to_bits()),
        ArgType::Bool => match value {
            Value::Bool(value) => StackArg::Word(u64::from(*value)),
            _ => return None,
        },
        ArgType::Str => match value {
            Value::Str(value) => StackArg::Str(value.as_str().into()),
            _ => return None,
        },
        ArgType::ScalarType => match value {
            Value::DType(dtype) => code(*dtype as i32),
            _ => return None,
        },
        ArgType::Device => match value {
            Value::Device(device) => StackArg::Word(
                u64::from(device_type_code(device.kind) as u32) << 32 | u64::from(device_index_code(*device) as u32),
            ),
            _ => return None,
        },
        ArgType::Layout => match value {
            Value::Layout(layout) => code(torch.layout_code(*layout)),
            _ => return None,
        },
        ArgType::MemoryFormat => match value {
            Value::MemoryFormat(format) => code(torch.memory_format_code(*format)),
            _ => return None,
        },
        ArgType::Optional(inner) => match value {
            Value::None => StackArg::Word(0),
            value => StackArg::Present(Box::new(encode(torch, inner, value)?)),
        },
        ArgType::List(inner, count) => {
            let items = list_items(value, *count)?;
            StackArg::List(items.into_iter().map(|item| encode(torch, inner, item)).collect::<Option<_>>()?)
        }
        ArgType::Scalar | ArgType::Other(_) => return None,
    })
}

/// Makes the owned stack value of an argument. What was made before a failure (out of memory) is leaked.
///
/// # Safety
/// Every handle that the argument names is valid.
unsafe fn realize(torch: &Torch, arg: &StackArg, handles: &[AtenTensorHandle]) -> Result<StableIValue, Error> {
    match arg {
        StackArg::Word(word) => Ok(*word),
        StackArg::Tensor(slot) => {
            let mut handle = std::ptr::null_mut();
            let function = "aoti_torch_new_tensor_handle";
            let source = *handles.get(*slot as usize).ok_or(Error::Failed { function, message: None })?;
            // SAFETY: the caller's promise; the out pointer is valid.
            torch.check(function, unsafe { (torch.cpu.aoti_torch_new_tensor_handle)(source, &mut handle) })?;
            Ok(handle as usize as u64)
        }
        StackArg::Present(inner) => {
            // SAFETY: the caller's promise.
            let value = unsafe { realize(torch, inner, handles) }?;
            let cell = new_cell(torch)?;
            // SAFETY: a new cell, aligned for a StableIValue.
            unsafe { cell.write(value) };
            Ok(cell as usize as u64)
        }
        StackArg::List(items) => {
            let mut list = std::ptr::null_mut();
            // SAFETY: the out pointer is valid.
            let code = unsafe { (torch.cpu.torch_new_list_reserve_size)(items.len(), &mut list) };
            torch.check("torch_new_list_reserve_size", code)?;
            for item in items {
                // SAFETY: the caller's promise.
                let value = unsafe { realize(torch, item, handles) }?;
                // SAFETY: the list is alive; it takes the value over.
                torch.check("torch_list_push_back", unsafe { (torch.cpu.torch_list_push_back)(list, value) })?;
            }
            Ok(list as usize as u64)
        }
        StackArg::Str(text) => {
            let mut string = std::ptr::null_mut();
            // SAFETY: pointer and length describe the text; the out pointer is valid.
            let code = unsafe { (torch.cpu.torch_new_string_handle)(text.as_ptr().cast(), text.len(), &mut string) };
            torch.check("torch_new_string_handle", code)?;
            Ok(string as usize as u64)
        }
    }
}

/// A heap cell that torch frees with C++'s `delete`.
fn new_cell(torch: &Torch) -> Result<*mut StableIValue, Error> {
    let mut cell: *mut StableIValue = std::ptr::null_mut();
    if let Some(new) = torch.cpu.torch_new_stable_ivalue {
        // SAFETY: the out pointer is valid.
        torch.check("torch_new_stable_ivalue", unsafe { new(&mut cell) })?;
    } else if let Some(new) = torch.cpu.operator_new {
        // SAFETY: C++'s operator new, as `new StableIValue` in torch's own headers before 2.13.
        cell = unsafe { new(size_of::<StableIValue>()) }.cast();
    }
    if cell.is_null() { Err(Error::Failed { function: "torch_new_stable_ivalue", message: None }) } else { Ok(cell) }
}

// ---- through a shim

/// A shim call as a block of words: first the function's arguments, then cells that some of them point to. Per call the
/// block is copied, handles and addresses are filled in, and the function is called.
struct Shim {
    function: *const c_void,
    caller: shims::Caller,
    template: Box<[u64]>,
    n_args: usize,
    /// (position in the block, tensor)
    handles: Box<[(u32, u32)]>,
    /// (position in the block, position of the cell whose address goes there)
    addresses: Box<[(u32, u32)]>,
    n_results: usize,
    /// Constant data that words of the template point to.
    // Invariant: never changed after the addresses were taken.
    _data: Vec<Box<[u64]>>,
    _strings: Vec<CString>,
}

// SAFETY: addresses of a function and of constant data that the struct owns; nothing is mutated.
unsafe impl Send for Shim {}
// SAFETY: as above.
unsafe impl Sync for Shim {}

/// A block under construction.
#[derive(Default)]
struct Block {
    args: Vec<u64>,
    cells: Vec<u64>,
    /// (where, tensor); places in cells count from the first cell.
    handles: Vec<(Place, u32)>,
    /// (where, cell)
    addresses: Vec<(Place, usize)>,
    data: Vec<Box<[u64]>>,
    strings: Vec<CString>,
}

#[derive(Clone, Copy)]
enum Place {
    Arg(usize),
    Cell(usize),
}

impl Block {
    fn handle(&mut self, slot: u32) {
        self.handles.push((Place::Arg(self.args.len()), slot));
        self.args.push(0);
    }

    fn handle_cell(&mut self, slot: u32) -> usize {
        self.handles.push((Place::Cell(self.cells.len()), slot));
        self.cells.push(0);
        self.cells.len() - 1
    }

    /// An argument that is the address of a cell.
    fn address(&mut self, cell: usize) {
        self.addresses.push((Place::Arg(self.args.len()), cell));
        self.args.push(0);
    }

    /// An argument that is the address of constant words.
    fn constant(&mut self, words: Box<[u64]>) {
        self.args.push(words.as_ptr() as usize as u64);
        self.data.push(words);
    }
}

impl Shim {
    /// None if the shim can't make this call exactly.
    fn new(
        torch: &Torch,
        row: &shims::Row,
        schema: &Schema,
        bound: &[Value<u32>],
        metas: &[TensorMeta],
        out: Option<u32>,
    ) -> Option<Shim> {
        let letters: Option<Vec<Letter>> = schema.arguments.iter().map(|a| shims::letter(&a.ty)).collect();
        if letters? != row.letters || schema.returns.len() != row.n_results.max(1) {
            return None;
        }
        if !bound.iter().all(|value| is_on_cpu(value, metas)) {
            return None;
        }
        // Scalars travel as doubles: an int is the same only where the result's dtype doesn't depend on it.
        let float_result = match bound.first() {
            Some(Value::Tensor(slot)) => metas.get(*slot as usize)?.dtype.is_floating_point(),
            _ => false,
        };
        let mut block = Block::default();
        if let Some(out) = out {
            block.handle(out);
        }
        for ((letter, value), argument) in row.letters.iter().zip(bound).zip(&schema.arguments) {
            push_letter(&mut block, *letter, value, &argument.ty, float_result)?;
        }
        for _ in 0..row.n_results {
            block.cells.push(0);
            block.address(block.cells.len() - 1);
        }
        let function = row.find(&torch.cpu_library)?;
        let n_args = block.args.len();
        let position = |place: Place| match place {
            Place::Arg(i) => i as u32,
            Place::Cell(i) => (n_args + i) as u32,
        };
        Some(Shim {
            function,
            caller: row.call,
            n_args,
            handles: block.handles.iter().map(|(place, slot)| (position(*place), *slot)).collect(),
            addresses: block
                .addresses
                .iter()
                .map(|(place, cell)| (position(*place), position(Place::Cell(*cell))))
                .collect(),
            n_results: row.n_results,
            template: block.args.iter().chain(&block.cells).copied().collect(),
            _data: block.data,
            _strings: block.strings,
        })
    }

    /// # Safety
    /// Every handle that the arguments name is a valid CPU tensor.
    unsafe fn call(&self, torch: &'static Torch, target: &str, handles: &[AtenTensorHandle]) -> Result<Results, Error> {
        let mut block: SmallVec<[u64; 32]> = SmallVec::from_slice(&self.template);
        for (at, slot) in &self.handles {
            let handle = handles.get(*slot as usize).copied().unwrap_or(std::ptr::null_mut());
            block[*at as usize] = handle as usize as u64;
        }
        let base = block.as_mut_ptr();
        for (at, cell) in &self.addresses {
            // SAFETY: positions are inside the block.
            unsafe { *base.add(*at as usize) = base.add(*cell as usize) as usize as u64 };
        }
        // SAFETY: the words are the row's arguments; pointers among them lead into the block, which torch may write
        // through, or into constants.
        let code = unsafe { (self.caller)(self.function, std::slice::from_raw_parts(base, self.n_args)) };
        if code != 0 {
            return Err(Error::Operator { op: target.to_owned(), message: torch.last_message() });
        }
        let results = block.len() - self.n_results..block.len();
        // SAFETY: on success each result cell holds a new reference.
        Ok(results.map(|i| unsafe { defined(torch, block[i]) }).collect())
    }
}

fn is_on_cpu(value: &Value<u32>, metas: &[TensorMeta]) -> bool {
    let mut all = true;
    value.for_each_tensor(&mut |slot| {
        all &= metas.get(*slot as usize).is_some_and(|meta| meta.device.kind == oxy_graph::DeviceType::Cpu);
    });
    all
}

/// Appends one argument. None if the value has no exact encoding.
fn push_letter(block: &mut Block, letter: Letter, value: &Value<u32>, ty: &ArgType, float_result: bool) -> Option<()> {
    match (letter, value) {
        (Letter::OT | Letter::OI | Letter::OF | Letter::OD, Value::None) => block.args.push(0),
        (Letter::T, Value::Tensor(slot)) => block.handle(*slot),
        (Letter::OT, Value::Tensor(slot)) => {
            let cell = block.handle_cell(*slot);
            block.address(cell);
        }
        (Letter::TL, Value::List(items)) => {
            let first = block.cells.len();
            for item in items {
                let Value::Tensor(slot) = item else { return None };
                block.handle_cell(*slot);
            }
            push_cells(block, first, items.len());
        }
        (Letter::OTL, Value::List(items)) => push_optional_tensors(block, items)?,
        (Letter::I, value) => block.args.push(as_int(value)? as u64),
        (Letter::OI, value) => block.constant(Box::new([as_int(value)? as u64])),
        (Letter::IL, value) => {
            let ArgType::List(_, count) = ty else { return None };
            let items = list_items(value, *count)?;
            let words: Box<[u64]> = items.iter().map(|item| as_int(item).map(|i| i as u64)).collect::<Option<_>>()?;
            let length = words.len() as u64;
            block.constant(words);
            block.args.push(length);
        }
        (Letter::F, value) => block.args.push(as_float(value)?.to_bits()),
        (Letter::OF, value) => block.constant(Box::new([as_float(value)?.to_bits()])),
        (Letter::S, Value::Float(value)) => block.args.push(value.to_bits()),
        (Letter::S, Value::Int(value)) if float_result && value.unsigned_abs() <= 1 << 53 => {
            block.args.push((*value as f64).to_bits());
        }
        (Letter::B, Value::Bool(value)) => block.args.push(u64::from(*value)),
        (Letter::OD, Value::DType(dtype)) => block.constant(Box::new([u64::from(*dtype as u32)])),
        (Letter::Z, Value::Str(text)) => {
            let text = CString::new(text.as_str()).ok()?;
            block.args.push(text.as_ptr() as usize as u64);
            block.strings.push(text);
        }
        _ => return None,
    }
    Some(())
}

/// The address of the cells from `first` on, and their number.
fn push_cells(block: &mut Block, first: usize, count: usize) {
    if count == 0 {
        block.args.push(0);
    } else {
        block.address(first);
    }
    block.args.push(count as u64);
}

/// An array of pointers to handles, null where there is none.
fn push_optional_tensors(block: &mut Block, items: &[Value<u32>]) -> Option<()> {
    let first = block.cells.len();
    block.cells.resize(first + items.len(), 0);
    for (i, item) in items.iter().enumerate() {
        match item {
            Value::None => {}
            Value::Tensor(slot) => {
                let cell = block.handle_cell(*slot);
                block.addresses.push((Place::Cell(first + i), cell));
            }
            _ => return None,
        }
    }
    push_cells(block, first, items.len());
    Some(())
}

//! Known callables: one row each in [`TABLE`], by where they are found.
//!
//! Requirements on a row. 1. `Pure` only for functions whose result depends on their arguments alone and that change
//! nothing. 2. `Torch` records a call in the graph. 3. A missing function is skipped: versions differ.

mod functions;
mod methods;
mod operator_module;

use crate::breaks::{self, R, Reason, Stop};
use crate::tracer::Tracer;
use crate::value::{Object, Val};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

pub type Native = for<'py, 'a, 'b> fn(&mut Tracer<'py, 'a>, &'b [Val], &'b [(String, Val)]) -> R<Val>;

#[derive(Clone, Copy)]
pub enum Literal {
    None,
    Bool(bool),
}

/// What calling a known callable means.
#[derive(Clone, Copy)]
pub enum Action {
    Native(Native),
    /// Called for real on constants.
    Pure,
    Torch,
    Break(&'static Reason),
    Constant(Literal),
    /// Sets state of the thread: done for real while tracing, and a call of the graph; the exit sees to the rest.
    State,
    /// A Python function of `oxyfuel.polyfills` is traced instead.
    Polyfill(&'static str),
    /// Traced through, although a rule would make it a leaf.
    Inline,
}

pub struct Handler {
    pub module: &'static str,
    /// Attribute path within the module.
    pub path: &'static str,
    pub action: Action,
}

const fn row(module: &'static str, path: &'static str, action: Action) -> Handler {
    Handler { module, path, action }
}

use Action::*;
use functions as f;

#[rustfmt::skip]
pub static TABLE: &[Handler] = &[
    row("builtins", "abs", Native(f::abs)),
    row("builtins", "all", Native(f::all)),
    row("builtins", "any", Native(f::any)),
    row("builtins", "ascii", Pure),
    row("builtins", "bin", Pure),
    row("builtins", "bool", Native(f::bool_)),
    row("builtins", "breakpoint", Break(breaks::UNSUPPORTED_CALL)),
    row("builtins", "callable", Native(f::callable)),
    row("builtins", "chr", Pure),
    row("builtins", "delattr", Native(f::delattr)),
    row("builtins", "dict", Native(f::dict)),
    row("builtins", "divmod", Native(f::divmod)),
    row("builtins", "enumerate", Native(f::enumerate)),
    row("builtins", "filter", Native(f::filter)),
    row("builtins", "float", Native(f::float)),
    row("builtins", "format", Native(f::format)),
    row("builtins", "frozenset", Native(f::frozenset)),
    row("builtins", "getattr", Native(f::getattr)),
    row("builtins", "hasattr", Native(f::hasattr)),
    row("builtins", "hash", Pure),
    row("builtins", "hex", Pure),
    row("builtins", "int", Native(f::int)),
    row("builtins", "isinstance", Native(f::isinstance)),
    row("builtins", "issubclass", Native(f::issubclass)),
    row("builtins", "iter", Native(f::iter)),
    row("builtins", "len", Native(f::len)),
    row("builtins", "list", Native(f::list)),
    row("builtins", "map", Native(f::map)),
    row("builtins", "max", Native(f::max)),
    row("builtins", "min", Native(f::min)),
    row("builtins", "next", Native(f::next)),
    row("builtins", "object", Native(f::object)),
    row("builtins", "oct", Pure),
    row("builtins", "ord", Pure),
    row("builtins", "pow", Native(f::pow)),
    row("builtins", "print", Break(breaks::UNSUPPORTED_CALL)),
    row("builtins", "repr", Native(f::repr)),
    row("builtins", "reversed", Native(f::reversed)),
    row("builtins", "round", Native(f::round)),
    row("builtins", "set", Native(f::set)),
    row("builtins", "setattr", Native(f::setattr)),
    row("builtins", "slice", Native(f::slice)),
    row("builtins", "sorted", Native(f::sorted)),
    row("builtins", "str", Native(f::str)),
    row("builtins", "sum", Native(f::sum)),
    row("builtins", "super", Native(f::super_)),
    row("builtins", "tuple", Native(f::tuple)),
    row("builtins", "type", Native(f::type_)),
    row("builtins", "vars", Native(f::vars)),
    row("builtins", "zip", Native(f::zip)),
    row("_bisect", "bisect_left", Pure),
    row("_bisect", "bisect_right", Pure),
    row("_collections", "_count_elements", Polyfill("count_elements")),
    row("copy", "deepcopy", Native(f::deepcopy)),
    row("types", "MethodType", Native(f::method)),
    row("collections", "deque", Native(f::deque)),
    row("sys", "intern", Pure),
    row("sys", "exc_info", Native(f::exc_info)),
    row("itertools", "accumulate", Polyfill("accumulate")),
    row("itertools", "combinations", Polyfill("combinations")),
    row("itertools", "compress", Polyfill("compress")),
    row("itertools", "cycle", Polyfill("cycle")),
    row("itertools", "dropwhile", Polyfill("dropwhile")),
    row("itertools", "filterfalse", Polyfill("filterfalse")),
    row("itertools", "islice", Polyfill("islice")),
    row("itertools", "pairwise", Polyfill("pairwise")),
    row("itertools", "permutations", Polyfill("permutations")),
    row("itertools", "product", Polyfill("product")),
    row("itertools", "repeat", Polyfill("repeat")),
    row("itertools", "starmap", Polyfill("starmap")),
    row("itertools", "takewhile", Polyfill("takewhile")),
    row("itertools", "zip_longest", Polyfill("zip_longest")),
    row("collections", "OrderedDict", Native(f::ordered_dict)),
    row("collections", "defaultdict", Native(f::defaultdict)),
    row("functools", "reduce", Native(f::reduce)),
    row("functools", "update_wrapper", Native(f::update_wrapper)),
    row("inspect", "signature", Native(f::signature)),
    row("itertools", "chain", Native(f::chain)),
    row("itertools", "chain.from_iterable", Native(f::chain_from_iterable)),
    row("itertools", "count", Native(f::count)),
    row("math", "prod", Native(f::prod)),
    row("types", "MappingProxyType", Native(f::mapping_proxy)),
    row("typing", "cast", Native(f::typing_cast)),
    row("warnings", "warn", Break(breaks::UNSUPPORTED_CALL)),
    row("torch", "Size", Native(f::size)),
    row("torch", "is_grad_enabled", Native(f::is_grad_enabled)),
    row("torch._C", "_set_grad_enabled", Native(f::set_grad_enabled)),
    row("torch", "is_tensor", Native(f::is_tensor)),
    row("torch", "is_inference_mode_enabled", Pure),
    row("torch", "get_default_dtype", Pure),
    row("torch", "is_autocast_enabled", Pure),
    row("torch", "get_autocast_dtype", Pure),
    row("torch", "set_autocast_enabled", State),
    row("torch", "set_autocast_dtype", State),
    row("torch", "set_autocast_cache_enabled", State),
    row("torch", "autocast_increment_nesting", State),
    row("torch", "autocast_decrement_nesting", State),
    row("torch", "clear_autocast_cache", State),
    row("torch._C", "_is_autocast_available", Pure),
    row("torch._C", "_get_privateuse1_backend_name", Pure),
    row("torch._C", "_is_torch_function_mode_enabled", Pure),
    row("torch", "get_autocast_cpu_dtype", Pure),
    row("torch", "is_autocast_cache_enabled", Pure),
    row("torch", "is_autocast_cpu_enabled", Pure),
    row("torch", "are_deterministic_algorithms_enabled", Pure),
    row("torch._C", "_get_tracing_state", Constant(Literal::None)),
    row("torch._C", "_is_tracing", Constant(Literal::Bool(false))),
    row("torch._C", "_get_autograd_fallback_mode", Pure),
    row("torch._C", "_is_torch_function_enabled", Pure),
    row("torch._C", "_has_torch_function", Constant(Literal::Bool(false))),
    row("torch._C", "_has_torch_function_unary", Constant(Literal::Bool(false))),
    row("torch._C", "_has_torch_function_variadic", Constant(Literal::Bool(false))),
    row("torch._C", "_log_api_usage_once", Constant(Literal::None)),
    row("torch._C", "_get_cpu_capability", Pure),
    row("torch._C._functorch", "peek_interpreter_stack", Constant(Literal::None)),
    row("torch.overrides", "has_torch_function", Constant(Literal::Bool(false))),
    row("torch.overrides", "has_torch_function_unary", Constant(Literal::Bool(false))),
    row("torch.overrides", "has_torch_function_variadic", Constant(Literal::Bool(false))),
    row("torch.overrides", "is_tensor_like", Native(f::is_tensor)),
    row("torch.jit", "is_scripting", Constant(Literal::Bool(false))),
    row("torch.jit", "is_tracing", Constant(Literal::Bool(false))),
    row("torch._jit_internal", "is_scripting", Constant(Literal::Bool(false))),
    row("torch.compiler", "is_compiling", Constant(Literal::Bool(true))),
    row("torch.compiler", "is_dynamo_compiling", Constant(Literal::Bool(true))),
    row("torch.compiler", "is_exporting", Constant(Literal::Bool(false))),
    row("torch._dynamo.external_utils", "is_compiling", Constant(Literal::Bool(true))),
    row("torch", "_assert", Native(f::torch_assert)),
    row("torch", "manual_seed", Break(breaks::BACKEND_STATE)),
    row("torch", "set_rng_state", Break(breaks::BACKEND_STATE)),
    row("torch", "get_rng_state", Break(breaks::BACKEND_STATE)),
    row("torch", "set_default_dtype", Break(breaks::BACKEND_STATE)),
    row("torch", "set_num_threads", Break(breaks::BACKEND_STATE)),
    row("torch", "use_deterministic_algorithms", Break(breaks::BACKEND_STATE)),
    row("torch.autograd", "backward", Break(breaks::BACKEND_STATE)),
    row("torch.autograd", "grad", Break(breaks::BACKEND_STATE)),
    row("torch._tensor", "Tensor.backward", Break(breaks::BACKEND_STATE)),
    row("torch._tensor", "Tensor.register_hook", Break(breaks::BACKEND_STATE)),
    row("torch._tensor", "Tensor.__deepcopy__", Break(breaks::UNSUPPORTED_CALL)),
    row("torch._tensor", "Tensor.__len__", Native(f::len)),
    row("torch._tensor", "Tensor.__iter__", Native(f::iter)),
    row("torch._tensor", "Tensor.__contains__", Break(breaks::DATA_DEPENDENT_BRANCH)),
    row("torch._tensor", "Tensor.__format__", Break(breaks::DATA_DEPENDENT_VALUE)),
    row("torch._tensor", "Tensor.__repr__", Break(breaks::DATA_DEPENDENT_VALUE)),
    row("torch.nn", "Module", Action::Break(breaks::UNSUPPORTED_CALL)),
    row("oxyfuel", "graph_break", Break(breaks::EXPLICIT)),
    row("oxyfuel", "skip_frame", Break(breaks::EXPLICIT)),
    row("oxyfuel._decorators", "step_unsupported", Break(breaks::EXPLICIT)),
    row("oxyfuel._decorators", "set_stance", Break(breaks::STANCE)),
    row("oxyfuel", "is_compiling", Constant(Literal::Bool(true))),
    row("torch._dynamo", "graph_break", Break(breaks::EXPLICIT)),
];

/// Modules whose C functions are pure.
pub const PURE_MODULES: &[&str] =
    &["math", "cmath", "_operator", "operator", "_struct", "binascii", "_string", "unicodedata", "zlib", "datetime"];

/// Looks the table's rows up: by object address. Objects are kept alive in `keep`.
pub fn resolve(py: Python<'_>, keep: &mut Vec<Py<PyAny>>) -> PyResult<FxHashMap<usize, &'static Handler>> {
    let mut found = FxHashMap::default();
    let modules = py.import("sys")?.getattr("modules")?;
    for handler in TABLE {
        // Modules that the program hasn't loaded can't be in use, except those of the standard library.
        let module = match modules.get_item(handler.module) {
            Ok(module) => module,
            Err(_) if !handler.module.starts_with("torch") => py.import(handler.module)?.into_any(),
            Err(_) => continue,
        };
        let object = handler.path.split('.').try_fold(module, |object, part| object.getattr(part));
        if let Ok(object) = object {
            found.entry(object.as_ptr() as usize).or_insert(handler);
            keep.push(object.unbind());
        }
    }
    let operator = py.import("operator")?;
    for name in operator.getattr("__all__")?.try_iter()? {
        let name: String = name?.extract()?;
        if let (Ok(object), Some(handler)) = (operator.getattr(name.as_str()), operator_module::operator_handler(&name))
        {
            found.entry(object.as_ptr() as usize).or_insert(handler);
            keep.push(object.unbind());
        }
    }
    Ok(found)
}

/// Whether a real function carries a mark.
pub fn has_mark(function: &Object<'_>, name: &str) -> R<bool> {
    match function.getattr(name) {
        Ok(mark) => Ok(mark.is_truthy()?),
        Err(_) => Ok(false),
    }
}

/// A function that `disable` marked: its name and the reason given.
pub fn marked_disabled(function: &Object<'_>) -> R<Option<String>> {
    if !has_mark(function, "_oxyfuel_disable")? && !has_mark(function, "_torchdynamo_disable")? {
        return Ok(None);
    }
    let mut text: String = function.getattr("__qualname__")?.extract()?;
    for name in ["_oxyfuel_reason", "_torchdynamo_disable_msg"] {
        if let Ok(reason) = function.getattr(name)
            && let Ok(reason) = reason.extract::<String>()
        {
            text += &format!(": {reason}");
        }
    }
    Ok(Some(text))
}

fn module_of(object: &Object<'_>) -> String {
    object.getattr(pyo3::intern!(object.py(), "__module__")).and_then(|m| m.extract()).unwrap_or_default()
}

/// Python functions of torch that are one operator of the graph.
pub fn is_torch_leaf_function(function: &Object<'_>) -> R<bool> {
    const MODULES: &[&str] =
        &["torch.nn.functional", "torch.functional", "torch._tensor", "torch._jit_internal", "torch._lowrank"];
    let module = module_of(function);
    if !MODULES.contains(&module.as_str()) {
        return Ok(false);
    }
    let name: String = function.getattr("__qualname__").map_err(Stop::from)?.extract()?;
    // Helpers that aren't operators.
    Ok(!name.starts_with("Tensor.__init") && !matches!(name.as_str(), "_in_projection_packed" | "_verify_batch_size"))
}

/// Functions of torch whose results are constants of the trace (no tensors).
pub fn is_constant_function(function: &Object<'_>) -> R<bool> {
    const NAMES: &[&str] =
        &["finfo", "iinfo", "is_deterministic_algorithms_warn_only_enabled", "is_storage", "get_num_threads"];
    let name: String = function.getattr("__name__").and_then(|n| n.extract()).unwrap_or_default();
    Ok(NAMES.contains(&name.as_str()))
}

/// Operators that end a segment whatever their arguments.
pub fn breaking_operator(name: &str) -> Option<&'static Reason> {
    match name {
        "item" | "tolist" | "numpy" | "__bool__" | "__float__" | "__int__" | "__index__" | "__complex__" | "equal"
        | "allclose" | "is_nonzero" => Some(breaks::DATA_DEPENDENT_VALUE),
        "data_ptr" | "untyped_storage" | "storage" | "register_hook" | "backward" | "retain_grad" | "__reduce_ex__"
        | "set_" | "share_memory_" | "_typed_storage" => Some(breaks::UNSUPPORTED_CALL),
        _ => None,
    }
}

/// Operators that turn data into Python values.
pub fn reads_values(name: &str) -> bool {
    matches!(name, "item" | "tolist" | "getattr" | "setitem" | "__getitem__" | "tensor" | "full")
}

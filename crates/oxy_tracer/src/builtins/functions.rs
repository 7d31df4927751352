//! Builtins and standard-library functions that need the engine.

use crate::breaks::{self, R, Stop};
use crate::tracer::Tracer;
use crate::value::{IterVal, Kind, Val};
use indexmap::IndexMap;
use oxy_bytecode::{BinaryOp, CompareOp};
use pyo3::prelude::*;

pub type Kw<'b> = &'b [(String, Val)];

fn named(kwargs: Kw<'_>, name: &str) -> Option<Val> {
    kwargs.iter().find(|(n, _)| n == name).map(|(_, val)| *val)
}

pub fn first(t: &mut Tracer<'_, '_>, args: &[Val], name: &str) -> R<Val> {
    match args.first() {
        Some(val) => Ok(*val),
        None => t.raise("TypeError", &format!("{name} expected at least 1 argument, got 0")),
    }
}

fn text(t: &mut Tracer<'_, '_>, val: Val) -> R<String> {
    match t.as_const(val)? {
        Some(object) => match object.extract() {
            Ok(text) => Ok(text),
            Err(_) => t.raise("TypeError", "attribute name must be string"),
        },
        None => t.stop(breaks::UNSUPPORTED_ATTRIBUTE, "a name that isn't a constant"),
    }
}

fn pure(t: &mut Tracer<'_, '_>, name: &str, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let function = t.known.builtin(t.py, name)?;
    t.call_pure(&function, args, &kwargs.to_vec())
}

pub fn abs(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "abs")?;
    t.unary_op("abs", "__abs__", val)
}

pub fn all(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    every(t, args, false)
}

pub fn any(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    every(t, args, true)
}

/// Stops at the first item whose truth is `wanted`.
fn every(t: &mut Tracer<'_, '_>, args: &[Val], wanted: bool) -> R<Val> {
    let val = first(t, args, "any")?;
    let iterator = t.get_iter(val)?;
    while let Some(item) = t.next_item(iterator)? {
        if t.truth(item)? == wanted {
            return Ok(t.bool(wanted));
        }
    }
    Ok(t.bool(!wanted))
}

pub fn bool_(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let truth = match args.first() {
        Some(&val) => t.truth(val)?,
        None => false,
    };
    Ok(t.bool(truth))
}

pub fn callable(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "callable")?;
    let answer = match t.kind(val)? {
        Kind::Function(_) | Kind::Method { .. } => true,
        Kind::Object(object) if object.is_instance_of::<pyo3::types::PyType>() => true,
        _ => {
            let class = t.type_of(val)?;
            t.guarded_type_lookup(&class, "__call__")?.is_some()
        }
    };
    Ok(t.bool(answer))
}

pub fn delattr(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let name = text(t, args[1])?;
    t.del_attr(args[0], &name)?;
    Ok(t.none())
}

pub fn dict(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let val = t.dict(IndexMap::new());
    fill_dict(t, val, args, kwargs)?;
    Ok(val)
}

/// `dict(mapping_or_pairs, **kwargs)` into a dict; also `dict.update`.
pub fn fill_dict(t: &mut Tracer<'_, '_>, dict: Val, args: &[Val], kwargs: Kw<'_>) -> R<()> {
    if let Some(&given) = args.first() {
        let is_mapping = matches!(t.kind(given)?, Kind::Dict { .. } | Kind::MappingProxy(_))
            || (matches!(t.peek(given), Kind::Object(_) | Kind::Instance(_)) && t.try_attr(given, "keys")?.is_some());
        if is_mapping {
            for (key, value) in t.mapping_items(given)? {
                t.dict_insert(dict, key, value)?;
            }
        } else {
            let iterator = t.get_iter(given)?;
            while let Some(pair) = t.next_item(iterator)? {
                let pair = t.iterate(pair)?;
                let [key, value] = pair[..] else {
                    return t.raise("ValueError", "dictionary update sequence element has the wrong length");
                };
                t.dict_insert(dict, key, value)?;
            }
        }
    }
    for (name, value) in kwargs {
        let key = t.str(name);
        t.dict_insert(dict, key, *value)?;
    }
    Ok(())
}

pub fn divmod(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let quotient = t.binary_op(BinaryOp::FloorDivide, false, args[0], args[1])?;
    let remainder = t.binary_op(BinaryOp::Remainder, false, args[0], args[1])?;
    Ok(t.tuple(vec![quotient, remainder]))
}

pub fn enumerate(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let iterable = first(t, args, "enumerate")?;
    let inner = t.get_iter(iterable)?;
    let start = args.get(1).copied().or(named(kwargs, "start"));
    let next = match start {
        None => 0,
        Some(start) => match t.as_const(start)?.and_then(|s| s.extract().ok()) {
            Some(start) => start,
            None => return t.stop(breaks::UNSUPPORTED_OPERATION, "enumerate with an unusual start"),
        },
    };
    Ok(t.add(Kind::Iter(IterVal::Enumerate { inner, next })))
}

pub fn filter(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let inner = t.get_iter(args[1])?;
    Ok(t.add(Kind::Iter(IterVal::Filter { function: args[0], inner })))
}

pub fn float(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    number(t, "float", "__float__", args, kwargs)
}

pub fn int(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    number(t, "int", "__int__", args, kwargs)
}

fn number(t: &mut Tracer<'_, '_>, name: &str, method: &str, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    if let Some(&val) = args.first() {
        if t.is_tensor(val)? {
            return t.stop(breaks::DATA_DEPENDENT_VALUE, format!("{name}() of a tensor"));
        }
        if matches!(t.peek(val), Kind::Object(_) | Kind::Instance(_))
            && let Some(method) = t.special_method(val, method)?
        {
            return t.call(method, Vec::new(), Vec::new());
        }
    }
    pure(t, name, args, kwargs)
}

pub fn format(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "format")?;
    t.format(val, args.get(1).copied())
}

pub fn frozenset(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let items = match args.first() {
        Some(&val) => t.iterate(val)?,
        None => Vec::new(),
    };
    t.new_set(&items, true)
}

pub fn getattr(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let name = text(t, args[1])?;
    match args.get(2) {
        None => t.get_attr(args[0], &name),
        Some(&default) => match t.try_attr(args[0], &name) {
            Ok(found) => Ok(found.unwrap_or(default)),
            Err(Stop::Raise(exception)) => {
                let class = t.known.builtin(t.py, "AttributeError")?;
                let class = t.existing(class);
                if t.is_instance(exception, class)? { Ok(default) } else { Err(Stop::Raise(exception)) }
            }
            Err(stop) => Err(stop),
        },
    }
}

pub fn hasattr(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let missing = t.add(Kind::Null);
    let found = getattr(t, &[args[0], args[1], missing], &[])?;
    Ok(t.bool(found != missing))
}

pub fn isinstance(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let answer = t.is_instance(args[0], args[1])?;
    Ok(t.bool(answer))
}

pub fn issubclass(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    pure(t, "issubclass", args, kwargs)
}

pub fn iter(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    if args.len() != 1 {
        return t.stop(breaks::UNKNOWN_ITERATOR, "iter() with a sentinel");
    }
    t.get_iter(args[0])
}

pub fn len(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "len")?;
    let length = t.length(val)?;
    t.int(length as i64)
}

pub fn list(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let items = match args.first() {
        Some(&val) => t.iterate(val)?,
        None => Vec::new(),
    };
    Ok(t.list(items))
}

pub fn map(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let inners = args[1..].iter().map(|&arg| t.get_iter(arg)).collect::<R<Vec<_>>>()?;
    Ok(t.add(Kind::Iter(IterVal::Map { function: args[0], inners })))
}

pub fn max(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    extreme(t, args, kwargs, CompareOp::Gt, "max")
}

pub fn min(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    extreme(t, args, kwargs, CompareOp::Lt, "min")
}

fn extreme(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>, op: CompareOp, name: &str) -> R<Val> {
    let items = if args.len() == 1 { t.iterate(args[0])? } else { args.to_vec() };
    let key = named(kwargs, "key");
    let mut best: Option<(Val, Val)> = None;
    for item in items {
        let rank = match key {
            Some(key) => t.call(key, vec![item], Vec::new())?,
            None => item,
        };
        let better = match best {
            None => true,
            Some((_, best_rank)) => {
                let better = t.compare(op, rank, best_rank)?;
                t.truth(better)?
            }
        };
        if better {
            best = Some((item, rank));
        }
    }
    match (best, named(kwargs, "default")) {
        (Some((item, _)), _) => Ok(item),
        (None, Some(default)) => Ok(default),
        (None, None) => t.raise("ValueError", &format!("{name}() arg is an empty sequence")),
    }
}

pub fn next(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let iterator = first(t, args, "next")?;
    if let Kind::Generator(_) = t.kind(iterator)? {
        let none = t.none();
        return match (t.resume(iterator, none)?, args.get(1)) {
            (Ok(item), _) => Ok(item),
            (Err(_), Some(&default)) => Ok(default),
            (Err(value), None) => stop_iteration(t, value),
        };
    }
    match (t.next_item(iterator)?, args.get(1)) {
        (Some(item), _) => Ok(item),
        (None, Some(&default)) => Ok(default),
        (None, None) => {
            let none = t.none();
            stop_iteration(t, none)
        }
    }
}

/// Raises StopIteration with a value.
pub fn stop_iteration(t: &mut Tracer<'_, '_>, value: Val) -> R<Val> {
    let class = t.known.builtin(t.py, "StopIteration")?;
    let is_none = matches!(t.kind(value)?, Kind::Const(object) if object.is_none());
    let mut attrs = IndexMap::new();
    attrs.insert("value".to_owned(), value);
    let args = if is_none { Vec::new() } else { vec![value] };
    let val = t.add(Kind::Instance(crate::value::InstanceVal { class, attrs, args, base: None }));
    Err(Stop::Raise(val))
}

pub fn object(t: &mut Tracer<'_, '_>, _: &[Val], _: Kw<'_>) -> R<Val> {
    t.stop(breaks::UNSUPPORTED_CALL, "object()")
}

pub fn pow(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    if args.len() == 2 { t.binary_op(BinaryOp::Power, false, args[0], args[1]) } else { pure(t, "pow", args, kwargs) }
}

pub fn repr(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    textual(t, "repr", "__repr__", args, kwargs)
}

pub fn str(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    textual(t, "str", "__str__", args, kwargs)
}

fn textual(t: &mut Tracer<'_, '_>, name: &str, method: &str, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let Some(&val) = args.first() else { return pure(t, name, args, kwargs) };
    match t.kind(val)? {
        Kind::Tensor(_) => return t.stop(breaks::DATA_DEPENDENT_VALUE, format!("{name}() of a tensor")),
        Kind::Object(object) if object.is_instance_of::<pyo3::types::PyType>() => return pure(t, name, args, kwargs),
        Kind::Instance(instance) => {
            let class = instance.class.clone();
            let function = t.guarded_type_lookup(&class, method)?;
            let plain = t.known.types(t.py, "FunctionType")?;
            if function.is_some_and(|f| f.get_type().is(&plain)) {
                let method = t.special_method(val, method)?;
                return match method {
                    Some(method) => t.call(method, Vec::new(), Vec::new()),
                    None => t.stop(breaks::UNSUPPORTED_CALL, name),
                };
            }
            let Kind::Instance(instance) = t.peek(val) else { return t.stop(breaks::UNSUPPORTED_CALL, name) };
            let args = instance.args.clone();
            let is_exception = class.getattr("__mro__")?.contains(t.known.builtin(t.py, "BaseException")?)?;
            if is_exception && name == "str" {
                return match args[..] {
                    [] => Ok(t.str("")),
                    [only] => {
                        let key_error = class.getattr("__mro__")?.contains(t.known.builtin(t.py, "KeyError")?)?;
                        textual(
                            t,
                            if key_error { "repr" } else { "str" },
                            if key_error { "__repr__" } else { "__str__" },
                            &[only],
                            &[],
                        )
                    }
                    _ => {
                        let all = t.tuple(args);
                        pure(t, "str", &[all], &[])
                    }
                };
            }
            return t.stop(breaks::UNSUPPORTED_CALL, format!("{name}() of an object"));
        }
        Kind::Object(_) => {
            let class = t.type_of(val)?;
            let function = t.guarded_type_lookup(&class, method)?;
            let plain = t.known.types(t.py, "FunctionType")?;
            if function.is_some_and(|f| f.get_type().is(&plain))
                && let Some(method) = t.special_method(val, method)?
            {
                return t.call(method, Vec::new(), Vec::new());
            }
            if t.used_by_identity(val)? {
                return pure(t, name, args, kwargs);
            }
            return t.stop(breaks::UNSUPPORTED_CALL, format!("{name}() of an object"));
        }
        _ => {}
    }
    pure(t, name, args, kwargs)
}

pub fn reversed(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "reversed")?;
    if matches!(t.kind(val)?, Kind::Object(_) | Kind::Instance(_))
        && let Some(method) = t.special_method(val, "__reversed__")?
    {
        return t.call(method, Vec::new(), Vec::new());
    }
    let mut items = t.iterate(val)?;
    items.reverse();
    Ok(t.add(Kind::Iter(IterVal::Snapshot { items, index: 0 })))
}

pub fn round(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let val = first(t, args, "round")?;
    if t.is_tensor(val)? {
        let function = t.known.torch.bind(t.py).getattr("round")?;
        let kwargs = match args.get(1) {
            Some(&digits) => vec![("decimals".to_owned(), digits)],
            None => Vec::new(),
        };
        return t.call_torch(&function, vec![val], kwargs);
    }
    pure(t, "round", args, kwargs)
}

pub fn set(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let items = match args.first() {
        Some(&val) => t.iterate(val)?,
        None => Vec::new(),
    };
    t.new_set(&items, false)
}

pub fn setattr(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let name = text(t, args[1])?;
    t.set_attr(args[0], &name, args[2])?;
    Ok(t.none())
}

pub fn slice(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let none = t.none();
    let parts = match *args {
        [stop] => [none, stop, none],
        [start, stop] => [start, stop, none],
        [start, stop, step] => [start, stop, step],
        _ => return t.raise("TypeError", "slice expected at least 1 argument, got 0"),
    };
    Ok(t.add(Kind::Slice(parts)))
}

pub fn sorted(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let val = first(t, args, "sorted")?;
    let items = t.iterate(val)?;
    let items = sort(t, items, named(kwargs, "key"), named(kwargs, "reverse"))?;
    Ok(t.list(items))
}

/// Stable sort by traced comparison.
pub fn sort(t: &mut Tracer<'_, '_>, items: Vec<Val>, key: Option<Val>, reverse: Option<Val>) -> R<Vec<Val>> {
    let reverse = match reverse {
        Some(reverse) => t.truth(reverse)?,
        None => false,
    };
    let key = match key {
        Some(key) if matches!(t.kind(key)?, Kind::Const(object) if object.is_none()) => None,
        key => key,
    };
    let mut ranked = Vec::with_capacity(items.len());
    for item in items {
        let rank = match key {
            Some(key) => t.call(key, vec![item], Vec::new())?,
            None => item,
        };
        ranked.push((rank, item));
    }
    if reverse {
        ranked.reverse();
    }
    // Insertion by binary search keeps equal ranks in order and compares as few times as a merge sort.
    let mut sorted: Vec<(Val, Val)> = Vec::with_capacity(ranked.len());
    for (rank, item) in ranked {
        let (mut low, mut high) = (0, sorted.len());
        while low < high {
            let middle = (low + high) / 2;
            let less = t.compare(CompareOp::Lt, rank, sorted[middle].0)?;
            if t.truth(less)? { high = middle } else { low = middle + 1 }
        }
        sorted.insert(low, (rank, item));
    }
    if reverse {
        sorted.reverse();
    }
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

pub fn sum(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let iterable = first(t, args, "sum")?;
    let iterator = t.get_iter(iterable)?;
    let mut total = match args.get(1).copied().or(named(kwargs, "start")) {
        Some(start) => start,
        None => t.int(0)?,
    };
    while let Some(item) = t.next_item(iterator)? {
        total = t.binary_op(BinaryOp::Add, false, total, item)?;
    }
    Ok(total)
}

pub fn super_(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    match *args {
        [class, receiver] => t.make_super(class, receiver),
        _ => t.stop(breaks::UNSUPPORTED_CALL, "super() with one argument"),
    }
}

pub fn tuple(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let items = match args.first() {
        Some(&val) if matches!(t.kind(val)?, Kind::Tuple { class: None, .. }) => return Ok(val),
        Some(&val) => t.iterate(val)?,
        None => Vec::new(),
    };
    Ok(t.tuple(items))
}

pub fn type_(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    match *args {
        [val] => {
            let class = t.type_of(val)?;
            Ok(t.existing(class))
        }
        _ => t.stop(breaks::UNSUPPORTED_CALL, "a class made by type()"),
    }
}

pub fn vars(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    match *args {
        [val] => t.get_attr(val, "__dict__"),
        _ => t.stop(breaks::UNSUPPORTED_CALL, "vars() of the running frame"),
    }
}

pub fn zip(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let strict = match named(kwargs, "strict") {
        Some(strict) => t.truth(strict)?,
        None => false,
    };
    let inners = args.iter().map(|&arg| t.get_iter(arg)).collect::<R<Vec<_>>>()?;
    Ok(t.add(Kind::Iter(IterVal::Zip { inners, strict })))
}

pub fn ordered_dict(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let class = t.py.import("collections")?.getattr("OrderedDict")?;
    let val = t.add(Kind::Dict { items: IndexMap::new(), class, default_factory: None });
    fill_dict(t, val, args, kwargs)?;
    Ok(val)
}

pub fn defaultdict(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let class = t.py.import("collections")?.getattr("defaultdict")?;
    let factory = match args.first() {
        Some(&factory) => factory,
        None => t.none(),
    };
    let val = t.add(Kind::Dict { items: IndexMap::new(), class, default_factory: Some(factory) });
    fill_dict(t, val, args.get(1..).unwrap_or(&[]), kwargs)?;
    Ok(val)
}

pub fn reduce(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let iterator = t.get_iter(args[1])?;
    let mut total = match args.get(2) {
        Some(&start) => start,
        None => match t.next_item(iterator)? {
            Some(item) => item,
            None => return t.raise("TypeError", "reduce() of empty iterable with no initial value"),
        },
    };
    while let Some(item) = t.next_item(iterator)? {
        total = t.call(args[0], vec![total, item], Vec::new())?;
    }
    Ok(total)
}

pub fn chain(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let all = t.tuple(args.to_vec());
    chain_from_iterable(t, &[all], &[])
}

pub fn chain_from_iterable(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let outer = t.get_iter(args[0])?;
    Ok(t.add(Kind::Iter(IterVal::Chain { outer, current: None })))
}

pub fn count(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let part = |t: &mut Tracer<'_, '_>, given: Option<Val>, default: i64| -> R<Val> {
        match given {
            Some(val) => Ok(val),
            None => t.int(default),
        }
    };
    let next = part(t, args.first().copied().or(named(kwargs, "start")), 0)?;
    let step = part(t, args.get(1).copied().or(named(kwargs, "step")), 1)?;
    let (Some(next), Some(step)) = (t.as_const(next)?, t.as_const(step)?) else {
        return t.stop(breaks::UNKNOWN_ITERATOR, "itertools.count of something unusual");
    };
    Ok(t.add(Kind::Iter(IterVal::Count { next, step })))
}

pub fn prod(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let iterable = first(t, args, "prod")?;
    let mut total = match named(kwargs, "start") {
        Some(start) => start,
        None => t.int(1)?,
    };
    for item in t.iterate(iterable)? {
        total = t.binary_op(BinaryOp::Multiply, false, total, item)?;
    }
    Ok(total)
}

pub fn mapping_proxy(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let dict = first(t, args, "mappingproxy")?;
    if !matches!(t.kind(dict)?, Kind::Dict { .. }) {
        return t.stop(breaks::UNSUPPORTED_CALL, "mappingproxy of something that isn't a dict");
    }
    Ok(t.add(Kind::MappingProxy(dict)))
}

pub fn typing_cast(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    match args.get(1).copied().or(named(kwargs, "val")) {
        Some(val) => Ok(val),
        None => t.raise("TypeError", "cast() missing 1 required positional argument: 'val'"),
    }
}

/// `sys.exc_info()`, of exceptions that the trace handles.
pub fn exc_info(t: &mut Tracer<'_, '_>, _: &[Val], _: Kw<'_>) -> R<Val> {
    let none = t.none();
    let Some(exception) = t.handled else {
        let outside: (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
            t.py.import("sys")?.call_method0("exc_info")?.extract()?;
        if !outside.1.is_none() {
            return t.stop(breaks::UNSUPPORTED_CALL, "sys.exc_info() of an exception handled by a caller");
        }
        return Ok(t.tuple(vec![none, none, none]));
    };
    let class = t.type_of(exception)?;
    let class = t.existing(class);
    Ok(t.tuple(vec![class, exception, none]))
}

/// `types.MethodType(function, receiver)`
pub fn method(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    match *args {
        [function, receiver] => Ok(t.add(Kind::Method { function, receiver })),
        _ => t.raise("TypeError", &format!("method expected 2 arguments, got {}", args.len())),
    }
}

pub fn deepcopy(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    match (args, kwargs) {
        ([val], []) => t.deep_copy(*val, &mut Default::default()),
        _ => t.stop(breaks::UNSUPPORTED_CALL, "copy.deepcopy with a memo"),
    }
}

pub fn deque(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let items = match args.first().copied().or(named(kwargs, "iterable")) {
        Some(iterable) => t.iterate(iterable)?,
        None => Vec::new(),
    };
    t.new_deque(items, args.get(1).copied().or(named(kwargs, "maxlen")))
}

pub fn size(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let function = t.known.torch.bind(t.py).getattr("Size")?;
    let args = match args.first() {
        Some(&val) => {
            let items = t.iterate(val)?;
            vec![t.tuple(items)]
        }
        None => Vec::new(),
    };
    t.call_pure(&function, &args, &kwargs.to_vec())
}

pub fn is_grad_enabled(t: &mut Tracer<'_, '_>, _: &[Val], _: Kw<'_>) -> R<Val> {
    let enabled = t.known.grad_enabled(t.py)?;
    Ok(t.bool(enabled))
}

/// Grad mode is really switched while tracing (fakes follow it) and restored when the trace ends; the graph
/// holds the call and the exit leaves the mode as the program would.
pub fn set_grad_enabled(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "_set_grad_enabled")?;
    let enabled = t.truth(val)?;
    let function = t.py.import("torch")?.getattr("_C")?.getattr("_set_grad_enabled")?;
    function.call1((enabled,))?;
    let places = t.places();
    let flag = pyo3::types::PyBool::new(t.py, enabled).to_owned().into_any();
    t.graph.calls.push(crate::torch_graph::Call {
        callable: function,
        args: vec![crate::torch_graph::CallArg::Object(flag)],
        kwargs: Vec::new(),
        out: crate::torch_graph::Out::Other,
        places,
    });
    Ok(t.none())
}

pub fn is_tensor(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "is_tensor")?;
    let answer = t.is_tensor(val)?;
    Ok(t.bool(answer))
}

pub fn torch_assert(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let condition = first(t, args, "_assert")?;
    if t.truth(condition)? {
        return Ok(t.none());
    }
    t.stop(breaks::EXCEPTION_ESCAPES, "an assertion failed")
}

/// `inspect.signature` of a function that exists outside: computed for real; the function's identity is guarded.
pub fn signature(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let callable = first(t, args, "signature")?;
    let (function, bound) = match t.kind(callable)? {
        Kind::Method { function, .. } => (*function, true),
        _ => (callable, false),
    };
    match t.kind(function)? {
        Kind::Object(object) if kwargs.is_empty() && object.is_instance_of::<pyo3::types::PyFunction>() => {
            let object = object.clone();
            let signature = t.py.import("oxyfuel.polyfills")?.call_method1("signature", (object, bound))?;
            Ok(t.existing(signature))
        }
        _ => t.stop(breaks::UNSUPPORTED_CALL, "inspect.signature"),
    }
}

/// `functools.update_wrapper` onto a function made by the trace.
pub fn update_wrapper(t: &mut Tracer<'_, '_>, args: &[Val], kwargs: Kw<'_>) -> R<Val> {
    let wrapper = match args.first().copied().or(named(kwargs, "wrapper")) {
        Some(wrapper) => wrapper,
        None => return t.raise("TypeError", "update_wrapper() missing argument: 'wrapper'"),
    };
    let Some(wrapped) = args.get(1).copied().or(named(kwargs, "wrapped")) else {
        return t.raise("TypeError", "update_wrapper() missing argument: 'wrapped'");
    };
    if !matches!(t.kind(wrapper)?, Kind::Function(_)) {
        return t.stop(breaks::UNSUPPORTED_CALL, "functools.update_wrapper of an object that isn't a new function");
    }
    let assigned = args.get(2).copied().or(named(kwargs, "assigned"));
    let names = match assigned {
        Some(assigned) => {
            let mut names = Vec::new();
            for name in t.iterate(assigned)? {
                names.push(text(t, name)?);
            }
            names
        }
        None => ["__module__", "__name__", "__qualname__", "__doc__", "__annotations__"].map(str::to_owned).to_vec(),
    };
    for name in names {
        if let Some(val) = t.try_attr(wrapped, &name)? {
            t.set_attr(wrapper, &name, val)?;
        }
    }
    if let Some(dict) = t.try_attr(wrapped, "__dict__")? {
        for (name, val) in t.string_items(dict)? {
            t.set_attr(wrapper, &name, val)?;
        }
    }
    t.set_attr(wrapper, "__wrapped__", wrapped)?;
    Ok(wrapper)
}

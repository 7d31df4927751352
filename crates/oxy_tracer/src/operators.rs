//! Operators on traced values: arithmetic, comparison, truth, identity, membership.

use crate::breaks::{self, R};
use crate::tracer::Tracer;
use crate::value::{Kind, Object, Val};
use oxy_bytecode::{BinaryOp, CompareOp};
use pyo3::prelude::*;

/// (operator, function of the `operator` module, its in-place twin, special method, reflected method)
const BINARY: &[(BinaryOp, &str, &str, &str, &str)] = &[
    (BinaryOp::Add, "add", "iadd", "__add__", "__radd__"),
    (BinaryOp::And, "and_", "iand", "__and__", "__rand__"),
    (BinaryOp::FloorDivide, "floordiv", "ifloordiv", "__floordiv__", "__rfloordiv__"),
    (BinaryOp::LeftShift, "lshift", "ilshift", "__lshift__", "__rlshift__"),
    (BinaryOp::MatrixMultiply, "matmul", "imatmul", "__matmul__", "__rmatmul__"),
    (BinaryOp::Multiply, "mul", "imul", "__mul__", "__rmul__"),
    (BinaryOp::Remainder, "mod", "imod", "__mod__", "__rmod__"),
    (BinaryOp::Or, "or_", "ior", "__or__", "__ror__"),
    (BinaryOp::Power, "pow", "ipow", "__pow__", "__rpow__"),
    (BinaryOp::RightShift, "rshift", "irshift", "__rshift__", "__rrshift__"),
    (BinaryOp::Subtract, "sub", "isub", "__sub__", "__rsub__"),
    (BinaryOp::TrueDivide, "truediv", "itruediv", "__truediv__", "__rtruediv__"),
    (BinaryOp::Xor, "xor", "ixor", "__xor__", "__rxor__"),
];

/// (comparison, function of the `operator` module, special method, reflected method)
const COMPARE: &[(CompareOp, &str, &str, &str)] = &[
    (CompareOp::Lt, "lt", "__lt__", "__gt__"),
    (CompareOp::Le, "le", "__le__", "__ge__"),
    (CompareOp::Eq, "eq", "__eq__", "__eq__"),
    (CompareOp::Ne, "ne", "__ne__", "__ne__"),
    (CompareOp::Gt, "gt", "__gt__", "__lt__"),
    (CompareOp::Ge, "ge", "__ge__", "__le__"),
];

/// The operator that a function of the `operator` module applies, and whether in place.
pub fn binary_of_name(name: &str) -> Option<(BinaryOp, bool)> {
    BINARY.iter().find_map(
        |row| {
            if row.1 == name { Some((row.0, false)) } else { (row.2 == name).then_some((row.0, true)) }
        },
    )
}

pub fn compare_of_name(name: &str) -> Option<CompareOp> {
    COMPARE.iter().find(|row| row.1 == name).map(|row| row.0)
}

impl<'py> Tracer<'py, '_> {
    /// A tensor, or a container of the trace that holds one where only tensors matter (a tensor operand).
    pub fn is_tensor(&mut self, val: Val) -> R<bool> {
        Ok(matches!(self.kind(val)?, Kind::Tensor(_)))
    }

    fn has_user_methods(&mut self, val: Val) -> R<bool> {
        Ok(match self.kind(val)? {
            Kind::Instance(instance) => instance.base.is_none(),
            Kind::Object(_) => true,
            Kind::Tuple { class: Some(_), .. } => true,
            _ => false,
        })
    }

    pub fn binary_op(&mut self, op: BinaryOp, inplace: bool, left: Val, right: Val) -> R<Val> {
        let Some(&(_, plain, in_place, method, reflected)) = BINARY.iter().find(|row| row.0 == op) else {
            return self.stop(breaks::UNSUPPORTED_OPERATION, op.text());
        };
        self.realize(left)?;
        self.realize(right)?;
        let name = if inplace { in_place } else { plain };
        if self.is_tensor(left)? || self.is_tensor(right)? {
            let function = self.known.operator(self.py, name)?;
            return self.call_torch(&function, vec![left, right], Vec::new());
        }
        let (left, right) = match (op, self.peek(left), self.peek(right)) {
            (BinaryOp::And | BinaryOp::Or | BinaryOp::Subtract | BinaryOp::Xor, a, b)
                if matches!(a, Kind::DictView { view: crate::value::View::Keys, .. })
                    || matches!(b, Kind::DictView { view: crate::value::View::Keys, .. }) =>
            {
                // Key views act as sets (and take any iterable beside them).
                let (a, b) = (self.iterate(left)?, self.iterate(right)?);
                (self.new_set(&a, false)?, self.new_set(&b, false)?)
            }
            _ => (left, right),
        };
        if let Some(val) = self.container_op(op, inplace, left, right)? {
            return Ok(val);
        }
        if self.has_user_methods(left)? || self.has_user_methods(right)? {
            let in_place_method = format!("__i{}", &method[2..]);
            return self.user_binary(
                left,
                right,
                inplace.then_some(in_place_method.as_str()),
                method,
                reflected,
                op.text(),
            );
        }
        self.pure_operator(name, &[left, right], op.text())
    }

    /// An operator applied to constants (and tuples of them) for real.
    fn pure_operator(&mut self, name: &str, operands: &[Val], what: &str) -> R<Val> {
        let Some(operands) = self.all_to_python(operands)? else {
            return self.stop(breaks::UNSUPPORTED_OPERATION, format!("operator {what}"));
        };
        let function = self.known.operator(self.py, name)?;
        match function.call1(pyo3::types::PyTuple::new(self.py, operands)?) {
            Ok(result) => self.fresh(result),
            Err(error) => self.raise_py(error),
        }
    }

    /// `+`, `*`, `|` … of lists, tuples, sets and dicts of the trace.
    fn container_op(&mut self, op: BinaryOp, inplace: bool, left: Val, right: Val) -> R<Option<Val>> {
        match (op, self.peek(left), self.peek(right)) {
            (BinaryOp::Add, Kind::List(_), _) if inplace => {
                for item in self.iterate(right)? {
                    self.list_push(left, item)?;
                }
                Ok(Some(left))
            }
            (BinaryOp::Add, Kind::List(a), Kind::List(b)) => {
                let items = a.iter().chain(b).copied().collect();
                Ok(Some(self.list(items)))
            }
            (BinaryOp::Add, Kind::Tuple { items: a, class: None }, Kind::Tuple { items: b, .. }) => {
                let items = a.iter().chain(b).copied().collect();
                Ok(Some(self.tuple(items)))
            }
            (BinaryOp::Add, Kind::Tuple { items, .. }, Kind::Const(size))
            | (BinaryOp::Add, Kind::Const(size), Kind::Tuple { items, .. })
                if self.known.is_size_type(size.get_type().as_any()) =>
            {
                let (items, size, first) = (items.clone(), size.clone(), matches!(self.peek(left), Kind::Const(_)));
                let mut other = Vec::new();
                for item in size.try_iter()? {
                    other.push(self.fresh(item?)?);
                }
                let joined = if first { [other, items].concat() } else { [items, other].concat() };
                Ok(Some(self.tuple(joined)))
            }
            (BinaryOp::Multiply, Kind::List(items) | Kind::Tuple { items, class: None }, Kind::Const(count))
            | (BinaryOp::Multiply, Kind::Const(count), Kind::List(items) | Kind::Tuple { items, class: None }) => {
                let Ok(count) = count.extract::<i64>() else { return Ok(None) };
                let is_list = matches!(self.peek(left), Kind::List(_)) || matches!(self.peek(right), Kind::List(_));
                let repeated = items.repeat(count.max(0) as usize);
                Ok(Some(if is_list {
                    if inplace && matches!(self.peek(left), Kind::List(_)) {
                        *self.kind_mut(left) = Kind::List(repeated);
                        self.touch(left);
                        left
                    } else {
                        self.list(repeated)
                    }
                } else {
                    self.tuple(repeated)
                }))
            }
            (BinaryOp::Or, Kind::Dict { .. }, Kind::Dict { .. }) => {
                let target = if inplace { left } else { self.copy_dict(left)? };
                for (key, value) in self.mapping_items(right)? {
                    self.dict_insert(target, key, value)?;
                }
                Ok(Some(target))
            }
            (
                BinaryOp::Or | BinaryOp::And | BinaryOp::Subtract | BinaryOp::Xor,
                Kind::Set { items: a, frozen },
                Kind::Set { items: b, .. },
            ) => {
                let frozen = *frozen;
                let mut result = indexmap::IndexMap::new();
                for (key, val) in a {
                    let in_b = b.contains_key(key);
                    if match op {
                        BinaryOp::Or => true,
                        BinaryOp::And => in_b,
                        _ => !in_b,
                    } {
                        result.insert(key.clone(), *val);
                    }
                }
                if matches!(op, BinaryOp::Or | BinaryOp::Xor) {
                    for (key, val) in b {
                        if !a.contains_key(key) {
                            result.insert(key.clone(), *val);
                        }
                    }
                }
                if inplace && !frozen {
                    *self.kind_mut(left) = Kind::Set { items: result, frozen };
                    self.touch(left);
                    return Ok(Some(left));
                }
                Ok(Some(self.add(Kind::Set { items: result, frozen })))
            }
            _ => Ok(None),
        }
    }

    /// Operators defined by classes: in place, then left, then reflected (a subclass's reflected one first).
    fn user_binary(
        &mut self,
        left: Val,
        right: Val,
        in_place: Option<&str>,
        method: &str,
        reflected: &str,
        what: &str,
    ) -> R<Val> {
        let (left_class, right_class) = (self.type_of(left)?, self.type_of(right)?);
        let mut order = vec![(left, method, right), (right, reflected, left)];
        if !left_class.is(&right_class)
            && right_class
                .cast::<pyo3::types::PyType>()
                .map_err(|e| breaks::Stop::Bug(e.to_string()))?
                .is_subclass(&left_class)?
        {
            order.swap(0, 1);
        }
        if let Some(in_place) = in_place {
            order.insert(0, (left, in_place, right));
        }
        for (owner, name, other) in order {
            // Literals answer NotImplemented to foreign classes.
            if matches!(self.peek(owner), Kind::Const(_) | Kind::Null) {
                continue;
            }
            let Some(function) = self.special_method(owner, name)? else { continue };
            let result = self.call(function, vec![other], Vec::new())?;
            let not_implemented = self.known.builtin(self.py, "NotImplemented")?;
            if !matches!(self.kind(result)?, Kind::Const(object) if object.is(&not_implemented)) {
                return Ok(result);
            }
        }
        self.stop(
            breaks::UNSUPPORTED_OPERATION,
            format!("operator {what} on {} and {}", left_class.repr()?, right_class.repr()?),
        )
    }

    pub fn unary_op(&mut self, function: &str, method: &str, val: Val) -> R<Val> {
        if self.is_tensor(val)? {
            let function = self.known.operator(self.py, function)?;
            return self.call_torch(&function, vec![val], Vec::new());
        }
        if self.has_user_methods(val)? {
            return match self.special_method(val, method)? {
                Some(function) => self.call(function, Vec::new(), Vec::new()),
                None => self.stop(breaks::UNSUPPORTED_OPERATION, method),
            };
        }
        self.pure_operator(function, &[val], method)
    }

    pub fn compare(&mut self, op: CompareOp, left: Val, right: Val) -> R<Val> {
        let Some(&(_, name, method, reflected)) = COMPARE.iter().find(|row| row.0 == op) else {
            return self.stop(breaks::UNSUPPORTED_OPERATION, op.text());
        };
        self.realize(left)?;
        self.realize(right)?;
        if self.is_tensor(left)? || self.is_tensor(right)? {
            let none_like = |t: &Self, v: Val| matches!(t.peek(v), Kind::Const(object) if object.is_none() || object.is_instance_of::<pyo3::types::PyString>());
            if matches!(op, CompareOp::Eq | CompareOp::Ne) && (none_like(self, left) || none_like(self, right)) {
                return Ok(self.bool(op == CompareOp::Ne));
            }
            let function = self.known.operator(self.py, name)?;
            return self.call_torch(&function, vec![left, right], Vec::new());
        }
        if let Some(equal) = self.container_equal(op, left, right)? {
            return Ok(self.bool(equal == (op == CompareOp::Eq)));
        }
        if self.has_user_methods(left)? || self.has_user_methods(right)? {
            return self.user_compare(op, left, right, method, reflected);
        }
        self.pure_operator(name, &[left, right], op.text())
    }

    /// `==` and `!=` of lists, tuples and dicts that hold more than constants.
    fn container_equal(&mut self, op: CompareOp, left: Val, right: Val) -> R<Option<bool>> {
        if !matches!(op, CompareOp::Eq | CompareOp::Ne) {
            return Ok(None);
        }
        if left == right && !matches!(self.peek(left), Kind::Const(_) | Kind::Instance(_) | Kind::Object(_)) {
            return Ok(Some(true));
        }
        let (a, b) = match (self.peek(left), self.peek(right)) {
            (Kind::List(a), Kind::List(b)) => (a.clone(), b.clone()),
            (Kind::Tuple { items: a, .. }, Kind::Tuple { items: b, .. }) => (a.clone(), b.clone()),
            (Kind::Dict { items: a, .. }, Kind::Dict { items: b, .. }) => {
                if a.len() != b.len() || !a.keys().all(|key| b.contains_key(key)) {
                    return Ok(Some(false));
                }
                (a.values().map(|v| v.1).collect(), a.keys().filter_map(|key| b.get(key).map(|v| v.1)).collect())
            }
            (Kind::Set { items: a, .. }, Kind::Set { items: b, .. }) => {
                return Ok(Some(a.len() == b.len() && a.keys().all(|key| b.contains_key(key))));
            }
            (Kind::List(_) | Kind::Dict { .. } | Kind::Set { .. }, Kind::Const(_))
            | (Kind::Const(_), Kind::List(_) | Kind::Dict { .. } | Kind::Set { .. }) => {
                return Ok(Some(false));
            }
            _ => return Ok(None),
        };
        if a.len() != b.len() {
            return Ok(Some(false));
        }
        for (x, y) in a.into_iter().zip(b) {
            if x == y {
                continue;
            }
            let equal = self.compare(CompareOp::Eq, x, y)?;
            if !self.truth(equal)? {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    fn user_compare(&mut self, op: CompareOp, left: Val, right: Val, method: &str, reflected: &str) -> R<Val> {
        let object_class = self.py.get_type::<PyAny>().into_any();
        for (owner, name, other) in [(left, method, right), (right, reflected, left)] {
            if matches!(self.peek(owner), Kind::Const(_)) {
                continue;
            }
            let class = self.type_of(owner)?;
            let found = self.guarded_type_lookup(&class, name)?;
            let default = object_class.getattr(name).ok();
            let Some(found) = found else { continue };
            if default.is_some_and(|default| default.is(&found)) {
                continue;
            }
            if !found.get_type().is(&self.known.types(self.py, "FunctionType")?) {
                // A comparison written in C: real objects only.
                if let Some(operands) = self.all_to_python(&[left, right])? {
                    let function =
                        self.known.operator(self.py, COMPARE.iter().find(|r| r.0 == op).map_or("eq", |r| r.1))?;
                    let identity = self.used_by_identity(left)? && self.used_by_identity(right)?;
                    if identity {
                        return match function.call1(pyo3::types::PyTuple::new(self.py, operands)?) {
                            Ok(result) => self.fresh(result),
                            Err(error) => self.raise_py(error),
                        };
                    }
                }
                return self.stop(breaks::UNSUPPORTED_OPERATION, format!("comparison of {}", class.repr()?));
            }
            let function = self.existing(found);
            let result = self.call(function, vec![owner, other], Vec::new())?;
            let not_implemented = self.known.builtin(self.py, "NotImplemented")?;
            if !matches!(self.kind(result)?, Kind::Const(object) if object.is(&not_implemented)) {
                return Ok(result);
            }
        }
        match op {
            CompareOp::Eq | CompareOp::Ne => {
                let same = self.is_same(left, right)?;
                Ok(self.bool(same == (op == CompareOp::Eq)))
            }
            _ => self.stop(breaks::UNSUPPORTED_OPERATION, format!("comparison {}", op.text())),
        }
    }

    pub fn used_by_identity(&mut self, val: Val) -> R<bool> {
        let py = self.py;
        Ok(match self.kind(val)? {
            Kind::Const(_) => true,
            Kind::Object(object) => {
                let object = object.clone();
                self.known.is_used_by_identity(py, &object, object.get_type().as_any())?
            }
            _ => false,
        })
    }

    /// `bool(value)`
    pub fn truth(&mut self, val: Val) -> R<bool> {
        self.realize(val)?;
        match self.peek(val) {
            Kind::Const(object) => Ok(object.is_truthy()?),
            Kind::Tensor(tensor) => {
                let detail = format!("bool() of a tensor of shape {}", tensor.fake.getattr("shape")?.str()?);
                self.stop(breaks::DATA_DEPENDENT_BRANCH, detail)
            }
            Kind::Tuple { items, .. } | Kind::List(items) => Ok(!items.is_empty()),
            Kind::Dict { items, .. } => Ok(!items.is_empty()),
            Kind::Set { items, .. } => Ok(!items.is_empty()),
            Kind::DictView { .. } => Ok(self.length(val)? > 0),
            Kind::Function(_)
            | Kind::Method { .. }
            | Kind::Iter(_)
            | Kind::Generator(_)
            | Kind::Slice(_)
            | Kind::Super { .. } => Ok(true),
            Kind::Object(_) | Kind::Instance(_) => {
                if let Some(method) = self.special_method(val, "__bool__")? {
                    let result = self.call(method, Vec::new(), Vec::new())?;
                    return self.truth(result);
                }
                if self.special_method(val, "__len__")?.is_some() {
                    return Ok(self.length(val)? > 0);
                }
                Ok(true)
            }
            _ => self.stop(breaks::UNSUPPORTED_OPERATION, "truth of this value"),
        }
    }

    /// `left is right`
    pub fn is_same(&mut self, left: Val, right: Val) -> R<bool> {
        if left == right {
            return Ok(true);
        }
        self.realize(left)?;
        self.realize(right)?;
        let object = |t: &Self, val: Val| -> Option<Object<'py>> {
            match t.peek(val) {
                Kind::Const(object) | Kind::Object(object) => Some(object.clone()),
                _ => t.entry(val).external.clone(),
            }
        };
        Ok(match (object(self, left), object(self, right)) {
            (Some(a), Some(b)) => {
                let same = a.is(&b);
                if !same && !matches!(self.peek(left), Kind::Const(_)) && !matches!(self.peek(right), Kind::Const(_)) {
                    self.guard_distinct(left, right);
                }
                same
            }
            _ => false,
        })
    }

    /// Two external objects that the trace found to be different must stay different.
    pub fn guard_distinct(&mut self, left: Val, right: Val) {
        if let (Some(a), Some(b)) = (self.source_of(left), self.source_of(right))
            && !(a.is_object() && b.is_object())
        {
            self.guard(&a, oxy_guards::GuardKind::NotSameObject(b));
        }
    }

    /// `item in container`
    pub fn contains(&mut self, container: Val, item: Val) -> R<bool> {
        self.realize(container)?;
        self.realize(item)?;
        match self.peek(container) {
            Kind::Dict { .. } | Kind::MappingProxy(_) => Ok(self.dict_get(container, item)?.is_some()),
            Kind::DictView { dict, view: crate::value::View::Keys } => {
                let dict = *dict;
                Ok(self.dict_get(dict, item)?.is_some())
            }
            Kind::Set { .. } => {
                let key = self.key(item)?;
                Ok(matches!(self.peek(container), Kind::Set { items, .. } if items.contains_key(&key)))
            }
            Kind::Const(_) => {
                let found = self.pure_operator("contains", &[container, item], "in")?;
                self.truth(found)
            }
            Kind::Tensor(_) => self.stop(breaks::DATA_DEPENDENT_BRANCH, "membership in a tensor"),
            Kind::Object(_) | Kind::Instance(_) => {
                if let Some(method) = self.special_method(container, "__contains__")? {
                    let result = self.call(method, vec![item], Vec::new())?;
                    return self.truth(result);
                }
                self.contains_by_iteration(container, item)
            }
            _ => self.contains_by_iteration(container, item),
        }
    }

    fn contains_by_iteration(&mut self, container: Val, item: Val) -> R<bool> {
        for candidate in self.iterate(container)? {
            if self.is_same(candidate, item)? {
                return Ok(true);
            }
            let equal = self.compare(CompareOp::Eq, candidate, item)?;
            if self.truth(equal)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

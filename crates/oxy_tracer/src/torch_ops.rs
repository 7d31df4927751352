//! Calls of torch: recorded in the graph, with result metadata from fake tensors.

use crate::breaks::{self, R, Stop};
use crate::calls::Kwargs;
use crate::frame::Place;
use crate::torch_graph::{Call, CallArg, Out, name_of};
use crate::tracer::Tracer;
use crate::value::{Kind, Object, TensorVal, Val};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// Attributes of tensors whose value is metadata, known from the fake.
const METADATA: &[&str] = &[
    "shape",
    "dtype",
    "device",
    "layout",
    "ndim",
    "requires_grad",
    "is_cuda",
    "is_cpu",
    "is_sparse",
    "is_meta",
    "is_quantized",
    "is_nested",
    "is_mkldnn",
    "is_mps",
    "is_xla",
    "is_xpu",
    "is_ipu",
    "is_hpu",
    "is_vulkan",
    "is_sparse_csr",
    "itemsize",
    "nbytes",
    "is_leaf",
    "names",
    "retains_grad",
    "is_inference",
];

/// Functions and methods whose non-tensor results depend only on metadata or guarded state.
const METADATA_CALLS: &[&str] = &[
    "size",
    "stride",
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "element_size",
    "storage_offset",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "get_device",
    "type",
    "is_conj",
    "is_neg",
    "is_inference",
    "is_same_size",
    "has_names",
    "is_tensor",
    "is_nonzero_meta",
    "broadcast_shapes",
    "promote_types",
    "result_type",
    "can_cast",
    "__len__",
    "is_distributed",
    "is_coalesced",
    "_is_view",
    "is_shared",
    "is_pinned",
    "has_torch_function",
];

impl<'py> Tracer<'py, '_> {
    /// The recorded form of an argument.
    fn call_arg(&mut self, val: Val) -> R<CallArg<'py>> {
        self.realize(val)?;
        let many = |t: &mut Self, items: &[Val]| items.iter().map(|&item| t.call_arg(item)).collect::<R<Vec<_>>>();
        Ok(match self.peek(val) {
            Kind::Tensor(tensor) => CallArg::Tensor(tensor.number),
            Kind::Const(object) => CallArg::Object(object.clone()),
            Kind::Tuple { items, .. } => {
                let items = items.clone();
                CallArg::Tuple(many(self, &items)?)
            }
            Kind::List(items) => {
                let items = items.clone();
                CallArg::List(many(self, &items)?)
            }
            Kind::Slice(parts) => {
                let parts = *parts;
                CallArg::Slice(Box::new([self.call_arg(parts[0])?, self.call_arg(parts[1])?, self.call_arg(parts[2])?]))
            }
            Kind::Dict { items, .. } => {
                let pairs: Vec<(Val, Val)> = items.values().copied().collect();
                let mut out = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    let Some(key) = self.to_python(key)? else {
                        return self
                            .stop(breaks::UNSUPPORTED_CALL, "a dict with tensor keys as an operator's argument");
                    };
                    out.push((key, self.call_arg(value)?));
                }
                CallArg::Dict(out)
            }
            Kind::Object(object) => {
                let object = object.clone();
                if self.known.is_used_by_identity(self.py, &object, object.get_type().as_any())? {
                    CallArg::Object(object)
                } else {
                    let text = object.get_type().repr()?.to_string();
                    return self.stop(breaks::UNSUPPORTED_CALL, format!("an operator with an argument of {text}"));
                }
            }
            Kind::Iter(_) | Kind::Generator(_) | Kind::DictView { .. } | Kind::Set { .. } => {
                let items = self.iterate(val)?;
                CallArg::List(many(self, &items)?)
            }
            _ => {
                let what = self.describe(val);
                return self.stop(breaks::UNSUPPORTED_CALL, format!("an operator with an argument of type {what}"));
            }
        })
    }

    pub fn call_torch(&mut self, callable: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        self.call_torch_kw(callable, args, kwargs)
    }

    /// Records a call of a torch callable and gives its result.
    pub fn call_torch_kw(&mut self, callable: &Object<'py>, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let py = self.py;
        let call_args = args.iter().map(|&arg| self.call_arg(arg)).collect::<R<Vec<_>>>()?;
        let mut call_kwargs = Vec::with_capacity(kwargs.len());
        for (name, val) in &kwargs {
            call_kwargs.push((name.clone(), self.call_arg(*val)?));
        }
        let name: String = callable.getattr("__name__").and_then(|n| n.extract()).unwrap_or_else(|_| name_of(callable));
        if let Some(reason) = crate::builtins::breaking_operator(&name) {
            return self.stop(reason, name_of(callable));
        }
        let mark = self.graph.capture.call_method0(pyo3::intern!(py, "mark"))?;
        let result = match self.graph.call_on_fakes(py, callable, &call_args, &call_kwargs) {
            Ok(result) => result,
            Err(error) => {
                self.graph.capture.call_method1(pyo3::intern!(py, "rollback"), (mark,))?;
                let what = name_of(callable);
                if error.is_instance(py, self.known.data_dependent.bind(py)) {
                    let reason = if crate::builtins::reads_values(&name) {
                        breaks::DATA_DEPENDENT_VALUE
                    } else {
                        breaks::DYNAMIC_SHAPE_OPERATOR
                    };
                    return self.stop(reason, what);
                }
                return self.stop(breaks::FAKE_CALL, format!("{what}: {error}"));
            }
        };
        let metadata_only = METADATA_CALLS.contains(&name.as_str());
        let (val, out) = self.wrap_result(&result)?;
        if !has_tensor(&out) {
            let mutates = matches!(name.as_str(), "setitem" | "__setitem__")
                || name.ends_with("_foreach_")
                || name.starts_with("_foreach");
            if metadata_only || crate::builtins::is_constant_function(callable)? {
                self.graph.capture.call_method1(pyo3::intern!(py, "rollback"), (mark,))?;
                return Ok(val);
            }
            if !mutates && !result.is_none() {
                self.graph.capture.call_method1(pyo3::intern!(py, "rollback"), (mark,))?;
                return self.stop(
                    breaks::UNSUPPORTED_CALL,
                    format!("{} gives {}", name_of(callable), result.get_type().repr()?),
                );
            }
            self.graph.effects += 1;
        }
        let places = self.places();
        self.graph.calls.push(Call { callable: callable.clone(), args: call_args, kwargs: call_kwargs, out, places });
        Ok(val)
    }

    /// Records a call that was made on fakes already (by a nonstrict function).
    pub fn record_call(
        &mut self,
        callable: &Object<'py>,
        args: &Object<'py>,
        kwargs: &Object<'py>,
        result: &Object<'py>,
    ) -> R<()> {
        let (_, out) = self.wrap_result(result)?;
        let name: String = callable.getattr("__name__").and_then(|n| n.extract()).unwrap_or_default();
        let mutates = name == "__setitem__" || name.ends_with('_') && !name.ends_with("__");
        if !has_tensor(&out) && !mutates {
            return Ok(());
        }
        let mut call_args = Vec::new();
        for arg in args.try_iter()? {
            call_args.push(self.made_arg(&arg?)?);
        }
        let mut call_kwargs = Vec::new();
        for (key, value) in kwargs.cast::<pyo3::types::PyDict>().map_err(|e| Stop::Bug(e.to_string()))?.iter() {
            call_kwargs.push((key.extract()?, self.made_arg(&value)?));
        }
        self.graph.effects += mutates as usize;
        let places = self.places();
        self.graph.calls.push(Call { callable: callable.clone(), args: call_args, kwargs: call_kwargs, out, places });
        Ok(())
    }

    /// The recorded form of a real argument whose tensors are fakes.
    fn made_arg(&mut self, object: &Object<'py>) -> R<CallArg<'py>> {
        let py = self.py;
        if object.is_instance(self.known.tensor.bind(py))? {
            let (val, _) = self.wrap_result(object)?;
            return self.call_arg(val);
        }
        let many =
            |t: &mut Self, items: Vec<Object<'py>>| items.iter().map(|item| t.made_arg(item)).collect::<R<Vec<_>>>();
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return Ok(CallArg::Tuple(many(self, tuple.iter().collect())?));
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            return Ok(CallArg::List(many(self, list.iter().collect())?));
        }
        Ok(CallArg::Object(object.clone()))
    }

    /// The running frames' places, outermost first.
    pub fn places(&self) -> Vec<Place> {
        self.here
            .iter()
            .map(|(code, pc)| Place {
                file: code.filename.clone(),
                line: code.unit().line_of(*pc).unwrap_or(0),
                function: code.name.clone(),
            })
            .collect()
    }

    fn wrap_result(&mut self, result: &Object<'py>) -> R<(Val, Out)> {
        let py = self.py;
        if result.is_instance(self.known.tensor.bind(py))? {
            if let Some(&val) = self.fakes.get(&(result.as_ptr() as usize))
                && let Kind::Tensor(tensor) = self.peek(val)
            {
                return Ok((val, Out::Same(tensor.number)));
            }
            let number = self.graph.number(result.clone());
            let class = self.known.tensor.bind(py).clone();
            let val = self.add(Kind::Tensor(TensorVal { fake: result.clone(), class, number }));
            self.fakes.insert(result.as_ptr() as usize, val);
            return Ok((val, Out::Tensor(number)));
        }
        if self.known.is_size_type(result.get_type().as_any()) {
            return Ok((self.constant(result.clone()), Out::Other));
        }
        if let Ok(tuple) = result.cast::<PyTuple>() {
            let mut items = Vec::new();
            let mut outs = Vec::new();
            for item in tuple.iter() {
                let (val, out) = self.wrap_result(&item)?;
                items.push(val);
                outs.push(out);
            }
            let class = result.cast_exact::<PyTuple>().is_err().then(|| result.get_type().into_any());
            let val = self.add(Kind::Tuple { items, class });
            return Ok((val, Out::Items(outs)));
        }
        if let Ok(list) = result.cast_exact::<PyList>() {
            let mut items = Vec::new();
            let mut outs = Vec::new();
            for item in list.iter() {
                let (val, out) = self.wrap_result(&item)?;
                items.push(val);
                outs.push(out);
            }
            return Ok((self.list(items), Out::Items(outs)));
        }
        Ok((self.fresh(result.clone())?, Out::Other))
    }

    /// An attribute of a tensor.
    pub fn tensor_attr(&mut self, owner: Val, name: &str) -> R<Val> {
        let py = self.py;
        let Kind::Tensor(tensor) = self.peek(owner) else {
            return Err(Stop::Bug("tensor_attr of something else".to_owned()));
        };
        let (fake, class) = (tensor.fake.clone(), tensor.class.clone());
        if METADATA.contains(&name) {
            let value = fake.getattr(name)?;
            return self.fresh(value);
        }
        match name {
            "__class__" => return Ok(self.existing(class)),
            "data" => {
                let function = self.known.builtin(py, "getattr")?;
                let name = self.str("data");
                return self.call_torch(&function, vec![owner, name], Vec::new());
            }
            "grad" => {
                let Some(object) = self.entry(owner).external.clone() else {
                    return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, "grad of an intermediate tensor");
                };
                let Some(source) = self.source_of(owner) else {
                    return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, "grad of an intermediate tensor");
                };
                let grad = object.getattr("grad")?;
                let source = self.src(oxy_guards::SourceKind::TensorGrad(source));
                return Ok(self.external(grad, source));
            }
            _ => {}
        }
        if let Some(val) = self.instance_attr(owner, name)? {
            return Ok(val);
        }
        let Some(descriptor) = self.type_lookup(&class, name)? else {
            return self.raise("AttributeError", &format!("'Tensor' object has no attribute '{name}'"));
        };
        let kind = descriptor.get_type().into_any();
        if kind.is(&self.known.types(py, "GetSetDescriptorType")?) || kind.is(&self.known.builtin(py, "property")?) {
            if matches!(name, "T" | "mT" | "H" | "mH" | "real" | "imag") {
                let function = self.known.builtin(py, "getattr")?;
                let name = self.str(name);
                return self.call_torch(&function, vec![owner, name], Vec::new());
            }
            return self.stop(breaks::UNSUPPORTED_ATTRIBUTE, format!("Tensor.{name}"));
        }
        let function = self.existing(descriptor);
        Ok(self.add(Kind::Method { function, receiver: owner }))
    }
}

fn has_tensor(out: &Out) -> bool {
    match out {
        Out::Tensor(_) | Out::Same(_) => true,
        Out::Items(items) => items.iter().any(has_tensor),
        Out::Other => false,
    }
}

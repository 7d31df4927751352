//! Objects of the running interpreter and of torch that the tracer recognises, fetched once.

use crate::value::Object;
use oxy_graph::{DType, Device, DeviceType};
use oxy_guards::{PyObj, TensorGuard};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

/// Recognised objects. Everything in it lives as long as the process.
pub struct WellKnown {
    literals: FxHashSet<usize>,
    singletons: FxHashSet<usize>,
    identity_types: FxHashSet<usize>,
    dict_classes: FxHashSet<usize>,
    defaultdict: usize,
    size: usize,
    tensor_classes: FxHashSet<usize>,
    cell: Py<PyAny>,
    slice: Py<PyAny>,
    builtins: Py<PyAny>,
    types: Py<PyAny>,
    pub torch: Py<PyAny>,
    pub tensor: Py<PyAny>,
    pub parameter: Py<PyAny>,
    pub module: Py<PyAny>,
    pub operator: Py<PyAny>,
    pub capture: Py<PyAny>,
    pub data_dependent: Py<PyAny>,
    pub op_overload: Py<PyAny>,
    pub op_packet: Py<PyAny>,
    enum_class: Py<PyAny>,
    is_grad_enabled: Py<PyAny>,
    dtypes: FxHashMap<usize, DType>,
    strided: usize,
    pub module_getattr: usize,
    /// C functions of torch that are one operator of the graph.
    pub operators: FxHashSet<usize>,
    /// Classes of objects that hold arguments, by address.
    pub deque: usize,
    pub cached_property: usize,
    pub holders: Vec<(usize, crate::partials::Holder)>,
    /// What calling an object means, by its address: filled from `builtins::table`.
    pub handlers: FxHashMap<usize, &'static crate::builtins::Handler>,
    /// Keeps the objects alive whose addresses are used above.
    pub keep: Vec<Py<PyAny>>,
}

impl WellKnown {
    /// Fetches everything; torch is imported by then.
    pub fn load(py: Python<'_>) -> PyResult<WellKnown> {
        let torch = py.import("torch")?;
        let (builtins, types, collections) = (py.import("builtins")?, py.import("types")?, py.import("collections")?);
        let capture = py.import("oxyfuel._capture")?;
        let mut keep = Vec::new();
        let mut address = |object: Object<'_>| -> usize {
            let address = object.as_ptr() as usize;
            keep.push(object.unbind());
            address
        };
        let mut literals = FxHashSet::default();
        let mut singletons = FxHashSet::default();
        for name in ["int", "float", "complex", "str", "bytes", "range", "slice"] {
            literals.insert(address(builtins.getattr(name)?));
        }
        let float32 = torch.getattr("float32")?;
        for object in [
            py.None().into_bound(py),
            builtins.getattr("True")?,
            builtins.getattr("Ellipsis")?,
            builtins.getattr("NotImplemented")?,
            float32.clone(),
            torch.getattr("strided")?,
            torch.getattr("contiguous_format")?,
            torch.getattr("per_tensor_affine")?,
        ] {
            let class = address(object.get_type().into_any());
            literals.insert(class);
            singletons.insert(class);
        }
        let re = py.import("re")?;
        for name in ["Pattern", "Match"] {
            literals.insert(address(re.getattr(name)?));
        }
        let datetime = py.import("datetime")?;
        for name in ["date", "time", "datetime", "timedelta"] {
            literals.insert(address(datetime.getattr(name)?));
        }
        literals.insert(address(torch.getattr("device")?));
        literals.insert(address(torch.getattr("finfo")?));
        literals.insert(address(torch.getattr("iinfo")?));
        let mut identity_types = FxHashSet::default();
        for name in [
            "FunctionType",
            "BuiltinFunctionType",
            "MethodDescriptorType",
            "WrapperDescriptorType",
            "ModuleType",
            "GetSetDescriptorType",
            "MemberDescriptorType",
            "ClassMethodDescriptorType",
            "CodeType",
            "MethodWrapperType",
        ] {
            identity_types.insert(address(types.getattr(name)?));
        }
        for name in ["property", "staticmethod", "classmethod"] {
            identity_types.insert(address(builtins.getattr(name)?));
        }
        identity_types.insert(address(torch.getattr("Generator")?));
        let mut dict_classes = FxHashSet::default();
        dict_classes.insert(address(builtins.getattr("dict")?));
        dict_classes.insert(address(collections.getattr("OrderedDict")?));
        let defaultdict = address(collections.getattr("defaultdict")?);
        dict_classes.insert(defaultdict);
        let nn = torch.getattr("nn")?;
        let (tensor, parameter) = (torch.getattr("Tensor")?, nn.getattr("Parameter")?);
        let mut tensor_classes = FxHashSet::default();
        tensor_classes.insert(address(tensor.clone()));
        tensor_classes.insert(address(parameter.clone()));
        let mut dtypes = FxHashMap::default();
        for code in 0..64 {
            if let Some(dtype) = DType::from_code(code)
                && let Ok(object) = torch.getattr(dtype.torch_name())
            {
                dtypes.insert(address(object), dtype);
            }
        }
        let mut operators = FxHashSet::default();
        let torch_c = torch.getattr("_C")?;
        for holder in ["_VariableFunctions", "_nn", "_linalg", "_fft", "_special", "_sparse", "_nested"] {
            let Ok(holder) = torch_c.getattr(holder) else { continue };
            for name in holder.dir()?.iter() {
                let name: String = name.extract()?;
                if name.starts_with("__") {
                    continue;
                }
                if let Ok(object) = holder.getattr(name.as_str())
                    && object.is_callable()
                {
                    operators.insert(address(object));
                }
            }
        }
        let ops = py.import("torch._ops")?;
        let handlers = crate::builtins::resolve(py, &mut keep)?;
        let mut address = |object: Object<'_>| -> usize {
            let address = object.as_ptr() as usize;
            keep.push(object.unbind());
            address
        };
        use crate::partials::Holder;
        let (functools, operator) = (py.import("functools")?, py.import("operator")?);
        let holders = vec![
            (address(functools.getattr("partial")?), Holder::Partial),
            (address(operator.getattr("itemgetter")?), Holder::ItemGetter),
            (address(operator.getattr("attrgetter")?), Holder::AttrGetter),
            (address(operator.getattr("methodcaller")?), Holder::MethodCaller),
        ];
        Ok(WellKnown {
            holders,
            deque: address(collections.getattr("deque")?),
            cached_property: address(functools.getattr("cached_property")?),
            literals,
            singletons,
            identity_types,
            dict_classes,
            defaultdict,
            size: address(torch.getattr("Size")?),
            tensor_classes,
            cell: types.getattr("CellType")?.unbind(),
            slice: builtins.getattr("slice")?.unbind(),
            operator: py.import("operator")?.into_any().unbind(),
            data_dependent: capture.getattr("DataDependent")?.unbind(),
            capture: capture.getattr("Capture")?.unbind(),
            op_overload: ops.getattr("OpOverload")?.unbind(),
            op_packet: ops.getattr("OpOverloadPacket")?.unbind(),
            enum_class: py.import("enum")?.getattr("Enum")?.unbind(),
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            dtypes,
            strided: address(torch.getattr("strided")?),
            module_getattr: address(nn.getattr("Module")?.getattr("__getattr__")?),
            module: nn.getattr("Module")?.unbind(),
            tensor: tensor.unbind(),
            parameter: parameter.unbind(),
            builtins: builtins.into_any().unbind(),
            types: types.into_any().unbind(),
            torch: torch.into_any().unbind(),
            handlers,
            operators,
            keep,
        })
    }

    /// Types whose instances are immutable literals.
    pub fn is_literal_type(&self, class: &Object<'_>) -> bool {
        self.literals.contains(&(class.as_ptr() as usize))
    }

    /// Literal types whose equal values are one object.
    pub fn is_singleton_type(&self, class: &Object<'_>) -> bool {
        self.singletons.contains(&(class.as_ptr() as usize))
    }

    pub fn is_tensor_class(&self, class: &Object<'_>) -> bool {
        self.tensor_classes.contains(&(class.as_ptr() as usize))
    }

    pub fn is_size_type(&self, class: &Object<'_>) -> bool {
        self.size == class.as_ptr() as usize
    }

    pub fn is_dict_class(&self, class: &Object<'_>) -> bool {
        self.dict_classes.contains(&(class.as_ptr() as usize))
    }

    pub fn is_defaultdict(&self, class: &Object<'_>) -> bool {
        self.defaultdict == class.as_ptr() as usize
    }

    pub fn cell_type<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.cell.bind(py).clone()
    }

    pub fn slice_type<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.slice.bind(py).clone()
    }

    /// An attribute of `builtins`.
    pub fn builtin<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Object<'py>> {
        self.builtins.bind(py).getattr(name)
    }

    /// An attribute of `types`.
    pub fn types<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Object<'py>> {
        self.types.bind(py).getattr(name)
    }

    /// An attribute of `operator`.
    pub fn operator<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Object<'py>> {
        self.operator.bind(py).getattr(name)
    }

    pub fn grad_enabled(&self, py: Python<'_>) -> PyResult<bool> {
        self.is_grad_enabled.bind(py).call0()?.extract()
    }

    /// Objects that mean something by being what they are: functions, classes, modules, descriptors, enum members.
    pub fn is_used_by_identity(&self, py: Python<'_>, object: &Object<'_>, class: &Object<'_>) -> PyResult<bool> {
        Ok(self.identity_types.contains(&(class.as_ptr() as usize))
            || object.is_instance_of::<PyType>()
            || object.is_instance(self.enum_class.bind(py))?
            || object.is_instance(self.op_overload.bind(py))?
            || object.is_instance(self.op_packet.bind(py))?)
    }

    /// The hash and equality of a key run no user code.
    pub fn has_builtin_hash(&self, py: Python<'_>, key: &Object<'_>) -> PyResult<bool> {
        let class = key.get_type();
        if self.is_literal_type(class.as_any()) || self.is_size_type(class.as_any()) {
            return Ok(true);
        }
        if let Ok(tuple) = key.cast_exact::<PyTuple>() {
            for item in tuple.iter() {
                if !self.has_builtin_hash(py, &item)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let object_hash = py.get_type::<PyAny>().getattr("__hash__")?;
        let hash = class.getattr("__hash__")?;
        Ok(hash.is(&object_hash)
            || self.identity_types.contains(&(class.as_ptr() as usize))
            || key.is_instance_of::<PyType>()
            || key.is_instance(self.enum_class.bind(py))?
            || key.is_instance(self.tensor.bind(py))?)
    }

    /// Literals, and tuples of them.
    pub fn is_constant_tree(&self, object: &Object<'_>) -> bool {
        match object.cast_exact::<PyTuple>() {
            Ok(tuple) => tuple.iter().all(|item| self.is_constant_tree(&item)),
            Err(_) => self.is_literal_type(object.get_type().as_any()),
        }
    }

    pub fn dtype(&self, object: &Object<'_>) -> Option<DType> {
        self.dtypes.get(&(object.as_ptr() as usize)).copied()
    }

    /// The metadata of a real tensor that a trace depends on; `Err(None)`: not an ordinary strided tensor.
    pub fn tensor_guard(&self, tensor: &Object<'_>) -> Result<TensorGuard, Option<String>> {
        let text = |e: PyErr| Some(e.to_string());
        let layout = tensor.getattr("layout").map_err(text)?;
        if layout.as_ptr() as usize != self.strided {
            return Err(None);
        }
        for flag in ["is_quantized", "is_nested", "is_mkldnn"] {
            if tensor.getattr(flag).and_then(|v| v.extract::<bool>()).map_err(text)? {
                return Err(None);
            }
        }
        let device = tensor.getattr("device").map_err(text)?;
        let kind: String = device.getattr("type").and_then(|v| v.extract()).map_err(text)?;
        let index: Option<i16> = device.getattr("index").and_then(|v| v.extract()).map_err(text)?;
        let kind = match kind.as_str() {
            "cpu" => DeviceType::Cpu,
            "cuda" => DeviceType::Cuda,
            "meta" => DeviceType::Meta,
            _ => return Err(None),
        };
        let dtype = tensor.getattr("dtype").map_err(text)?;
        let dtype = self.dtype(&dtype).ok_or(None)?;
        let sizes: Vec<i64> = tensor.call_method0("size").and_then(|v| v.extract()).map_err(text)?;
        let strides: Vec<i64> = tensor.call_method0("stride").and_then(|v| v.extract()).map_err(text)?;
        let flag = |name: &str| -> Result<bool, Option<String>> {
            tensor.call_method0(name).and_then(|v| v.extract()).map_err(text)
        };
        Ok(TensorGuard {
            pytype: PyObj::new(tensor.get_type().as_any()),
            dtype,
            device: Device { kind, index: index.unwrap_or(-1) },
            sizes: sizes.as_slice().into(),
            strides: strides.as_slice().into(),
            storage_offset: None,
            requires_grad: tensor.getattr("requires_grad").and_then(|v| v.extract()).map_err(text)?,
            is_leaf: None,
            is_conj: flag("is_conj")?,
            is_neg: flag("is_neg")?,
        })
    }
}

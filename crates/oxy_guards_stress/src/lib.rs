//! Test-only extension module behind `tests/guards`: guard programs and exits made and run from Python.
//!
//! Guards, recipes and effects are given as tuples whose first item is the variant's name. Unsafe only to make an
//! environment from a list of locals.

use oxy_graph::{DType, Device, DeviceType};
use oxy_guards::{
    Effect, Env, Exit, GlobalState, Guard, GuardKind, GuardProgram, PyObj, Recipe, RecipeId, SlotIndex, Source,
    SourceKind, SourceTable, TensorGuard,
};
use pyo3::{
    exceptions::{PyAssertionError, PyValueError},
    prelude::*,
    types::{PyFunction, PyList, PyTuple},
};
use std::{ptr, sync::Mutex, time::Instant};

type Object<'py> = Bound<'py, PyAny>;

/// A table of sources.
#[pyclass]
struct Table(Mutex<SourceTable>);

#[pyclass(name = "Source", frozen)]
#[derive(Clone)]
struct PySource(Source);

#[pymethods]
impl PySource {
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn same(&self, other: &PySource) -> bool {
        self.0 == other.0
    }
}

#[pymethods]
impl Table {
    #[new]
    fn new() -> Table {
        Table(Mutex::default())
    }

    /// A source: the variant's name, then its fields.
    #[pyo3(signature = (kind, *fields))]
    fn src(&self, kind: &str, fields: &Bound<'_, PyTuple>) -> PyResult<PySource> {
        let base = || -> PyResult<Source> { source(&fields.get_item(0)?) };
        let index = |at: usize| -> PyResult<u32> { fields.get_item(at)?.extract() };
        let object = |at: usize| -> PyResult<PyObj> { Ok(PyObj::new(&fields.get_item(at)?)) };
        let kind = match kind {
            "Local" => SourceKind::Local(index(0)?),
            "Stack" => SourceKind::Stack(index(0)?),
            "Object" => SourceKind::Object(object(0)?),
            "Globals" => SourceKind::Globals,
            "Builtins" => SourceKind::Builtins,
            "Function" => SourceKind::Function,
            "CellContents" => SourceKind::CellContents(base()?),
            "InstanceDict" => SourceKind::InstanceDict(base()?),
            "InstanceAttr" => SourceKind::InstanceAttr(base()?, object(1)?),
            "DictItem" => SourceKind::DictItem(base()?, object(1)?),
            "DictKeyAt" => SourceKind::DictKeyAt(base()?, index(1)?),
            "ListItem" => SourceKind::ListItem(base()?, index(1)?),
            "TupleItem" => SourceKind::TupleItem(base()?, index(1)?),
            "TypeOf" => SourceKind::TypeOf(base()?),
            "TypeAttr" => SourceKind::TypeAttr(base()?, object(1)?),
            "Member" => SourceKind::Member(base()?, object(1)?),
            "Attr" => SourceKind::Attr(base()?, object(1)?),
            "FunctionCode" => SourceKind::FunctionCode(base()?),
            "FunctionDefaults" => SourceKind::FunctionDefaults(base()?),
            "FunctionKwDefaults" => SourceKind::FunctionKwDefaults(base()?),
            "FunctionClosure" => SourceKind::FunctionClosure(base()?),
            "FunctionGlobals" => SourceKind::FunctionGlobals(base()?),
            "MethodSelf" => SourceKind::MethodSelf(base()?),
            "MethodFunction" => SourceKind::MethodFunction(base()?),
            "TensorGrad" => SourceKind::TensorGrad(base()?),
            "WeakrefTarget" => SourceKind::WeakrefTarget(base()?),
            "PartialFunc" => SourceKind::PartialFunc(base()?),
            "PartialArgs" => SourceKind::PartialArgs(base()?),
            "PartialKeywords" => SourceKind::PartialKeywords(base()?),
            other => return Err(PyValueError::new_err(format!("no source {other}"))),
        };
        let mut table = self.0.lock().map_err(|error| PyAssertionError::new_err(error.to_string()))?;
        Ok(PySource(table.intern(kind)))
    }
}

fn source(object: &Object<'_>) -> PyResult<Source> {
    Ok(object.cast::<PySource>()?.get().0.clone())
}

fn sources(object: &Object<'_>) -> PyResult<Vec<Source>> {
    object.try_iter()?.map(|item| source(&item?)).collect()
}

fn objects(object: &Object<'_>) -> PyResult<Vec<PyObj>> {
    object.try_iter()?.map(|item| Ok(PyObj::new(&item?))).collect()
}

/// `(kind, source, field)`
fn guard(object: &Object<'_>) -> PyResult<Guard> {
    let kind: String = object.get_item(0)?.extract()?;
    let field = || object.get_item(2);
    let held = || -> PyResult<PyObj> { Ok(PyObj::new(&field()?)) };
    let number = || -> PyResult<u32> { field()?.extract() };
    let kind = match kind.as_str() {
        "TypeIs" => GuardKind::TypeIs(held()?),
        "IsObject" => GuardKind::IsObject(held()?),
        "IsNotObject" => GuardKind::IsNotObject(held()?),
        "Equals" => GuardKind::Equals(held()?),
        "Tensor" => GuardKind::Tensor(tensor_guard(&field()?)?),
        "ListLength" => GuardKind::ListLength(number()?),
        "TupleLength" => GuardKind::TupleLength(number()?),
        "DictLength" => GuardKind::DictLength(number()?),
        "DictKeys" => GuardKind::DictKeys(objects(&field()?)?),
        "DictHasKey" => GuardKind::DictHasKey(held()?),
        "DictLacksKey" => GuardKind::DictLacksKey(held()?),
        "SetItems" => GuardKind::SetItems(objects(&field()?)?),
        "InstanceLacks" => GuardKind::InstanceLacks(held()?),
        "TypeLacks" => GuardKind::TypeLacks(held()?),
        "SameObject" => GuardKind::SameObject(source(&field()?)?),
        "NotSameObject" => GuardKind::NotSameObject(source(&field()?)?),
        "AllDistinct" => GuardKind::AllDistinct(sources(&field()?)?),
        "NoOverlap" => GuardKind::NoOverlap(sources(&field()?)?),
        "Missing" => GuardKind::Missing,
        "Predicate" => GuardKind::Predicate(held()?),
        "GlobalState" => GuardKind::GlobalState(GlobalState::current(object.py())?),
        other => return Err(PyValueError::new_err(format!("no guard {other}"))),
    };
    Ok(Guard { source: source(&object.get_item(1)?)?, kind, user_line: Some(("model.py".into(), 7)) })
}

/// The guard that a tensor passes.
fn tensor_guard(tensor: &Object<'_>) -> PyResult<TensorGuard> {
    let dtype: String = tensor.getattr("dtype")?.str()?.extract()?;
    let device = tensor.getattr("device")?;
    let kind = match device.getattr("type")?.extract::<String>()?.as_str() {
        "cpu" => DeviceType::Cpu,
        "cuda" => DeviceType::Cuda,
        _ => DeviceType::Meta,
    };
    let index: Option<i16> = device.getattr("index")?.extract()?;
    let sizes: Vec<i64> = tensor.call_method0("size")?.extract()?;
    let strides: Vec<i64> = tensor.call_method0("stride")?.extract()?;
    Ok(TensorGuard {
        pytype: PyObj::new(tensor.get_type().as_any()),
        dtype: DType::from_torch_name(dtype.trim_start_matches("torch.")).unwrap_or(DType::F32),
        device: Device { kind, index: index.unwrap_or(-1) },
        sizes: sizes.as_slice().into(),
        strides: strides.as_slice().into(),
        storage_offset: None,
        requires_grad: tensor.getattr("requires_grad")?.extract()?,
        is_leaf: None,
        is_conj: tensor.call_method0("is_conj")?.extract()?,
        is_neg: tensor.call_method0("is_neg")?.extract()?,
    })
}

fn id(object: &Object<'_>) -> PyResult<RecipeId> {
    Ok(RecipeId(object.extract()?))
}

fn ids(object: &Object<'_>) -> PyResult<Vec<RecipeId>> {
    object.try_iter()?.map(|item| id(&item?)).collect()
}

fn optional(object: &Object<'_>) -> PyResult<Option<RecipeId>> {
    if object.is_none() { Ok(None) } else { id(object).map(Some) }
}

fn pairs(object: &Object<'_>) -> PyResult<Vec<(RecipeId, RecipeId)>> {
    object
        .try_iter()?
        .map(|item| item.and_then(|item| Ok((id(&item.get_item(0)?)?, id(&item.get_item(1)?)?))))
        .collect()
}

fn named(object: &Object<'_>) -> PyResult<Vec<(PyObj, RecipeId)>> {
    object
        .try_iter()?
        .map(|item| item.and_then(|item| Ok((PyObj::new(&item.get_item(0)?), id(&item.get_item(1)?)?))))
        .collect()
}

fn recipe(object: &Object<'_>) -> PyResult<Recipe> {
    let kind: String = object.get_item(0)?.extract()?;
    let field = |at: usize| object.get_item(at);
    let held = |at: usize| -> PyResult<PyObj> { Ok(PyObj::new(&field(at)?)) };
    Ok(match kind.as_str() {
        "Source" => Recipe::Source(source(&field(1)?)?),
        "Output" => Recipe::Output(field(1)?.extract()?),
        "Object" => Recipe::Object(held(1)?),
        "Null" => Recipe::Null,
        "Tuple" => Recipe::Tuple(ids(&field(1)?)?),
        "List" => Recipe::List(ids(&field(1)?)?),
        "Set" => Recipe::Set(ids(&field(1)?)?),
        "FrozenSet" => Recipe::FrozenSet(ids(&field(1)?)?),
        "Dict" => Recipe::Dict(pairs(&field(1)?)?),
        "Slice" => Recipe::Slice([id(&field(1)?)?, id(&field(2)?)?, id(&field(3)?)?]),
        "Cell" => Recipe::Cell(optional(&field(1)?)?),
        "Function" => Recipe::Function {
            code: held(1)?,
            globals: id(&field(2)?)?,
            name: held(3)?,
            qualname: held(4)?,
            defaults: optional(&field(5)?)?,
            kwdefaults: optional(&field(6)?)?,
            closure: optional(&field(7)?)?,
            annotations: optional(&field(8)?)?,
            dict: named(&field(9)?)?,
        },
        "Method" => Recipe::Method { function: id(&field(1)?)?, receiver: id(&field(2)?)? },
        "Instance" => Recipe::Instance { class: held(1)?, attrs: named(&field(2)?)? },
        "Call" => Recipe::Call { callable: id(&field(1)?)?, args: ids(&field(2)?)?, kwargs: named(&field(3)?)? },
        other => return Err(PyValueError::new_err(format!("no recipe {other}"))),
    })
}

fn effect(object: &Object<'_>) -> PyResult<Effect> {
    let kind: String = object.get_item(0)?.extract()?;
    let field = |at: usize| object.get_item(at);
    let held = |at: usize| -> PyResult<PyObj> { Ok(PyObj::new(&field(at)?)) };
    let target = id(&field(1)?)?;
    Ok(match kind.as_str() {
        "SetAttr" => Effect::SetAttr { object: target, name: held(2)?, value: id(&field(3)?)? },
        "DelAttr" => Effect::DelAttr { object: target, name: held(2)? },
        "SetInstanceAttr" => Effect::SetInstanceAttr { object: target, name: held(2)?, value: id(&field(3)?)? },
        "DelInstanceAttr" => Effect::DelInstanceAttr { object: target, name: held(2)? },
        "SetItem" => Effect::SetItem { object: target, key: id(&field(2)?)?, value: id(&field(3)?)? },
        "DelItem" => Effect::DelItem { object: target, key: id(&field(2)?)? },
        "CallMethod" => Effect::CallMethod { object: target, name: held(2)?, args: ids(&field(3)?)? },
        "ListReplace" => Effect::ListReplace { list: target, items: ids(&field(2)?)? },
        "DictReplace" => Effect::DictReplace { dict: target, items: pairs(&field(2)?)? },
        "SetReplace" => Effect::SetReplace { set: target, items: ids(&field(2)?)? },
        "SetCell" => Effect::SetCell { cell: target, value: optional(&field(2)?)? },
        other => return Err(PyValueError::new_err(format!("no effect {other}"))),
    })
}

fn exit(object: &Object<'_>) -> PyResult<Exit> {
    let mut exit = Exit::default();
    if object.is_none() {
        return Ok(exit);
    }
    for item in object.get_item("recipes")?.try_iter()? {
        exit.recipes.push(recipe(&item?)?);
    }
    let part = |name: &str| -> PyResult<Vec<Object<'_>>> {
        match object.get_item(name) {
            Ok(items) => items.try_iter()?.collect(),
            Err(_) => Ok(Vec::new()),
        }
    };
    for item in part("slots")? {
        exit.slots.push((SlotIndex(item.get_item(0)?.extract()?), id(&item.get_item(1)?)?));
    }
    for item in part("stack")? {
        exit.stack.push(id(&item)?);
    }
    for item in part("effects")? {
        exit.effects.push(effect(&item)?);
    }
    if let Ok(value) = object.get_item("value") {
        exit.value = optional(&value)?;
    }
    Ok(exit)
}

/// A program and its exit.
#[pyclass(frozen)]
struct Program {
    program: GuardProgram,
    exit: Exit,
}

/// Runs `f` in the environment of a call; `Ellipsis` stands for an unbound slot.
fn with_env<T>(
    locals: &Bound<'_, PyList>,
    function: &Bound<'_, PyFunction>,
    f: impl FnOnce(&Env) -> PyResult<T>,
) -> PyResult<T> {
    let held: Vec<Object<'_>> = locals.iter().collect();
    let ellipsis = locals.py().Ellipsis();
    let slots: Vec<_> =
        held.iter().map(|local| if local.is(&ellipsis) { ptr::null_mut() } else { local.as_ptr() }).collect();
    // SAFETY: `held` and the caller keep everything alive, and the thread is attached, until the end of this function.
    let env = unsafe { Env::of_call(function, &slots) };
    f(&env)
}

#[pymethods]
impl Program {
    #[new]
    #[pyo3(signature = (guards, inputs = Vec::new(), exit_parts = None))]
    fn new(
        py: Python<'_>,
        guards: &Object<'_>,
        inputs: Vec<Object<'_>>,
        exit_parts: Option<Object<'_>>,
    ) -> PyResult<Program> {
        let guards = guards.try_iter()?.map(|item| guard(&item?)).collect::<PyResult<Vec<_>>>()?;
        let inputs = inputs.iter().map(source).collect::<PyResult<Vec<_>>>()?;
        let exit = exit(&exit_parts.unwrap_or_else(|| py.None().into_bound(py)))?;
        let program = GuardProgram::compile(py, guards, inputs, &exit).map_err(PyValueError::new_err)?;
        Ok(Program { program, exit })
    }

    /// The inputs if the guards hold, else the index of a guard that doesn't.
    fn run<'py>(
        &self,
        py: Python<'py>,
        locals: &Bound<'py, PyList>,
        function: &Bound<'py, PyFunction>,
    ) -> PyResult<Object<'py>> {
        with_env(locals, function, |env| {
            let mut registers = self.program.registers();
            match self.program.run(env, &mut registers) {
                Ok(()) => {
                    let inputs = (0..self.program.input_count()).map(|index| registers.object(py, index));
                    Ok(PyList::new(py, inputs.collect::<PyResult<Vec<_>>>()?)?.into_any())
                }
                Err(failed) => Ok((failed.0 as i64).into_pyobject(py)?.into_any()),
            }
        })
    }

    /// Runs, then applies the exit: slots, stack, value.
    fn apply<'py>(
        &self,
        py: Python<'py>,
        locals: &Bound<'py, PyList>,
        function: &Bound<'py, PyFunction>,
        outputs: Vec<Py<PyAny>>,
    ) -> PyResult<Object<'py>> {
        with_env(locals, function, |env| {
            let mut registers = self.program.registers();
            if let Err(failed) = self.program.run(env, &mut registers) {
                return Err(PyAssertionError::new_err(format!(
                    "guard {} failed: {:?}",
                    failed.0,
                    self.program.explain(env)
                )));
            }
            let built = self.exit.apply(py, &self.program, &registers, &outputs)?;
            let slots: Vec<(u32, Option<Py<PyAny>>)> =
                built.slots.into_iter().map(|(slot, value)| (slot.0, value)).collect();
            Ok((slots, built.stack, built.value).into_pyobject(py)?.into_any())
        })
    }

    fn explain(&self, locals: &Bound<'_, PyList>, function: &Bound<'_, PyFunction>) -> PyResult<Vec<String>> {
        with_env(locals, function, |env| Ok(self.program.explain(env)))
    }

    /// (stable sections, valid ones, full runs)
    fn counts(&self) -> (usize, usize, u64) {
        self.program.section_counts()
    }

    /// Nanoseconds of a run: of many short rounds, the fastest. A round is over before the machine turns to others.
    fn bench(&self, locals: &Bound<'_, PyList>, function: &Bound<'_, PyFunction>) -> PyResult<f64> {
        const ROUNDS: u32 = 400;
        const ROUND_NS: f64 = 150_000.0;
        with_env(locals, function, |env| {
            let round = |times: u32| -> PyResult<f64> {
                let started = Instant::now();
                for _ in 0..times {
                    let mut registers = self.program.registers();
                    if self.program.run(env, &mut registers).is_err() {
                        return Err(PyAssertionError::new_err(format!("{:?}", self.program.explain(env))));
                    }
                }
                Ok(started.elapsed().as_nanos() as f64 / f64::from(times))
            };
            let mut best = round(10)?;
            for _ in 0..ROUNDS {
                best = best.min(round((ROUND_NS / best).max(1.0) as u32)?);
            }
            Ok(best)
        })
    }
}

/// (tensors by words, global state by C++ functions)
#[pyfunction]
fn fast_paths(py: Python<'_>) -> (bool, bool) {
    oxy_guards::fast_paths(py)
}

#[pymodule]
fn oxy_guards_stress(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Table>()?;
    module.add_class::<PySource>()?;
    module.add_class::<Program>()?;
    module.add_function(wrap_pyfunction!(fast_paths, module)?)?;
    Ok(())
}

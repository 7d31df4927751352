//! Applying effects to objects that exist outside of the trace.

use super::{
    Effect, RecipeId,
    build::{Builder, set_cell, set_own_attr},
};
use pyo3::{
    ffi, intern,
    prelude::*,
    types::{PyDict, PyList, PySet, PyString, PyTuple},
};

impl Effect {
    /// All recipes that it uses.
    pub(super) fn recipes(&self) -> Vec<RecipeId> {
        match self {
            Effect::SetAttr { object, value, .. } | Effect::SetInstanceAttr { object, value, .. } => {
                vec![*object, *value]
            }
            Effect::DelAttr { object, .. } | Effect::DelInstanceAttr { object, .. } => vec![*object],
            Effect::SetItem { object, key, value } => vec![*object, *key, *value],
            Effect::DelItem { object, key } => vec![*object, *key],
            Effect::CallMethod { object, args, .. } => [*object].into_iter().chain(args.iter().copied()).collect(),
            Effect::ListReplace { list: target, items } | Effect::SetReplace { set: target, items } => {
                [*target].into_iter().chain(items.iter().copied()).collect()
            }
            Effect::DictReplace { dict, items } => {
                [*dict].into_iter().chain(items.iter().flat_map(|(key, value)| [*key, *value])).collect()
            }
            Effect::SetCell { cell, value } => [*cell].into_iter().chain(*value).collect(),
        }
    }

    /// Changes the world. Everything has been made before.
    pub(super) fn apply(&self, builder: &mut Builder<'_, '_>) -> PyResult<()> {
        let py = builder.py;
        match self {
            Effect::SetAttr { object, name, value } => {
                let (object, value) = (builder.object(*object)?, builder.object(*value)?);
                object.setattr(name.bind(py).cast::<PyString>()?, value)
            }
            Effect::DelAttr { object, name } => builder.object(*object)?.delattr(name.bind(py).cast::<PyString>()?),
            Effect::SetInstanceAttr { object, name, value } => {
                let (object, value) = (builder.object(*object)?, builder.object(*value)?);
                set_own_attr(&object, name.bind(py), Some(&value))
            }
            Effect::DelInstanceAttr { object, name } => set_own_attr(&builder.object(*object)?, name.bind(py), None),
            Effect::SetItem { object, key, value } => {
                let (object, key, value) = (builder.object(*object)?, builder.object(*key)?, builder.object(*value)?);
                object.set_item(key, value)
            }
            Effect::DelItem { object, key } => {
                let (object, key) = (builder.object(*object)?, builder.object(*key)?);
                object.del_item(key)
            }
            Effect::CallMethod { object, name, args } => {
                let (object, args) = (builder.object(*object)?, builder.objects(args)?);
                object.call_method1(name.bind(py).cast::<PyString>()?, PyTuple::new(py, args)?)?;
                Ok(())
            }
            Effect::ListReplace { list, items } => {
                let (list, items) = (builder.object(*list)?, builder.objects(items)?);
                let list = list.cast::<PyList>()?;
                list.set_slice(0, list.len(), PyList::new(py, items)?.as_any())
            }
            Effect::DictReplace { dict, items } => {
                let (dict, items) = (builder.object(*dict)?, builder.pairs(items)?);
                replace_dict(dict.cast::<PyDict>()?, &items)
            }
            Effect::SetReplace { set, items } => {
                let (set, items) = (builder.object(*set)?, builder.objects(items)?);
                let set = set.cast::<PySet>()?;
                set.clear();
                items.into_iter().try_for_each(|item| set.add(item))
            }
            Effect::SetCell { cell, value } => {
                let cell = builder.object(*cell)?;
                let value = value.map(|value| builder.object(value)).transpose()?;
                set_cell(&cell, value.as_ref())
            }
        }
    }
}

type Pairs<'py> = [(Bound<'py, PyAny>, Bound<'py, PyAny>)];

/// Gives a dictionary new contents. Where its keys stay the first of the new ones, in order, only the differences are
/// stored: whoever watches the dictionary isn't told of changes that are none.
fn replace_dict<'py>(dict: &Bound<'py, PyDict>, items: &Pairs<'py>) -> PyResult<()> {
    let stays = dict.is_exact_instance_of::<PyDict>()
        && dict.len() <= items.len()
        && dict.iter().zip(items).all(|((old, _), (new, _))| old.is(new));
    if stays {
        let old: Vec<_> = dict.iter().map(|(_, value)| value).collect();
        for (index, (key, value)) in items.iter().enumerate() {
            if old.get(index).is_none_or(|old| !old.is(value)) {
                dict.set_item(key, value)?;
            }
        }
        return Ok(());
    }
    if dict.is_exact_instance_of::<PyDict>() {
        // SAFETY: attached, and a dictionary.
        unsafe { ffi::PyDict_Clear(dict.as_ptr()) };
        return items.iter().try_for_each(|(key, value)| dict.set_item(key, value));
    }
    // Subclasses keep books of their own.
    dict.as_any().call_method0(intern!(dict.py(), "clear"))?;
    items.iter().try_for_each(|(key, value)| dict.as_any().set_item(key, value))
}

//! The end of a segment: real objects made from sources and graph outputs, and the trace's effects on the world.
//!
//! Promises: each recipe is made at most once, so recipes that share give objects that share, cycles through containers
//! included; everything is made before the first effect is applied; effects are applied in order; an error leaves no
//! reference behind (effects already applied stay).

mod build;
mod effects;

use crate::{GuardProgram, PyObj, Registers, Source};
use build::Builder;
use pyo3::prelude::*;

/// A recipe's place in its exit's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecipeId(pub u32);

/// A localsplus slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotIndex(pub u32);

/// How an object is made. Within one evaluation each recipe is made once, so sharing a recipe is sharing the object.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// What was read at the entry.
    Source(Source),
    /// An output of the graph.
    Output(u32),
    Object(PyObj),
    /// The NULL of CPython's stack; an unbound slot.
    Null,
    Tuple(Vec<RecipeId>),
    List(Vec<RecipeId>),
    Set(Vec<RecipeId>),
    FrozenSet(Vec<RecipeId>),
    Dict(Vec<(RecipeId, RecipeId)>),
    Slice([RecipeId; 3]),
    Cell(Option<RecipeId>),
    Function {
        code: PyObj,
        globals: RecipeId,
        name: PyObj,
        qualname: PyObj,
        defaults: Option<RecipeId>,
        kwdefaults: Option<RecipeId>,
        closure: Option<RecipeId>,
        annotations: Option<RecipeId>,
        dict: Vec<(PyObj, RecipeId)>,
    },
    Method {
        function: RecipeId,
        receiver: RecipeId,
    },
    /// `object.__new__(class)`, then the attributes through `object.__setattr__`.
    Instance {
        class: PyObj,
        attrs: Vec<(PyObj, RecipeId)>,
    },
    Call {
        callable: RecipeId,
        args: Vec<RecipeId>,
        kwargs: Vec<(PyObj, RecipeId)>,
    },
}

/// A change to an object that exists outside of the trace.
#[derive(Clone, Debug)]
pub enum Effect {
    SetAttr {
        object: RecipeId,
        name: PyObj,
        value: RecipeId,
    },
    DelAttr {
        object: RecipeId,
        name: PyObj,
    },
    /// `object.__setattr__`, whatever the class defines.
    SetInstanceAttr {
        object: RecipeId,
        name: PyObj,
        value: RecipeId,
    },
    /// `object.__delattr__`
    DelInstanceAttr {
        object: RecipeId,
        name: PyObj,
    },
    SetItem {
        object: RecipeId,
        key: RecipeId,
        value: RecipeId,
    },
    DelItem {
        object: RecipeId,
        key: RecipeId,
    },
    CallMethod {
        object: RecipeId,
        name: PyObj,
        args: Vec<RecipeId>,
    },
    /// `list[:] = items`
    ListReplace {
        list: RecipeId,
        items: Vec<RecipeId>,
    },
    DictReplace {
        dict: RecipeId,
        items: Vec<(RecipeId, RecipeId)>,
    },
    SetReplace {
        set: RecipeId,
        items: Vec<RecipeId>,
    },
    SetCell {
        cell: RecipeId,
        value: Option<RecipeId>,
    },
}

/// What a segment leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Exit {
    pub recipes: Vec<Recipe>,
    /// The slots that change; others stay.
    pub slots: Vec<(SlotIndex, RecipeId)>,
    /// The whole new value stack.
    pub stack: Vec<RecipeId>,
    /// The returned value, of a segment that returns.
    pub value: Option<RecipeId>,
    /// Applied in order.
    pub effects: Vec<Effect>,
}

/// The objects an exit made. `None` is NULL.
#[derive(Debug, Default)]
pub struct Built {
    pub slots: Vec<(SlotIndex, Option<Py<PyAny>>)>,
    pub stack: Vec<Option<Py<PyAny>>>,
    pub value: Option<Py<PyAny>>,
}

impl Exit {
    /// The sources that the recipes read.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.recipes.iter().filter_map(|recipe| match recipe {
            Recipe::Source(source) => Some(source),
            _ => None,
        })
    }

    /// Makes all objects, then applies the effects. `program` is the one made with this exit, `registers` are those of
    /// its run, and `outputs` the graph's.
    pub fn apply(
        &self,
        py: Python<'_>,
        program: &GuardProgram,
        registers: &Registers,
        outputs: &[Py<PyAny>],
    ) -> PyResult<Built> {
        let mut builder = Builder::new(py, self, program, registers, outputs)?;
        let owned = |object: Option<Bound<'_, PyAny>>| object.map(Bound::unbind);
        let mut built = Built::default();
        for &(slot, recipe) in &self.slots {
            built.slots.push((slot, owned(builder.make(recipe)?)));
        }
        for &recipe in &self.stack {
            built.stack.push(owned(builder.make(recipe)?));
        }
        if let Some(recipe) = self.value {
            built.value = owned(builder.make(recipe)?);
        }
        for effect in &self.effects {
            for recipe in effect.recipes() {
                builder.make(recipe)?;
            }
        }
        builder.fill_all()?;
        for effect in &self.effects {
            effect.apply(&mut builder)?;
        }
        Ok(built)
    }
}

//! What must hold of a source: the guards.
//!
//! 1. A kind that compares with an object holds that object strongly.
//! 2. Equality that a trace relies on is exact: `1`, `1.0` and `True` differ, and so do `0.0` and `-0.0`.

mod global_state;

use crate::{PyObj, Source};
use oxy_graph::{DType, Device, meta::Dims};
use std::sync::Arc;

pub use global_state::GlobalState;

/// Metadata that a tensor must have; `None` is not checked.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorGuard {
    pub pytype: PyObj,
    pub dtype: DType,
    pub device: Device,
    pub sizes: Dims,
    pub strides: Dims,
    pub storage_offset: Option<i64>,
    pub requires_grad: bool,
    pub is_leaf: Option<bool>,
    pub is_conj: bool,
    pub is_neg: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum GuardKind {
    /// Exactly this type.
    TypeIs(PyObj),
    IsObject(PyObj),
    IsNotObject(PyObj),
    /// The same type and an equal value, for literals and tuples and frozensets of them.
    Equals(PyObj),
    Tensor(TensorGuard),
    ListLength(u32),
    TupleLength(u32),
    DictLength(u32),
    /// Exactly these keys in this order.
    DictKeys(Vec<PyObj>),
    DictHasKey(PyObj),
    DictLacksKey(PyObj),
    /// Exactly these members, in any order.
    SetItems(Vec<PyObj>),
    /// The object's own `__dict__` lacks the name.
    InstanceLacks(PyObj),
    /// No class of the method resolution order has the name.
    TypeLacks(PyObj),
    SameObject(Source),
    NotSameObject(Source),
    /// These are pairwise different objects.
    AllDistinct(Vec<Source>),
    /// No two of these tensors share memory.
    NoOverlap(Vec<Source>),
    /// The slot, cell or member is unbound; of an item, that there is none.
    Missing,
    /// A callable that is given the value and answers whether it will do. Runs user code, so the last resort.
    Predicate(PyObj),
    /// torch's global state. The guard's source is not read.
    GlobalState(GlobalState),
}

/// One guard, with the user's line that made it necessary.
#[derive(Clone, Debug)]
pub struct Guard {
    pub source: Source,
    pub kind: GuardKind,
    pub user_line: Option<(Arc<str>, u32)>,
}

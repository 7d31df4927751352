//! What must hold of a source: the guards.
//!
//! 1. A kind that compares with an object holds that object strongly.
//! 2. Equality that a trace relies on is exact: `1`, `1.0` and `True` differ, and so do `0.0` and `-0.0`.

pub(crate) mod all_distinct;
pub(crate) mod dict_has_key;
pub(crate) mod dict_keys;
pub(crate) mod dict_lacks_key;
pub(crate) mod dict_length;
pub(crate) mod equals;
pub(crate) mod global_state;
pub(crate) mod instance_lacks;
pub(crate) mod is_not_object;
pub(crate) mod is_object;
pub(crate) mod list_length;
pub(crate) mod missing;
pub(crate) mod no_overlap;
pub(crate) mod not_same_object;
pub(crate) mod predicate;
pub(crate) mod same_object;
pub(crate) mod set_items;
pub(crate) mod tensor;
pub(crate) mod tuple_length;
pub(crate) mod type_is;
pub(crate) mod type_lacks;

use crate::{PyObj, Source, cpython, program::Raw};
use no_overlap::OverlapCheck;
use oxy_graph::{DType, Device, meta::Dims};
use pyo3::{ffi::PyObject, prelude::*};
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::TensorCheck;

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

impl Guard {
    /// A guard on torch's global state. It belongs to no source; `any` stands in.
    pub fn global_state(any: &Source, state: GlobalState) -> Guard {
        Guard { source: any.clone(), kind: GuardKind::GlobalState(state), user_line: None }
    }

    /// All sources that the check reads.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        let first =
            !matches!(self.kind, GuardKind::GlobalState(_) | GuardKind::AllDistinct(_) | GuardKind::NoOverlap(_));
        let others: &[Source] = match &self.kind {
            GuardKind::SameObject(other) | GuardKind::NotSameObject(other) => std::slice::from_ref(other),
            GuardKind::AllDistinct(sources) | GuardKind::NoOverlap(sources) => sources,
            _ => &[],
        };
        first.then_some(&self.source).into_iter().chain(others)
    }
}

/// When to check: cheap and likely to fail first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Global,
    /// A comparison or two.
    Cheap,
    /// Everything that hardly ever changes.
    Stable,
    Tensor,
    /// Grows with a container's size.
    Contents,
    /// Grows with the number of pairs.
    Pairs,
    /// Runs Python code.
    Python,
}

/// What a guard needs at run time besides its own contents. `registers` are those of its further sources.
pub(crate) enum Check {
    /// The guard's own contents are enough.
    Plain,
    /// The hash of the guard's key or name.
    Key(isize),
    Tensor(TensorCheck),
    Other(u32),
    Others(SmallVec<[u32; 4]>),
    Overlap(SmallVec<[u32; 4]>, OverlapCheck),
}

impl GuardKind {
    pub(crate) fn rank(&self) -> Rank {
        match self {
            GuardKind::GlobalState(_) => Rank::Global,
            GuardKind::TypeIs(_)
            | GuardKind::IsObject(_)
            | GuardKind::IsNotObject(_)
            | GuardKind::Equals(_)
            | GuardKind::ListLength(_)
            | GuardKind::TupleLength(_)
            | GuardKind::DictLength(_)
            | GuardKind::DictHasKey(_)
            | GuardKind::DictLacksKey(_)
            | GuardKind::InstanceLacks(_)
            | GuardKind::TypeLacks(_)
            | GuardKind::SameObject(_)
            | GuardKind::NotSameObject(_)
            | GuardKind::Missing => Rank::Cheap,
            GuardKind::Tensor(_) => Rank::Tensor,
            GuardKind::DictKeys(_) | GuardKind::SetItems(_) => Rank::Contents,
            GuardKind::AllDistinct(_) | GuardKind::NoOverlap(_) => Rank::Pairs,
            GuardKind::Predicate(_) => Rank::Python,
        }
    }

    /// Whether the guard holds of a value. NULL satisfies `Missing` alone.
    ///
    /// # Safety
    /// Attached; `value` and the registers are NULL or live objects; `check` was made for this guard.
    #[inline]
    pub(crate) unsafe fn holds(&self, check: &Check, value: *mut PyObject, registers: &[Raw]) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match (self, check) {
                (GuardKind::Missing, _) => missing::holds(value),
                (GuardKind::GlobalState(state), _) => state.holds(Python::assume_attached()),
                (GuardKind::AllDistinct(_), Check::Others(others)) => {
                    let values: SmallVec<[Raw; 64]> = others.iter().map(|&other| registers[other as usize]).collect();
                    all_distinct::holds(&values)
                }
                (GuardKind::NoOverlap(_), Check::Overlap(others, overlap)) => {
                    let values: SmallVec<[Raw; 64]> = others.iter().map(|&other| registers[other as usize]).collect();
                    overlap.holds(&values)
                }
                _ if value.is_null() => false,
                (GuardKind::TypeIs(class), _) => type_is::holds(class, value),
                (GuardKind::IsObject(object), _) => is_object::holds(object, value),
                (GuardKind::IsNotObject(object), _) => is_not_object::holds(object, value),
                (GuardKind::Equals(expected), _) => equals::holds(expected.as_ptr(), value),
                (GuardKind::Tensor(guard), Check::Tensor(check)) => check.holds(guard, value),
                (GuardKind::ListLength(length), _) => list_length::holds(*length, value),
                (GuardKind::TupleLength(length), _) => tuple_length::holds(*length, value),
                (GuardKind::DictLength(length), _) => dict_length::holds(*length, value),
                (GuardKind::DictKeys(keys), _) => dict_keys::holds(keys, value),
                (GuardKind::DictHasKey(key), Check::Key(hash)) => dict_has_key::holds(key, *hash, value),
                (GuardKind::DictLacksKey(key), Check::Key(hash)) => dict_lacks_key::holds(key, *hash, value),
                (GuardKind::SetItems(members), _) => set_items::holds(members, value),
                (GuardKind::InstanceLacks(name), Check::Key(hash)) => instance_lacks::holds(name, *hash, value),
                (GuardKind::TypeLacks(name), _) => type_lacks::holds(name, value),
                (GuardKind::SameObject(_), Check::Other(other)) => {
                    same_object::holds(value, registers[*other as usize])
                }
                (GuardKind::NotSameObject(_), Check::Other(other)) => {
                    not_same_object::holds(value, registers[*other as usize])
                }
                (GuardKind::Predicate(callable), _) => predicate::holds(callable, value),
                // A check made for another guard: not reachable, and failing is always safe.
                (
                    GuardKind::Tensor(_)
                    | GuardKind::AllDistinct(_)
                    | GuardKind::NoOverlap(_)
                    | GuardKind::DictHasKey(_)
                    | GuardKind::DictLacksKey(_)
                    | GuardKind::InstanceLacks(_)
                    | GuardKind::SameObject(_)
                    | GuardKind::NotSameObject(_),
                    _,
                ) => false,
            }
        }
    }

    /// The hash that the check needs.
    ///
    /// # Safety
    /// Attached.
    pub(crate) unsafe fn key_hash(&self) -> Option<isize> {
        match self {
            GuardKind::DictHasKey(key) | GuardKind::DictLacksKey(key) | GuardKind::InstanceLacks(key) => {
                // SAFETY: the guard holds the key; attached by the caller's promise.
                Some(unsafe { cpython::hash(key.as_ptr()) })
            }
            _ => None,
        }
    }

    /// What is wrong with a value that failed, without saying where it is. `None` for a value that isn't there.
    pub(crate) fn difference(
        &self,
        py: Python<'_>,
        check: &Check,
        value: Option<&Bound<'_, PyAny>>,
        registers: &[Raw],
    ) -> Vec<String> {
        let texts = |sources: &[Source], pair: Option<(usize, usize)>, sentence: fn(&str, &str) -> String| match pair {
            Some((first, second)) => vec![sentence(&sources[first].to_string(), &sources[second].to_string())],
            None => Vec::new(),
        };
        match (self, value) {
            (GuardKind::GlobalState(state), _) => return state.difference(py),
            (GuardKind::AllDistinct(sources), _) => {
                let Check::Others(others) = check else { return Vec::new() };
                let values: Vec<Raw> = others.iter().map(|&other| registers[other as usize]).collect();
                return texts(sources, all_distinct::repeated(&values), all_distinct::difference);
            }
            (GuardKind::NoOverlap(sources), _) => {
                let Check::Overlap(others, overlap) = check else { return Vec::new() };
                let values: Vec<Raw> = others.iter().map(|&other| registers[other as usize]).collect();
                // SAFETY: attached; overlap guards are on tensors.
                return texts(sources, unsafe { overlap.overlapping(&values) }, no_overlap::difference);
            }
            (_, None) => return vec!["it is not there".to_owned()],
            _ => {}
        }
        let Some(value) = value else { return Vec::new() };
        let sentence = match self {
            GuardKind::GlobalState(_) | GuardKind::AllDistinct(_) | GuardKind::NoOverlap(_) => return Vec::new(),
            GuardKind::Tensor(guard) => {
                let Check::Tensor(check) = check else { return Vec::new() };
                return check.difference(guard, value);
            }
            GuardKind::TypeIs(class) => type_is::difference(class, value),
            GuardKind::IsObject(object) => is_object::difference(object, value),
            GuardKind::IsNotObject(object) => is_not_object::difference(object),
            GuardKind::Equals(expected) => equals::difference(expected, value),
            GuardKind::ListLength(length) => list_length::difference(*length, value),
            GuardKind::TupleLength(length) => tuple_length::difference(*length, value),
            GuardKind::DictLength(length) => dict_length::difference(*length, value),
            GuardKind::DictKeys(keys) => dict_keys::difference(keys, value),
            GuardKind::DictHasKey(key) => dict_has_key::difference(key),
            GuardKind::DictLacksKey(key) => dict_lacks_key::difference(key),
            GuardKind::SetItems(members) => set_items::difference(members, value),
            GuardKind::InstanceLacks(name) => instance_lacks::difference(name),
            GuardKind::TypeLacks(name) => type_lacks::difference(name),
            GuardKind::SameObject(other) => same_object::difference(other),
            GuardKind::NotSameObject(other) => not_same_object::difference(other),
            GuardKind::Missing => missing::difference(value),
            GuardKind::Predicate(callable) => predicate::difference(callable, value),
        };
        vec![sentence]
    }
}

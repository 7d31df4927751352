//! Where values live at the entry of a segment.
//!
//! A [`Source`] is a path from the entry frame (or from an object that the program holds) to a value. Sources are
//! interned: within one [`SourceTable`] equal paths are one allocation, so equality is a comparison of addresses.
//! How each kind is read is in the file of its family; `read` lists them.
//!
//! Not here: whether a value is what a trace expects (`kinds`).

pub(crate) mod cells;
pub(crate) mod dicts;
pub(crate) mod functions;
pub(crate) mod instances;
pub(crate) mod partials;
pub(crate) mod read;
pub(crate) mod sequences;
pub(crate) mod tensors;
pub(crate) mod types;
pub(crate) mod weakrefs;

use crate::PyObj;
use rustc_hash::FxHashMap;
use std::{
    fmt::{self, Debug, Display, Formatter},
    hash::{Hash, Hasher},
    sync::Arc,
};

/// How a value is reached. Reading runs no user code, but for `Attr`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// What a localsplus slot of the entry frame holds, as it is (cells are cell objects).
    Local(u32),
    /// What the entry frame's value stack holds, counted from the bottom.
    Stack(u32),
    /// An object held by the program.
    Object(PyObj),
    /// The entry frame's globals dictionary.
    Globals,
    /// The entry frame's builtins dictionary.
    Builtins,
    /// The entry frame's function object.
    Function,
    CellContents(Source),
    /// An object's own `__dict__`, the dictionary itself.
    InstanceDict(Source),
    /// What an object's own `__dict__` has under a name.
    InstanceAttr(Source, PyObj),
    DictItem(Source, PyObj),
    /// The key at a position of a dictionary's order.
    DictKeyAt(Source, u32),
    ListItem(Source, u32),
    TupleItem(Source, u32),
    TypeOf(Source),
    /// What a type's method resolution order has under a name, unbound.
    TypeAttr(Source, PyObj),
    /// A `__slots__` member or another C-level member.
    Member(Source, PyObj),
    /// A full attribute read; may run user code, so the last resort.
    Attr(Source, PyObj),
    FunctionCode(Source),
    FunctionDefaults(Source),
    FunctionKwDefaults(Source),
    FunctionClosure(Source),
    FunctionGlobals(Source),
    MethodSelf(Source),
    MethodFunction(Source),
    TensorGrad(Source),
    /// What a weak reference refers to.
    WeakrefTarget(Source),
    PartialFunc(Source),
    PartialArgs(Source),
    PartialKeywords(Source),
}

/// An interned path to a value.
#[derive(Clone)]
pub struct Source(Arc<SourceKind>);

impl Source {
    pub fn kind(&self) -> &SourceKind {
        &self.0
    }

    /// Identity within its table.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Whether it is an object that the program itself holds, which can't change.
    pub fn is_object(&self) -> bool {
        self.as_object().is_some()
    }

    pub fn as_object(&self) -> Option<&PyObj> {
        match &*self.0 {
            SourceKind::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The source it is read from; `None` for the entry frame's own parts and held objects.
    pub fn base(&self) -> Option<&Source> {
        use SourceKind::*;
        match &*self.0 {
            Local(_) | Stack(_) | Object(_) | Globals | Builtins | Function => None,
            CellContents(base)
            | InstanceDict(base)
            | InstanceAttr(base, _)
            | DictItem(base, _)
            | DictKeyAt(base, _)
            | ListItem(base, _)
            | TupleItem(base, _)
            | TypeOf(base)
            | TypeAttr(base, _)
            | Member(base, _)
            | Attr(base, _)
            | FunctionCode(base)
            | FunctionDefaults(base)
            | FunctionKwDefaults(base)
            | FunctionClosure(base)
            | FunctionGlobals(base)
            | MethodSelf(base)
            | MethodFunction(base)
            | TensorGrad(base)
            | WeakrefTarget(base)
            | PartialFunc(base)
            | PartialArgs(base)
            | PartialKeywords(base) => Some(base),
        }
    }

    /// The text of the source with the entry frame's slots named.
    pub fn describe(&self, local_names: &[String]) -> String {
        Described { source: self, local_names }.to_string()
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl Debug for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&Described { source: self, local_names: &[] }, f)
    }
}

struct Described<'a> {
    source: &'a Source,
    local_names: &'a [String],
}

impl Display for Described<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use SourceKind::*;
        let of = |source| Described { source, local_names: self.local_names };
        match self.source.kind() {
            Local(slot) => match self.local_names.get(*slot as usize) {
                Some(name) => write!(f, "L['{name}']"),
                None => write!(f, "L[{slot}]"),
            },
            Stack(index) => write!(f, "S[{index}]"),
            Object(object) => f.write_str(&object_text(object)),
            Globals => f.write_str("G"),
            Builtins => f.write_str("B"),
            Function => f.write_str("F"),
            CellContents(base) => write!(f, "{}.cell_contents", of(base)),
            InstanceDict(base) => write!(f, "{}.__dict__", of(base)),
            InstanceAttr(base, name) | Member(base, name) | Attr(base, name) | TypeAttr(base, name) => {
                write!(f, "{}.{}", of(base), name.name())
            }
            DictItem(base, key) => write!(f, "{}[{}]", of(base), key.repr()),
            DictKeyAt(base, index) => write!(f, "list({})[{index}]", of(base)),
            ListItem(base, index) | TupleItem(base, index) => write!(f, "{}[{index}]", of(base)),
            TypeOf(base) => write!(f, "type({})", of(base)),
            FunctionCode(base) => write!(f, "{}.__code__", of(base)),
            FunctionDefaults(base) => write!(f, "{}.__defaults__", of(base)),
            FunctionKwDefaults(base) => write!(f, "{}.__kwdefaults__", of(base)),
            FunctionClosure(base) => write!(f, "{}.__closure__", of(base)),
            FunctionGlobals(base) => write!(f, "{}.__globals__", of(base)),
            MethodSelf(base) => write!(f, "{}.__self__", of(base)),
            MethodFunction(base) => write!(f, "{}.__func__", of(base)),
            TensorGrad(base) => write!(f, "{}.grad", of(base)),
            WeakrefTarget(base) => write!(f, "{}()", of(base)),
            PartialFunc(base) => write!(f, "{}.func", of(base)),
            PartialArgs(base) => write!(f, "{}.args", of(base)),
            PartialKeywords(base) => write!(f, "{}.keywords", of(base)),
        }
    }
}

/// A held object by its name: modules' dictionaries as `G(module)`, classes and functions by `__name__`.
fn object_text(object: &PyObj) -> String {
    use pyo3::prelude::*;
    Python::attach(|py| {
        let object = object.bind(py);
        if let Ok(dict) = object.cast_exact::<pyo3::types::PyDict>() {
            return match dict.get_item("__name__") {
                Ok(Some(name)) => format!("G({name})"),
                _ => "<dict>".to_owned(),
            };
        }
        let named = object.is_instance_of::<pyo3::types::PyType>()
            || object.is_instance_of::<pyo3::types::PyFunction>()
            || object.is_instance_of::<pyo3::types::PyModule>()
            || object.is_instance_of::<pyo3::types::PyCFunction>();
        match object.getattr("__name__") {
            Ok(name) if named => name.to_string(),
            _ => format!("<{}>", crate::object::type_name(&object.get_type().into_any())),
        }
    })
}

/// Makes sources; equal paths give one source.
#[derive(Default)]
pub struct SourceTable(FxHashMap<SourceKind, Source>);

impl SourceTable {
    pub fn intern(&mut self, kind: SourceKind) -> Source {
        self.0.entry(kind).or_insert_with_key(|kind| Source(Arc::new(kind.clone()))).clone()
    }
}

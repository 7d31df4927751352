//! Traced values: what the symbolic interpreter keeps in locals, stacks and containers.
//!
//! A [`Val`] is a handle into the trace's arena, so aliasing is identity of handles: two names of one list hold
//! the same `Val`. A value that exists outside the trace knows its `Source`; values made by the trace have none
//! and are rebuilt by the exit. Nothing here changes the user's objects: mutation happens in the arena.

use indexmap::IndexMap;
use oxy_guards::Source;
use pyo3::prelude::*;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

pub type Object<'py> = Bound<'py, PyAny>;

/// Handle of a traced value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Val(pub u32);

/// A value and where it came from.
pub struct Entry<'py> {
    pub kind: Kind<'py>,
    /// Set for values that exist outside: how guards and exits read them.
    pub source: Option<Source>,
    /// The real object behind an external container or cell, whatever the trace did to its tracked contents.
    pub external: Option<Object<'py>>,
    /// The tracked contents differ from the external object's: the exit writes them back.
    pub dirty: bool,
}

/// A tensor of the trace.
#[derive(Clone)]
pub struct TensorVal<'py> {
    /// The fake tensor standing for it.
    pub fake: Object<'py>,
    /// What `type()` answers: `torch.Tensor`, `torch.nn.Parameter`, ….
    pub class: Object<'py>,
    /// Its number in the torch-level graph.
    pub number: u32,
}

/// An instance created by the trace, or an exception created by it.
pub struct InstanceVal<'py> {
    pub class: Object<'py>,
    pub attrs: IndexMap<String, Val>,
    /// Positional arguments the class was called with, for exceptions (`args`).
    pub args: Vec<Val>,
    /// For classes derived from a builtin container: the container part.
    pub base: Option<Val>,
}

/// A function created by the trace.
#[derive(Clone)]
pub struct FunctionVal<'py> {
    pub code: Rc<crate::code::Code<'py>>,
    pub globals: Object<'py>,
    pub name: Val,
    pub qualname: Val,
    pub defaults: Option<Val>,
    pub kwdefaults: Option<Val>,
    pub annotations: Option<Val>,
    pub closure: Vec<Val>,
    pub attrs: IndexMap<String, Val>,
}

/// How an iterator created by the trace advances.
pub enum IterVal<'py> {
    /// Over the items of a tracked list, tuple or an unchanging sequence of values, by position.
    Sequence {
        items: Val,
        index: usize,
    },
    /// Over a snapshot of values (dict views, sets, strings).
    Snapshot {
        items: Vec<Val>,
        index: usize,
    },
    /// Over a Python range or other constant iterable, by its materialised items.
    Range {
        start: i64,
        step: i64,
        length: i64,
        index: i64,
        range: Object<'py>,
    },
    Enumerate {
        inner: Val,
        next: i64,
    },
    Zip {
        inners: Vec<Val>,
        strict: bool,
    },
    Map {
        function: Val,
        inners: Vec<Val>,
    },
    Filter {
        function: Val,
        inner: Val,
    },
    /// `itertools.count`
    Count {
        next: Object<'py>,
        step: Object<'py>,
    },
    /// `itertools.chain` over an iterator of iterables.
    Chain {
        outer: Val,
        current: Option<Val>,
    },
}

/// The kinds of dict view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    Keys,
    Values,
    Items,
}

pub enum Kind<'py> {
    /// The NULL of CPython's stack.
    Null,
    /// An external object nobody has looked at yet: no guard depends on it.
    Lazy(Object<'py>),
    /// An immutable literal: None, bool, int, float, complex, str, bytes, ..., range, dtype, device, torch.Size.
    Const(Object<'py>),
    Tensor(TensorVal<'py>),
    /// An exact tuple, or an instance of a subclass (`class`), such as a namedtuple.
    Tuple {
        items: Vec<Val>,
        class: Option<Object<'py>>,
    },
    List(Vec<Val>),
    /// Ordered; `class` is dict, OrderedDict, defaultdict.
    Dict {
        items: IndexMap<Key<'py>, (Val, Val)>,
        class: Object<'py>,
        default_factory: Option<Val>,
    },
    Set {
        items: IndexMap<Key<'py>, Val>,
        frozen: bool,
    },
    Slice([Val; 3]),
    /// An object that exists outside and is used by what it is: function, class, module, user instance, ….
    Object(Object<'py>),
    Instance(InstanceVal<'py>),
    Function(Rc<FunctionVal<'py>>),
    Method {
        function: Val,
        receiver: Val,
    },
    Cell(Option<Val>),
    Iter(IterVal<'py>),
    Generator(Option<Box<crate::frame::Frame<'py>>>),
    Super {
        class: Object<'py>,
        receiver: Val,
    },
    DictView {
        dict: Val,
        view: View,
    },
    /// `__exit__` of a context manager the tracer knows natively.
    MappingProxy(Val),
}

/// A dict or set key: equality and hash are Python's for constants and plain objects, identity otherwise.
#[derive(Clone)]
pub struct Key<'py> {
    hash: isize,
    repr: KeyRepr<'py>,
}

#[derive(Clone)]
enum KeyRepr<'py> {
    Object(Object<'py>),
    Val(Val),
}

impl<'py> Key<'py> {
    /// Key of a real hashable object; runs its `__hash__`, so callers admit only builtin hashes.
    pub fn object(object: Object<'py>) -> PyResult<Key<'py>> {
        Ok(Key { hash: object.hash()?, repr: KeyRepr::Object(object) })
    }

    /// Key of a traced value that compares by identity.
    pub fn identity(val: Val) -> Key<'py> {
        Key { hash: val.0 as isize ^ 0x5bd1_e995, repr: KeyRepr::Val(val) }
    }

    /// The real object, if the key is one.
    pub fn as_object(&self) -> Option<&Object<'py>> {
        match &self.repr {
            KeyRepr::Object(object) => Some(object),
            KeyRepr::Val(_) => None,
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.repr, &other.repr) {
            (KeyRepr::Object(a), KeyRepr::Object(b)) => {
                a.is(b) || (self.hash == other.hash && a.eq(b).unwrap_or(false))
            }
            (KeyRepr::Val(a), KeyRepr::Val(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

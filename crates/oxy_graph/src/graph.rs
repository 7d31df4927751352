//! Graphs, nodes, values and arguments.

use crate::{DType, Device, Layout, MemoryFormat, TensorMeta};
use indexmap::IndexMap;

/// A tensor value of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A node of one graph: its position in `Graph::nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// An argument of a node: a tensor value, a literal, or a container of arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Value(ValueId),
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    DType(DType),
    Device(Device),
    Layout(Layout),
    MemoryFormat(MemoryFormat),
    List(Vec<Arg>),
    Tuple(Vec<Arg>),
    Slice(Box<[Arg; 3]>),
    Dict(Vec<(Arg, Arg)>),
    Ellipsis,
    /// A Python object the graph carries without looking into it, by its number in the caller's table
    /// (a generator, an enum member, a class). Torch level only.
    Opaque(u32),
}

/// One operation. At the ATen level `args` follow the schema's order and trailing defaults may be left out;
/// keyword-only arguments are in `kwargs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub target: String,
    pub args: Vec<Arg>,
    pub kwargs: IndexMap<String, Arg>,
    /// Tensor results, in order; a result that is one of the arguments (in-place operators) repeats
    /// that argument's id. `None` for a result that is not a tensor or is undefined.
    pub outputs: Vec<Option<ValueId>>,
    /// Place in the user's code, for messages: `file:line in function`. Not part of a graph's identity.
    pub origin: Option<std::sync::Arc<str>>,
}

/// A straight-line program over tensors.
// Invariant: values are defined (as input or node output) before use; metas is indexed by ValueId.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub inputs: Vec<ValueId>,
    pub nodes: Vec<Node>,
    pub outputs: Vec<ValueId>,
    pub metas: Vec<TensorMeta>,
}

impl Graph {
    pub fn add_value(&mut self, meta: TensorMeta) -> ValueId {
        self.metas.push(meta);
        ValueId(self.metas.len() as u32 - 1)
    }

    pub fn add_input(&mut self, meta: TensorMeta) -> ValueId {
        let id = self.add_value(meta);
        self.inputs.push(id);
        id
    }

    /// Metadata of a value. Ids come from this graph, so the index is in range.
    pub fn meta(&self, id: ValueId) -> &TensorMeta {
        &self.metas[id.0 as usize]
    }
}

impl Arg {
    /// Calls `f` for every tensor value inside, in order.
    pub fn for_each_value(&self, f: &mut impl FnMut(ValueId)) {
        match self {
            Arg::Value(id) => f(*id),
            Arg::List(items) | Arg::Tuple(items) => items.iter().for_each(|item| item.for_each_value(f)),
            Arg::Slice(parts) => parts.iter().for_each(|part| part.for_each_value(f)),
            Arg::Dict(items) => items.iter().for_each(|(key, value)| {
                key.for_each_value(f);
                value.for_each_value(f);
            }),
            Arg::None
            | Arg::Bool(_)
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::DType(_)
            | Arg::Device(_)
            | Arg::Layout(_)
            | Arg::MemoryFormat(_)
            | Arg::Ellipsis
            | Arg::Opaque(_) => {}
        }
    }
}

impl Node {
    /// Calls `f` for every tensor value among the arguments, in order.
    pub fn for_each_input(&self, mut f: impl FnMut(ValueId)) {
        self.args.iter().for_each(|arg| arg.for_each_value(&mut f));
        self.kwargs.values().for_each(|arg| arg.for_each_value(&mut f));
    }
}

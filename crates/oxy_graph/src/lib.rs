//! The graph: tensor operations as plain data, with a text form and a verifier.
//!
//! One type serves two levels. At the *torch level* a node's target names a Python callable
//! (`torch.relu`, `Tensor.view`, `operator.add`); at the *ATen level* it names an operator overload
//! (`aten.add.Tensor`). Nothing here knows that Python exists: targets are names.
//!
//! Promises: values are defined before use; every value carries its metadata; printing is canonical
//! (values are numbered in print order), and parsing a print gives the same graph.
#![forbid(unsafe_code)]

pub mod dtype;
pub mod graph;
pub mod meta;
pub mod parse;
pub mod print;
pub mod verify;

pub use dtype::DType;
pub use graph::{Arg, Graph, Node, NodeId, ValueId};

pub use meta::{Device, DeviceType, Layout, MemoryFormat, TensorMeta};
pub use parse::{ParseError, parse};
pub use verify::verify;

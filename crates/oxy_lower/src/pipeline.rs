//! The pipeline: which passes run, in which order.

use crate::{Program, lowering, passes};
use oxy_graph::Graph;

/// What a caller may choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// False: every operator is called, nothing is fused.
    pub fuse: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { fuse: true }
    }
}

/// Why a graph can't be lowered: a malformed graph, something unsupported, or a bug of ours. The caller runs the graph
/// eagerly.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum LowerError {
    #[error("malformed graph: {0}")]
    Malformed(String),
    #[error("not supported: {0}")]
    Unsupported(String),
    #[error("internal error: {0}")]
    Internal(String),
}

/// Lowers an ATen-level graph.
pub fn lower(graph: &Graph, options: &Options) -> Result<Program, LowerError> {
    oxy_graph::verify::verify(graph).map_err(LowerError::Malformed)?;
    let mut graph = graph.clone();
    passes::canonicalize::canonicalize(&mut graph)?;
    lowering::run(&graph, options)
}

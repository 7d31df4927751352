//! The pipeline: which passes run, in which order.

use crate::{Program, Step};
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

/// Why a graph can't be lowered. Always a bug of ours or a malformed graph; the caller runs the graph eagerly.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum LowerError {
    #[error("malformed graph: {0}")]
    Malformed(String),
    #[error("internal error: {0}")]
    Internal(String),
}

/// Lowers an ATen-level graph.
pub fn lower(graph: &Graph, _options: &Options) -> Result<Program, LowerError> {
    let steps = graph.nodes.iter().map(|node| Step::Call {
        target: node.target.clone(),
        args: node.args.clone(),
        kwargs: node.kwargs.clone(),
        outputs: node.outputs.clone(),
    });
    let mut program = Program {
        kernels: Vec::new(),
        steps: steps.collect(),
        values: graph.metas.clone(),
        inputs: graph.inputs.clone(),
        outputs: graph.outputs.clone(),
        storage: Vec::new(),
        last_use: Vec::new(),
    };
    program.storage = (0..program.values.len() as u32).map(oxy_graph::ValueId).collect();
    program.last_use = vec![None; program.values.len()];
    Ok(program)
}

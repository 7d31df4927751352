//! The verifier: what must hold in every graph.
//!
//! 1. Ids are in range; every value has metadata with as many strides as sizes.
//! 2. A value is an input or the result of one node, and is defined before it is used.
//! 3. A result that is defined already is one of its node's arguments (in-place operators).

use crate::{Graph, ValueId};

/// Checks a graph; the error says what is wrong and where.
pub fn verify(graph: &Graph) -> Result<(), String> {
    for (i, meta) in graph.metas.iter().enumerate() {
        if meta.sizes.len() != meta.strides.len() {
            return Err(format!("value {i} has {} sizes and {} strides", meta.sizes.len(), meta.strides.len()));
        }
        if meta.sizes.iter().any(|s| *s < 0) {
            return Err(format!("value {i} has a negative size"));
        }
    }
    let mut defined = vec![false; graph.metas.len()];
    let define = |defined: &mut Vec<bool>, id: ValueId| match defined.get_mut(id.0 as usize) {
        None => Err(format!("value {} has no metadata", id.0)),
        Some(slot) => Ok(std::mem::replace(slot, true)),
    };
    for id in &graph.inputs {
        if define(&mut defined, *id)? {
            return Err(format!("value {} is an input twice", id.0));
        }
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        let mut used = Vec::new();
        node.for_each_input(|v| used.push(v));
        if let Some(v) = used.iter().find(|v| defined.get(v.0 as usize) != Some(&true)) {
            return Err(format!("node {i} ({}) uses value {} before it is defined", node.target, v.0));
        }
        for id in node.outputs.iter().flatten() {
            if define(&mut defined, *id)? && !used.contains(id) {
                return Err(format!("node {i} ({}) defines value {} again", node.target, id.0));
            }
        }
    }
    match graph.outputs.iter().find(|v| defined.get(v.0 as usize) != Some(&true)) {
        Some(v) => Err(format!("output {} is not defined", v.0)),
        None => Ok(()),
    }
}

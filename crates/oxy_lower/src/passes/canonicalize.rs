//! Rewrites nodes whose meaning is in metadata alone, so that later stages see few forms.
//!
//! 1. An in-place operator that changes its argument's *metadata* (`as_strided_`, `squeeze_`, `t_` …) with a result
//!    of its own becomes the view operator.
//! 2. The same with its argument as result is dropped if only strides of size-1 dimensions change (the value then has
//!    the new strides from the start); otherwise one value would have two shapes, which a graph can't say.

use crate::LowerError;
use oxy_graph::{Arg, Graph};

const METADATA_OPS: &[(&str, &str)] = &[
    ("aten.as_strided_.default", "aten.as_strided.default"),
    ("aten.detach_.default", "aten.detach.default"),
    ("aten.squeeze_.default", "aten.squeeze.default"),
    ("aten.squeeze_.dim", "aten.squeeze.dim"),
    ("aten.squeeze_.dims", "aten.squeeze.dims"),
    ("aten.t_.default", "aten.t.default"),
    ("aten.transpose_.default", "aten.transpose.int"),
    ("aten.unsqueeze_.default", "aten.unsqueeze.default"),
];

pub fn canonicalize(graph: &mut Graph) -> Result<(), LowerError> {
    let mut restrided = Vec::new();
    let mut unclear = None;
    graph.nodes.retain_mut(|node| {
        let Some((_, view)) = METADATA_OPS.iter().find(|(name, _)| *name == node.target) else { return true };
        let argument = match node.args.first() {
            Some(Arg::Value(v)) => Some(*v),
            _ => None,
        };
        if node.outputs.first().copied().flatten() != argument {
            node.target = (*view).to_owned();
            return true;
        }
        match (node.target.as_str(), argument, node.args.get(1), node.args.get(2)) {
            ("aten.detach_.default", ..) => false,
            ("aten.as_strided_.default", Some(v), Some(Arg::List(sizes)), Some(Arg::List(strides))) => {
                restrided.push((v, sizes.clone(), strides.clone()));
                false
            }
            _ => {
                unclear = Some(node.target.clone());
                true
            }
        }
    });
    for (v, sizes, strides) in restrided {
        let meta = &mut graph.metas[v.0 as usize];
        let number = |arg: &Arg| if let Arg::Int(i) = arg { Some(*i) } else { None };
        let sizes: Option<Vec<i64>> = sizes.iter().map(number).collect();
        let strides: Option<Vec<i64>> = strides.iter().map(number).collect();
        let same = match (&sizes, &strides) {
            (Some(sizes), Some(strides)) => {
                meta.sizes.as_slice() == sizes.as_slice()
                    && strides.len() == sizes.len()
                    && (0..sizes.len()).all(|d| sizes[d] == 1 || strides[d] == meta.strides[d])
            }
            _ => false,
        };
        match strides {
            Some(strides) if same => meta.strides = strides.into(),
            _ => unclear = Some("aten.as_strided_.default".to_owned()),
        }
    }
    match unclear {
        None => Ok(()),
        Some(target) => Err(LowerError::Unsupported(format!("{target} gives one value two shapes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_single_elements_change_freely() -> Result<(), Box<dyn std::error::Error>> {
        let text = "graph(%0: f32[2, 3, 1, 1]) {\n  %1: f32[2, 3, 1, 1] = aten.relu.default(%0)\n  \
                    %1 = aten.as_strided_.default(%1, [2, 3, 1, 1], [3, 1, 3, 3])\n  return (%1)\n}\n";
        let mut graph = oxy_graph::parse(text)?;
        canonicalize(&mut graph)?;
        assert_eq!(graph.nodes.len(), 1);
        assert_eq!(graph.metas[1].strides.as_slice(), [3, 1, 3, 3]);
        let text = text.replace("[3, 1, 3, 3]", "[1, 2, 1, 1]");
        assert!(canonicalize(&mut oxy_graph::parse(&text)?).is_err());
        Ok(())
    }
}

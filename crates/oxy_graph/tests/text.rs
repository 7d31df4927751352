//! The text form of graphs: what is printed parses to the same graph; the verifier's rules.

use oxy_graph::{parse, verify};

#[test]
fn printing_and_parsing_agree() -> Result<(), oxy_graph::ParseError> {
    let text = "\
graph(%0: f32[2, 3], %1: bf16[3]{strides=[2], offset=4, grad}, %2: i64[]) {
  %3: f32[2, 3]{strides=[1, 2]} = aten.add.Tensor(%0, %1, alpha=-0.5)
  %4: f32[1, 3], %5: i64[1, 3]{device=cuda:1}, _ = aten.op.default([%3, None], (1,), -inf, 1e-5, \"a \\\"b\\\"\\n\")
  %3 = aten.mul_.Tensor(%3, complex(1.0, -2.0))
  torch.foo(slice(None, 3, 1), ..., {\"k\": [True, False]}, torch.bfloat16, device(cpu), torch.channels_last, opaque#3)
  return (%4, %3)
}
";
    let graph = parse(text)?;
    assert_eq!(graph.to_string(), text);
    assert_eq!(parse(&graph.to_string())?, graph);
    assert_eq!(verify(&graph), Ok(()));
    Ok(())
}

#[test]
fn errors_say_the_line() {
    let error = |text: &str| parse(text).err().map(|e| e.to_string());
    assert_eq!(error("graph() {\n  return (%0)\n}"), Some("line 2: %0 is not defined".to_owned()));
    assert_eq!(error("graph(%0: f33[2]) {\n}"), Some("line 1: unknown dtype `f33`".to_owned()));
    let twice = "graph(%0: f32[2]) {\n  %0: f32[2] = aten.relu.default(%0)\n  return ()\n}";
    assert_eq!(error(twice), Some("line 2: %0 is defined twice".to_owned()));
}

#[test]
fn the_verifier_finds_what_is_wrong() -> Result<(), oxy_graph::ParseError> {
    let text = "graph(%0: f32[2], %1: f32[2]) {\n  %2: f32[2] = aten.relu.default(%0)\n  return (%2)\n}";
    let graph = parse(text)?;
    let mut late = graph.clone();
    late.nodes.push(late.nodes[0].clone());
    late.nodes[1].args = vec![oxy_graph::Arg::Value(oxy_graph::ValueId(1))];
    assert!(verify(&late).is_err_and(|e| e.contains("again")));
    let mut early = graph.clone();
    early.nodes[0].args = vec![oxy_graph::Arg::Value(oxy_graph::ValueId(2))];
    assert!(verify(&early).is_err_and(|e| e.contains("before it is defined")));
    let mut ragged = graph;
    ragged.metas[0].strides.clear();
    assert!(verify(&ragged).is_err());
    Ok(())
}

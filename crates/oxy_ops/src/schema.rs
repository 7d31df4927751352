//! Operator schemas, as torch writes them: parameter names, order and defaults.

use oxy_graph::{Arg, MemoryFormat};

#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: &'static str,
    pub default: Option<Arg>,
    pub keyword_only: bool,
}

/// The target name, `aten.add.Tensor`, of a schema `add.Tensor(Tensor self, …) -> Tensor`.
pub fn target(schema: &str) -> String {
    let name = schema.split('(').next().unwrap_or(schema);
    if name.contains('.') { format!("aten.{name}") } else { format!("aten.{name}.default") }
}

/// The parameters of a schema.
pub fn params(schema: &'static str) -> Vec<Param> {
    let Some(start) = schema.find('(') else { return Vec::new() };
    let end = schema.find(") ->").unwrap_or(schema.len());
    let mut params = Vec::new();
    let mut keyword_only = false;
    for text in split_top_level(&schema[start + 1..end]) {
        if text == "*" {
            keyword_only = true;
            continue;
        }
        // The type may hold spaces (`Tensor(a -> *)`), the name and default don't.
        let (left, default) = match text.split_once('=') {
            Some((left, default)) => (left, Some(default)),
            None => (text, None),
        };
        let name = left.rsplit(' ').next().unwrap_or(left);
        params.push(Param { name, default: default.map(parse_default), keyword_only });
    }
    params
}

fn split_top_level(text: &'static str) -> Vec<&'static str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

fn parse_default(text: &str) -> Arg {
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return Arg::List(inner.split(',').map(str::trim).filter(|t| !t.is_empty()).map(parse_default).collect());
    }
    match text {
        "None" => Arg::None,
        "True" => Arg::Bool(true),
        "False" => Arg::Bool(false),
        "contiguous_format" => Arg::MemoryFormat(MemoryFormat::Contiguous),
        _ => {
            if let Ok(i) = text.parse() {
                Arg::Int(i)
            } else if let Ok(x) = text.parse() {
                Arg::Float(x)
            } else {
                Arg::Str(text.trim_matches(['"', '\'']).to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_parameters() {
        let p = params(
            "var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        );
        let names: Vec<&str> = p.iter().map(|p| p.name).collect();
        assert_eq!(names, ["self", "dim", "correction", "keepdim"]);
        assert_eq!(p[3].default, Some(Arg::Bool(false)));
        assert!(p[2].keyword_only && !p[1].keyword_only);
        let p = params("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]");
        assert_eq!(p[0].name, "self");
        assert_eq!(p[2].default, Some(Arg::Int(0)));
        assert_eq!(target("relu(Tensor self) -> Tensor"), "aten.relu.default");
        let p = params("gelu(Tensor self, *, str approximate='none') -> Tensor");
        assert_eq!(p[1].default, Some(Arg::Str("none".into())));
    }
}

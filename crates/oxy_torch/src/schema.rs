//! Operator schemas as torch prints them, read for the types that a call through the ABI must encode.
//!
//! `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`; the namespace may be missing (then it is
//! `aten`). A type that we don't know stays as its text: only a call that needs to pass a value of it fails.

/// The type of an argument or result.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    Tensor,
    Int,
    Float,
    Bool,
    Str,
    Scalar,
    ScalarType,
    Device,
    Layout,
    MemoryFormat,
    Optional(Box<ArgType>),
    /// The number is the length of `int[2]`: a single value stands for that many.
    List(Box<ArgType>, Option<usize>),
    Other(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    pub name: String,
    pub ty: ArgType,
    pub default: Option<Default>,
    pub keyword_only: bool,
}

/// A default value.
#[derive(Clone, Debug, PartialEq)]
pub enum Default {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    List(Vec<Default>),
    /// A name such as `contiguous_format`.
    Name(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// `aten::add`
    pub name: String,
    /// `Tensor`; empty for the default overload.
    pub overload: String,
    pub arguments: Vec<Argument>,
    pub returns: Vec<ArgType>,
}

/// A schema that can't be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("malformed operator schema `{0}`")]
pub struct SchemaError(pub String);

impl Schema {
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        let malformed = || SchemaError(text.to_owned());
        let text = text.trim();
        let open = text.find('(').ok_or_else(malformed)?;
        let close = matching_paren(text, open).ok_or_else(malformed)?;
        let returns = text[close + 1..].trim().strip_prefix("->").ok_or_else(malformed)?.trim();
        let (name, overload) = match text[..open].trim().split_once('.') {
            Some((name, overload)) => (name, overload),
            None => (text[..open].trim(), ""),
        };
        let mut arguments = Vec::new();
        let mut keyword_only = false;
        for part in split_top_level(&text[open + 1..close]) {
            if part == "*" {
                keyword_only = true;
                continue;
            }
            arguments.push(parse_argument(part, keyword_only).ok_or_else(malformed)?);
        }
        let returns = match returns.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            Some(inner) => split_top_level(inner),
            None => vec![returns],
        };
        Ok(Schema {
            name: if name.contains("::") { name.to_owned() } else { format!("aten::{name}") },
            overload: overload.to_owned(),
            arguments,
            returns: returns.iter().map(|part| parse_type(strip_name(part))).collect(),
        })
    }

    /// `aten.add.Tensor`, as graphs write it.
    pub fn target(&self) -> String {
        let overload = if self.overload.is_empty() { "default" } else { &self.overload };
        format!("{}.{overload}", self.name.replace("::", "."))
    }
}

/// `Tensor(a!) self`, `*`-less. The type may hold spaces (`Tensor(a -> *)`), name and default can't, except in strings.
fn parse_argument(text: &str, keyword_only: bool) -> Option<Argument> {
    let (left, default) = match text.split_once('=') {
        Some((left, default)) => (left.trim(), Some(parse_default(default.trim()))),
        None => (text, None),
    };
    let (ty, name) = left.rsplit_once(' ')?;
    Some(Argument { name: name.to_owned(), ty: parse_type(ty.trim()), default, keyword_only })
}

/// A result may be named: `Tensor values`.
fn strip_name(text: &str) -> &str {
    match text.rsplit_once(' ') {
        Some((ty, name)) if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_') => ty.trim(),
        _ => text,
    }
}

fn parse_type(text: &str) -> ArgType {
    let other = || ArgType::Other(text.to_owned());
    let base_end = text.find(|c: char| !(c.is_alphanumeric() || "_.:".contains(c))).unwrap_or(text.len());
    let mut ty = match &text[..base_end] {
        "Tensor" => ArgType::Tensor,
        "int" | "SymInt" => ArgType::Int,
        "float" => ArgType::Float,
        "bool" => ArgType::Bool,
        "str" => ArgType::Str,
        "Scalar" | "number" => ArgType::Scalar,
        "ScalarType" => ArgType::ScalarType,
        "Device" => ArgType::Device,
        "Layout" => ArgType::Layout,
        "MemoryFormat" => ArgType::MemoryFormat,
        name => ArgType::Other(name.to_owned()),
    };
    let mut rest = &text[base_end..];
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' => match matching_paren(rest, 0) {
                Some(close) => close + 1, // alias annotation
                None => return other(),
            },
            '?' => {
                ty = ArgType::Optional(Box::new(ty));
                1
            }
            '[' => {
                let Some(close) = rest.find(']') else { return other() };
                let count = &rest[1..close];
                let Ok(count) = (if count.is_empty() { Ok(None) } else { count.parse().map(Some) }) else {
                    return other();
                };
                ty = ArgType::List(Box::new(ty), count);
                close + 1
            }
            _ => return other(),
        };
        rest = &rest[length..];
    }
    ty
}

fn parse_default(text: &str) -> Default {
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return Default::List(split_top_level(inner).into_iter().map(parse_default).collect());
    }
    let quoted = ['"', '\''].into_iter().find_map(|q| text.strip_prefix(q).and_then(|text| text.strip_suffix(q)));
    if let Some(inner) = quoted {
        return Default::Str(inner.to_owned());
    }
    match text {
        "None" => Default::None,
        "True" => Default::Bool(true),
        "False" => Default::Bool(false),
        _ => match (text.parse(), text.parse()) {
            (Ok(value), _) => Default::Int(value),
            (_, Ok(value)) => Default::Float(value),
            _ => Default::Name(text.to_owned()),
        },
    }
}

fn matching_paren(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.char_indices().skip_while(|(i, _)| *i < open) {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(i),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn split_top_level(text: &str) -> Vec<&str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_types_defaults_and_returns() {
        let schema = Schema::parse(
            "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        );
        let schema = schema.unwrap();
        assert_eq!((schema.name.as_str(), schema.overload.as_str()), ("aten::var", "correction"));
        let list = ArgType::List(Box::new(ArgType::Int), Some(1));
        assert_eq!(schema.arguments[1].ty, ArgType::Optional(Box::new(list)));
        assert_eq!(schema.arguments[2].ty, ArgType::Optional(Box::new(ArgType::Scalar)));
        assert!(schema.arguments[3].keyword_only && !schema.arguments[1].keyword_only);
        assert_eq!(schema.arguments[3].default, Some(Default::Bool(false)));
        assert_eq!(schema.returns, [ArgType::Tensor]);
        assert_eq!(schema.target(), "aten.var.correction");
    }

    #[test]
    fn reads_aliases_lists_and_named_results() {
        let schema = Schema::parse("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]");
        let schema = schema.unwrap();
        assert_eq!(schema.arguments[0].ty, ArgType::Tensor);
        assert_eq!(schema.returns, [ArgType::List(Box::new(ArgType::Tensor), None)]);
        let schema = Schema::parse("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor").unwrap();
        let optional = ArgType::Optional(Box::new(ArgType::Tensor));
        assert_eq!(schema.arguments[1].ty, ArgType::List(Box::new(optional), None));
        let schema =
            Schema::parse("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)");
        assert_eq!(schema.unwrap().returns, [ArgType::Tensor, ArgType::Tensor]);
        let schema =
            Schema::parse("lib::op(Tensor x, Foo y, float eps=1e-05, str mode='a', float z=1.) -> ()").unwrap();
        assert_eq!(schema.arguments[1].ty, ArgType::Other("Foo".into()));
        assert_eq!(schema.arguments[2].default, Some(Default::Float(1e-5)));
        assert_eq!(schema.arguments[3].default, Some(Default::Str("a".into())));
        assert_eq!(schema.arguments[4].default, Some(Default::Float(1.0)));
        assert!(schema.returns.is_empty());
        assert_eq!(schema.target(), "lib.op.default");
        assert!(Schema::parse("no schema").is_err());
    }
}

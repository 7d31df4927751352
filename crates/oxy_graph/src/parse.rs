//! The parser for a graph's text form (see `print`).

use crate::{
    Arg, DType, Device, DeviceType, Graph, Layout, MemoryFormat, Node, TensorMeta, ValueId,
    meta::{Dims, contiguous_strides},
};
use indexmap::IndexMap;

/// What is wrong with a text, and in which line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    pub line: usize,
    pub message: String,
}

/// Parses a graph. Values may have any numbers; ids are given in order of definition.
pub fn parse(text: &str) -> Result<Graph, ParseError> {
    let mut parser = Parser { text, at: 0, graph: Graph::default(), names: IndexMap::new() };
    parser.graph().map_err(|message| {
        let line = text[..parser.at.min(text.len())].matches('\n').count() + 1;
        ParseError { line, message }
    })?;
    Ok(parser.graph)
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    graph: Graph,
    names: IndexMap<&'t str, ValueId>,
}

type Result_<T> = Result<T, String>;

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips blanks, and comments from `;` to the end of the line.
    fn skip(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with(';') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result_<()> {
        if self.eat(token) {
            return Ok(());
        }
        let found: String = self.rest().chars().take(16).collect();
        Err(format!("expected `{token}`, found `{found}`"))
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        self.skip();
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn graph(&mut self) -> Result_<()> {
        self.expect("graph(")?;
        while !self.eat(")") {
            let name = self.value_name()?;
            self.expect(":")?;
            let meta = self.meta()?;
            let id = self.define(name, meta)?;
            self.graph.inputs.push(id);
            self.eat(",");
        }
        self.expect("{")?;
        while !self.eat("return") {
            self.node()?;
        }
        self.expect("(")?;
        while !self.eat(")") {
            let id = self.value()?;
            self.graph.outputs.push(id);
            self.eat(",");
        }
        self.expect("}")?;
        self.skip();
        if self.rest().is_empty() { Ok(()) } else { Err("text after the graph".to_owned()) }
    }

    fn value_name(&mut self) -> Result_<&'t str> {
        self.expect("%")?;
        let name = self.word(|c| c.is_alphanumeric() || c == '_');
        if name.is_empty() { Err("a value without name".to_owned()) } else { Ok(name) }
    }

    fn define(&mut self, name: &'t str, meta: TensorMeta) -> Result_<ValueId> {
        let id = self.graph.add_value(meta);
        match self.names.insert(name, id) {
            None => Ok(id),
            Some(_) => Err(format!("%{name} is defined twice")),
        }
    }

    fn value(&mut self) -> Result_<ValueId> {
        let name = self.value_name()?;
        self.names.get(name).copied().ok_or_else(|| format!("%{name} is not defined"))
    }

    fn node(&mut self) -> Result_<()> {
        // Results are defined after the arguments are read.
        let mut results: Vec<Option<(&'t str, Option<TensorMeta>)>> = Vec::new();
        self.skip();
        if self.rest().starts_with('%') || self.rest().starts_with("_ ") || self.rest().starts_with("_,") {
            loop {
                if self.eat("_") {
                    results.push(None);
                } else {
                    let name = self.value_name()?;
                    let meta = if self.eat(":") { Some(self.meta()?) } else { None };
                    results.push(Some((name, meta)));
                }
                if !self.eat(",") {
                    break;
                }
            }
            self.expect("=")?;
        }
        let target = self.word(|c| c.is_alphanumeric() || c == '_' || c == '.' || c == ':').to_owned();
        if target.is_empty() {
            return Err("a node without target".to_owned());
        }
        self.expect("(")?;
        let (mut args, mut kwargs) = (Vec::new(), IndexMap::new());
        while !self.eat(")") {
            match self.keyword() {
                Some(name) => _ = kwargs.insert(name.to_owned(), self.arg()?),
                None => args.push(self.arg()?),
            }
            self.eat(",");
        }
        let mut outputs = Vec::new();
        for result in results {
            outputs.push(match result {
                None => None,
                Some((name, Some(meta))) => Some(self.define(name, meta)?),
                Some((name, None)) => {
                    Some(self.names.get(name).copied().ok_or_else(|| format!("%{name} has no type"))?)
                }
            });
        }
        self.graph.nodes.push(Node { target, args, kwargs, outputs, origin: None });
        Ok(())
    }

    /// `name=`, if that is next.
    fn keyword(&mut self) -> Option<&'t str> {
        let before = self.at;
        let name = self.word(|c| c.is_alphanumeric() || c == '_');
        if !name.is_empty() && self.rest().starts_with('=') {
            self.at += 1;
            return Some(name);
        }
        self.at = before;
        None
    }

    fn meta(&mut self) -> Result_<TensorMeta> {
        let name = self.word(|c| c.is_alphanumeric());
        let dtype = DType::from_name(name).ok_or_else(|| format!("unknown dtype `{name}`"))?;
        let sizes = self.dims()?;
        let mut meta = TensorMeta { strides: contiguous_strides(&sizes), ..TensorMeta::contiguous(dtype, &sizes) };
        if self.rest().starts_with('{') {
            self.at += 1;
            while !self.eat("}") {
                if self.eat("strides=") {
                    meta.strides = self.dims()?;
                } else if self.eat("offset=") {
                    meta.storage_offset = self.integer()?;
                } else if self.eat("device=") {
                    meta.device = self.device()?;
                } else {
                    self.expect("grad")?;
                    meta.requires_grad = true;
                }
                self.eat(",");
            }
        }
        Ok(meta)
    }

    fn dims(&mut self) -> Result_<Dims> {
        self.expect("[")?;
        let mut dims = Dims::new();
        while !self.eat("]") {
            dims.push(self.integer()?);
            self.eat(",");
        }
        Ok(dims)
    }

    fn integer(&mut self) -> Result_<i64> {
        let word = self.word(|c| c.is_ascii_digit() || c == '-');
        word.parse().map_err(|_| format!("`{word}` is not an integer"))
    }

    fn device(&mut self) -> Result_<Device> {
        let kind = match self.word(char::is_alphabetic) {
            "cpu" => DeviceType::Cpu,
            "cuda" => DeviceType::Cuda,
            "meta" => DeviceType::Meta,
            other => return Err(format!("unknown device `{other}`")),
        };
        let mut index = -1;
        if self.rest().starts_with(':') {
            self.at += 1;
            index = self.integer()? as i16;
        }
        Ok(Device { kind, index })
    }

    fn items(&mut self, end: &str) -> Result_<Vec<Arg>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            items.push(self.arg()?);
            self.eat(",");
        }
        Ok(items)
    }

    fn arg(&mut self) -> Result_<Arg> {
        self.skip();
        let Some(first) = self.rest().chars().next() else { return Err("an argument is missing".to_owned()) };
        Ok(match first {
            '%' => Arg::Value(self.value()?),
            '[' => {
                self.at += 1;
                Arg::List(self.items("]")?)
            }
            '(' => {
                self.at += 1;
                Arg::Tuple(self.items(")")?)
            }
            '{' => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.eat("}") {
                    let key = self.arg()?;
                    self.expect(":")?;
                    items.push((key, self.arg()?));
                    self.eat(",");
                }
                Arg::Dict(items)
            }
            '"' => Arg::Str(self.string()?),
            '.' => {
                self.expect("...")?;
                Arg::Ellipsis
            }
            _ => self.atom()?,
        })
    }

    fn atom(&mut self) -> Result_<Arg> {
        let word = self.word(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+' | '#'));
        Ok(match word {
            "None" => Arg::None,
            "True" => Arg::Bool(true),
            "False" => Arg::Bool(false),
            "inf" => Arg::Float(f64::INFINITY),
            "-inf" => Arg::Float(f64::NEG_INFINITY),
            "NaN" => Arg::Float(f64::NAN),
            "torch.strided" => Arg::Layout(Layout::Strided),
            "torch.sparse_coo" => Arg::Layout(Layout::Sparse),
            "torch.contiguous_format" => Arg::MemoryFormat(MemoryFormat::Contiguous),
            "torch.preserve_format" => Arg::MemoryFormat(MemoryFormat::Preserve),
            "torch.channels_last" => Arg::MemoryFormat(MemoryFormat::ChannelsLast),
            "torch.channels_last_3d" => Arg::MemoryFormat(MemoryFormat::ChannelsLast3d),
            "device" => {
                self.expect("(")?;
                let device = self.device()?;
                self.expect(")")?;
                Arg::Device(device)
            }
            "complex" => {
                self.expect("(")?;
                let parts = self.items(")")?;
                let number = |arg: &Arg| match arg {
                    Arg::Float(x) => Some(*x),
                    Arg::Int(i) => Some(*i as f64),
                    _ => None,
                };
                match parts.as_slice() {
                    [re, im] => match (number(re), number(im)) {
                        (Some(re), Some(im)) => Arg::Complex(re, im),
                        _ => return Err("complex() of something else than numbers".to_owned()),
                    },
                    _ => return Err("complex() takes two numbers".to_owned()),
                }
            }
            "slice" => {
                self.expect("(")?;
                let parts: [Arg; 3] =
                    self.items(")")?.try_into().map_err(|_| "slice() takes three parts".to_owned())?;
                Arg::Slice(Box::new(parts))
            }
            _ => {
                if let Some(name) = word.strip_prefix("torch.") {
                    Arg::DType(DType::from_torch_name(name).ok_or_else(|| format!("unknown dtype `{word}`"))?)
                } else if let Some(n) = word.strip_prefix("opaque#") {
                    Arg::Opaque(n.parse().map_err(|_| format!("bad argument `{word}`"))?)
                } else if let Ok(i) = word.parse() {
                    Arg::Int(i)
                } else {
                    Arg::Float(word.parse().map_err(|_| format!("bad argument `{word}`"))?)
                }
            }
        })
    }

    /// A string as Rust's `{:?}` writes it.
    fn string(&mut self) -> Result_<String> {
        let mut chars = self.rest()[1..].char_indices();
        let mut out = String::new();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 2;
                    return Ok(out);
                }
                '\\' => match chars.next().map(|c| c.1) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('0') => out.push('\0'),
                    Some('u') => {
                        let hex: String = chars.by_ref().map(|c| c.1).skip(1).take_while(|c| *c != '}').collect();
                        let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                        out.push(code.ok_or("bad character in a string")?);
                    }
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err("a string without end".to_owned())
    }
}

//! The text form of a graph.
//!
//! ```text
//! graph(%0: f32[2, 3], %1: f32[3]{strides=[2]}) {
//!   %2: f32[2, 3] = aten.add.Tensor(%0, %1, alpha=1)
//!   return (%2)
//! }
//! ```
//! Strides are printed when they are not contiguous, a storage offset when it is not 0, a device when it is
//! not the CPU, `grad` when the value requires a gradient.

use crate::{Arg, Device, DeviceType, Graph, Layout, MemoryFormat, TensorMeta, ValueId, meta::contiguous_strides};
use std::fmt::{self, Display, Formatter, Write};

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            DeviceType::Cpu => "cpu",
            DeviceType::Cuda => "cuda",
            DeviceType::Meta => "meta",
        };
        if self.index < 0 { f.write_str(name) } else { write!(f, "{name}:{}", self.index) }
    }
}

impl Display for TensorMeta {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype.name(), self.sizes.as_slice())?;
        let mut extras = Vec::new();
        if self.strides != contiguous_strides(&self.sizes) {
            extras.push(format!("strides={:?}", self.strides.as_slice()));
        }
        if self.storage_offset != 0 {
            extras.push(format!("offset={}", self.storage_offset));
        }
        if self.device != Device::CPU {
            extras.push(format!("device={}", self.device));
        }
        if self.requires_grad {
            extras.push("grad".to_owned());
        }
        if extras.is_empty() { Ok(()) } else { write!(f, "{{{}}}", extras.join(", ")) }
    }
}

/// Writes comma-separated items.
fn commas<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write(out, item);
    }
}

/// Canonical numbers of values, given out in the order of first printing.
pub struct Names {
    numbers: Vec<Option<u32>>,
    next: u32,
}

impl Names {
    /// For a graph (or program) of this many values.
    pub fn new(n_values: usize) -> Names {
        Names { numbers: vec![None; n_values], next: 0 }
    }

    pub fn is_printed(&self, id: ValueId) -> bool {
        self.numbers.get(id.0 as usize).is_some_and(Option::is_some)
    }

    pub fn number(&mut self, id: ValueId) -> u32 {
        if self.numbers.len() <= id.0 as usize {
            self.numbers.resize(id.0 as usize + 1, None);
        }
        *self.numbers[id.0 as usize].get_or_insert_with(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// The text of an argument.
    pub fn arg(&mut self, arg: &Arg) -> String {
        let mut s = String::new();
        match arg {
            Arg::Value(id) => _ = write!(s, "%{}", self.number(*id)),
            Arg::None => s.push_str("None"),
            Arg::Bool(b) => s.push_str(if *b { "True" } else { "False" }),
            Arg::Int(i) => _ = write!(s, "{i}"),
            Arg::Float(x) => _ = write!(s, "{x:?}"),
            Arg::Complex(re, im) => _ = write!(s, "complex({re:?}, {im:?})"),
            Arg::Str(text) => _ = write!(s, "{text:?}"),
            Arg::DType(d) => _ = write!(s, "torch.{}", d.torch_name()),
            Arg::Device(d) => _ = write!(s, "device({d})"),
            Arg::Layout(l) => s.push_str(match l {
                Layout::Strided => "torch.strided",
                Layout::Sparse => "torch.sparse_coo",
            }),
            Arg::MemoryFormat(m) => s.push_str(match m {
                MemoryFormat::Contiguous => "torch.contiguous_format",
                MemoryFormat::Preserve => "torch.preserve_format",
                MemoryFormat::ChannelsLast => "torch.channels_last",
                MemoryFormat::ChannelsLast3d => "torch.channels_last_3d",
            }),
            Arg::List(items) => {
                s.push('[');
                commas(&mut s, items, |s, item| s.push_str(&self.arg(item)));
                s.push(']');
            }
            Arg::Tuple(items) => {
                s.push('(');
                commas(&mut s, items, |s, item| s.push_str(&self.arg(item)));
                s.push_str(if items.len() == 1 { ",)" } else { ")" });
            }
            Arg::Slice(parts) => {
                s.push_str("slice(");
                commas(&mut s, parts.iter(), |s, part| s.push_str(&self.arg(part)));
                s.push(')');
            }
            Arg::Dict(items) => {
                s.push('{');
                commas(&mut s, items, |s, (key, value)| {
                    let text = format!("{}: {}", self.arg(key), self.arg(value));
                    s.push_str(&text);
                });
                s.push('}');
            }
            Arg::Ellipsis => s.push_str("..."),
            Arg::Opaque(n) => _ = write!(s, "opaque#{n}"),
        }
        s
    }

    /// The text of a call: `target(args, name=arg)`.
    pub fn call(&mut self, target: &str, args: &[Arg], kwargs: &indexmap::IndexMap<String, Arg>) -> String {
        let mut texts: Vec<String> = args.iter().map(|arg| self.arg(arg)).collect();
        for (name, arg) in kwargs {
            texts.push(format!("{name}={}", self.arg(arg)));
        }
        format!("{target}({})", texts.join(", "))
    }

    /// The text of a definition's left side: `%0: f32[2], _ = `; values printed before stand without type.
    pub fn results(&mut self, outputs: &[Option<ValueId>], meta: impl Fn(ValueId) -> String) -> String {
        let texts: Vec<String> = outputs
            .iter()
            .map(|out| match out {
                None => "_".to_owned(),
                Some(id) if self.is_printed(*id) => format!("%{}", self.number(*id)),
                Some(id) => format!("%{}: {}", self.number(*id), meta(*id)),
            })
            .collect();
        if texts.is_empty() { String::new() } else { format!("{} = ", texts.join(", ")) }
    }
}

struct Printer<'g> {
    graph: &'g Graph,
    names: Names,
    out: String,
}

impl Printer<'_> {
    fn typed(&mut self, id: ValueId) -> String {
        format!("%{}: {}", self.names.number(id), self.graph.meta(id))
    }

    fn print(mut self) -> String {
        let graph = self.graph;
        let mut line = String::from("graph(");
        commas(&mut line, &graph.inputs, |s, id| s.push_str(&self.typed(*id)));
        self.out.push_str(&line);
        self.out.push_str(") {\n");
        for node in &graph.nodes {
            let right = self.names.call(&node.target, &node.args, &node.kwargs);
            let left = self.names.results(&node.outputs, |id| graph.meta(id).to_string());
            _ = writeln!(self.out, "  {left}{right}");
        }
        let mut line = String::new();
        commas(&mut line, &graph.outputs, |s, id| _ = write!(s, "%{}", self.names.number(*id)));
        _ = writeln!(self.out, "  return ({line})");
        self.out.push_str("}\n");
        self.out
    }
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let printer = Printer { graph: self, names: Names::new(self.metas.len()), out: String::new() };
        f.write_str(&printer.print())
    }
}

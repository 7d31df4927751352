//! The program: what lowering produces, as plain data with a text form.
//!
//! A program is a list of kernels and a straight line of steps over values. It says what is computed and in which
//! order; when memory is freed or reused is decided by whoever runs it, from `last_use` and `storage`.
//!
//! ```text
//! program(%0: f32[2, 3], %1: f32[3]) {
//!   %2: f32[2, 3] = alloc
//!   launch k0(%0, %1, %2)
//!   %3: f32[3, 2]{strides=[1, 3]} = view %2 + 0
//!   %4: f32[3, 2] = aten.clone.default(%3)
//!   return (%4)
//! }
//! ```
//! The kernels come first, each in its own text form.

use indexmap::IndexMap;
use oxy_graph::{Arg, TensorMeta, ValueId, print::Names};
use oxy_loops::Kernel;
use std::fmt::{self, Display, Formatter};

/// One step. Steps run in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `value` is a new tensor with its metadata's sizes, strides and dtype; contents undefined.
    Allocate { value: ValueId },
    /// Runs `kernels[kernel]` over its whole range; `buffers[i]` is parameter i. Addresses in the kernel count
    /// from each value's first element (its data pointer). Parameters marked `written` are written, and every
    /// buffer is defined before. No two parameters overlap unless they are the same value.
    Launch { kernel: u32, buffers: Vec<ValueId> },
    /// Calls an ATen operator by name. Arguments follow the schema. A result that is one of the arguments repeats
    /// its id; `None` is a result to drop.
    Call { target: String, args: Vec<Arg>, kwargs: IndexMap<String, Arg>, outputs: Vec<Option<ValueId>> },
    /// `out` is a tensor over the storage of `of`, with `out`'s metadata, whose first element is `offset` elements
    /// after the first element of `of` (so it stays right when an input arrives with another storage offset).
    View { out: ValueId, of: ValueId, offset: i64 },
}

/// A lowered graph. Value ids are the graph's own where the value exists in the graph; new ones follow.
// Invariants: values, storage and last_use are indexed by ValueId; values are defined (input or step) before use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub kernels: Vec<Kernel>,
    pub steps: Vec<Step>,
    pub values: Vec<TensorMeta>,
    pub inputs: Vec<ValueId>,
    /// One for each output of the graph. May be an input, a view of one, or twice the same value, where eager's
    /// results are too.
    pub outputs: Vec<ValueId>,
    /// The value whose storage each value lives in: itself, or what it is a view of.
    pub storage: Vec<ValueId>,
    /// For each value, the last step that reads or writes its storage. None: it is never used, or it must stay
    /// (its storage is an input's or is returned).
    pub last_use: Vec<Option<u32>>,
}

impl Step {
    /// Calls `f` for every value that the step reads or writes.
    pub fn for_each_value(&self, mut f: impl FnMut(ValueId)) {
        match self {
            Step::Allocate { value } => f(*value),
            Step::Launch { buffers, .. } => buffers.iter().for_each(|value| f(*value)),
            Step::Call { args, kwargs, outputs, .. } => {
                args.iter().chain(kwargs.values()).for_each(|arg| arg.for_each_value(&mut f));
                outputs.iter().flatten().for_each(|value| f(*value));
            }
            Step::View { out, of, .. } => {
                f(*out);
                f(*of);
            }
        }
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for kernel in &self.kernels {
            writeln!(f, "{kernel}")?;
        }
        let mut names = Names::new(self.values.len());
        let typed = |names: &mut Names, id: ValueId| format!("%{}: {}", names.number(id), self.values[id.0 as usize]);
        let plain = |names: &mut Names, ids: &[ValueId]| {
            ids.iter().map(|id| format!("%{}", names.number(*id))).collect::<Vec<_>>().join(", ")
        };
        let inputs: Vec<String> = self.inputs.iter().map(|id| typed(&mut names, *id)).collect();
        writeln!(f, "program({}) {{", inputs.join(", "))?;
        for step in &self.steps {
            match step {
                Step::Allocate { value } => writeln!(f, "  {} = alloc", typed(&mut names, *value))?,
                Step::Launch { kernel, buffers } => writeln!(f, "  launch k{kernel}({})", plain(&mut names, buffers))?,
                Step::Call { target, args, kwargs, outputs } => {
                    let right = names.call(target, args, kwargs);
                    let left = names.results(outputs, |id| self.values[id.0 as usize].to_string());
                    writeln!(f, "  {left}{right}")?;
                }
                Step::View { out, of, offset } => {
                    let of = names.number(*of);
                    writeln!(f, "  {} = view %{of} + {offset}", typed(&mut names, *out))?;
                }
            }
        }
        writeln!(f, "  return ({})", plain(&mut names, &self.outputs))?;
        f.write_str("}\n")
    }
}

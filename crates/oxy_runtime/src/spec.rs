//! The plan as data: slots, steps, and their text form.
//!
//! ```text
//! plan(%0: f32[2, 3], %1: f32[3]) arena 64 {
//!   %2: f32[2, 3] = alloc arena+0
//!   launch k0 relu(%0, %1, %2) range 6 grain 32768
//!   %3: f32[3, 2]{strides=[1, 3]} = view %2 + 0
//!   %4: f32[3, 2] = aten.clone.default(%3)
//!   free %2
//!   return (%4)
//! }
//! ```

use oxy_graph::{Arg, TensorMeta, ValueId};
use oxy_loops::Kernel;
use oxy_torch::Value;
use std::fmt::{self, Display, Formatter};

/// A tensor of a plan: the position of its metadata in `PlanSpec::slots`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// A kernel of a plan: its position in `PlanSpec::kernels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u32);

/// An argument of a call.
pub type PlanArg = Value<SlotId>;

/// Where an allocated slot lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not planned yet.
    Undecided,
    /// At this byte of the plan's arena, which the next run overwrites.
    Arena { offset: u64 },
    /// In memory of its own: it is returned, or isn't on the CPU.
    Fresh,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PlanStep {
    /// The slot is a new tensor with its metadata; contents undefined.
    Alloc { slot: SlotId, place: Place },
    /// Runs a kernel over 0..range, in parts of `grain` or more. Argument i is the kernel's parameter i.
    Launch { kernel: KernelId, args: Vec<SlotId>, range: i64, grain: i64 },
    /// Calls an ATen operator. Results: `None` is dropped; a slot that is an argument is that argument, written.
    /// With `into`, the (only) result is written into its slot, which is allocated before.
    Call { target: String, args: Vec<PlanArg>, kwargs: Vec<(String, PlanArg)>, outs: Vec<Option<SlotId>>, into: bool },
    /// The slot's metadata over the storage of `of`, from `offset` elements after its first element on.
    View { slot: SlotId, of: SlotId, offset: i64 },
    /// The slot is not used again.
    Free { slot: SlotId },
}

/// What a plan's calls may assume. In both modes autocast is off while a plan runs (its graph's casts are explicit);
/// grad mode is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// No gradient is recorded: grad mode is off, or no input or constant requires one. Calls go to CPU kernels directly.
    #[default]
    Inference,
    /// Every step is a call, made through the dispatcher, so that autograd records it.
    Autograd,
}

/// A plan. From a lowered program: slots are its values, in order; `storage` is its storage.
// Invariants: slots are defined (input, constant or step) before use; storage is indexed by SlotId.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanSpec {
    pub slots: Vec<TensorMeta>,
    /// The slot whose storage each slot lives in: itself, or what it is a view or alias of.
    pub storage: Vec<SlotId>,
    pub kernels: Vec<Kernel>,
    pub inputs: Vec<SlotId>,
    /// Tensors bound when the plan is built.
    pub constants: Vec<SlotId>,
    pub steps: Vec<PlanStep>,
    /// May name inputs, constants, views of them, or a slot twice.
    pub outputs: Vec<SlotId>,
    pub arena_bytes: u64,
    pub mode: Mode,
}

impl PlanSpec {
    /// Metadata of a slot. None for an id of another plan.
    pub fn meta(&self, slot: SlotId) -> Option<&TensorMeta> {
        self.slots.get(slot.0 as usize)
    }

    /// The slot whose storage this one lives in.
    pub fn root(&self, slot: SlotId) -> SlotId {
        self.storage.get(slot.0 as usize).copied().unwrap_or(slot)
    }
}

impl PlanStep {
    /// Calls `f` for every slot that the step reads, writes or defines.
    pub fn for_each_slot(&self, mut f: impl FnMut(SlotId)) {
        match self {
            PlanStep::Alloc { slot, .. } | PlanStep::Free { slot } => f(*slot),
            PlanStep::Launch { args, .. } => args.iter().for_each(|slot| f(*slot)),
            PlanStep::Call { args, kwargs, outs, .. } => {
                args.iter()
                    .chain(kwargs.iter().map(|(_, arg)| arg))
                    .for_each(|arg| arg.for_each_tensor(&mut |slot| f(*slot)));
                outs.iter().flatten().for_each(|slot| f(*slot));
            }
            PlanStep::View { slot, of, .. } => {
                f(*slot);
                f(*of);
            }
        }
    }
}

/// The plan's form of a graph's argument. None for what no ATen operator takes (slices, dicts, Python objects).
pub fn plan_arg(arg: &Arg, slot: &mut impl FnMut(ValueId) -> SlotId) -> Option<PlanArg> {
    Some(match arg {
        Arg::Value(id) => Value::Tensor(slot(*id)),
        Arg::None => Value::None,
        Arg::Bool(value) => Value::Bool(*value),
        Arg::Int(value) => Value::Int(*value),
        Arg::Float(value) => Value::Float(*value),
        Arg::Complex(re, im) => Value::Complex(*re, *im),
        Arg::Str(value) => Value::Str(value.clone()),
        Arg::DType(value) => Value::DType(*value),
        Arg::Device(value) => Value::Device(*value),
        Arg::Layout(value) => Value::Layout(*value),
        Arg::MemoryFormat(value) => Value::MemoryFormat(*value),
        Arg::List(items) | Arg::Tuple(items) => {
            Value::List(items.iter().map(|item| plan_arg(item, slot)).collect::<Option<_>>()?)
        }
        Arg::Slice(_) | Arg::Dict(_) | Arg::Ellipsis | Arg::Opaque(_) => return None,
    })
}

struct ShowArg<'a>(&'a PlanArg);

impl Display for ShowArg<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Tensor(slot) => write!(f, "%{}", slot.0),
            Value::None => f.write_str("None"),
            Value::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Complex(re, im) => write!(f, "({re:?}+{im:?}j)"),
            Value::Str(value) => write!(f, "{value:?}"),
            Value::DType(value) => f.write_str(value.name()),
            Value::Device(value) => write!(f, "{value}"),
            Value::Layout(value) => write!(f, "{value:?}"),
            Value::MemoryFormat(value) => write!(f, "{value:?}"),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| ShowArg(item).to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

impl Display for PlanSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let typed = |slot: &SlotId| match self.meta(*slot) {
            Some(meta) => format!("%{}: {meta}", slot.0),
            None => format!("%{}: ?", slot.0),
        };
        let names = |slots: &[SlotId]| slots.iter().map(|slot| format!("%{}", slot.0)).collect::<Vec<_>>().join(", ");
        let inputs: Vec<String> = self.inputs.iter().map(typed).collect();
        write!(f, "plan({})", inputs.join(", "))?;
        if self.arena_bytes > 0 {
            write!(f, " arena {}", self.arena_bytes)?;
        }
        if self.mode == Mode::Autograd {
            f.write_str(" autograd")?;
        }
        f.write_str(" {\n")?;
        for slot in &self.constants {
            writeln!(f, "  {} = constant", typed(slot))?;
        }
        for step in &self.steps {
            match step {
                PlanStep::Alloc { slot, place } => {
                    let place = match place {
                        Place::Undecided => String::new(),
                        Place::Arena { offset } => format!(" arena+{offset}"),
                        Place::Fresh => " fresh".to_owned(),
                    };
                    writeln!(f, "  {} = alloc{place}", typed(slot))?;
                }
                PlanStep::Launch { kernel, args, range, grain } => {
                    let name = self.kernels.get(kernel.0 as usize).map_or("?", |kernel| &kernel.name);
                    let args = names(args);
                    writeln!(f, "  launch k{} {name}({args}) range {range} grain {grain}", kernel.0)?;
                }
                PlanStep::Call { target, args, kwargs, outs, into } => {
                    let mut shown: Vec<String> = args.iter().map(|arg| ShowArg(arg).to_string()).collect();
                    shown.extend(kwargs.iter().map(|(name, arg)| format!("{name}={}", ShowArg(arg))));
                    let left: Vec<String> = outs.iter().map(|out| out.as_ref().map_or("_".to_owned(), typed)).collect();
                    let arrow = if *into { "<-" } else { "=" };
                    let left = if left.is_empty() { String::new() } else { format!("{} {arrow} ", left.join(", ")) };
                    writeln!(f, "  {left}{target}({})", shown.join(", "))?;
                }
                PlanStep::View { slot, of, offset } => {
                    writeln!(f, "  {} = view %{} + {offset}", typed(slot), of.0)?;
                }
                PlanStep::Free { slot } => writeln!(f, "  free %{}", slot.0)?,
            }
        }
        writeln!(f, "  return ({})", names(&self.outputs))?;
        f.write_str("}\n")
    }
}

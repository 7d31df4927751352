//! Plans and what they run on: flat programs that allocate, launch, call, view and free; memory; stored artifacts.
//!
//! A `PlanSpec` is plain data with a text form. `Plan::new` resolves everything that doesn't change between runs
//! (operator functions, arguments, addresses, tensors over fixed memory), so that running is a tight loop. Nothing here
//! knows Python: what torch's C ABI can't express goes to the caller's `Host`.
//!
//! Promises: a plan may run in several threads at once; memory held for reuse is bounded; a result never shares memory
//! with anything that a later run overwrites. Unsafe code is in `launch.rs` alone.

pub mod artifacts;
pub mod blocks;
pub mod bounds;
#[allow(unsafe_code, reason = "the unsafe room")]
pub mod launch;
pub mod memory_plan;
pub mod plan;
pub mod spec;

pub use artifacts::{ArtifactCache, Key};
pub use blocks::{BlockCache, MemoryStats};
pub use launch::{Kernel, KernelEntry};
pub use plan::{BuildError, Host, HostArg, HostError, Plan, Resources, RunError};
pub use spec::{KernelId, Mode, Place, PlanArg, PlanSpec, PlanStep, SlotId};

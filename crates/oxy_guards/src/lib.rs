//! Sources, guard kinds, guard programs and exits, evaluated on real Python objects.
//!
//! [`Source`] says where a value lives at a segment's entry, [`Guard`] what must hold of it, `GuardProgram` checks
//! a list of guards without allocating, and [`Exit`] rebuilds live values and applies effects after the graph ran.
//!
//! An unsafe room: it reads CPython's objects through raw pointers.

pub mod kinds;
mod object;
pub mod rebuild;
pub mod sources;

pub use kinds::{GlobalState, Guard, GuardKind, TensorGuard};
pub use object::PyObj;
pub use rebuild::{Built, Effect, Exit, Recipe, RecipeId, SlotIndex};
pub use sources::{Source, SourceKind, SourceTable};

mod interim;
pub use interim::{Env, FailedGuard, GuardProgram, Registers};

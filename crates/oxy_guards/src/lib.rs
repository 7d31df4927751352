//! Sources, guard kinds, guard programs and exits, evaluated on real Python objects.
//!
//! [`Source`] says where a value lives at a segment's entry, [`Guard`] what must hold of it, [`GuardProgram`] checks
//! a list of guards without allocating, and [`Exit`] rebuilds live values and applies effects after the graph ran.
//!
//! An unsafe room: it reads CPython's objects through raw pointers. An [`Env`] can only be made by promising that
//! what it points to is alive.

mod cpython;
pub mod kinds;
mod object;
pub mod program;
pub mod rebuild;
pub mod sources;
mod stable;
mod tensor_impl;

pub use kinds::{GlobalState, Guard, GuardKind, TensorGuard};
pub use object::PyObj;
pub use program::{Env, FailedGuard, GuardProgram, Registers};
pub use rebuild::{Built, Effect, Exit, Recipe, RecipeId, SlotIndex};
pub use sources::{Source, SourceKind, SourceTable};

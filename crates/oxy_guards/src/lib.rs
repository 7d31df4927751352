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

/// Whether tensors are compared by the words of their TensorImpl, and torch's state is read from its C++ functions: the
/// fast ways, which depend on how torch was built. For tests and diagnosis.
pub fn fast_paths(py: pyo3::Python<'_>) -> (bool, bool) {
    let words = match tensor_impl::verified_torch(py) {
        Ok(Some(torch)) => {
            tensor_impl::ImplLayout::get(py, torch).is_some_and(tensor_impl::ImplLayout::knows_gradients)
        }
        _ => false,
    };
    (words, GlobalState::current(py).is_ok_and(|state| state.is_native()))
}

//! torch's stable C ABI: raw symbols, safe tensors, operator calls. Unsafe room.
//!
//! One built engine serves many torch versions: every function is looked up in the torch that the process has loaded,
//! and what that torch can't do is an error that names it. Nothing here knows Python beyond the address of an object.
//!
//! Promises: a `Tensor` is always a live tensor; a `TensorRef` is one for its lifetime; errors of torch come back as
//! errors with torch's message where the ABI tells it. Not done here: deciding what to call, memory planning, Python's
//! exceptions.

pub mod call;
pub mod error;
pub mod schema;
pub mod shims;
pub mod sys;
pub mod tensor;
pub mod torch;

pub use call::{CallSite, Results, Value, as_strided, call_dispatcher};
pub use error::Error;
pub use schema::{ArgType, Schema};
pub use tensor::{KnownTensor, Tensor, TensorRef, verify_layout};
pub use torch::{AutocastGuard, GradGuard, Torch};

//! CPython 3.12: frame layout, and what is done differently there.

pub mod layout;

#[cfg(all(Py_3_12, not(Py_3_13)))]
mod frame;
#[cfg(all(Py_3_12, not(Py_3_13)))]
pub(crate) use frame::*;
pub use layout::InterpreterFrame;

/// The version, as in `sys.version_info[:2]`.
pub const NUMBER: (u8, u8) = (3, 12);

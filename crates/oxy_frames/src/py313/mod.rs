//! CPython 3.13: frame layout, and what is done differently there.

pub mod layout;

#[cfg(all(Py_3_13, not(Py_3_14)))]
mod frame;
#[cfg(all(Py_3_13, not(Py_3_14)))]
pub(crate) use frame::*;
pub use layout::InterpreterFrame;

/// The version, as in `sys.version_info[:2]`.
pub const NUMBER: (u8, u8) = (3, 13);

//! The extension module oxyfuel._engine: PyO3 surface, no decisions.

//! Graph to graph passes. A pass has one name everywhere: its file, its function, its tests.

pub mod canonicalize;

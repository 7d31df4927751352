//! Compiles segments end to end and runs frames: the one crate that sees the whole pipeline.
//!
//! [`compiled`] is what `oxyfuel.compile` returns, below its Python face; [`frames`] runs a frame as segments and
//! steps; [`segment`] compiles one segment; [`backend`] turns its graph into something that runs.

pub mod backend;
pub mod cache;
pub mod call;
pub mod compiled;
pub mod config;
pub mod disabled;
pub mod engine;
pub mod frames;
pub mod log;
pub mod native;
pub mod record;
pub mod segment;
pub mod skip;
pub mod stats;

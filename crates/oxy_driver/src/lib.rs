//! Compiles a segment end to end and runs frames; config, policies, panic boundary. The one crate that sees the whole pipeline.

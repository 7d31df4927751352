//! Log lines for the user: once each, on the `oxyfuel` logger of Python's logging.

use pyo3::prelude::*;

/// Writes a warning through Python's logging, so that applications configure it as they do theirs.
pub fn line(text: &str) {
    Python::attach(|py| {
        let written = py
            .import("logging")
            .and_then(|logging| logging.call_method1("getLogger", ("oxyfuel",)))
            .and_then(|logger| logger.call_method1("warning", ("%s", text)));
        if let Err(error) = written {
            error.write_unraisable(py, None);
        }
    });
}

//! The operator registry: one row for each operator.

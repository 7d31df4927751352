//! Passes PyO3's `Py_3_x` cfgs on, by which `cpython` picks the folder of the host's CPython version.
fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}

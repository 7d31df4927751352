//! Which files' frames are run as they are.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static PREFIXES: PyOnceLock<Vec<String>> = PyOnceLock::new();

/// Folders of the standard library, torch and this package.
pub fn library_prefixes(py: Python<'_>) -> PyResult<&'static Vec<String>> {
    PREFIXES.get_or_try_init(py, || {
        let path = py.import("os.path")?;
        let folder = |file: Bound<'_, PyAny>| -> PyResult<String> {
            let folder: String = path.call_method1("dirname", (file,))?.extract()?;
            Ok(folder + "/")
        };
        let mut prefixes = vec![
            folder(py.import("torch")?.getattr("__file__")?)?,
            folder(py.import("oxyfuel")?.getattr("__file__")?)?,
        ];
        // The standard library's own modules, not site-packages below them.
        let stdlib: String = py.import("sysconfig")?.call_method1("get_path", ("stdlib",))?.extract()?;
        for module in [
            "collections",
            "json",
            "logging",
            "importlib",
            "unittest",
            "concurrent",
            "asyncio",
            "re",
            "email",
            "ctypes",
        ] {
            prefixes.push(format!("{stdlib}/{module}/"));
        }
        for entry in std::fs::read_dir(&stdlib).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".py") {
                prefixes.push(format!("{stdlib}/{name}"));
            }
        }
        Ok(prefixes)
    })
}

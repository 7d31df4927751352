//! Golden tests of lowering: `tests/filetests/lower/*.oxy` in the repository's root.
//!
//! A file is comments (`;`) and a graph, a line of dashes, and the program it lowers to. `OXY_BLESS=1` rewrites the
//! programs.

use oxy_lower::{Options, lower};
use std::{fs, path::PathBuf};

const SEPARATOR: &str = "\n----\n";

#[test]
fn lower_filetests() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests/lower");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "oxy"));
    paths.sort();
    assert!(!paths.is_empty());
    let bless = std::env::var_os("OXY_BLESS").is_some();
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let (input, expected) = text.split_once(SEPARATOR).unwrap_or((text.trim_end(), ""));
        let graph = oxy_graph::parse(input).map_err(|e| format!("{}: {e}", path.display()))?;
        let found = match lower(&graph, &Options::default()) {
            Ok(program) => program.to_string(),
            Err(error) => format!("error: {error}\n"),
        };
        if found == expected {
            continue;
        }
        if bless {
            fs::write(&path, format!("{input}{SEPARATOR}{found}"))?;
        } else {
            wrong.push(format!("{}\nfound:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "run with OXY_BLESS=1 if these are right:\n{}", wrong.join("\n"));
    Ok(())
}

//! Golden listings of the fixtures of every version.
//!
//! `fixtures/VERSION/NAME.code` (made by `make_fixtures.sh`) decodes to `fixtures/VERSION/NAME.txt`.
//! `BLESS=1` rewrites the listings; read the difference before committing it.

use std::{fs, path::Path};

use oxy_bytecode::{
    Analysis, CodeUnit, PythonVersion,
    dump::DumpReader,
    text::{Listing, Symbols},
};

/// The listings of all code objects in a dump.
fn listing(dump: &str) -> String {
    let mut reader = DumpReader::default();
    let mut text = String::new();
    for line in dump.lines() {
        let Some(dumped) = reader.line(line).unwrap() else {
            continue;
        };
        let unit = CodeUnit::decode(dumped.version, &dumped.raw()).unwrap();
        let analysis = Analysis::of(&unit).unwrap();
        let symbols = Symbols { locals: &dumped.locals, names: &dumped.names, consts: &dumped.consts };
        let listing = Listing { unit: &unit, analysis: Some(&analysis), symbols };
        text += &format!("== {}\n{listing}\n", dumped.place);
    }
    text
}

#[test]
fn fixtures_decode_to_their_listings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut wrong = Vec::new();
    for version in PythonVersion::ALL {
        let mut dumps = 0;
        for entry in fs::read_dir(root.join(version.to_string())).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "code") {
                continue;
            }
            dumps += 1;
            let found = listing(&fs::read_to_string(&path).unwrap());
            let golden = path.with_extension("txt");
            if std::env::var_os("BLESS").is_some() {
                fs::write(&golden, found).unwrap();
            } else if fs::read_to_string(&golden).unwrap_or_default() != found {
                wrong.push(golden);
            }
        }
        assert!(dumps > 0, "no fixtures for {version}");
    }
    assert!(wrong.is_empty(), "listings differ, look at them with BLESS=1: {wrong:#?}");
}

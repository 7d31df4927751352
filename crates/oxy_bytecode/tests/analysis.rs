//! Live locals and loop heads of `fixtures/liveness.py`, the same for every version.

use std::{fs, path::Path};

use oxy_bytecode::{
    Analysis, CodeUnit, Instr, PythonVersion,
    dump::{DumpReader, DumpedCode},
};

/// Runs a check on one function of the fixture, for every version.
fn for_each_version(function: &str, check: impl Fn(&Facts)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for version in PythonVersion::ALL {
        let dump = fs::read_to_string(root.join(version.to_string()).join("liveness.code")).unwrap();
        let mut reader = DumpReader::default();
        let mut codes = dump.lines().filter_map(|line| reader.line(line).unwrap());
        let dumped = codes.find(|code| code.place == function).unwrap();
        let unit = CodeUnit::decode(dumped.version, &dumped.raw()).unwrap();
        let analysis = Analysis::of(&unit).unwrap();
        check(&Facts { dumped, unit, analysis });
    }
}

struct Facts {
    dumped: DumpedCode,
    unit: CodeUnit,
    analysis: Analysis,
}

impl Facts {
    /// The names live before the first reachable instruction of a line that satisfies a condition.
    fn live(&self, line: u32, wanted: fn(&Instr) -> bool) -> Vec<&str> {
        let here = |(id, p): &(_, &oxy_bytecode::PlacedInstr)| {
            self.unit.line_of(*id) == Some(line) && self.analysis.is_reachable(*id) && wanted(&p.instr)
        };
        let (id, _) = self.unit.iter().find(here).unwrap();
        self.analysis.live_vars(&self.unit, id).map(|var| self.dumped.locals[var.index()].as_str()).collect()
    }
}

#[test]
fn what_a_handler_reads_is_live_where_it_can_be_reached_from() {
    for_each_version("handler_reads", |facts| {
        assert_eq!(facts.live(1, |_| true), ["a", "b"]);
        assert_eq!(facts.live(2, |i| matches!(i, Instr::StoreFast { .. })), ["b"]);
        assert_eq!(facts.live(4, |i| matches!(i, Instr::Call { .. })), ["b", "c"]);
        assert_eq!(facts.live(5, |i| matches!(i, Instr::StoreFast { .. })), ["b"]);
        assert_eq!(facts.live(6, |_| true), ["c"]);
        assert_eq!(facts.live(8, |_| true), ["b"]);
    });
}

#[test]
fn what_the_next_pass_reads_is_live_at_the_loop_head() {
    for_each_version("loop_carries", |facts| {
        let is_head = |i: &Instr| matches!(i, Instr::ForIter { .. });
        assert_eq!(facts.live(13, is_head), ["scale", "total"]);
        assert_eq!(facts.live(17, |_| true), ["total"]);
        let heads = facts.unit.iter().filter(|(id, _)| facts.analysis.is_loop_header(*id));
        assert!(heads.map(|(_, p)| p.instr).all(|i| is_head(&i)));
    });
}

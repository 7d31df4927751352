//! Decodes and analyses every code object of a dump (`tests/dump_code.py stdlib`) on standard input, and checks
//! the result against what CPython says: positions of every word, jump targets, stack size.
//!
//! Prints one line per failure (the first few), then `VERSION: N code objects, M failures`
//! and which neutral instructions the dump never used.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, Write},
    process::ExitCode,
};

use oxy_bytecode::{
    Analysis, CodeUnit, Instr, InstrId, Location, WordOffset,
    dump::{DumpReader, DumpedCode},
};

/// Failures printed in full.
const SHOWN: usize = 20;

#[derive(Default)]
struct Totals {
    version: Option<oxy_bytecode::PythonVersion>,
    codes: usize,
    instrs: usize,
    exact_stacks: usize,
    failures: usize,
    mnemonics: BTreeSet<&'static str>,
}

fn main() -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut reader = DumpReader::default();
    let mut totals = Totals::default();
    for line in io::stdin().lock().lines() {
        let Some(dumped) = reader.line(&line?).map_err(io::Error::other)? else {
            continue;
        };
        totals.version = Some(dumped.version);
        totals.codes += 1;
        if let Err(failure) = check(&dumped, &mut totals) {
            totals.failures += 1;
            if totals.failures <= SHOWN {
                writeln!(out, "{}: {failure}", dumped.place)?;
            }
        }
    }
    let Totals { version, codes, instrs, exact_stacks, failures, mnemonics } = totals;
    let version = version.map_or("empty dump".to_owned(), |v| v.to_string());
    writeln!(out, "{version}: {codes} code objects, {failures} failures")?;
    writeln!(out, "  {instrs} instructions; deepest stack equals co_stacksize in {exact_stacks}")?;
    let unseen = Instr::MNEMONICS.iter().copied().filter(|name| !mnemonics.contains(name));
    writeln!(out, "  not in this version or not used: {}", unseen.collect::<Vec<_>>().join(" "))?;
    Ok(if failures == 0 && codes > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(dumped: &DumpedCode, totals: &mut Totals) -> Result<(), String> {
    let unit = CodeUnit::decode(dumped.version, &dumped.raw()).map_err(|error| error.to_string())?;
    let analysis = Analysis::of(&unit).map_err(|error| error.to_string())?;
    totals.instrs += unit.instrs.len();
    totals.mnemonics.extend(unit.instrs.iter().map(|placed| placed.instr.mnemonic()));
    totals.exact_stacks += usize::from(analysis.max_depth(&unit) == unit.stacksize);
    check_positions(dumped, &unit)?;
    check_jumps(dumped, &unit)?;
    check_groups(&unit)
}

/// Every word has the position that `co_positions()` gives.
fn check_positions(dumped: &DumpedCode, unit: &CodeUnit) -> Result<(), String> {
    for (index, &expected) in dumped.positions.iter().enumerate() {
        let word = WordOffset(index as u32);
        let found = unit.locations.at(word);
        if found != Some(expected) {
            return Err(format!("{word}: position {found:?}, expected {expected:?}"));
        }
    }
    match unit.locations.at(WordOffset(dumped.positions.len() as u32)) {
        None => Ok(()),
        Some(Location { .. }) => Err("positions past the end of the code".to_owned()),
    }
}

/// The places that `dis` finds jumped to are the ones decoded.
fn check_jumps(dumped: &DumpedCode, unit: &CodeUnit) -> Result<(), String> {
    for &word in &dumped.jumps {
        if unit.entry_at(word).is_none() {
            return Err(format!("{word} is jumped to, but no instruction starts there"));
        }
    }
    let is_known = |id: InstrId| unit.get(id).is_some_and(|p| dumped.jumps.binary_search(&p.start).is_ok());
    for (id, placed) in unit.iter() {
        let Some(target) = placed.instr.target() else {
            continue;
        };
        let label = match placed.instr {
            Instr::ForIter { .. } => loop_end(unit, target),
            _ => target,
        };
        if !is_known(label) {
            return Err(format!("{id} jumps to {target}, which is no known target"));
        }
    }
    Ok(())
}

/// The first instruction of a loop's end, which for_iter skips where it exists.
fn loop_end(unit: &CodeUnit, target: InstrId) -> InstrId {
    let is = |back: u32, wanted: fn(&Instr) -> bool| {
        let id = target.0.checked_sub(back).map(InstrId);
        id.and_then(|id| unit.get(id)).is_some_and(|p| wanted(&p.instr))
    };
    if is(1, |i| matches!(i, Instr::EndFor { count: 2 })) {
        InstrId(target.0 - 1)
    } else if is(1, |i| matches!(i, Instr::PopTop {})) && is(2, |i| matches!(i, Instr::EndFor { count: 1 })) {
        InstrId(target.0 - 2)
    } else {
        target
    }
}

/// Groups follow each other without gaps, and words lead back to them.
fn check_groups(unit: &CodeUnit) -> Result<(), String> {
    let mut end = WordOffset(0);
    let mut group = InstrId(0);
    for (id, placed) in unit.iter() {
        if placed.enterable {
            if placed.start != end {
                return Err(format!("{id} starts at {}, not at {end}", placed.start));
            }
            (end, group) = (placed.next, id);
        }
        for word in [placed.start, placed.offset, WordOffset(placed.next.0 - 1)] {
            if unit.group_containing(word) != Some(group) {
                return Err(format!("{word} does not lead to {group}"));
            }
        }
    }
    Ok(())
}

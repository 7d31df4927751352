//! The disassembly listing: one line per neutral instruction.
//!
//! ```text
//! code VERSION args=1 locals=2 stack=3
//!   line 4
//!     @0     w0    d0   resume function_start
//!     @1     w1    d0 * load_fast %0    ; items
//! ```
//!
//! Columns: instruction, word of the opcode, stack depth before it (`-` if unreachable), then `*` a loop header,
//! `>` a jump target or handler, `+` the continuation of the concrete instruction above. Depths and loop headers
//! appear when the listing has an analysis; names when it has symbols.

use std::fmt;

use crate::{
    analysis::Analysis,
    code_unit::CodeUnit,
    isa::Instr,
    operand::{ConstId, InstrId, KwNames, NameId},
};

/// What the indexes in operands stand for, as text. Missing entries are just not printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Symbols<'a> {
    /// Names of the `localsplus` slots.
    pub locals: &'a [String],
    /// `co_names`
    pub names: &'a [String],
    /// Short forms of `co_consts`.
    pub consts: &'a [String],
}

/// A unit as a printable listing.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// What to print.
    pub unit: &'a CodeUnit,
    /// Adds depths and loop headers.
    pub analysis: Option<&'a Analysis>,
    /// Adds names.
    pub symbols: Symbols<'a>,
}

impl<'a> Listing<'a> {
    /// The plain listing of a unit.
    pub fn new(unit: &'a CodeUnit) -> Listing<'a> {
        Listing { unit, analysis: None, symbols: Symbols::default() }
    }
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit;
        let (version, args, locals, stack) = (unit.version, unit.argcount, unit.nlocalsplus(), unit.stacksize);
        writeln!(f, "code {version} args={args} locals={locals} stack={stack}")?;
        let is_target = targets(unit);
        let mut line = None;
        for (id, placed) in unit.iter() {
            let line_here = unit.line_of(id);
            if id.0 == 0 || line_here != line {
                line = line_here;
                match line {
                    Some(line) => writeln!(f, "  line {line}")?,
                    None => writeln!(f, "  no line")?,
                }
            }
            write!(f, "    {:<6} {:<5}", id.to_string(), placed.offset.to_string())?;
            if let Some(analysis) = self.analysis {
                match analysis.depth(id) {
                    Some(depth) => write!(f, " {:<4}", format!("d{depth}"))?,
                    None => write!(f, " -   ")?,
                }
            }
            write!(f, "{} {}", self.mark(id, &is_target), placed.instr)?;
            self.write_symbol(&placed.instr, f)?;
            writeln!(f)?;
        }
        for region in &unit.regions {
            let lasti = if region.push_lasti { " lasti" } else { "" };
            writeln!(f, "  {}..{} -> {} depth={}{lasti}", region.start, region.end, region.target, region.depth)?;
        }
        Ok(())
    }
}

impl Listing<'_> {
    fn mark(&self, id: InstrId, is_target: &[bool]) -> char {
        if self.unit.get(id).is_some_and(|placed| !placed.enterable) {
            '+'
        } else if self.analysis.is_some_and(|analysis| analysis.is_loop_header(id)) {
            '*'
        } else if is_target.get(id.index()).copied().unwrap_or(false) {
            '>'
        } else {
            ' '
        }
    }

    fn write_symbol(&self, instr: &Instr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = crate::decode::variable_of(instr).and_then(|var| self.symbols.locals.get(var.index()));
        let name = name_of(instr).and_then(|name| self.symbols.names.get(name.index()));
        let constant = const_of(instr).and_then(|id| self.symbols.consts.get(id.index()));
        match local.or(name).or(constant) {
            Some(text) => write!(f, "    ; {text}"),
            None => Ok(()),
        }
    }
}

/// Which instructions are jumped to or handle exceptions.
fn targets(unit: &CodeUnit) -> Vec<bool> {
    let mut is_target = vec![false; unit.instrs.len()];
    let jumps = unit.instrs.iter().filter_map(|placed| placed.instr.target());
    for id in jumps.chain(unit.regions.iter().map(|region| region.target)) {
        if let Some(flag) = is_target.get_mut(id.index()) {
            *flag = true;
        }
    }
    is_target
}

/// The `co_names` entry an instruction uses.
fn name_of(instr: &Instr) -> Option<NameId> {
    match *instr {
        Instr::LoadName { name }
        | Instr::StoreName { name }
        | Instr::DeleteName { name }
        | Instr::LoadGlobal { name, .. }
        | Instr::StoreGlobal { name }
        | Instr::DeleteGlobal { name }
        | Instr::LoadFromDictOrGlobals { name }
        | Instr::LoadAttr { name }
        | Instr::LoadMethod { name, .. }
        | Instr::LoadSuperAttr { name, .. }
        | Instr::StoreAttr { name }
        | Instr::DeleteAttr { name }
        | Instr::ImportName { name }
        | Instr::ImportFrom { name } => Some(name),
        _ => None,
    }
}

/// The `co_consts` entry an instruction uses.
fn const_of(instr: &Instr) -> Option<ConstId> {
    match *instr {
        Instr::LoadConst { index } | Instr::Call { kw: KwNames::Const(index), .. } => Some(index),
        _ => None,
    }
}

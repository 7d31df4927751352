//! The decoder: concrete code bytes in, a [`CodeUnit`] out. The same for every version; what differs is in the
//! version's table.
//!
//! Total: malformed input gives a [`DecodeError`]. Jump targets, exception handlers and variable indexes of a
//! decoded unit are valid; name and constant indexes are the caller's to check against its tuples.

use crate::{
    code_unit::{CodeFlags, CodeUnit, LocalKind, PlacedInstr, RawCode},
    isa::Instr,
    location::Locations,
    operand::{BinaryOp, CompareOp, ConstId, InstrId, Intrinsic, NameId, Var, WordOffset},
    version::PythonVersion,
};

/// Why a code object could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The byte is no opcode of de-optimised code.
    #[error("{at}: unknown opcode {opcode}")]
    UnknownOpcode {
        /// Where.
        at: WordOffset,
        /// The byte.
        opcode: u8,
    },
    /// The code ends inside an instruction, or is not made of whole words.
    #[error("{at}: code ends inside an instruction")]
    Truncated {
        /// Where.
        at: WordOffset,
    },
    /// An argument has no meaning for its opcode.
    #[error("{at}: bad argument {arg}")]
    BadArgument {
        /// Where.
        at: WordOffset,
        /// The argument.
        arg: u32,
    },
    /// An instruction that only prepares a call is not followed by one.
    #[error("{at}: call prefix without its call")]
    DanglingPrefix {
        /// The instruction that should have been the call.
        at: WordOffset,
    },
    /// A jump or handler points outside the code or into the middle of a group.
    #[error("no instruction starts at {target}, wanted by {at}")]
    BadTarget {
        /// Who points there.
        at: WordOffset,
        /// Where it points.
        target: WordOffset,
    },
    /// A variable index past the end of `localsplus`.
    #[error("{at}: no variable {var}")]
    BadVariable {
        /// Where.
        at: WordOffset,
        /// The index.
        var: Var,
    },
    /// The exception table is malformed, unsorted or overlapping.
    #[error("malformed exception table near byte {byte}")]
    ExceptionTable {
        /// How far it was read.
        byte: u32,
    },
    /// The location table is malformed.
    #[error("malformed line table near byte {byte}")]
    LineTable {
        /// How far it was read.
        byte: u32,
    },
}

/// One concrete instruction with its extended argument.
pub(crate) struct Concrete {
    pub opcode: u8,
    pub arg: u32,
    pub start: WordOffset,
    pub offset: WordOffset,
    pub next: WordOffset,
}

impl Concrete {
    pub fn unknown(&self) -> DecodeError {
        DecodeError::UnknownOpcode { at: self.offset, opcode: self.opcode }
    }

    pub fn bad(&self) -> DecodeError {
        DecodeError::BadArgument { at: self.offset, arg: self.arg }
    }

    /// The argument as a variable.
    pub fn var(&self) -> Var {
        Var(self.arg)
    }

    /// The two variables of a fused instruction, four bits each: first, second.
    pub fn vars(&self) -> (Var, Var) {
        (Var(self.arg >> 4), Var(self.arg & 15))
    }

    /// The argument as a name.
    pub fn name(&self) -> NameId {
        NameId(self.arg)
    }

    /// The argument as a name above `flags` low flag bits.
    pub fn name_above(&self, flags: u32) -> NameId {
        NameId(self.arg >> flags)
    }

    /// The argument as a constant.
    pub fn constant(&self) -> ConstId {
        ConstId(self.arg)
    }

    /// A flag bit of the argument.
    pub fn bit(&self, bit: u32) -> bool {
        self.arg >> bit & 1 != 0
    }

    /// The argument, which must be in a range.
    pub fn within(&self, range: std::ops::RangeInclusive<u32>) -> Result<u32, DecodeError> {
        if range.contains(&self.arg) { Ok(self.arg) } else { Err(self.bad()) }
    }

    /// The argument as a stack depth: 1 is the top.
    pub fn depth(&self) -> Result<u32, DecodeError> {
        self.within(1..=u32::MAX)
    }

    /// A closed enum's value at an index taken from the argument.
    pub fn choose<T: Copy>(&self, values: &[T], index: u32) -> Result<T, DecodeError> {
        values.get(index as usize).copied().ok_or_else(|| self.bad())
    }

    /// An arithmetic operator: the plain ones, then the in-place ones in the same order.
    pub fn binary(&self) -> Result<(BinaryOp, bool), DecodeError> {
        let count = BinaryOp::ALL.len() as u32;
        let inplace = self.arg >= count;
        let index = if inplace { self.arg - count } else { self.arg };
        Ok((self.choose(BinaryOp::ALL, index)?, inplace))
    }

    /// A comparison above `flags` low flag bits.
    pub fn compare(&self, flags: u32) -> Result<CompareOp, DecodeError> {
        self.choose(CompareOp::ALL, self.arg >> flags)
    }

    /// A one-based entry of a version's list of intrinsics (entry 0 is invalid).
    pub fn intrinsic(&self, list: &[Intrinsic]) -> Result<Intrinsic, DecodeError> {
        self.choose(list, self.arg.wrapping_sub(1))
    }

    /// A target after this instruction, `skip` words further than the argument says.
    ///
    /// Targets are words until the whole code is decoded and [`Emitter::finish`] makes them instruction ids.
    pub fn forward(&self, skip: u32) -> Result<InstrId, DecodeError> {
        let word = self.next.0.checked_add(self.arg).and_then(|w| w.checked_add(skip));
        word.map(InstrId).ok_or_else(|| self.bad())
    }

    /// A target before this instruction.
    pub fn backward(&self) -> Result<InstrId, DecodeError> {
        self.next.0.checked_sub(self.arg).map(InstrId).ok_or_else(|| self.bad())
    }
}

/// Collects neutral instructions.
pub(crate) struct Emitter<'a> {
    local_kinds: &'a [u8],
    instrs: Vec<PlacedInstr>,
    prefix: Option<Prefix>,
}

/// Concrete instructions waiting for the call they belong to.
#[derive(Clone, Copy)]
struct Prefix {
    start: WordOffset,
    kw_names: Option<ConstId>,
}

impl Emitter<'_> {
    /// Notes the keyword names of the call that follows.
    pub fn hold_kw_names(&mut self, op: &Concrete) -> Result<(), DecodeError> {
        if self.prefix.is_some() {
            return Err(DecodeError::DanglingPrefix { at: op.offset });
        }
        self.prefix = Some(Prefix { start: op.start, kw_names: Some(op.constant()) });
        Ok(())
    }

    /// Notes that the call that follows starts here, unless it started before.
    pub fn hold(&mut self, op: &Concrete) -> Result<(), DecodeError> {
        self.prefix.get_or_insert(Prefix { start: op.start, kw_names: None });
        Ok(())
    }

    /// Appends an instruction. Calls take the prefix in front of them; nothing else may follow one.
    pub fn emit(&mut self, op: &Concrete, mut instr: Instr) -> Result<(), DecodeError> {
        let mut start = op.start;
        if let Some(prefix) = self.prefix.take() {
            let Instr::Call { kw, .. } = &mut instr else {
                return Err(DecodeError::DanglingPrefix { at: op.offset });
            };
            start = prefix.start;
            if let Some(names) = prefix.kw_names {
                *kw = crate::operand::KwNames::Const(names);
            }
        }
        if let Some(var) = variable_of(&instr).filter(|var| var.index() >= self.local_kinds.len()) {
            return Err(DecodeError::BadVariable { at: op.offset, var });
        }
        let enterable = self.instrs.last().is_none_or(|last| last.start != start);
        self.instrs.push(PlacedInstr { instr, start, offset: op.offset, next: op.next, enterable });
        Ok(())
    }
}

/// The `localsplus` slot an instruction names.
pub(crate) fn variable_of(instr: &Instr) -> Option<Var> {
    match *instr {
        Instr::LoadFast { var, .. }
        | Instr::LoadFastAndClear { var }
        | Instr::StoreFast { var }
        | Instr::DeleteFast { var }
        | Instr::LoadFromDictOrDeref { var }
        | Instr::LoadClassderef { var }
        | Instr::MakeCell { var }
        | Instr::LoadClosure { var }
        | Instr::LoadDeref { var }
        | Instr::StoreDeref { var }
        | Instr::DeleteDeref { var } => Some(var),
        _ => None,
    }
}

/// Decodes a code object.
pub(crate) fn decode(version: PythonVersion, raw: &RawCode<'_>) -> Result<CodeUnit, DecodeError> {
    let mut emitter = Emitter { local_kinds: raw.localsplus_kinds, instrs: Vec::new(), prefix: None };
    let mut words = Words { version, code: raw.code, word: 0 };
    while let Some(op) = words.next()? {
        (version.table().translate)(&op, &mut emitter)?;
    }
    if emitter.prefix.is_some() {
        return Err(DecodeError::DanglingPrefix { at: WordOffset(words.word) });
    }
    let mut unit = CodeUnit {
        version,
        instrs: emitter.instrs,
        regions: Vec::new(),
        locations: Locations::parse(raw.line_table, raw.firstlineno)?,
        local_kinds: raw.localsplus_kinds.iter().copied().map(LocalKind).collect(),
        argcount: raw.argcount,
        posonlyargcount: raw.posonlyargcount,
        kwonlyargcount: raw.kwonlyargcount,
        flags: CodeFlags(raw.flags),
        stacksize: raw.stacksize,
        firstlineno: raw.firstlineno,
    };
    resolve_targets(&mut unit)?;
    unit.regions = crate::exceptions::parse(raw.exception_table, &unit)?;
    Ok(unit)
}

/// Turns the words in jump targets into instruction ids.
fn resolve_targets(unit: &mut CodeUnit) -> Result<(), DecodeError> {
    for index in 0..unit.instrs.len() {
        let placed = unit.instrs[index];
        let Some(word) = placed.instr.target().map(|id| WordOffset(id.0)) else {
            continue;
        };
        let id = unit.entry_at(word).ok_or(DecodeError::BadTarget { at: placed.offset, target: word })?;
        if let Some(target) = unit.instrs[index].instr.target_mut() {
            *target = id;
        }
    }
    Ok(())
}

/// Reads concrete instructions.
struct Words<'a> {
    version: PythonVersion,
    code: &'a [u8],
    word: u32,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<Concrete>, DecodeError> {
        let start = WordOffset(self.word);
        if self.code.len() == start.index() * 2 {
            return Ok(None);
        }
        let mut extended = 0u32;
        loop {
            let at = WordOffset(self.word);
            let Some(&[opcode, low]) = self.code.get(at.index() * 2..at.index() * 2 + 2) else {
                return Err(DecodeError::Truncated { at });
            };
            let arg = extended | u32::from(low);
            self.word += 1;
            if opcode == self.version.table().extended_arg {
                extended = arg.checked_mul(256).ok_or(DecodeError::BadArgument { at, arg })?;
                continue;
            }
            let Some((_, caches)) = (self.version.table().opcode)(opcode) else {
                return Err(DecodeError::UnknownOpcode { at, opcode });
            };
            self.word += caches;
            if (self.word as usize) * 2 > self.code.len() {
                return Err(DecodeError::Truncated { at });
            }
            let next = WordOffset(self.word);
            return Ok(Some(Concrete { opcode, arg, start, offset: at, next }));
        }
    }
}

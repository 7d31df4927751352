//! The exception table: from ranges of code words to handlers.

use crate::{
    code_unit::{CodeUnit, Region},
    decode::DecodeError,
    operand::{InstrId, WordOffset},
};

/// Parses `co_exceptiontable` against the decoded instructions of `unit`.
///
/// CPython finds a handler by the raising opcode's own word, so an instruction belongs to a region by its
/// `offset`, not by where its group starts.
pub(crate) fn parse(table: &[u8], unit: &CodeUnit) -> Result<Vec<Region>, DecodeError> {
    let mut reader = Reader { bytes: table, position: 0 };
    let mut regions = Vec::new();
    let mut covered = 0u32;
    while !reader.is_at_end() {
        let start = reader.varint()?;
        let length = reader.varint()?;
        let target = WordOffset(reader.varint()?);
        let depth_and_lasti = reader.varint()?;
        let end = start.checked_add(length).ok_or_else(|| reader.error())?;
        if start < covered || length == 0 {
            return Err(reader.error());
        }
        covered = end;
        let region = Region {
            start: first_at_or_after(unit, start),
            end: first_at_or_after(unit, end),
            target: unit.entry_at(target).ok_or(DecodeError::BadTarget { at: WordOffset(start), target })?,
            depth: depth_and_lasti >> 1,
            push_lasti: depth_and_lasti & 1 != 0,
        };
        if region.start < region.end {
            regions.push(region);
        }
    }
    Ok(regions)
}

fn first_at_or_after(unit: &CodeUnit, word: u32) -> InstrId {
    InstrId(unit.instrs.partition_point(|p| p.offset.0 < word) as u32)
}

struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn is_at_end(&self) -> bool {
        self.position >= self.bytes.len()
    }

    fn error(&self) -> DecodeError {
        DecodeError::ExceptionTable { byte: self.position as u32 }
    }

    /// Six bits per byte, most significant first; 0x40 marks that more follow (0x80 marks an entry's first byte).
    fn varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        loop {
            let byte = *self.bytes.get(self.position).ok_or_else(|| self.error())?;
            self.position += 1;
            value = value.checked_mul(64).ok_or_else(|| self.error())? | u32::from(byte & 63);
            if byte & 64 == 0 {
                return Ok(value);
            }
        }
    }
}

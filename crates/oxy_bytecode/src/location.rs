//! The location table: from code words to source lines and columns.

use crate::{decode::DecodeError, operand::WordOffset};

/// A source range. Columns are UTF-8 byte offsets from 0, as CPython stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Location {
    /// First line, if the code belongs to any.
    pub line: Option<u32>,
    /// Last line.
    pub end_line: Option<u32>,
    /// First column.
    pub column: Option<u32>,
    /// One past the last column.
    pub end_column: Option<u32>,
}

/// A run of words with one location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    end: WordOffset,
    location: Location,
}

/// The locations of a code unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locations {
    // Invariant: ends strictly increase; the first run starts at word 0.
    runs: Vec<Run>,
}

impl Locations {
    /// The location of a word; `None` past the end of the table.
    pub fn at(&self, word: WordOffset) -> Option<Location> {
        let index = self.runs.partition_point(|run| run.end <= word);
        self.runs.get(index).map(|run| run.location)
    }

    /// Parses `co_linetable`.
    pub fn parse(table: &[u8], firstlineno: i32) -> Result<Locations, DecodeError> {
        let mut reader = Reader { bytes: table, position: 0 };
        let mut runs = Vec::new();
        let mut line = i64::from(firstlineno);
        let mut word = 0u32;
        while let Some(first) = reader.next() {
            // Every entry starts with a byte whose top bit is set; no other byte has it.
            if first & 0x80 == 0 {
                return Err(reader.error());
            }
            let length = u32::from(first & 7) + 1;
            let location = reader.location((first >> 3) & 15, &mut line)?;
            word = word.checked_add(length).ok_or_else(|| reader.error())?;
            runs.push(Run { end: WordOffset(word), location });
        }
        Ok(Locations { runs })
    }
}

/// Entry kinds above the short forms, which are 0 to 9 and hold the column's high bits.
mod kind {
    pub const ONE_LINE_FIRST: u8 = 10;
    pub const ONE_LINE_LAST: u8 = 12;
    pub const NO_COLUMNS: u8 = 13;
    pub const LONG: u8 = 14;
    pub const NONE: u8 = 15;
}

struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.position).copied()?;
        self.position += 1;
        Some(byte)
    }

    fn error(&self) -> DecodeError {
        DecodeError::LineTable { byte: self.position as u32 }
    }

    fn byte(&mut self) -> Result<u32, DecodeError> {
        self.next().map(u32::from).ok_or_else(|| self.error())
    }

    /// Six bits per byte, least significant first; 0x40 marks that more follow.
    fn varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 63) << shift;
            if byte & 64 == 0 {
                return u32::try_from(value).map_err(|_| self.error());
            }
            shift += 6;
            if shift > 30 {
                return Err(self.error());
            }
        }
    }

    /// The sign is the lowest bit.
    fn signed_varint(&mut self) -> Result<i64, DecodeError> {
        let value = i64::from(self.varint()?);
        Ok(if value & 1 != 0 { -(value >> 1) } else { value >> 1 })
    }

    fn location(&mut self, code: u8, line: &mut i64) -> Result<Location, DecodeError> {
        let (end_delta, column, end_column) = match code {
            kind::NONE => return Ok(Location::default()),
            kind::LONG => {
                *line += self.signed_varint()?;
                let end_delta = self.varint()?;
                // Columns are stored plus one; zero means unknown.
                (end_delta, self.varint()?.checked_sub(1), self.varint()?.checked_sub(1))
            }
            kind::NO_COLUMNS => {
                *line += self.signed_varint()?;
                (0, None, None)
            }
            kind::ONE_LINE_FIRST..=kind::ONE_LINE_LAST => {
                *line += i64::from(code - kind::ONE_LINE_FIRST);
                (0, Some(self.byte()?), Some(self.byte()?))
            }
            short => {
                let second = self.byte()?;
                let column = u32::from(short) << 3 | second >> 4;
                (0, Some(column), Some(column + (second & 15)))
            }
        };
        let end_line = *line + i64::from(end_delta);
        Ok(Location {
            line: Some(u32::try_from(*line).map_err(|_| self.error())?),
            end_line: Some(u32::try_from(end_line).map_err(|_| self.error())?),
            column,
            end_column,
        })
    }
}

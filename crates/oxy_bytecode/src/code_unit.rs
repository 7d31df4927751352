//! A code unit: one code object, decoded. Plain data; names and constants stay with the caller.

use crate::{
    decode::DecodeError,
    isa::Instr,
    location::Locations,
    operand::{InstrId, Var, WordOffset},
    version::PythonVersion,
};

/// What the decoder reads from a code object, all of it plain bytes and numbers.
#[derive(Clone, Copy, Debug)]
pub struct RawCode<'a> {
    /// `co_code`: the de-optimised bytes, never the ones being specialised in place.
    pub code: &'a [u8],
    /// `co_exceptiontable`
    pub exception_table: &'a [u8],
    /// `co_linetable`
    pub line_table: &'a [u8],
    /// `co_localspluskinds`: one byte per `localsplus` slot.
    pub localsplus_kinds: &'a [u8],
    /// `co_argcount`
    pub argcount: u32,
    /// `co_posonlyargcount`
    pub posonlyargcount: u32,
    /// `co_kwonlyargcount`
    pub kwonlyargcount: u32,
    /// `co_flags`
    pub flags: u32,
    /// `co_stacksize`
    pub stacksize: u32,
    /// `co_firstlineno`
    pub firstlineno: i32,
}

/// What a `localsplus` slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalKind(pub u8);

impl LocalKind {
    /// A name bound only inside an inlined comprehension, not visible in `locals()`.
    pub fn is_hidden(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// A local variable; an argument captured by an inner function is a local and a cell.
    pub fn is_local(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// A cell of this function, after its `make_cell` ran.
    pub fn is_cell(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// A free variable: a cell of an enclosing function, after `copy_free_vars` ran.
    pub fn is_free(self) -> bool {
        self.0 & 0x80 != 0
    }
}

/// `co_flags`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeFlags(pub u32);

impl CodeFlags {
    /// Locals live in `localsplus` (a function), not in a mapping (a module or class body).
    pub fn is_optimized(self) -> bool {
        self.0 & 0x1 != 0
    }

    /// Has a `*args` parameter.
    pub fn has_varargs(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// Has a `**kwargs` parameter.
    pub fn has_varkeywords(self) -> bool {
        self.0 & 0x8 != 0
    }

    /// A plain generator function.
    pub fn is_generator(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// An `async def` without `yield`.
    pub fn is_coroutine(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// A generator decorated with `types.coroutine`.
    pub fn is_iterable_coroutine(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// An `async def` with `yield`.
    pub fn is_async_generator(self) -> bool {
        self.0 & 0x200 != 0
    }

    /// Calling it makes a generator-like object instead of running the body.
    pub fn makes_generator(self) -> bool {
        self.0 & (0x20 | 0x80 | 0x200) != 0
    }
}

/// A neutral instruction and where it comes from. All positions are words of `co_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedInstr {
    /// The instruction.
    pub instr: Instr,
    /// The first word of its concrete group: argument extensions and keyword names included.
    pub start: WordOffset,
    /// The concrete opcode itself: what line numbers and raised exceptions refer to.
    pub offset: WordOffset,
    /// The word following the group, after inline caches.
    pub next: WordOffset,
    /// Whether the interpreter can be entered at `start` to execute it, that is, whether it is the first
    /// neutral instruction of its group.
    pub enterable: bool,
}

/// A range of instructions whose exceptions go to one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First instruction covered.
    pub start: InstrId,
    /// One past the last instruction covered.
    pub end: InstrId,
    /// The handler.
    pub target: InstrId,
    /// The stack is cut to this depth before anything is pushed.
    pub depth: u32,
    /// The raising instruction's word offset is pushed (as an int) below the exception.
    pub push_lasti: bool,
}

impl Region {
    /// The stack depth on entry to the handler: what was kept, the offset if any, and the exception.
    pub fn handler_depth(&self) -> u32 {
        self.depth.saturating_add(1 + self.push_lasti as u32)
    }
}

/// One code object in the neutral instruction set.
#[derive(Clone, Debug)]
pub struct CodeUnit {
    /// The version whose stack layout the instructions have.
    pub version: PythonVersion,
    // Invariant: sorted by `start`; every jump target is the index of an enterable instruction.
    /// The instructions, in the order of `co_code`.
    pub instrs: Vec<PlacedInstr>,
    // Invariant: sorted and disjoint.
    /// Exception regions.
    pub regions: Vec<Region>,
    /// Source positions by word offset.
    pub locations: Locations,
    /// What each `localsplus` slot holds.
    pub local_kinds: Vec<LocalKind>,
    /// Positional parameters, positional-only included.
    pub argcount: u32,
    /// Positional-only parameters.
    pub posonlyargcount: u32,
    /// Keyword-only parameters.
    pub kwonlyargcount: u32,
    /// `co_flags`
    pub flags: CodeFlags,
    /// The value stack size the interpreter allocates.
    pub stacksize: u32,
    /// `co_firstlineno`
    pub firstlineno: i32,
}

impl CodeUnit {
    /// Decodes a code object.
    pub fn decode(version: PythonVersion, raw: &RawCode<'_>) -> Result<CodeUnit, DecodeError> {
        crate::decode::decode(version, raw)
    }

    /// An instruction by id.
    pub fn get(&self, id: InstrId) -> Option<&PlacedInstr> {
        self.instrs.get(id.index())
    }

    /// All instructions with their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (InstrId, &PlacedInstr)> + ExactSizeIterator {
        self.instrs.iter().enumerate().map(|(i, placed)| (InstrId(i as u32), placed))
    }

    /// The instruction at which the interpreter would be entered at this word; `None` inside a group.
    pub fn entry_at(&self, word: WordOffset) -> Option<InstrId> {
        let index = self.instrs.partition_point(|p| p.start < word);
        self.instrs.get(index).filter(|p| p.start == word && p.enterable).map(|_| InstrId(index as u32))
    }

    /// The first instruction of the group that contains this word (of any kind: extension, opcode or cache).
    pub fn group_containing(&self, word: WordOffset) -> Option<InstrId> {
        let last = self.instrs.partition_point(|p| p.start <= word).checked_sub(1)?;
        let placed = self.instrs.get(last).filter(|p| word < p.next)?;
        self.entry_at(placed.start)
    }

    /// The region whose handler gets the exceptions of an instruction.
    pub fn region_of(&self, id: InstrId) -> Option<&Region> {
        let index = self.regions.partition_point(|r| r.end <= id);
        self.regions.get(index).filter(|r| r.start <= id)
    }

    /// The line of an instruction, if it has one.
    pub fn line_of(&self, id: InstrId) -> Option<u32> {
        self.locations.at(self.get(id)?.offset)?.line
    }

    /// How many `localsplus` slots the frame has.
    pub fn nlocalsplus(&self) -> u32 {
        self.local_kinds.len() as u32
    }

    /// The free variables: the last slots.
    pub fn free_vars(&self) -> impl Iterator<Item = Var> + '_ {
        self.local_kinds.iter().enumerate().filter(|(_, kind)| kind.is_free()).map(|(i, _)| Var(i as u32))
    }

    /// How many leading slots hold parameters, `*args` and `**kwargs` included.
    pub fn parameter_slots(&self) -> u32 {
        self.argcount
            .saturating_add(self.kwonlyargcount)
            .saturating_add(self.flags.has_varargs() as u32)
            .saturating_add(self.flags.has_varkeywords() as u32)
    }
}

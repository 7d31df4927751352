//! The order of a program's steps, and what goes into stable sections.
//!
//! A source is *tracked* if every read on its path, down to an object that the program holds or to a *root*, is one that
//! `stable` can vouch for. Roots are values that the call brings along and whose attributes are read: a module among the
//! arguments, the entry function. Tracked sources of one root make one section, with the guards on them whose outcome
//! can't change while nothing that is watched changes. Everything else is a step of its own, on every call.

use super::{NONE, ReadStep, Step};
use crate::{Exit, Guard, GuardKind, Recipe, Source, SourceKind, kinds::Rank, sources::read::Read, stable::Section};
use pyo3::ffi;
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) struct Plan {
    pub steps: Vec<Step>,
    pub sections: Vec<Section>,
    /// (register, guard) of tensor guards, in the order of `Step::Tensors`.
    pub tensors: Vec<(u32, u32)>,
    pub registers: FxHashMap<Source, u32>,
    pub register_count: usize,
}

/// What a source's section hangs on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Anchor {
    /// Objects that the program holds.
    Held,
    Root(Source),
}

/// Where a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    EachCall,
    Section(u32),
}

#[derive(Default)]
struct Draft {
    root: Option<Source>,
    /// Sources and guards in order of need.
    steps: Vec<Step>,
    exported: Vec<u32>,
    exported_set: FxHashSet<u32>,
    emitted: bool,
}

pub(super) struct Planner<'a> {
    guards: &'a [Guard],
    inputs: &'a [Source],
    exit: &'a Exit,
    /// Sources whose own attributes are read.
    owners: FxHashSet<Source>,
    /// Sources that a tensor guard is on: other tensors on each call.
    tensors: FxHashSet<Source>,
    /// Sources that a guard says may not be there.
    may_miss: FxHashSet<Source>,
    /// Dictionaries that keep an order outside of what can be watched.
    other_dicts: FxHashSet<Source>,
    places: FxHashMap<Source, Place>,
    anchors: FxHashMap<Anchor, u32>,
    drafts: Vec<Draft>,
    registers: FxHashMap<Source, u32>,
    register_count: u32,
    /// Sources with a read step, in a section or outside.
    done: FxHashSet<Source>,
    steps: Vec<Step>,
    /// Tensor guards are checked in a row.
    table: Vec<(u32, u32)>,
}

impl<'a> Planner<'a> {
    pub fn new(guards: &'a [Guard], inputs: &'a [Source], exit: &'a Exit) -> Planner<'a> {
        let mut planner = Planner {
            guards,
            inputs,
            exit,
            owners: FxHashSet::default(),
            tensors: FxHashSet::default(),
            may_miss: FxHashSet::default(),
            other_dicts: FxHashSet::default(),
            places: FxHashMap::default(),
            anchors: FxHashMap::default(),
            drafts: Vec::new(),
            registers: FxHashMap::default(),
            register_count: 0,
            done: FxHashSet::default(),
            steps: Vec::new(),
            table: Vec::new(),
        };
        for guard in guards {
            match &guard.kind {
                GuardKind::Tensor(_) => _ = planner.tensors.insert(guard.source.clone()),
                GuardKind::Missing => _ = planner.may_miss.insert(guard.source.clone()),
                GuardKind::InstanceLacks(_) => _ = planner.owners.insert(guard.source.clone()),
                // SAFETY: dict's type object always exists; only its address is used.
                GuardKind::TypeIs(class) if class.as_ptr() != (&raw mut ffi::PyDict_Type).cast() => {
                    planner.other_dicts.insert(guard.source.clone());
                }
                _ => {}
            }
            for source in guard.sources() {
                planner.note_owners(source);
            }
        }
        for source in inputs.iter().chain(exit_sources(exit)) {
            planner.note_owners(source);
        }
        planner
    }

    fn note_owners(&mut self, source: &Source) {
        let mut next = Some(source);
        while let Some(source) = next {
            next = source.base();
            if let SourceKind::InstanceAttr(base, _)
            | SourceKind::InstanceDict(base)
            | SourceKind::FunctionCode(base)
            | SourceKind::FunctionDefaults(base)
            | SourceKind::FunctionKwDefaults(base)
            | SourceKind::FunctionClosure(base)
            | SourceKind::FunctionGlobals(base) = source.kind()
            {
                self.owners.insert(base.clone());
            }
        }
    }

    pub fn plan(mut self) -> Plan {
        self.register_count = self.inputs.len() as u32;
        // Of a source that is an input twice, the first register counts; the second is copied.
        for (index, input) in self.inputs.iter().enumerate().rev() {
            self.registers.insert(input.clone(), index as u32);
        }
        self.section_guards();
        let mut order: Vec<usize> = (0..self.guards.len()).filter(|&index| self.section_of(index).is_none()).collect();
        order.sort_by_key(|&index| (self.rank(index), index));
        let first_late = order.partition_point(|&index| self.rank(index) < Rank::Stable);
        for &index in &order[..first_late] {
            self.emit(index);
        }
        for section in 0..self.drafts.len() as u32 {
            self.need_section(section);
        }
        let first_after = order.partition_point(|&index| self.rank(index) <= Rank::Tensor);
        for &index in &order[first_late..first_after] {
            match self.guards[index].kind {
                GuardKind::Tensor(_) => {
                    let register = self.need(&self.guards[index].source.clone(), index as u32);
                    self.table.push((register, index as u32));
                }
                _ => self.emit(index),
            }
        }
        if !self.table.is_empty() {
            self.steps.push(Step::Tensors { start: 0, end: self.table.len() as u32 });
        }
        for &index in &order[first_after..] {
            self.emit(index);
        }
        let extra: Vec<Source> = self.inputs.iter().chain(exit_sources(self.exit)).cloned().collect();
        for source in &extra {
            self.need(source, NONE);
        }
        for (index, input) in self.inputs.iter().enumerate() {
            let from = self.register(input);
            if from != index as u32 {
                self.steps.push(Step::Copy { from, to: index as u32 });
            }
        }
        let sections = self
            .drafts
            .into_iter()
            .map(|draft| {
                let root = draft.root.as_ref().and_then(|root| self.registers.get(root).copied());
                Section::new(root, draft.steps, draft.exported)
            })
            .collect();
        Plan {
            steps: self.steps,
            sections,
            tensors: self.table,
            registers: self.registers,
            register_count: self.register_count as usize,
        }
    }

    fn register(&mut self, source: &Source) -> u32 {
        let next = self.register_count;
        let register = *self.registers.entry(source.clone()).or_insert(next);
        self.register_count += (register == next) as u32;
        register
    }

    fn read_step(&self, source: &Source, register: u32, base: u32, guard: u32) -> ReadStep {
        // SAFETY: programs are made by attached threads.
        let read = unsafe { Read::new(source.kind()) };
        ReadStep { register, base, read, may_miss: self.may_miss.contains(source), guard }
    }

    // ---- what is tracked ----

    fn place(&mut self, source: Option<&Source>) -> Place {
        let Some(source) = source else { return Place::EachCall };
        if let Some(&place) = self.places.get(source) {
            return place;
        }
        let anchor = self.anchor(source);
        let place = match anchor {
            None => Place::EachCall,
            Some(anchor) => Place::Section(self.section(anchor)),
        };
        self.places.insert(source.clone(), place);
        place
    }

    fn section(&mut self, anchor: Anchor) -> u32 {
        let root = match &anchor {
            Anchor::Held => None,
            Anchor::Root(root) => Some(root.clone()),
        };
        *self.anchors.entry(anchor).or_insert_with(|| {
            self.drafts.push(Draft { root, ..Draft::default() });
            self.drafts.len() as u32 - 1
        })
    }

    /// What a tracked source hangs on; `None` for sources that aren't tracked, roots included.
    fn anchor(&mut self, source: &Source) -> Option<Anchor> {
        match source.kind() {
            SourceKind::Object(_) => Some(Anchor::Held),
            SourceKind::Local(_)
            | SourceKind::Stack(_)
            | SourceKind::Globals
            | SourceKind::Builtins
            | SourceKind::Function
            // What these hold can be replaced without notice.
            | SourceKind::CellContents(_)
            | SourceKind::ListItem(..)
            | SourceKind::Member(..)
            | SourceKind::Attr(..)
            | SourceKind::TensorGrad(_)
            | SourceKind::WeakrefTarget(_)
            | SourceKind::PartialFunc(_)
            | SourceKind::PartialArgs(_)
            | SourceKind::PartialKeywords(_) => None,
            SourceKind::DictKeyAt(base, _) if self.other_dicts.contains(base) => None,
            SourceKind::InstanceDict(base)
            | SourceKind::InstanceAttr(base, _)
            | SourceKind::DictItem(base, _)
            | SourceKind::DictKeyAt(base, _)
            | SourceKind::TupleItem(base, _)
            | SourceKind::TypeOf(base)
            | SourceKind::TypeAttr(base, _)
            | SourceKind::FunctionCode(base)
            | SourceKind::FunctionDefaults(base)
            | SourceKind::FunctionKwDefaults(base)
            | SourceKind::FunctionClosure(base)
            | SourceKind::FunctionGlobals(base)
            | SourceKind::MethodSelf(base)
            | SourceKind::MethodFunction(base) => {
                let base = base.clone();
                self.anchor_of_children(&base)
            }
        }
    }

    /// What sources read from this one hang on.
    fn anchor_of_children(&mut self, base: &Source) -> Option<Anchor> {
        match self.place(Some(base)) {
            Place::Section(section) => match &self.drafts[section as usize].root {
                None => Some(Anchor::Held),
                Some(root) => Some(Anchor::Root(root.clone())),
            },
            Place::EachCall if self.owners.contains(base) && !self.tensors.contains(base) => {
                Some(Anchor::Root(base.clone()))
            }
            Place::EachCall => None,
        }
    }

    /// The section that vouches for a guard.
    fn section_of(&mut self, guard: usize) -> Option<u32> {
        let guard = &self.guards[guard];
        let stable = match &guard.kind {
            GuardKind::TypeIs(_)
            | GuardKind::IsObject(_)
            | GuardKind::IsNotObject(_)
            | GuardKind::Equals(_)
            | GuardKind::TupleLength(_)
            | GuardKind::DictHasKey(_)
            | GuardKind::DictLacksKey(_)
            | GuardKind::TypeLacks(_)
            | GuardKind::SameObject(_)
            | GuardKind::NotSameObject(_)
            | GuardKind::AllDistinct(_)
            | GuardKind::Missing => true,
            GuardKind::InstanceLacks(_) => {
                let source = guard.source.clone();
                // Also of a root itself.
                return self.anchor_of_children(&source).map(|anchor| self.section(anchor));
            }
            GuardKind::DictLength(_) => true,
            // There is one order of less than two keys.
            GuardKind::DictKeys(keys) => keys.len() < 2 || !self.other_dicts.contains(&guard.source),
            GuardKind::Tensor(_)
            | GuardKind::ListLength(_)
            | GuardKind::SetItems(_)
            | GuardKind::NoOverlap(_)
            | GuardKind::Predicate(_)
            | GuardKind::GlobalState(_) => false,
        };
        if !stable {
            return None;
        }
        let mut section = None;
        for source in guard.sources() {
            match (self.place(Some(source)), section) {
                (Place::Section(found), None) => section = Some(found),
                (Place::Section(found), Some(known)) if found == known => {}
                _ => return None,
            }
        }
        section
    }

    // ---- steps ----

    fn section_guards(&mut self) {
        for index in 0..self.guards.len() {
            let Some(section) = self.section_of(index) else { continue };
            let sources: Vec<Source> = self.guards[index].sources().cloned().collect();
            for source in &sources {
                self.need_inside(source, section, index as u32);
            }
            let register = self.register(&self.guards[index].source.clone());
            self.drafts[section as usize].steps.push(Step::Check { register, guard: index as u32 });
        }
    }

    /// Reads a source inside of its section; its root is read outside.
    fn need_inside(&mut self, source: &Source, section: u32, guard: u32) {
        if self.place(Some(source)) != Place::Section(section) || !self.done.insert(source.clone()) {
            return;
        }
        let base = match source.base() {
            Some(base) => {
                let base = base.clone();
                self.need_inside(&base, section, guard);
                self.register(&base)
            }
            None => NONE,
        };
        let register = self.register(source);
        let step = Step::Read(self.read_step(source, register, base, guard));
        self.drafts[section as usize].steps.push(step);
    }

    /// Makes a source's value available to steps outside of sections.
    fn need(&mut self, source: &Source, guard: u32) -> u32 {
        let register = self.register(source);
        match self.place(Some(source)) {
            Place::Section(section) => {
                self.need_inside(source, section, guard);
                let draft = &mut self.drafts[section as usize];
                if draft.exported_set.insert(register) {
                    draft.exported.push(register);
                }
                self.need_section(section);
            }
            Place::EachCall => {
                if self.done.insert(source.clone()) {
                    let base = match source.base() {
                        Some(base) => self.need(&base.clone(), guard),
                        None => NONE,
                    };
                    let step = Step::Read(self.read_step(source, register, base, guard));
                    self.steps.push(step);
                }
            }
        }
        register
    }

    fn need_section(&mut self, section: u32) {
        if std::mem::replace(&mut self.drafts[section as usize].emitted, true) {
            return;
        }
        if let Some(root) = self.drafts[section as usize].root.clone() {
            self.need(&root, NONE);
        }
        self.steps.push(Step::Section(section));
    }

    fn emit(&mut self, index: usize) {
        let guard = &self.guards[index];
        let sources: Vec<Source> = guard.sources().cloned().collect();
        for source in &sources {
            self.need(source, index as u32);
        }
        let register = match guard.kind {
            GuardKind::GlobalState(_) | GuardKind::AllDistinct(_) | GuardKind::NoOverlap(_) => NONE,
            _ => self.register(&guard.source.clone()),
        };
        self.steps.push(Step::Check { register, guard: index as u32 });
    }

    /// A guard whose sources are read by running Python code comes last, one that needs a section after the sections.
    fn rank(&mut self, index: usize) -> Rank {
        let guards = self.guards;
        let guard = &guards[index];
        let mut rank = guard.kind.rank();
        for source in guard.sources() {
            let mut next = Some(source);
            while let Some(source) = next {
                next = source.base();
                if matches!(source.kind(), SourceKind::Attr(..) | SourceKind::TensorGrad(_)) {
                    return Rank::Python;
                }
                if rank < Rank::Stable && matches!(self.place(Some(source)), Place::Section(_)) && !source.is_object() {
                    rank = Rank::Stable;
                }
            }
        }
        rank
    }
}

fn exit_sources(exit: &Exit) -> impl Iterator<Item = &Source> {
    exit.recipes.iter().filter_map(|recipe| match recipe {
        Recipe::Source(source) => Some(source),
        _ => None,
    })
}

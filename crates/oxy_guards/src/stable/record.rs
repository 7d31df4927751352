//! What a section's run depended on.

use super::{class_is_forever, watch::Watch, words::Word};
use crate::{
    cpython,
    kinds::{Check, GuardKind, equals},
    program::{Checks, Raw, Registers},
    sources::read::Read,
};
use pyo3::{ffi, prelude::*};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ptr;

/// A key that was read from a dictionary. The source or guard that it is from holds it.
#[derive(Debug)]
pub struct Use {
    key: Raw,
    pub hash: isize,
    /// What it held; NULL for nothing.
    value: Raw,
    identity: Identity,
}

/// How an equal address later is known to be the same object.
#[derive(Debug)]
enum Identity {
    /// It isn't, or nobody needs to know.
    Unknown,
    /// There was nothing.
    Nothing,
    /// Immutable, and held.
    Held,
    /// A dictionary or list: its contents are in the record themselves, or on no account.
    Container,
    Weak(Py<PyAny>),
}

/// Something that must not have changed, in an order in which each is readable if those before haven't changed.
#[derive(Debug)]
enum Entry {
    Word(Word),
    /// A dictionary's version tag, with the keys that were read; `true`: which keys there are matters as well.
    Dict {
        version: Word,
        dict: Raw,
        uses: Vec<Use>,
        whole: bool,
    },
}

/// What can't be watched and is done again each time. What is compared with is held.
#[derive(Debug)]
enum Again {
    /// A class attribute of a type without a version tag (there are only so many).
    TypeAttr { class: Raw, name: Raw, value: Raw },
    /// A guard on a value.
    Check { register: u32, value: Raw, guard: u32 },
}

/// All that a run depended on.
pub(super) struct Record {
    root: Raw,
    weak_root: Option<Py<PyAny>>,
    watch: Option<Watch>,
    /// All there is to compare where dictionaries are watched.
    words: Box<[Word]>,
    entries: Box<[Entry]>,
    again: Box<[Again]>,
    /// Values of registers that others use.
    pub exports: Box<[(u32, Raw)]>,
    /// What only the record keeps alive: types, defaults.
    _keep: Vec<Py<PyAny>>,
}

impl Record {
    pub fn root(&self) -> Raw {
        self.root
    }

    /// Whether it is about this root, and the root is the same object.
    ///
    /// # Safety
    /// Attached.
    #[inline]
    pub unsafe fn is_of_root(&self, root: Raw) -> bool {
        // SAFETY: the weak reference is live.
        root == self.root
            && self.weak_root.as_ref().is_none_or(|weak| unsafe { cpython::weakref_target(weak.as_ptr()) } == root)
    }

    /// Whether nothing has changed.
    ///
    /// # Safety
    /// Attached; it is of the current root.
    #[inline]
    pub unsafe fn holds(&self) -> bool {
        if self.watch.as_ref().is_some_and(Watch::is_stale) {
            return false;
        }
        // SAFETY: while no watched dictionary changes, all objects are alive.
        if !self.words.iter().all(|word| unsafe { word.holds() }) {
            return false;
        }
        // SAFETY: an entry is readable if those before it hold, which is checked first.
        self.entries.iter().all(|entry| unsafe {
            match entry {
                Entry::Word(word) => word.holds(),
                Entry::Dict { version, .. } => version.holds(),
            }
        })
    }

    /// Gives the exported registers their values, and does what must be done each time: whether that passed.
    ///
    /// # Safety
    /// Attached; the record holds, so everything in it is alive.
    #[inline]
    pub unsafe fn serve(&self, checks: &Checks, registers: &mut Registers) -> bool {
        for &(register, value) in &self.exports {
            registers.values[register as usize] = value;
        }
        self.again.iter().all(|again| match again {
            // SAFETY: the caller's promise.
            Again::TypeAttr { class, name, value } => unsafe { cpython::type_attr(class.cast(), *name) == *value },
            Again::Check { register, value, guard } => {
                registers.values[*register as usize] = *value;
                // SAFETY: the caller's promise.
                unsafe { checks.holds(*guard, *register, &registers.values) }
            }
        })
    }

    /// Whether nothing has changed under the keys that were read; dictionaries that changed otherwise are forgiven.
    ///
    /// # Safety
    /// As [`Record::holds`].
    pub unsafe fn look(&mut self, volatile: &mut FxHashSet<usize>) -> bool {
        if self.watch.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { self.holds() };
        }
        for entry in &mut self.entries {
            // SAFETY: as in `holds`.
            let holds = unsafe {
                match entry {
                    Entry::Word(word) => word.holds(),
                    Entry::Dict { version, .. } if version.holds() => true,
                    Entry::Dict { whole: true, .. } => false,
                    Entry::Dict { version, dict, uses, .. } => {
                        volatile.insert(*dict as usize);
                        let same = uses.iter().all(|used| used.is_unchanged(*dict));
                        if same {
                            version.renew();
                        }
                        same
                    }
                }
            };
            if !holds {
                return false;
            }
        }
        true
    }
}

impl Use {
    /// # Safety
    /// Attached; the dictionary is live.
    unsafe fn is_unchanged(&self, dict: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if cpython::dict_item(dict, self.key, self.hash) != self.value {
                return false;
            }
            match &self.identity {
                Identity::Unknown => false,
                Identity::Nothing | Identity::Held => true,
                Identity::Container => cpython::is_dict(self.value) || ffi::PyList_CheckExact(self.value) != 0,
                Identity::Weak(weak) => cpython::weakref_target(weak.as_ptr()) == self.value,
            }
        }
    }
}

/// Makes a record.
pub(super) struct Recorder<'py, 'a> {
    py: Python<'py>,
    volatile: &'a FxHashSet<usize>,
    root: Raw,
    weak_root: Option<Py<PyAny>>,
    entries: Vec<Entry>,
    again: Vec<Again>,
    /// Where each dictionary's entry is.
    dicts: FxHashMap<usize, usize>,
    /// Objects whose type and place of `__dict__` are noted; types whose version is.
    classes: FxHashSet<usize>,
    slots: FxHashMap<usize, Raw>,
    versions: FxHashSet<usize>,
    kept: FxHashSet<usize>,
    keep: Vec<Py<PyAny>>,
}

impl<'py, 'a> Recorder<'py, 'a> {
    pub fn new(py: Python<'py>, volatile: &'a FxHashSet<usize>) -> Recorder<'py, 'a> {
        Recorder {
            py,
            volatile,
            root: ptr::null_mut(),
            weak_root: None,
            entries: Vec::new(),
            again: Vec::new(),
            dicts: FxHashMap::default(),
            classes: FxHashSet::default(),
            slots: FxHashMap::default(),
            versions: FxHashSet::default(),
            kept: FxHashSet::default(),
            keep: Vec::new(),
        }
    }

    /// Notes the root; false if it can't be referred to weakly.
    ///
    /// # Safety
    /// Attached; the root is NULL or live.
    pub unsafe fn root(&mut self, root: Raw) -> bool {
        self.root = root;
        if root.is_null() {
            return true;
        }
        // SAFETY: the caller's promise.
        self.weak_root = unsafe { weak(self.py, root) };
        self.weak_root.is_some()
    }

    pub fn finish(self, exports: Box<[(u32, Raw)]>) -> Option<Record> {
        let dicts: Vec<usize> = self.dicts.values().copied().collect();
        let mut entries = self.entries;
        let mut uses = Vec::with_capacity(dicts.len());
        for &index in &dicts {
            if let Entry::Dict { dict, uses: of_dict, whole, .. } = &mut entries[index] {
                uses.push((*dict, std::mem::take(of_dict), *whole));
            }
        }
        // SAFETY: attached; the dictionaries were read just now.
        let watch = unsafe { Watch::start(&uses) };
        let mut words = Vec::new();
        if watch.is_some() {
            words.extend(entries.drain(..).filter_map(|entry| match entry {
                Entry::Word(word) => Some(word),
                Entry::Dict { .. } => None,
            }));
        } else {
            for (index, (_, of_dict, _)) in dicts.into_iter().zip(uses) {
                if let Entry::Dict { uses, .. } = &mut entries[index] {
                    *uses = of_dict;
                }
            }
        }
        if watch.as_ref().is_some_and(Watch::is_stale) {
            return None;
        }
        Some(Record {
            root: self.root,
            weak_root: self.weak_root,
            watch,
            words: words.into_boxed_slice(),
            entries: entries.into_boxed_slice(),
            again: self.again.into_boxed_slice(),
            exports,
            _keep: self.keep,
        })
    }

    /// Notes what a read depended on; false if it can't be told when that changes.
    ///
    /// # Safety
    /// Attached; `base` and `value` are NULL or live.
    pub unsafe fn read(&mut self, read: Read, base: Raw, value: Raw) -> bool {
        if base.is_null() {
            // An object that the program holds. Nothing else is read from nothing: a missing base fails the run.
            return matches!(read, Read::Object(_));
        }
        // SAFETY: the caller's promise.
        unsafe {
            match read {
                Read::InstanceDict => self.own_dict(base).is_some(),
                Read::InstanceAttr(name, hash) => self.own_attr(base, name, hash, value),
                Read::DictItem(key, hash) => self.key(base, key, hash, value),
                Read::DictKeyAt(_) => !cpython::is_ordered_dict(base) && self.whole_dict(base),
                Read::TypeOf => self.class(base),
                Read::TypeAttr(name) => {
                    if !self.type_version(base) {
                        self.keep(value);
                        self.again.push(Again::TypeAttr { class: base, name, value });
                    }
                    true
                }
                Read::FunctionCode => self.part(parts::func_code, base),
                Read::FunctionDefaults => self.part(parts::func_defaults, base),
                Read::FunctionKwDefaults => self.part(parts::func_kwdefaults, base),
                // Nothing can replace these.
                Read::TupleItem(_)
                | Read::FunctionClosure
                | Read::FunctionGlobals
                | Read::MethodSelf
                | Read::MethodFunction
                | Read::Object(_) => true,
                Read::Local(_)
                | Read::Stack(_)
                | Read::Globals
                | Read::Builtins
                | Read::Function
                | Read::Cell
                | Read::ListItem(_)
                | Read::Member(_)
                | Read::Attr(_)
                | Read::TensorGrad
                | Read::WeakrefTarget
                | Read::PartialFunc
                | Read::PartialArgs
                | Read::PartialKeywords => false,
            }
        }
    }

    /// Notes what a check depended on besides the read of its value; one for which that can't be noted is done
    /// again each time.
    ///
    /// # Safety
    /// Attached; `value` is NULL or live; it is the register's.
    pub unsafe fn check(&mut self, checks: &Checks, guard: u32, register: u32, value: Raw) {
        let (kind, check) = (&checks.guards[guard as usize].kind, &checks.checks[guard as usize]);
        // SAFETY: the caller's promise.
        if !unsafe { self.note_check(kind, check, value) } {
            self.again.push(Again::Check { register, value, guard });
        }
    }

    /// # Safety
    /// As [`Recorder::check`].
    unsafe fn note_check(&mut self, kind: &GuardKind, check: &Check, value: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match (kind, check) {
                (GuardKind::TypeIs(_), _) => self.class(value),
                (GuardKind::Equals(expected), _) => {
                    equals::is_immutable(expected.as_ptr()) || value == expected.as_ptr()
                }
                (GuardKind::DictLength(_), _) => self.whole_dict(value),
                (GuardKind::DictKeys(keys), _) => {
                    (keys.len() < 2 || !cpython::is_ordered_dict(value)) && self.whole_dict(value)
                }
                (GuardKind::DictHasKey(key) | GuardKind::DictLacksKey(key), Check::Key(hash)) => {
                    let found = cpython::dict_item(value, key.as_ptr(), *hash);
                    self.key(value, key.as_ptr(), *hash, found)
                }
                (GuardKind::InstanceLacks(name), Check::Key(hash)) => {
                    self.own_attr(value, name.as_ptr(), *hash, ptr::null_mut())
                }
                (GuardKind::TypeLacks(_), _) => self.type_version(value),
                (
                    GuardKind::IsObject(_)
                    | GuardKind::IsNotObject(_)
                    | GuardKind::TupleLength(_)
                    | GuardKind::SameObject(_)
                    | GuardKind::NotSameObject(_)
                    | GuardKind::AllDistinct(_)
                    | GuardKind::Missing,
                    _,
                ) => true,
                (
                    GuardKind::DictHasKey(_)
                    | GuardKind::DictLacksKey(_)
                    | GuardKind::InstanceLacks(_)
                    | GuardKind::Tensor(_)
                    | GuardKind::ListLength(_)
                    | GuardKind::SetItems(_)
                    | GuardKind::NoOverlap(_)
                    | GuardKind::Predicate(_)
                    | GuardKind::GlobalState(_),
                    _,
                ) => false,
            }
        }
    }

    /// The object's type stays.
    ///
    /// # Safety
    /// Attached; the object is live.
    unsafe fn class(&mut self, object: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if !class_is_forever(object) && self.classes.insert(object as usize) {
                self.entries.push(Entry::Word(Word::pointer(&raw const (*object).ob_type)));
                self.keep(cpython::type_of(object).cast());
            }
        }
        true
    }

    /// The object's `__dict__` stays the same dictionary: that dictionary, NULL if it has none.
    ///
    /// # Safety
    /// Attached; the object is live.
    unsafe fn own_dict(&mut self, object: Raw) -> Option<Raw> {
        if let Some(&dict) = self.slots.get(&(object as usize)) {
            return Some(dict);
        }
        // SAFETY: the caller's promise. The dictionary is made first, so that later stores go through it.
        unsafe {
            self.class(object);
            let dict = cpython::instance_dict(object);
            if !dict.is_null() {
                cpython::settle_dict(object, dict);
                if !cpython::is_settled(object) {
                    return None;
                }
            }
            let slot = cpython::dict_slot(object);
            if !slot.is_null() {
                self.entries.push(Entry::Word(Word::pointer(slot.cast_const())));
                if *slot != dict {
                    return None;
                }
            }
            self.slots.insert(object as usize, dict);
            Some(dict)
        }
    }

    /// # Safety
    /// Attached; all are NULL or live.
    unsafe fn own_attr(&mut self, object: Raw, name: Raw, hash: isize, value: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match self.own_dict(object) {
                None => false,
                Some(dict) if dict.is_null() => value.is_null(),
                Some(dict) => self.key(dict, name, hash, value),
            }
        }
    }

    /// What the dictionary holds under the key stays.
    ///
    /// # Safety
    /// Attached; the dictionary is live, the value NULL or live.
    unsafe fn key(&mut self, dict: Raw, key: Raw, hash: isize, value: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if !cpython::is_dict(dict) || cpython::dict_item(dict, key, hash) != value {
                return false;
            }
            let identity = self.identity(dict, value);
            if let Entry::Dict { uses, .. } = self.dict(dict) {
                uses.push(Use { key, hash, value, identity });
            }
        }
        true
    }

    /// The dictionary's keys stay, and so does their order if it is the dictionary's own (an OrderedDict's isn't).
    ///
    /// # Safety
    /// Attached; the object is live.
    unsafe fn whole_dict(&mut self, dict: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            if !cpython::is_dict(dict) {
                return false;
            }
            if let Entry::Dict { whole, .. } = self.dict(dict) {
                *whole = true;
            }
        }
        true
    }

    /// # Safety
    /// Attached; the dictionary is live.
    unsafe fn dict(&mut self, dict: Raw) -> &mut Entry {
        let index = *self.dicts.entry(dict as usize).or_insert_with(|| {
            // SAFETY: the caller's promise.
            let version = unsafe { Word::number(cpython::dict_version_address(dict)) };
            self.entries.push(Entry::Dict { version, dict, uses: Vec::new(), whole: false });
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    /// How to know the value again in a dictionary that keeps changing.
    ///
    /// # Safety
    /// Attached; the value is NULL or live.
    unsafe fn identity(&mut self, dict: Raw, value: Raw) -> Identity {
        // SAFETY: the caller's promise.
        unsafe {
            if value.is_null() {
                Identity::Nothing
            } else if equals::is_immutable(value) {
                self.keep(value);
                Identity::Held
            } else if cpython::is_dict(value) || ffi::PyList_CheckExact(value) != 0 {
                Identity::Container
            } else if self.volatile.contains(&(dict as usize)) {
                weak(self.py, value).map_or(Identity::Unknown, Identity::Weak)
            } else {
                Identity::Unknown
            }
        }
    }

    /// Nothing on the type's method resolution order changes; false if the type has no version to tell by.
    ///
    /// # Safety
    /// Attached; `class` is live.
    unsafe fn type_version(&mut self, class: Raw) -> bool {
        if self.versions.contains(&(class as usize)) {
            return true;
        }
        // SAFETY: the caller's promise; it was looked up on, so it is a type. A type is larger than its version tag.
        unsafe {
            let Some(version) = cpython::type_version_address(class.cast()) else { return false };
            self.entries.push(Entry::Word(Word::half(version)));
            self.keep(class);
        }
        self.versions.insert(class as usize);
        true
    }

    /// A replaceable part of a function stays.
    ///
    /// # Safety
    /// Attached; `function` is live, and a function.
    unsafe fn part(&mut self, field: unsafe fn(*mut ffi::PyFunctionObject) -> *const Raw, function: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let field = field(function.cast());
            self.entries.push(Entry::Word(Word::pointer(field)));
            self.keep(*field);
        }
        true
    }

    /// # Safety
    /// Attached; the object is NULL or live.
    unsafe fn keep(&mut self, object: Raw) {
        // SAFETY: the caller's promise.
        if let Some(object) = unsafe { Bound::from_borrowed_ptr_or_opt(self.py, object) }
            && self.kept.insert(object.as_ptr() as usize)
        {
            self.keep.push(object.unbind());
        }
    }
}

/// A weak reference, if there can be one.
///
/// # Safety
/// Attached; the object is live.
unsafe fn weak(py: Python<'_>, object: Raw) -> Option<Py<PyAny>> {
    // SAFETY: the caller's promise; a new reference or NULL with an exception.
    unsafe {
        let weak = ffi::PyWeakref_NewRef(object, ptr::null_mut());
        if weak.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(py, weak).map(Bound::unbind)
    }
}

/// Where functions keep their replaceable parts.
mod parts {
    use super::{Raw, ffi::PyFunctionObject};

    /// # Safety
    /// `function` is live.
    pub unsafe fn func_code(function: *mut PyFunctionObject) -> *const Raw {
        // SAFETY: the caller's promise.
        unsafe { &raw const (*function).func_code }
    }

    /// # Safety
    /// `function` is live.
    pub unsafe fn func_defaults(function: *mut PyFunctionObject) -> *const Raw {
        // SAFETY: the caller's promise.
        unsafe { &raw const (*function).func_defaults }
    }

    /// # Safety
    /// `function` is live.
    pub unsafe fn func_kwdefaults(function: *mut PyFunctionObject) -> *const Raw {
        // SAFETY: the caller's promise.
        unsafe { &raw const (*function).func_kwdefaults }
    }
}

//! Rows of `match` statements (PEP 634).

use std::ffi::{c_int, c_ulong};

use pyo3::ffi;

use super::{Flow, StepResult, stepper::Stepper};
use crate::{
    capi::{self, Outcome, Owned, Ref, raise_format},
    version,
};

/// `_Py_TPFLAGS_MATCH_SELF`: a positional sub-pattern matches the subject itself.
const MATCH_SELF: c_ulong = 1 << 22;

pub(super) fn match_mapping(s: &mut Stepper<'_, '_>) -> StepResult {
    let is_mapping = has_type_flag(s.peek(0)?.type_ptr(), ffi::Py_TPFLAGS_MAPPING);
    s.push(Owned::bool(is_mapping));
    Ok(Flow::Next)
}

pub(super) fn match_sequence(s: &mut Stepper<'_, '_>) -> StepResult {
    let is_sequence = has_type_flag(s.peek(0)?.type_ptr(), ffi::Py_TPFLAGS_SEQUENCE);
    s.push(Owned::bool(is_sequence));
    Ok(Flow::Next)
}

fn has_type_flag(class: *mut ffi::PyTypeObject, flag: c_ulong) -> bool {
    // SAFETY: the type of a live object, or a live type.
    unsafe { ffi::PyType_HasFeature(class, flag) != 0 }
}

pub(super) fn get_len(s: &mut Stepper<'_, '_>) -> StepResult {
    let length = capi::new_int(capi::length(s.peek(0)?)?)?;
    s.push(length);
    Ok(Flow::Next)
}

pub(super) fn match_keys(s: &mut Stepper<'_, '_>) -> StepResult {
    let values = values_of_keys(s.peek(1)?, s.peek(0)?)?;
    s.push(values);
    Ok(Flow::Next)
}

/// A tuple of the mapping's values, or None if a key is missing.
fn values_of_keys(mapping: Ref<'_>, keys: Ref<'_>) -> Outcome<Owned> {
    if !capi::is_tuple(keys) {
        return Err(capi::raise(capi::system_error(), c"MATCH_KEYS of what isn't a tuple"));
    }
    let count = capi::tuple_len(keys);
    if count == 0 {
        return capi::new_tuple([].into_iter());
    }
    // `get` with a default of our own tells missing keys apart without creating them in dict subclasses.
    let (get, unbound) = capi::get_method(mapping, capi::new_str(c"get")?.borrow())?;
    let seen = capi::new_set()?;
    let missing = capi::call(capi::object_type(), &[])?;
    let mut values = Vec::with_capacity(count);
    for key in (0..count).filter_map(|i| capi::tuple_get(keys, i)) {
        if !see(&seen, key)? {
            return Err(
                raise_format!(capi::value_error(), c"mapping pattern checks duplicate key (%R)", key.as_ptr(),),
            );
        }
        let arguments = [mapping, key, missing.borrow()];
        let value = capi::call(get.borrow(), if unbound { &arguments } else { &arguments[1..] })?;
        if value.borrow() == missing.borrow() {
            return Ok(Owned::none());
        }
        values.push(value);
    }
    capi::new_tuple(values.iter().map(Owned::borrow))
}

/// Adds to the set; false if it was there already.
fn see(seen: &Owned, item: Ref<'_>) -> Outcome<bool> {
    if capi::set_contains(seen.borrow(), item)? {
        return Ok(false);
    }
    capi::set_add(seen.borrow(), item)?;
    Ok(true)
}

pub(super) fn match_class(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let (subject, class, names) = (s.peek(2)?, s.peek(1)?, s.peek(0)?);
    let attributes = class_attributes(subject, class, count as usize, names);
    let result = attributes.and_then(|attributes| match attributes {
        Some(attributes) => capi::new_tuple(attributes.iter().map(Owned::borrow)),
        None => Ok(Owned::none()),
    });
    s.replace(3, result)
}

/// The attributes of a class pattern; `None` if the subject doesn't match.
fn class_attributes(
    subject: Ref<'_>,
    class: Ref<'_>,
    positional: usize,
    names: Ref<'_>,
) -> Outcome<Option<Vec<Owned>>> {
    if !capi::is_type(class) {
        return Err(capi::raise(capi::type_error(), version::MATCH_CLASS_WANTS_CLASS));
    }
    if !capi::is_instance(subject, class)? {
        return Ok(None);
    }
    let seen = capi::new_set()?;
    let mut attributes = Vec::new();
    if positional > 0 {
        let Some(positions) = match_args(class)? else {
            check_positional(class, 1, positional)?;
            attributes.push(subject.to_owned());
            return keyword_attributes(subject, class, names, &seen, attributes);
        };
        let allowed = positions.as_ref().map_or(0, |args| capi::tuple_len(args.borrow()));
        check_positional(class, allowed, positional)?;
        for i in 0..positional {
            let Some(name) = positions.as_ref().and_then(|args| capi::tuple_get(args.borrow(), i)) else {
                break;
            };
            if !capi::is_exact_str(name) {
                return Err(raise_format!(
                    capi::type_error(),
                    c"__match_args__ elements must be strings (got %s)",
                    name.type_name(),
                ));
            }
            match attribute(subject, class, name, &seen)? {
                Some(value) => attributes.push(value),
                None => return Ok(None),
            }
        }
    }
    keyword_attributes(subject, class, names, &seen, attributes)
}

fn keyword_attributes(
    subject: Ref<'_>,
    class: Ref<'_>,
    names: Ref<'_>,
    seen: &Owned,
    mut attributes: Vec<Owned>,
) -> Outcome<Option<Vec<Owned>>> {
    let mut index = 0;
    while let Some(name) = capi::tuple_get(names, index) {
        match attribute(subject, class, name, seen)? {
            Some(value) => attributes.push(value),
            None => return Ok(None),
        }
        index += 1;
    }
    Ok(Some(attributes))
}

/// The class's `__match_args__`: `Some(tuple)`, `Some(None)` if it has none, `None` if a single positional pattern
/// stands for the subject itself.
fn match_args(class: Ref<'_>) -> Outcome<Option<Option<Owned>>> {
    match capi::get_optional_attr(class, capi::new_str(c"__match_args__")?.borrow())? {
        Some(args) if capi::is_exact_tuple(args.borrow()) => Ok(Some(Some(args))),
        Some(args) => Err(raise_format!(
            capi::type_error(),
            c"%s.__match_args__ must be a tuple (got %s)",
            class_name(class),
            args.borrow().type_name(),
        )),
        None if has_type_flag(class.as_ptr().cast(), MATCH_SELF) => Ok(None),
        None => Ok(Some(None)),
    }
}

fn check_positional(class: Ref<'_>, allowed: usize, given: usize) -> Outcome<()> {
    if given <= allowed {
        return Ok(());
    }
    let plural = if allowed == 1 { c"" } else { c"s" };
    Err(raise_format!(
        capi::type_error(),
        c"%s() accepts %d positional sub-pattern%s (%d given)",
        class_name(class),
        allowed as c_int,
        plural.as_ptr(),
        given as c_int,
    ))
}

/// `match_class_attr`: the attribute, or `None` if there isn't one; naming it twice is an error.
fn attribute(subject: Ref<'_>, class: Ref<'_>, name: Ref<'_>, seen: &Owned) -> Outcome<Option<Owned>> {
    if !see(seen, name)? {
        return Err(raise_format!(
            capi::type_error(),
            c"%s() got multiple sub-patterns for attribute %R",
            class_name(class),
            name.as_ptr(),
        ));
    }
    capi::get_optional_attr(subject, name)
}

fn class_name(class: Ref<'_>) -> *const std::ffi::c_char {
    // SAFETY: a live type object (checked before any of these messages).
    unsafe { (*class.as_ptr().cast::<ffi::PyTypeObject>()).tp_name }
}

//! Rows that build containers, and those that fill the ones being built.

use super::{StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Raised, Ref, raise_format};

/// The top `count` values, the lowest first.
fn operands<'s>(s: &'s Stepper<'_, '_>, count: u32) -> Outcome<Vec<Ref<'s>>> {
    (0..count).rev().map(|depth| s.peek(depth)).collect()
}

pub(super) fn build_tuple(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let tuple = operands(s, count).and_then(|items| capi::new_tuple(items.into_iter()));
    s.replace(count, tuple)
}

pub(super) fn build_list(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let list = operands(s, count).and_then(|items| capi::new_list(items.into_iter()));
    s.replace(count, list)
}

pub(super) fn build_set(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let set = operands(s, count).and_then(|items| {
        let set = capi::new_set()?;
        items.into_iter().try_for_each(|item| capi::set_add(set.borrow(), item))?;
        Ok(set)
    });
    s.replace(count, set)
}

pub(super) fn build_map(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let count = count.saturating_mul(2);
    let dict = operands(s, count).and_then(|items| {
        let dict = capi::new_dict()?;
        items.chunks_exact(2).try_for_each(|pair| capi::dict_set_item(dict.borrow(), pair[0], pair[1]))?;
        Ok(dict)
    });
    s.replace(count, dict)
}

pub(super) fn build_const_key_map(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let count = count.saturating_add(1);
    let dict = operands(s, count).and_then(dict_of_keys);
    s.replace(count, dict)
}

/// A dict of values with a tuple of their keys last.
fn dict_of_keys(operands: Vec<Ref<'_>>) -> Outcome<Owned> {
    let bad = || capi::raise(capi::system_error(), c"bad BUILD_CONST_KEY_MAP keys argument");
    let (keys, values) = operands.split_last().ok_or_else(bad)?;
    let dict = capi::new_dict()?;
    for (i, value) in values.iter().enumerate() {
        let key = capi::tuple_get(*keys, i).ok_or_else(bad)?;
        capi::dict_set_item(dict.borrow(), key, *value)?;
    }
    Ok(dict)
}

pub(super) fn build_slice(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let slice = match *operands(s, count)? {
        [start, stop] => capi::new_slice(start, stop, None),
        [start, stop, step] => capi::new_slice(start, stop, Some(step)),
        _ => Err(capi::raise(capi::system_error(), c"bad BUILD_SLICE argument")),
    };
    s.replace(count, slice)
}

pub(super) fn list_append(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let appended = capi::list_append(s.peek(depth)?, s.peek(0)?);
    s.consume(1, appended)
}

pub(super) fn set_add(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let added = capi::set_add(s.peek(depth)?, s.peek(0)?);
    s.consume(1, added)
}

pub(super) fn map_add(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let added = capi::dict_set_item(s.peek(depth.saturating_add(1))?, s.peek(1)?, s.peek(0)?);
    s.consume(2, added)
}

pub(super) fn list_extend(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let extended = extend_list(s.peek(depth)?, s.peek(0)?);
    s.consume(1, extended)
}

fn extend_list(list: Ref<'_>, iterable: Ref<'_>) -> Outcome<()> {
    if !capi::is_list(list) {
        return Err(capi::raise(capi::system_error(), c"LIST_EXTEND of what isn't a list"));
    }
    match capi::list_extend_raw(list, iterable) {
        Ok(_none) => Ok(()),
        Err(Raised) if capi::is_raising(capi::type_error()) && !is_iterable(iterable) => Err(raise_format!(
            capi::type_error(),
            c"Value after * must be an iterable, not %.200s",
            iterable.type_name(),
        )),
        Err(Raised) => Err(Raised),
    }
}

/// Whether `iter()` could work on it: it has `__iter__` or is a sequence.
pub(super) fn is_iterable(object: Ref<'_>) -> bool {
    // SAFETY: a live object's type is live.
    let has_iter = unsafe { (*object.type_ptr()).tp_iter.is_some() };
    has_iter || capi::is_sequence(object)
}

pub(super) fn set_update(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let updated = capi::set_update(s.peek(depth)?, s.peek(0)?).map(|_| ());
    s.consume(1, updated)
}

pub(super) fn dict_update(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let update = s.peek(0)?;
    let updated = match capi::dict_update(s.peek(depth)?, update) {
        Err(Raised) if capi::is_raising(capi::attribute_error()) => {
            Err(raise_format!(capi::type_error(), c"'%.200s' object is not a mapping", update.type_name()))
        }
        updated => updated,
    };
    s.consume(1, updated)
}

pub(super) fn dict_merge(s: &mut Stepper<'_, '_>, depth: u32) -> StepResult {
    let (dict, update) = (s.peek(depth)?, s.peek(0)?);
    let merged = match capi::dict_merge(dict, update) {
        Ok(()) => Ok(()),
        Err(Raised) => {
            // Below the dict: the call's positional arguments, then its two leading slots.
            let slots = [depth.saturating_add(3), depth.saturating_add(2)];
            let callable = slots.into_iter().find_map(|slot| s.peek_or_null(slot));
            Err(super::calls::kwargs_error(callable, update))
        }
    };
    s.consume(1, merged)
}

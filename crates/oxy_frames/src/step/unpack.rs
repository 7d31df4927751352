//! Rows that unpack iterables.

use pyo3::ffi;

use super::{Flow, StepResult, containers::is_iterable, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Raised, Ref, raise_format};

pub(super) fn unpack_sequence(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let items = unpack_exactly(s.peek(0)?, count);
    push_unpacked(s, items)
}

pub(super) fn unpack_ex(s: &mut Stepper<'_, '_>, before: u32, after: u32) -> StepResult {
    let items = unpack_around(s.peek(0)?, before, after);
    push_unpacked(s, items)
}

/// Replaces the iterable by the items, the first on top.
fn push_unpacked(s: &mut Stepper<'_, '_>, items: Outcome<Vec<Owned>>) -> StepResult {
    s.drop_top(1);
    for item in items?.into_iter().rev() {
        s.push(item);
    }
    Ok(Flow::Next)
}

fn iterate(iterable: Ref<'_>) -> Outcome<Owned> {
    capi::get_iter(iterable).map_err(|Raised| {
        if capi::is_raising(capi::type_error()) && !is_iterable(iterable) {
            raise_format!(capi::type_error(), c"cannot unpack non-iterable %.200s object", iterable.type_name(),)
        } else {
            Raised
        }
    })
}

/// The first `count` items, or the error that `short` makes of the number there were.
fn take(iterator: &Owned, count: u32, short: impl Fn(i32) -> Raised) -> Outcome<Vec<Owned>> {
    let mut items = Vec::with_capacity(count as usize);
    for taken in 0..count {
        match capi::iter_next(iterator.borrow()) {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return Err(dropped(items, short(taken as i32))),
            Err(raised) => return Err(dropped(items, raised)),
        }
    }
    Ok(items)
}

/// Drops items as the interpreter does when unpacking fails: the last one first.
fn dropped(mut items: Vec<Owned>, raised: Raised) -> Raised {
    while items.pop().is_some() {}
    raised
}

fn unpack_exactly(iterable: Ref<'_>, count: u32) -> Outcome<Vec<Owned>> {
    let iterator = iterate(iterable)?;
    let items = take(&iterator, count, |taken| {
        raise_format!(capi::value_error(), c"not enough values to unpack (expected %d, got %d)", count as i32, taken,)
    })?;
    match capi::iter_next(iterator.borrow()) {
        Ok(None) => Ok(items),
        Ok(Some(surplus)) => {
            drop(surplus);
            let raised = raise_format!(capi::value_error(), c"too many values to unpack (expected %d)", count as i32,);
            Err(dropped(items, raised))
        }
        Err(raised) => Err(dropped(items, raised)),
    }
}

fn unpack_around(iterable: Ref<'_>, before: u32, after: u32) -> Outcome<Vec<Owned>> {
    let iterator = iterate(iterable)?;
    let mut items = take(&iterator, before, |taken| {
        raise_format!(
            capi::value_error(),
            c"not enough values to unpack (expected at least %d, got %d)",
            before.saturating_add(after) as i32,
            taken,
        )
    })?;
    let rest = match capi::sequence_list(iterator.borrow()) {
        Ok(rest) => rest,
        Err(raised) => return Err(dropped(items, raised)),
    };
    match split_list(&rest, after, before) {
        Ok(tail) => {
            items.push(rest);
            items.extend(tail);
            Ok(items)
        }
        Err(raised) => {
            drop(rest);
            Err(dropped(items, raised))
        }
    }
}

/// Cuts the last `count` items off a list that nobody else has seen.
fn split_list(list: &Owned, count: u32, before: u32) -> Outcome<Vec<Owned>> {
    let pointer = list.borrow().as_ptr();
    let (count, before) = (count as ffi::Py_ssize_t, before as ffi::Py_ssize_t);
    let length = capi::length(list.borrow())?;
    if length < count {
        return Err(raise_format!(
            capi::value_error(),
            c"not enough values to unpack (expected at least %zd, got %zd)",
            before + count,
            before + length,
        ));
    }
    // SAFETY: a fresh list; the items read are in range and get references of their own before the list is cut.
    unsafe {
        let tail = (length - count..length)
            .filter_map(|i| Ref::new(ffi::PyList_GET_ITEM(pointer, i)).map(Ref::to_owned))
            .collect();
        capi::status(ffi::PyList_SetSlice(pointer, length - count, length, std::ptr::null_mut()))?;
        Ok(tail)
    }
}

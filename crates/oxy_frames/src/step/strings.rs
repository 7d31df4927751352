//! Rows that make strings.

use oxy_bytecode::Conversion;

use super::{StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Ref};

pub(super) fn build_string(s: &mut Stepper<'_, '_>, count: u32) -> StepResult {
    let joined = join(s, count);
    s.replace(count, joined)
}

fn join(s: &Stepper<'_, '_>, count: u32) -> Outcome<Owned> {
    let pieces: Vec<Ref<'_>> = (0..count).rev().map(|depth| s.peek(depth)).collect::<Outcome<_>>()?;
    let pieces = capi::new_tuple(pieces.into_iter())?;
    capi::unicode_join(capi::new_str(c"")?.borrow(), pieces.borrow())
}

fn convert(value: Ref<'_>, conversion: Conversion) -> Outcome<Owned> {
    match conversion {
        Conversion::None => Ok(value.to_owned()),
        Conversion::Str => capi::object_str(value),
        Conversion::Repr => capi::object_repr(value),
        Conversion::Ascii => capi::object_ascii(value),
    }
}

pub(super) fn convert_value(s: &mut Stepper<'_, '_>, conversion: Conversion) -> StepResult {
    let converted = convert(s.peek(0)?, conversion);
    s.replace(1, converted)
}

pub(super) fn format_value(s: &mut Stepper<'_, '_>, conversion: Conversion, has_spec: bool) -> StepResult {
    let operands = 1 + u32::from(has_spec);
    let value = s.peek(operands - 1)?;
    let spec = if has_spec { Some(s.peek(0)?) } else { None };
    let formatted = convert(value, conversion).and_then(|value| {
        // An exact string without a spec is its own format.
        if spec.is_none() && capi::is_exact_str(value.borrow()) {
            return Ok(value);
        }
        capi::format(value.borrow(), spec)
    });
    s.replace(operands, formatted)
}

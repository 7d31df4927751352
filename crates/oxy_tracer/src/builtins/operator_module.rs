//! The functions of the `operator` module.

use super::functions::{Kw, abs, bool_, first};
use super::{Action, Handler};
use crate::breaks::{self, R};
use crate::tracer::Tracer;
use crate::value::Val;

macro_rules! operator_rows {
    ($($name:literal => $function:ident;)*) => {
        static OPERATORS: &[Handler] = &[$(
            Handler { module: "operator", path: $name, action: Action::Native($function) }
        ),*];
    };
}

/// The row of a function of the `operator` module.
pub fn operator_handler(name: &str) -> Option<&'static Handler> {
    OPERATORS.iter().find(|handler| handler.path == name)
}

macro_rules! binary_functions {
    ($($function:ident $name:literal;)*) => {
        $(fn $function(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
            let [left, right] = *args else { return t.raise("TypeError", "operator expected 2 arguments") };
            if let Some((op, inplace)) = crate::operators::binary_of_name($name) {
                return t.binary_op(op, inplace, left, right);
            }
            match crate::operators::compare_of_name($name) {
                Some(op) => t.compare(op, left, right),
                None => t.stop(breaks::UNSUPPORTED_CALL, $name),
            }
        })*
    };
}

binary_functions! {
    op_add "add"; op_and "and_"; op_floordiv "floordiv"; op_lshift "lshift"; op_matmul "matmul"; op_mul "mul"; op_mod "mod";
    op_or "or_"; op_pow "pow"; op_rshift "rshift"; op_sub "sub"; op_truediv "truediv"; op_xor "xor";
    op_iadd "iadd"; op_iand "iand"; op_ifloordiv "ifloordiv"; op_ilshift "ilshift"; op_imatmul "imatmul"; op_imul "imul";
    op_imod "imod"; op_ior "ior"; op_ipow "ipow"; op_irshift "irshift"; op_isub "isub"; op_itruediv "itruediv"; op_ixor "ixor";
    op_lt "lt"; op_le "le"; op_eq "eq"; op_ne "ne"; op_gt "gt"; op_ge "ge";
}

fn op_neg(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "neg")?;
    t.unary_op("neg", "__neg__", val)
}

fn op_pos(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "pos")?;
    t.unary_op("pos", "__pos__", val)
}

fn op_invert(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "invert")?;
    t.unary_op("invert", "__invert__", val)
}

fn op_not(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let val = first(t, args, "not_")?;
    let truth = t.truth(val)?;
    Ok(t.bool(!truth))
}

fn op_getitem(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    t.get_item(args[0], args[1])
}

fn op_setitem(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    t.set_item(args[0], args[1], args[2])?;
    Ok(t.none())
}

fn op_delitem(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    t.del_item(args[0], args[1])?;
    Ok(t.none())
}

fn op_contains(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let found = t.contains(args[0], args[1])?;
    Ok(t.bool(found))
}

fn op_is(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let same = t.is_same(args[0], args[1])?;
    Ok(t.bool(same))
}

fn op_is_not(t: &mut Tracer<'_, '_>, args: &[Val], _: Kw<'_>) -> R<Val> {
    let same = t.is_same(args[0], args[1])?;
    Ok(t.bool(!same))
}

operator_rows! {
    "add" => op_add; "and_" => op_and; "floordiv" => op_floordiv; "lshift" => op_lshift; "matmul" => op_matmul; "mul" => op_mul;
    "mod" => op_mod; "or_" => op_or; "pow" => op_pow; "rshift" => op_rshift; "sub" => op_sub; "truediv" => op_truediv;
    "xor" => op_xor; "iadd" => op_iadd; "iand" => op_iand; "ifloordiv" => op_ifloordiv; "ilshift" => op_ilshift;
    "imatmul" => op_imatmul; "imul" => op_imul; "imod" => op_imod; "ior" => op_ior; "ipow" => op_ipow; "irshift" => op_irshift;
    "isub" => op_isub; "itruediv" => op_itruediv; "ixor" => op_ixor; "lt" => op_lt; "le" => op_le; "eq" => op_eq; "ne" => op_ne;
    "gt" => op_gt; "ge" => op_ge; "neg" => op_neg; "pos" => op_pos; "invert" => op_invert; "inv" => op_invert; "not_" => op_not;
    "getitem" => op_getitem; "setitem" => op_setitem; "delitem" => op_delitem; "contains" => op_contains; "is_" => op_is;
    "is_not" => op_is_not; "abs" => abs; "truth" => bool_;
}

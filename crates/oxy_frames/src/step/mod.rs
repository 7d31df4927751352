//! Steps: single neutral instructions, performed on the frame's real objects exactly as the interpreter would.
//!
//! 1. One function per row of the instruction table, in the files below; a row without one doesn't compile.
//! 2. Operands stay on the frame's stack while anything is called, and are dropped after the result exists, in the
//!    interpreter's order. So user code, tracebacks and finalizers see the frame the interpreter would show.
//! 3. A failing step leaves what is left of its operands on the stack; unwinding cuts it.
//! 4. What only the interpreter can do (generators, and helpers it doesn't export) says so before it changes
//!    anything: the frame has to be left at that instruction.

mod attributes;
mod calls;
mod containers;
mod control;
mod exceptions;
mod imports;
mod operators;
mod patterns;
mod stack;
mod stepper;
mod strings;
mod suspend;
mod unpack;
mod variables;

use std::ffi::c_int;

use oxy_bytecode::{CodeUnit, Instr, InstrId};
use pyo3::{Bound, PyAny, exceptions::PySystemError, ffi::PyObject};

use crate::{capi::Outcome, capi::Owned, error::FrameError, frame::Frame};
use stepper::Stepper;

/// What a step did.
#[derive(Debug)]
pub enum StepOutcome<'f> {
    /// Go on with the next instruction.
    Next,
    /// Go on there.
    Jump(InstrId),
    /// The function returns this value. A constant that is returned in one instruction comes from its first half.
    Return(Bound<'f, PyAny>),
    /// An exception is set, raised at this instruction: [`Frame::raise_at`] or [`unwind`](crate::unwind::unwind).
    Raised,
    /// Nothing was done: only the interpreter can perform this instruction, so [`Frame::leave`] there.
    MustLeave,
}

/// What the function of a row returns when it didn't raise.
pub(crate) enum Flow {
    Next,
    Jump(InstrId),
    Return(Owned),
    MustLeave,
}

/// The result of the function of a row.
pub(crate) type StepResult = Outcome<Flow>;

/// `exception_group_match(exception, type, &match, &rest)`
pub(crate) type ExceptionGroupMatch =
    unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut *mut PyObject, *mut *mut PyObject) -> c_int;

/// `_PyExc_PrepReraiseStar(original, exceptions)`
pub(crate) type PrepReraiseStar = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

/// Every row's function, by the row's name.
mod rows {
    pub(super) use super::{
        attributes::*, calls::*, containers::*, control::*, exceptions::*, imports::*, operators::*, patterns::*,
        stack::*, strings::*, suspend::*, unpack::*, variables::*,
    };
}

oxy_bytecode::define_visitor! {
    /// Performs single instructions on real objects.
    trait Step() -> StepResult;
    fn dispatch;
}

macro_rules! implement_step {
    ([] $($(#[$doc:meta])* $method:ident = $variant:ident { $($operand:ident : $ty:ident),* }, $stack:literal,
        $pops:expr => $pushes:expr $(, taken $tpops:expr => $tpushes:expr)?, [$($flag:ident),*];)*) => {
        impl Step for Stepper<'_, '_> {
            $(fn $method(&mut self $(, $operand: oxy_bytecode::operand::$ty)*) -> StepResult {
                rows::$method(self $(, $operand)*)
            })*
        }
    };
}

oxy_bytecode::for_each_instr!(implement_step![]);

/// Performs the instruction at `at`.
///
/// `unit` is the frame's decoded code. While the step runs, the frame's position is this instruction. Misuse (another
/// code's unit, a stack that doesn't hold the operands) raises SystemError and changes nothing.
pub fn step<'f>(frame: &mut Frame<'f>, unit: &CodeUnit, at: InstrId) -> StepOutcome<'f> {
    let py = frame.py();
    let (instr, word) = match frame.placed(unit, at) {
        Ok(placed) => (placed.instr, placed.offset.0),
        Err(error) => return refuse(frame, error),
    };
    if is_returned_constant(unit, at, &instr) {
        // The stack may have no room for it.
        frame.touch();
        frame.set_executing(word);
        return return_constant(frame, unit, &instr);
    }
    if let Err(error) = check_stack(frame, &instr) {
        return refuse(frame, error);
    }
    frame.touch();
    frame.set_executing(word);
    match dispatch(&mut Stepper::new(frame, unit), &instr) {
        Ok(Flow::Next) => StepOutcome::Next,
        Ok(Flow::Jump(target)) => StepOutcome::Jump(target),
        Ok(Flow::Return(value)) => StepOutcome::Return(value.into_bound(py)),
        Ok(Flow::MustLeave) => StepOutcome::MustLeave,
        Err(_) => StepOutcome::Raised,
    }
}

/// Whether this is the first half of an instruction that returns a constant without putting it on the stack.
fn is_returned_constant(unit: &CodeUnit, at: InstrId, instr: &Instr) -> bool {
    let next = unit.get(InstrId(at.0.saturating_add(1)));
    matches!(instr, Instr::LoadConst { .. })
        && next.is_some_and(|next| !next.enterable && matches!(next.instr, Instr::ReturnValue {}))
}

fn return_constant<'f>(frame: &mut Frame<'f>, unit: &CodeUnit, instr: &Instr) -> StepOutcome<'f> {
    let py = frame.py();
    let Instr::LoadConst { index } = *instr else {
        return refuse(frame, FrameError::NoSuchInstr);
    };
    match Stepper::new(frame, unit).constant(index).map(|value| value.to_owned()) {
        Ok(value) => StepOutcome::Return(value.into_bound(py)),
        Err(_) => StepOutcome::Raised,
    }
}

fn refuse<'f>(frame: &Frame<'f>, error: FrameError) -> StepOutcome<'f> {
    PySystemError::new_err(error.to_string()).restore(frame.py());
    StepOutcome::Raised
}

/// Checks that the operands are there and that the results fit.
fn check_stack(frame: &Frame<'_>, instr: &Instr) -> Result<(), FrameError> {
    let depth = frame.stack_depth();
    for effect in [Some(instr.stack_effect()), instr.taken_effect()].into_iter().flatten() {
        let below = depth.checked_sub(effect.pops).ok_or(FrameError::StackUnderflow)?;
        if below.saturating_add(effect.pushes) > frame.stacksize() {
            return Err(FrameError::StackOverflow);
        }
    }
    Ok(())
}

//! Rows that only make sense in generators and coroutines, whose frames are the interpreter's.

use oxy_bytecode::{AwaitOrigin, InstrId, SendReceiver};

use super::{Flow, StepResult, stepper::Stepper};

macro_rules! left_to_the_interpreter {
    ($($name:ident($($operand:ident : $ty:ty),*);)*) => {$(
        pub(super) fn $name(_s: &mut Stepper<'_, '_>, $($operand: $ty),*) -> StepResult {
            Ok(Flow::MustLeave)
        }
    )*};
}

left_to_the_interpreter! {
    get_yield_from_iter();
    return_generator();
    yield_value();
    send(_target: InstrId, _receiver: SendReceiver);
    end_send();
    cleanup_throw();
    get_awaitable(_origin: AwaitOrigin);
    get_aiter();
    get_anext();
    end_async_for();
    before_async_with();
}

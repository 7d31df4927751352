//! Misuse of a frame, reported instead of corrupting it.

/// Why a frame operation was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The code unit was decoded from another code object.
    #[error("code unit does not belong to the frame's code object")]
    WrongCode,
    /// There is no such instruction in the code unit.
    #[error("no such instruction")]
    NoSuchInstr,
    /// The interpreter can't be entered in the middle of a fused instruction.
    #[error("the interpreter can't be entered at this instruction")]
    NotEnterable,
    /// There is no such local slot.
    #[error("no such local slot")]
    NoSuchLocal,
    /// The value stack would grow past the frame's end.
    #[error("value stack overflow")]
    StackOverflow,
    /// The value stack doesn't hold that many values.
    #[error("value stack underflow")]
    StackUnderflow,
    /// The frame has already been changed, so it can't be evaluated from its start.
    #[error("frame has been touched")]
    Touched,
}

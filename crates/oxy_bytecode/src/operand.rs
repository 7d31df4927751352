//! The operand types of the neutral instruction set: typed indexes and small closed enums.
//!
//! Every type here is `Copy` plain data with a text form used by the disassembly printer. Nothing here
//! knows how a CPython version encodes the operand; that is the version folders' business.

use std::fmt;

// The instruction table names operand types by one identifier and derived macros look them up in this
// module, so the primitive operands are reachable here as well.
pub use core::primitive::{bool, u32};

/// How an operand is printed after its mnemonic.
pub trait Operand {
    /// Writes a leading space and the operand, or nothing when its value is the unremarkable one.
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Operand for u32 {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {name}={self}")
    }
}

impl Operand for bool {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self { write!(f, " {name}") } else { Ok(()) }
    }
}

macro_rules! index_operands {
    ($($(#[$doc:meta])* $name:ident $sigil:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as a slice index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($sigil, "{}"), self.0)
            }
        }

        impl Operand for $name {
            fn write(&self, _name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " {self}")
            }
        }
    )*};
}

index_operands! {
    /// Index into the frame's `localsplus`: locals, then cells, then free variables.
    Var "%";
    /// Index into `co_names`.
    NameId "name#";
    /// Index into `co_consts`.
    ConstId "const#";
    /// Index of a neutral instruction in its code unit.
    InstrId "@";
    /// Index of a 16-bit word of `co_code` (byte offset / 2), the unit of CPython's instruction pointer.
    WordOffset "w";
}

macro_rules! enum_operands {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The spelling used in disassembly.
            pub fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }

        impl Operand for $name {
            fn write(&self, _name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " {self}")
            }
        }
    )*};
}

enum_operands! {
    /// Where `load_global` pushes the NULL of a following call, relative to the loaded value.
    NullPlacement {
        /// No NULL is pushed.
        None "no_null",
        /// NULL first, then the value on top of it.
        Below "null_below",
        /// The value first, then NULL on top of it.
        Above "null_above",
    }

    /// Which of a call's two leading stack slots is NULL when the call has no extra first argument. Without
    /// a NULL both layouts are the same: a method and its self, or what a compiler put there to save a NULL
    /// (`assert` calls AssertionError with its message so).
    CallLayout {
        /// `[NULL, callable, args…]`, or `[callable, first argument, args…]`.
        NullFirst "null_first",
        /// `[callable, NULL, args…]`, or `[callable, first argument, args…]`.
        CallableFirst "callable_first",
    }

    /// An arithmetic operator; `binary_op`'s `inplace` operand tells `a + b` from `a += b`.
    BinaryOp {
        /// `+`
        Add "add",
        /// `&`
        And "and",
        /// `//`
        FloorDivide "floor_divide",
        /// `<<`
        LeftShift "lshift",
        /// `@`
        MatrixMultiply "matrix_multiply",
        /// `*`
        Multiply "multiply",
        /// `%`
        Remainder "remainder",
        /// `|`
        Or "or",
        /// `**`
        Power "power",
        /// `>>`
        RightShift "rshift",
        /// `-`
        Subtract "subtract",
        /// `/`
        TrueDivide "true_divide",
        /// `^`
        Xor "xor",
    }

    /// A unary operator.
    UnaryOp {
        /// `-a`
        Negative "negative",
        /// `not a`
        Not "not",
        /// `~a`
        Invert "invert",
        /// `+a`
        Positive "positive",
    }

    /// A rich comparison, in the order of CPython's `Py_LT … Py_GE`.
    CompareOp {
        /// `<`
        Lt "lt",
        /// `<=`
        Le "le",
        /// `==`
        Eq "eq",
        /// `!=`
        Ne "ne",
        /// `>`
        Gt "gt",
        /// `>=`
        Ge "ge",
    }

    /// What the popped value must be for a conditional jump to be taken.
    Condition {
        /// Truthy.
        True "if_true",
        /// Falsy.
        False "if_false",
        /// The object `None`.
        None "if_none",
        /// Anything but `None`.
        NotNone "if_not_none",
    }

    /// The `!s`, `!r`, `!a` of a formatted value.
    Conversion {
        /// No conversion.
        None "plain",
        /// `str(value)`
        Str "str",
        /// `repr(value)`
        Repr "repr",
        /// `ascii(value)`
        Ascii "ascii",
    }

    /// What an awaitable is needed for; only the wording of the error depends on it.
    AwaitOrigin {
        /// An `await` expression or an async comprehension.
        Await "await",
        /// The result of `__aenter__`.
        AsyncEnter "aenter",
        /// The result of `__aexit__`.
        AsyncExit "aexit",
    }

    /// Where a `resume` stands.
    ResumeOrigin {
        /// At the start of the function (after the generator prologue, if any).
        FunctionStart "function_start",
        /// After a `yield`.
        AfterYield "after_yield",
        /// After a `yield from`.
        AfterYieldFrom "after_yield_from",
        /// After an `await`.
        AfterAwait "after_await",
    }

    /// What `send` leaves of the receiver when the sub-iterator returned and the jump is taken.
    SendReceiver {
        /// `[receiver, value]` becomes `[result]`.
        Popped "receiver_popped",
        /// `[receiver, value]` becomes `[receiver, result]`; an `end_send` at the target drops it.
        Kept "receiver_kept",
    }

    /// What `set_function_attribute` sets on the function on top of the stack.
    FunctionAttribute {
        /// The tuple of positional defaults.
        Defaults "defaults",
        /// The dict of keyword-only defaults.
        KwDefaults "kwdefaults",
        /// The annotations: a dict, or a tuple of names and values.
        Annotations "annotations",
        /// The tuple of closure cells.
        Closure "closure",
    }

    /// An operation CPython implements as a helper behind one opcode.
    Intrinsic {
        /// Passes the value to `sys.displayhook`; result is `None`.
        Print "print",
        /// `from module import *` into the frame's locals; result is `None`.
        ImportStar "import_star",
        /// Turns an escaping `StopIteration` into `RuntimeError`; the result is the exception to raise.
        StopIterationError "stopiteration_error",
        /// Wraps a value yielded by an async generator.
        AsyncGenWrap "async_gen_wrap",
        /// `tuple(list)`
        ListToTuple "list_to_tuple",
        /// Makes a `TypeVar` from its name.
        TypeVar "typevar",
        /// Makes a `ParamSpec` from its name.
        ParamSpec "paramspec",
        /// Makes a `TypeVarTuple` from its name.
        TypeVarTuple "typevartuple",
        /// `Generic[params]`
        SubscriptGeneric "subscript_generic",
        /// Makes a type alias from a `(name, type_params, compute)` tuple.
        TypeAlias "typealias",
        /// `(original, [exceptions])`: what an `except*` statement raises at its end.
        PrepReraiseStar "prep_reraise_star",
        /// `(name, compute_bound)`
        TypeVarWithBound "typevar_with_bound",
        /// `(name, compute_constraints)`
        TypeVarWithConstraints "typevar_with_constraints",
        /// `(function, type_params)`: sets `__type_params__`; the result is the function.
        SetFunctionTypeParams "set_function_type_params",
        /// `(type_param, compute_default)`: the result is the type parameter.
        SetTypeParamDefault "set_typeparam_default",
    }
}

impl Intrinsic {
    /// How many stack operands it pops (1 or 2); it always pushes one result.
    pub fn operands(self) -> u32 {
        match self {
            Intrinsic::Print
            | Intrinsic::ImportStar
            | Intrinsic::StopIterationError
            | Intrinsic::AsyncGenWrap
            | Intrinsic::ListToTuple
            | Intrinsic::TypeVar
            | Intrinsic::ParamSpec
            | Intrinsic::TypeVarTuple
            | Intrinsic::SubscriptGeneric
            | Intrinsic::TypeAlias => 1,
            Intrinsic::PrepReraiseStar
            | Intrinsic::TypeVarWithBound
            | Intrinsic::TypeVarWithConstraints
            | Intrinsic::SetFunctionTypeParams
            | Intrinsic::SetTypeParamDefault => 2,
        }
    }
}

/// Where the names of a call's keyword arguments are. The named values are always the last of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KwNames {
    /// No keyword arguments.
    None,
    /// A tuple of names in `co_consts`.
    Const(ConstId),
    /// A tuple of names on top of the stack, above the arguments.
    Stack,
}

impl KwNames {
    /// Stack slots the names themselves take.
    pub fn slots(self) -> u32 {
        match self {
            KwNames::None | KwNames::Const(_) => 0,
            KwNames::Stack => 1,
        }
    }
}

impl Operand for KwNames {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KwNames::None => Ok(()),
            KwNames::Const(id) => write!(f, " {name}={id}"),
            KwNames::Stack => write!(f, " {name}=stack"),
        }
    }
}

/// Which optional attributes `make_function` takes from the stack, below the code object, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionFlags(pub u32);

impl FunctionFlags {
    /// The bits and their attributes, in stack order from the bottom.
    pub const BITS: [(u32, FunctionAttribute); 4] = [
        (1, FunctionAttribute::Defaults),
        (2, FunctionAttribute::KwDefaults),
        (4, FunctionAttribute::Annotations),
        (8, FunctionAttribute::Closure),
    ];

    /// Whether the stack holds this attribute.
    pub fn has(self, attribute: FunctionAttribute) -> bool {
        Self::BITS.iter().any(|&(bit, a)| a == attribute && self.0 & bit != 0)
    }

    /// How many attributes are on the stack.
    pub fn count(self) -> u32 {
        Self::BITS.iter().filter(|(bit, _)| self.0 & bit != 0).count() as u32
    }
}

impl Operand for FunctionFlags {
    fn write(&self, _name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, attribute) in Self::BITS {
            if self.0 & bit != 0 {
                write!(f, " {attribute}")?;
            }
        }
        Ok(())
    }
}

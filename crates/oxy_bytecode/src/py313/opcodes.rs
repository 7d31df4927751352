//! The opcodes of CPython 3.13, as neutral instructions.
//!
//! One row per opcode that de-optimised code can contain, by number. `CACHE` and `EXTENDED_ARG` never get here;
//! `ENTER_EXECUTOR`, `EXIT_INIT_CHECK`, `INTERPRETER_EXIT` and `RESERVED` occur only in the interpreter's own code.

use crate::{
    decode::{Concrete, DecodeError},
    isa::Instr,
    operand::{
        AwaitOrigin, CallLayout, Condition, Conversion, FunctionAttribute, FunctionFlags, Intrinsic, KwNames,
        NullPlacement, ResumeOrigin, SendReceiver, UnaryOp,
    },
    version::{VersionTable, opcode_table},
};

/// CPython 3.13.
pub static VERSION: VersionTable = VersionTable { number: (3, 13), opcode, extended_arg: 71, translate };

const LAYOUT: CallLayout = CallLayout::CallableFirst;

/// An exhausted FOR_ITER pops the iterator itself and continues past the END_FOR and POP_TOP it points at.
const AFTER_LOOP: u32 = 2;

fn null_if(present: bool) -> NullPlacement {
    if present { NullPlacement::Above } else { NullPlacement::None }
}

fn attribute(op: &Concrete) -> Result<FunctionAttribute, DecodeError> {
    let row = FunctionFlags::BITS.iter().find(|(bit, _)| *bit == op.arg);
    row.map(|&(_, attribute)| attribute).ok_or_else(|| op.bad())
}

/// The low bit asks for the two slots of a method call.
fn load_attr(op: &Concrete) -> Result<Instr, DecodeError> {
    let name = op.name_above(1);
    Ok(if op.bit(0) { Instr::LoadMethod { name, layout: LAYOUT } } else { Instr::LoadAttr { name } })
}

/// CALL_INTRINSIC_1: unary plus is an operator here, the rest are intrinsics.
fn intrinsic(op: &Concrete) -> Result<Instr, DecodeError> {
    let op = match op.arg {
        1 => Intrinsic::Print,
        2 => Intrinsic::ImportStar,
        3 => Intrinsic::StopIterationError,
        4 => Intrinsic::AsyncGenWrap,
        5 => {
            return Ok(Instr::UnaryOp { op: UnaryOp::Positive });
        }
        6 => Intrinsic::ListToTuple,
        7 => Intrinsic::TypeVar,
        8 => Intrinsic::ParamSpec,
        9 => Intrinsic::TypeVarTuple,
        10 => Intrinsic::SubscriptGeneric,
        11 => Intrinsic::TypeAlias,
        _ => return Err(op.bad()),
    };
    Ok(Instr::Intrinsic { op })
}

/// The operations of CALL_INTRINSIC_2, from 1.
const TWO_OPERANDS: &[Intrinsic] = &[
    Intrinsic::PrepReraiseStar,
    Intrinsic::TypeVarWithBound,
    Intrinsic::TypeVarWithConstraints,
    Intrinsic::SetFunctionTypeParams,
    Intrinsic::SetTypeParamDefault,
];

opcode_table! { |op, out|
    1   BEFORE_ASYNC_WITH           0  => [BeforeAsyncWith {}];
    2   BEFORE_WITH                 0  => [BeforeWith {}];
    4   BINARY_SLICE                0  => [BinarySlice {}];
    5   BINARY_SUBSCR               1  => [BinarySubscr {}];
    6   CHECK_EG_MATCH              0  => [CheckEgMatch {}];
    7   CHECK_EXC_MATCH             0  => [CheckExcMatch {}];
    8   CLEANUP_THROW               0  => [CleanupThrow {}];
    9   DELETE_SUBSCR               0  => [DeleteSubscr {}];
    10  END_ASYNC_FOR               0  => [EndAsyncFor {}];
    11  END_FOR                     0  => [EndFor { count: 1 }];
    12  END_SEND                    0  => [EndSend {}];
    14  FORMAT_SIMPLE               0  => [FormatValue { conversion: Conversion::None, has_spec: false }];
    15  FORMAT_WITH_SPEC            0  => [FormatValue { conversion: Conversion::None, has_spec: true }];
    16  GET_AITER                   0  => [GetAiter {}];
    18  GET_ANEXT                   0  => [GetAnext {}];
    19  GET_ITER                    0  => [GetIter {}];
    20  GET_LEN                     0  => [GetLen {}];
    21  GET_YIELD_FROM_ITER         0  => [GetYieldFromIter {}];
    23  LOAD_ASSERTION_ERROR        0  => [LoadAssertionError {}];
    24  LOAD_BUILD_CLASS            0  => [LoadBuildClass {}];
    25  LOAD_LOCALS                 0  => [LoadLocals {}];
    26  MAKE_FUNCTION               0  => [MakeFunction { flags: FunctionFlags(0) }];
    27  MATCH_KEYS                  0  => [MatchKeys {}];
    28  MATCH_MAPPING               0  => [MatchMapping {}];
    29  MATCH_SEQUENCE              0  => [MatchSequence {}];
    30  NOP                         0  => [Nop {}];
    31  POP_EXCEPT                  0  => [PopExcept {}];
    32  POP_TOP                     0  => [PopTop {}];
    33  PUSH_EXC_INFO               0  => [PushExcInfo {}];
    34  PUSH_NULL                   0  => [PushNull {}];
    35  RETURN_GENERATOR            0  => [ReturnGenerator {}];
    36  RETURN_VALUE                0  => [ReturnValue {}];
    37  SETUP_ANNOTATIONS           0  => [SetupAnnotations {}];
    38  STORE_SLICE                 0  => [StoreSlice {}];
    39  STORE_SUBSCR                1  => [StoreSubscr {}];
    40  TO_BOOL                     3  => [ToBool {}];
    41  UNARY_INVERT                0  => [UnaryOp { op: UnaryOp::Invert }];
    42  UNARY_NEGATIVE              0  => [UnaryOp { op: UnaryOp::Negative }];
    43  UNARY_NOT                   0  => [UnaryOp { op: UnaryOp::Not }];
    44  WITH_EXCEPT_START           0  => [WithExceptStart {}];
    45  BINARY_OP                   1  => [BinaryOp { op: op.binary()?.0, inplace: op.binary()?.1 }];
    46  BUILD_CONST_KEY_MAP         0  => [BuildConstKeyMap { count: op.arg }];
    47  BUILD_LIST                  0  => [BuildList { count: op.arg }];
    48  BUILD_MAP                   0  => [BuildMap { count: op.arg }];
    49  BUILD_SET                   0  => [BuildSet { count: op.arg }];
    50  BUILD_SLICE                 0  => [BuildSlice { count: op.within(2..=3)? }];
    51  BUILD_STRING                0  => [BuildString { count: op.arg }];
    52  BUILD_TUPLE                 0  => [BuildTuple { count: op.arg }];
    53  CALL                        3  => [Call { argc: op.arg, kw: KwNames::None, layout: LAYOUT }];
    54  CALL_FUNCTION_EX            0  => [CallFunctionEx { has_kwargs: op.bit(0), layout: LAYOUT }];
    55  CALL_INTRINSIC_1            0  => emit (intrinsic(op));
    56  CALL_INTRINSIC_2            0  => [Intrinsic { op: op.intrinsic(TWO_OPERANDS)? }];
    57  CALL_KW                     0  => [Call { argc: op.arg, kw: KwNames::Stack, layout: LAYOUT }];
    58  COMPARE_OP                  1  => [CompareOp { op: op.compare(5)?, to_bool: op.bit(4) }];
    59  CONTAINS_OP                 1  => [ContainsOp { invert: op.bit(0) }];
    60  CONVERT_VALUE               0  => [ConvertValue { conversion: op.choose(Conversion::ALL, op.within(1..=3)?)? }];
    61  COPY                        0  => [Copy { depth: op.depth()? }];
    62  COPY_FREE_VARS              0  => [CopyFreeVars { count: op.arg }];
    63  DELETE_ATTR                 0  => [DeleteAttr { name: op.name() }];
    64  DELETE_DEREF                0  => [DeleteDeref { var: op.var() }];
    65  DELETE_FAST                 0  => [DeleteFast { var: op.var() }];
    66  DELETE_GLOBAL               0  => [DeleteGlobal { name: op.name() }];
    67  DELETE_NAME                 0  => [DeleteName { name: op.name() }];
    68  DICT_MERGE                  0  => [DictMerge { depth: op.depth()? }];
    69  DICT_UPDATE                 0  => [DictUpdate { depth: op.depth()? }];
    72  FOR_ITER                    1  => [ForIter { target: op.forward(AFTER_LOOP)? }];
    73  GET_AWAITABLE               0  => [GetAwaitable { origin: op.choose(AwaitOrigin::ALL, op.arg)? }];
    74  IMPORT_FROM                 0  => [ImportFrom { name: op.name() }];
    75  IMPORT_NAME                 0  => [ImportName { name: op.name() }];
    76  IS_OP                       0  => [IsOp { invert: op.bit(0) }];
    77  JUMP_BACKWARD               1  => [Jump { target: op.backward()?, polls: true }];
    78  JUMP_BACKWARD_NO_INTERRUPT  0  => [Jump { target: op.backward()?, polls: false }];
    79  JUMP_FORWARD                0  => [Jump { target: op.forward(0)?, polls: false }];
    80  LIST_APPEND                 0  => [ListAppend { depth: op.depth()? }];
    81  LIST_EXTEND                 0  => [ListExtend { depth: op.depth()? }];
    82  LOAD_ATTR                   9  => emit (load_attr(op));
    83  LOAD_CONST                  0  => [LoadConst { index: op.constant() }];
    84  LOAD_DEREF                  0  => [LoadDeref { var: op.var() }];
    85  LOAD_FAST                   0  => [LoadFast { var: op.var(), checked: false }];
    86  LOAD_FAST_AND_CLEAR         0  => [LoadFastAndClear { var: op.var() }];
    87  LOAD_FAST_CHECK             0  => [LoadFast { var: op.var(), checked: true }];
    88  LOAD_FAST_LOAD_FAST         0  => [LoadFast { var: op.vars().0, checked: false } LoadFast { var: op.vars().1, checked: false }];
    89  LOAD_FROM_DICT_OR_DEREF     0  => [LoadFromDictOrDeref { var: op.var() }];
    90  LOAD_FROM_DICT_OR_GLOBALS   0  => [LoadFromDictOrGlobals { name: op.name() }];
    91  LOAD_GLOBAL                 4  => [LoadGlobal { name: op.name_above(1), null: null_if(op.bit(0)) }];
    92  LOAD_NAME                   0  => [LoadName { name: op.name() }];
    93  LOAD_SUPER_ATTR             1  => [LoadSuperAttr { name: op.name_above(2), is_method: op.bit(0), has_class: op.bit(1), layout: LAYOUT }];
    94  MAKE_CELL                   0  => [MakeCell { var: op.var() }];
    95  MAP_ADD                     0  => [MapAdd { depth: op.depth()? }];
    96  MATCH_CLASS                 0  => [MatchClass { count: op.arg }];
    97  POP_JUMP_IF_FALSE           1  => [PopJumpIf { condition: Condition::False, target: op.forward(0)?, polls: false }];
    98  POP_JUMP_IF_NONE            1  => [PopJumpIf { condition: Condition::None, target: op.forward(0)?, polls: false }];
    99  POP_JUMP_IF_NOT_NONE        1  => [PopJumpIf { condition: Condition::NotNone, target: op.forward(0)?, polls: false }];
    100 POP_JUMP_IF_TRUE            1  => [PopJumpIf { condition: Condition::True, target: op.forward(0)?, polls: false }];
    101 RAISE_VARARGS               0  => [RaiseVarargs { count: op.within(0..=2)? }];
    102 RERAISE                     0  => [Reraise { lasti_depth: op.arg }];
    103 RETURN_CONST                0  => [LoadConst { index: op.constant() } ReturnValue {}];
    104 SEND                        1  => [Send { target: op.forward(0)?, receiver: SendReceiver::Kept }];
    105 SET_ADD                     0  => [SetAdd { depth: op.depth()? }];
    106 SET_FUNCTION_ATTRIBUTE      0  => [SetFunctionAttribute { attribute: attribute(op)? }];
    107 SET_UPDATE                  0  => [SetUpdate { depth: op.depth()? }];
    108 STORE_ATTR                  4  => [StoreAttr { name: op.name() }];
    109 STORE_DEREF                 0  => [StoreDeref { var: op.var() }];
    110 STORE_FAST                  0  => [StoreFast { var: op.var() }];
    111 STORE_FAST_LOAD_FAST        0  => [StoreFast { var: op.vars().0 } LoadFast { var: op.vars().1, checked: false }];
    112 STORE_FAST_STORE_FAST       0  => [StoreFast { var: op.vars().0 } StoreFast { var: op.vars().1 }];
    113 STORE_GLOBAL                0  => [StoreGlobal { name: op.name() }];
    114 STORE_NAME                  0  => [StoreName { name: op.name() }];
    115 SWAP                        0  => [Swap { depth: op.depth()? }];
    116 UNPACK_EX                   0  => [UnpackEx { before: op.arg & 255, after: op.arg >> 8 }];
    117 UNPACK_SEQUENCE             1  => [UnpackSequence { count: op.arg }];
    118 YIELD_VALUE                 0  => [YieldValue {}];
    149 RESUME                      0  => [Resume { origin: op.choose(ResumeOrigin::ALL, op.arg & 3)? }];
}

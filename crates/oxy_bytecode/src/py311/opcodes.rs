//! The opcodes of CPython 3.11, as neutral instructions.
//!
//! One row per opcode that de-optimised code can contain, by number. `CACHE` and `EXTENDED_ARG` never get here.

use crate::{
    operand::{
        AwaitOrigin, CallLayout, Condition, Conversion, FunctionFlags, Intrinsic, KwNames, NullPlacement, ResumeOrigin,
        SendReceiver, UnaryOp,
    },
    version::{VersionTable, opcode_table},
};

/// CPython 3.11.
pub static VERSION: VersionTable = VersionTable { number: (3, 11), opcode, extended_arg: 144, translate };

const LAYOUT: CallLayout = CallLayout::NullFirst;

fn null_if(present: bool) -> NullPlacement {
    if present { NullPlacement::Below } else { NullPlacement::None }
}

opcode_table! { |op, out|
    1   POP_TOP                     0  => [PopTop {}];
    2   PUSH_NULL                   0  => [PushNull {}];
    9   NOP                         0  => [Nop {}];
    10  UNARY_POSITIVE              0  => [UnaryOp { op: UnaryOp::Positive }];
    11  UNARY_NEGATIVE              0  => [UnaryOp { op: UnaryOp::Negative }];
    12  UNARY_NOT                   0  => [UnaryOp { op: UnaryOp::Not }];
    15  UNARY_INVERT                0  => [UnaryOp { op: UnaryOp::Invert }];
    25  BINARY_SUBSCR               4  => [BinarySubscr {}];
    30  GET_LEN                     0  => [GetLen {}];
    31  MATCH_MAPPING               0  => [MatchMapping {}];
    32  MATCH_SEQUENCE              0  => [MatchSequence {}];
    33  MATCH_KEYS                  0  => [MatchKeys {}];
    35  PUSH_EXC_INFO               0  => [PushExcInfo {}];
    36  CHECK_EXC_MATCH             0  => [CheckExcMatch {}];
    37  CHECK_EG_MATCH              0  => [CheckEgMatch {}];
    49  WITH_EXCEPT_START           0  => [WithExceptStart {}];
    50  GET_AITER                   0  => [GetAiter {}];
    51  GET_ANEXT                   0  => [GetAnext {}];
    52  BEFORE_ASYNC_WITH           0  => [BeforeAsyncWith {}];
    53  BEFORE_WITH                 0  => [BeforeWith {}];
    54  END_ASYNC_FOR               0  => [EndAsyncFor {}];
    60  STORE_SUBSCR                1  => [StoreSubscr {}];
    61  DELETE_SUBSCR               0  => [DeleteSubscr {}];
    68  GET_ITER                    0  => [GetIter {}];
    69  GET_YIELD_FROM_ITER         0  => [GetYieldFromIter {}];
    70  PRINT_EXPR                  0  => [Intrinsic { op: Intrinsic::Print } PopTop {}];
    71  LOAD_BUILD_CLASS            0  => [LoadBuildClass {}];
    74  LOAD_ASSERTION_ERROR        0  => [LoadAssertionError {}];
    75  RETURN_GENERATOR            0  => [ReturnGenerator {}];
    82  LIST_TO_TUPLE               0  => [Intrinsic { op: Intrinsic::ListToTuple }];
    83  RETURN_VALUE                0  => [ReturnValue {}];
    84  IMPORT_STAR                 0  => [Intrinsic { op: Intrinsic::ImportStar } PopTop {}];
    85  SETUP_ANNOTATIONS           0  => [SetupAnnotations {}];
    86  YIELD_VALUE                 0  => [YieldValue {}];
    87  ASYNC_GEN_WRAP              0  => [Intrinsic { op: Intrinsic::AsyncGenWrap }];
    88  PREP_RERAISE_STAR           0  => [Intrinsic { op: Intrinsic::PrepReraiseStar }];
    89  POP_EXCEPT                  0  => [PopExcept {}];
    90  STORE_NAME                  0  => [StoreName { name: op.name() }];
    91  DELETE_NAME                 0  => [DeleteName { name: op.name() }];
    92  UNPACK_SEQUENCE             1  => [UnpackSequence { count: op.arg }];
    93  FOR_ITER                    0  => [ForIter { target: op.forward(0)? }];
    94  UNPACK_EX                   0  => [UnpackEx { before: op.arg & 255, after: op.arg >> 8 }];
    95  STORE_ATTR                  4  => [StoreAttr { name: op.name() }];
    96  DELETE_ATTR                 0  => [DeleteAttr { name: op.name() }];
    97  STORE_GLOBAL                0  => [StoreGlobal { name: op.name() }];
    98  DELETE_GLOBAL               0  => [DeleteGlobal { name: op.name() }];
    99  SWAP                        0  => [Swap { depth: op.depth()? }];
    100 LOAD_CONST                  0  => [LoadConst { index: op.constant() }];
    101 LOAD_NAME                   0  => [LoadName { name: op.name() }];
    102 BUILD_TUPLE                 0  => [BuildTuple { count: op.arg }];
    103 BUILD_LIST                  0  => [BuildList { count: op.arg }];
    104 BUILD_SET                   0  => [BuildSet { count: op.arg }];
    105 BUILD_MAP                   0  => [BuildMap { count: op.arg }];
    106 LOAD_ATTR                   4  => [LoadAttr { name: op.name() }];
    107 COMPARE_OP                  2  => [CompareOp { op: op.compare(0)?, to_bool: false }];
    108 IMPORT_NAME                 0  => [ImportName { name: op.name() }];
    109 IMPORT_FROM                 0  => [ImportFrom { name: op.name() }];
    110 JUMP_FORWARD                0  => [Jump { target: op.forward(0)?, polls: false }];
    111 JUMP_IF_FALSE_OR_POP        0  => [JumpIfOrPop { condition: Condition::False, target: op.forward(0)? }];
    112 JUMP_IF_TRUE_OR_POP         0  => [JumpIfOrPop { condition: Condition::True, target: op.forward(0)? }];
    114 POP_JUMP_FORWARD_IF_FALSE   0  => [PopJumpIf { condition: Condition::False, target: op.forward(0)?, polls: false }];
    115 POP_JUMP_FORWARD_IF_TRUE    0  => [PopJumpIf { condition: Condition::True, target: op.forward(0)?, polls: false }];
    116 LOAD_GLOBAL                 5  => [LoadGlobal { name: op.name_above(1), null: null_if(op.bit(0)) }];
    117 IS_OP                       0  => [IsOp { invert: op.bit(0) }];
    118 CONTAINS_OP                 0  => [ContainsOp { invert: op.bit(0) }];
    119 RERAISE                     0  => [Reraise { lasti_depth: op.arg }];
    120 COPY                        0  => [Copy { depth: op.depth()? }];
    122 BINARY_OP                   1  => [BinaryOp { op: op.binary()?.0, inplace: op.binary()?.1 }];
    123 SEND                        0  => [Send { target: op.forward(0)?, receiver: SendReceiver::Popped }];
    124 LOAD_FAST                   0  => [LoadFast { var: op.var(), checked: true }];
    125 STORE_FAST                  0  => [StoreFast { var: op.var() }];
    126 DELETE_FAST                 0  => [DeleteFast { var: op.var() }];
    128 POP_JUMP_FORWARD_IF_NOT_NONE 0  => [PopJumpIf { condition: Condition::NotNone, target: op.forward(0)?, polls: false }];
    129 POP_JUMP_FORWARD_IF_NONE    0  => [PopJumpIf { condition: Condition::None, target: op.forward(0)?, polls: false }];
    130 RAISE_VARARGS               0  => [RaiseVarargs { count: op.within(0..=2)? }];
    131 GET_AWAITABLE               0  => [GetAwaitable { origin: op.choose(AwaitOrigin::ALL, op.arg)? }];
    132 MAKE_FUNCTION               0  => [MakeFunction { flags: FunctionFlags(op.within(0..=15)?) }];
    133 BUILD_SLICE                 0  => [BuildSlice { count: op.within(2..=3)? }];
    134 JUMP_BACKWARD_NO_INTERRUPT  0  => [Jump { target: op.backward()?, polls: false }];
    135 MAKE_CELL                   0  => [MakeCell { var: op.var() }];
    136 LOAD_CLOSURE                0  => [LoadClosure { var: op.var() }];
    137 LOAD_DEREF                  0  => [LoadDeref { var: op.var() }];
    138 STORE_DEREF                 0  => [StoreDeref { var: op.var() }];
    139 DELETE_DEREF                0  => [DeleteDeref { var: op.var() }];
    140 JUMP_BACKWARD               0  => [Jump { target: op.backward()?, polls: true }];
    142 CALL_FUNCTION_EX            0  => [CallFunctionEx { has_kwargs: op.bit(0), layout: LAYOUT }];
    145 LIST_APPEND                 0  => [ListAppend { depth: op.depth()? }];
    146 SET_ADD                     0  => [SetAdd { depth: op.depth()? }];
    147 MAP_ADD                     0  => [MapAdd { depth: op.depth()? }];
    148 LOAD_CLASSDEREF             0  => [LoadClassderef { var: op.var() }];
    149 COPY_FREE_VARS              0  => [CopyFreeVars { count: op.arg }];
    151 RESUME                      0  => [Resume { origin: op.choose(ResumeOrigin::ALL, op.arg)? }];
    152 MATCH_CLASS                 0  => [MatchClass { count: op.arg }];
    155 FORMAT_VALUE                0  => [FormatValue { conversion: op.choose(Conversion::ALL, op.arg & 3)?, has_spec: op.bit(2) }];
    156 BUILD_CONST_KEY_MAP         0  => [BuildConstKeyMap { count: op.arg }];
    157 BUILD_STRING                0  => [BuildString { count: op.arg }];
    160 LOAD_METHOD                 10 => [LoadMethod { name: op.name(), layout: LAYOUT }];
    162 LIST_EXTEND                 0  => [ListExtend { depth: op.depth()? }];
    163 SET_UPDATE                  0  => [SetUpdate { depth: op.depth()? }];
    164 DICT_MERGE                  0  => [DictMerge { depth: op.depth()? }];
    165 DICT_UPDATE                 0  => [DictUpdate { depth: op.depth()? }];
    166 PRECALL                     1  => prefix (out.hold(op));
    171 CALL                        4  => [Call { argc: op.arg, kw: KwNames::None, layout: LAYOUT }];
    172 KW_NAMES                    0  => prefix (out.hold_kw_names(op));
    173 POP_JUMP_BACKWARD_IF_NOT_NONE 0  => [PopJumpIf { condition: Condition::NotNone, target: op.backward()?, polls: true }];
    174 POP_JUMP_BACKWARD_IF_NONE   0  => [PopJumpIf { condition: Condition::None, target: op.backward()?, polls: true }];
    175 POP_JUMP_BACKWARD_IF_FALSE  0  => [PopJumpIf { condition: Condition::False, target: op.backward()?, polls: true }];
    176 POP_JUMP_BACKWARD_IF_TRUE   0  => [PopJumpIf { condition: Condition::True, target: op.backward()?, polls: true }];
}

//! The neutral instruction set: one table, and everything that is derived from it.
//!
//! [`for_each_instr!`](crate::for_each_instr) holds one row per instruction. Rows keep the stack layout of the
//! CPython version the code came from: where versions lay the stack out differently, an operand says so
//! (`null`, `layout`, `receiver`). So a depth computed here is the depth of the interpreter's own value stack.
//!
//! Requirements on a row:
//!
//! 1. The doc comment says what the instruction does in terms of its operands and the stack.
//! 2. The stack text names the operands popped and pushed on fall-through, top of the stack last.
//! 3. `pops => pushes` are the counts of that text; they may use the row's operands.
//! 4. `taken pops => pushes` follows when the row has a `target`: the counts along the jump.
//! 5. `may_raise` is set if any supported version can raise there, running user code or not.
//! 6. `jumps`: has a `target`. `ends`: never falls through.

/// Calls `$callback!` with every row of the instruction table, after the tokens given in brackets.
///
/// A row is `#[doc] method = Variant { operand: Type, … }, "stack text", pops => pushes
/// [, taken pops => pushes], [flags];`. Operand types are names in [`operand`](crate::operand).
#[macro_export]
macro_rules! for_each_instr {
    ($($callback:ident)::+ ! [$($extra:tt)*]) => { $($callback)::+! { [$($extra)*]
    // ---- stack ----
    /// Does nothing (keeps a line for tracing).
    nop = Nop {}, "--", 0 => 0, [];
    /// Pops the top of the stack.
    pop_top = PopTop {}, "value --", 1 => 0, [];
    /// Pushes NULL, the empty slot of a following call.
    push_null = PushNull {}, "-- NULL", 0 => 1, [];
    /// Pushes another reference to the `depth`-th value from the top (1 is the top).
    copy = Copy { depth: u32 }, "value … -- value … value", depth => depth.saturating_add(1), [];
    /// Exchanges the top with the `depth`-th value from the top.
    swap = Swap { depth: u32 }, "bottom … top -- top … bottom", depth => depth, [];

    // ---- constants and variables ----
    /// Pushes a constant.
    load_const = LoadConst { index: ConstId }, "-- value", 0 => 1, [];
    /// Pushes a local. `checked`: an unbound local raises UnboundLocalError; otherwise it is known to be bound.
    /// The "local" is the cell object itself when `var` is a cell (versions without `load_closure`).
    load_fast = LoadFast { var: Var, checked: bool }, "-- value", 0 => 1, [may_raise];
    /// Pushes a local, or NULL when unbound, and unbinds it (start of an inlined comprehension).
    load_fast_and_clear = LoadFastAndClear { var: Var }, "-- value|NULL", 0 => 1, [];
    /// Pops into a local. The value may be NULL after `load_fast_and_clear`: the local becomes unbound.
    store_fast = StoreFast { var: Var }, "value|NULL --", 1 => 0, [];
    /// Unbinds a local; raises UnboundLocalError if it is unbound.
    delete_fast = DeleteFast { var: Var }, "--", 0 => 0, [may_raise];
    /// Pushes a name looked up in the frame's locals mapping, globals, builtins.
    load_name = LoadName { name: NameId }, "-- value", 0 => 1, [may_raise];
    /// Pops into the frame's locals mapping.
    store_name = StoreName { name: NameId }, "value --", 1 => 0, [may_raise];
    /// Deletes from the frame's locals mapping.
    delete_name = DeleteName { name: NameId }, "--", 0 => 0, [may_raise];
    /// Pushes a global or builtin, and the NULL of a following call where `null` says.
    load_global = LoadGlobal { name: NameId, null: NullPlacement }, "-- [NULL] value [NULL]",
        0 => 1 + (null != $crate::operand::NullPlacement::None) as u32, [may_raise];
    /// Pops into the module's globals.
    store_global = StoreGlobal { name: NameId }, "value --", 1 => 0, [may_raise];
    /// Deletes from the module's globals.
    delete_global = DeleteGlobal { name: NameId }, "--", 0 => 0, [may_raise];
    /// Pushes the frame's locals mapping.
    load_locals = LoadLocals {}, "-- mapping", 0 => 1, [may_raise];
    /// Pops a mapping; pushes the name from it, else from globals, else from builtins.
    load_from_dict_or_globals = LoadFromDictOrGlobals { name: NameId }, "mapping -- value", 1 => 1, [may_raise];
    /// Pops a mapping; pushes the variable's name from it, else the contents of cell `var`.
    load_from_dict_or_deref = LoadFromDictOrDeref { var: Var }, "mapping -- value", 1 => 1, [may_raise];
    /// Pushes the variable's name from the frame's locals mapping, else the contents of cell `var`.
    load_classderef = LoadClassderef { var: Var }, "-- value", 0 => 1, [may_raise];

    // ---- cells ----
    /// Turns local `var` into a cell holding its current value (empty if unbound).
    make_cell = MakeCell { var: Var }, "--", 0 => 0, [may_raise];
    /// Copies the running function's `count` closure cells into the last `count` localsplus slots.
    copy_free_vars = CopyFreeVars { count: u32 }, "--", 0 => 0, [];
    /// Pushes the cell object in `var`.
    load_closure = LoadClosure { var: Var }, "-- cell", 0 => 1, [may_raise];
    /// Pushes the contents of cell `var`; an empty cell raises.
    load_deref = LoadDeref { var: Var }, "-- value", 0 => 1, [may_raise];
    /// Pops into cell `var`.
    store_deref = StoreDeref { var: Var }, "value --", 1 => 0, [];
    /// Empties cell `var`; an empty cell raises.
    delete_deref = DeleteDeref { var: Var }, "--", 0 => 0, [may_raise];

    // ---- attributes ----
    /// Replaces an object by its attribute.
    load_attr = LoadAttr { name: NameId }, "owner -- value", 1 => 1, [may_raise];
    /// Looks up a method for a call: `[method, self]` if it is found unbound on the type, else the attribute
    /// with NULL where `layout` says.
    load_method = LoadMethod { name: NameId, layout: CallLayout }, "owner -- slot0 slot1", 1 => 2, [may_raise];
    /// `super(class, self).name` with the global `super` on the stack. `has_class`: written with two arguments.
    /// `is_method`: pushes the two slots of `load_method`.
    load_super_attr = LoadSuperAttr { name: NameId, is_method: bool, has_class: bool, layout: CallLayout },
        "super class self -- value | slot0 slot1", 3 => 1 + is_method as u32, [may_raise];
    /// `owner.name = value`
    store_attr = StoreAttr { name: NameId }, "value owner --", 2 => 0, [may_raise];
    /// `del owner.name`
    delete_attr = DeleteAttr { name: NameId }, "owner --", 1 => 0, [may_raise];

    // ---- subscripts ----
    /// `container[key]`
    binary_subscr = BinarySubscr {}, "container key -- value", 2 => 1, [may_raise];
    /// `container[key] = value`
    store_subscr = StoreSubscr {}, "value container key --", 3 => 0, [may_raise];
    /// `del container[key]`
    delete_subscr = DeleteSubscr {}, "container key --", 2 => 0, [may_raise];
    /// `container[start:stop]`
    binary_slice = BinarySlice {}, "container start stop -- value", 3 => 1, [may_raise];
    /// `container[start:stop] = value`
    store_slice = StoreSlice {}, "value container start stop --", 4 => 0, [may_raise];

    // ---- operators ----
    /// `left op right`, or the in-place operator.
    binary_op = BinaryOp { op: BinaryOp, inplace: bool }, "left right -- result", 2 => 1, [may_raise];
    /// `op value`
    unary_op = UnaryOp { op: UnaryOp }, "value -- result", 1 => 1, [may_raise];
    /// `bool(value)`, the truth test.
    to_bool = ToBool {}, "value -- bool", 1 => 1, [may_raise];
    /// Rich comparison; `to_bool` also applies the truth test to its result.
    compare_op = CompareOp { op: CompareOp, to_bool: bool }, "left right -- result", 2 => 1, [may_raise];
    /// `left is right`, or `is not`.
    is_op = IsOp { invert: bool }, "left right -- bool", 2 => 1, [];
    /// `item in container`, or `not in`.
    contains_op = ContainsOp { invert: bool }, "item container -- bool", 2 => 1, [may_raise];

    // ---- building containers and strings ----
    /// Tuple of the top `count` values.
    build_tuple = BuildTuple { count: u32 }, "items… -- tuple", count => 1, [may_raise];
    /// List of the top `count` values.
    build_list = BuildList { count: u32 }, "items… -- list", count => 1, [may_raise];
    /// Set of the top `count` values.
    build_set = BuildSet { count: u32 }, "items… -- set", count => 1, [may_raise];
    /// Dict of the top `count` key, value pairs.
    build_map = BuildMap { count: u32 }, "(key value)… -- dict", count.saturating_mul(2) => 1, [may_raise];
    /// Dict of `count` values with a tuple of keys above them.
    build_const_key_map = BuildConstKeyMap { count: u32 }, "values… keys -- dict", count.saturating_add(1) => 1, [may_raise];
    /// Concatenation of `count` strings.
    build_string = BuildString { count: u32 }, "strings… -- string", count => 1, [may_raise];
    /// `slice(start, stop)`, or with a step when `count` is 3.
    build_slice = BuildSlice { count: u32 }, "start stop [step] -- slice", count => 1, [may_raise];
    /// Appends the popped value to the list `depth` below (1 is the new top).
    list_append = ListAppend { depth: u32 }, "list … value -- list …", depth.saturating_add(1) => depth, [may_raise];
    /// Adds the popped value to the set `depth` below.
    set_add = SetAdd { depth: u32 }, "set … value -- set …", depth.saturating_add(1) => depth, [may_raise];
    /// Stores the popped key, value pair into the dict `depth` below.
    map_add = MapAdd { depth: u32 }, "dict … key value -- dict …", depth.saturating_add(2) => depth, [may_raise];
    /// Extends the list `depth` below by the popped iterable.
    list_extend = ListExtend { depth: u32 }, "list … iterable -- list …", depth.saturating_add(1) => depth, [may_raise];
    /// Updates the set `depth` below by the popped iterable.
    set_update = SetUpdate { depth: u32 }, "set … iterable -- set …", depth.saturating_add(1) => depth, [may_raise];
    /// Updates the dict `depth` below by the popped mapping.
    dict_update = DictUpdate { depth: u32 }, "dict … mapping -- dict …", depth.saturating_add(1) => depth, [may_raise];
    /// Like `dict_update`, for `**kwargs`: a repeated key raises TypeError naming the callable. Below the dict are
    /// the positional arguments and the two leading slots of the call; the callable is the one that is not NULL.
    dict_merge = DictMerge { depth: u32 }, "dict … mapping -- dict …", depth.saturating_add(1) => depth, [may_raise];

    // ---- unpacking ----
    /// Unpacks an iterable into exactly `count` values, the first on top.
    unpack_sequence = UnpackSequence { count: u32 }, "iterable -- last … first", 1 => count, [may_raise];
    /// Unpacks an iterable into `before` values, a list, and `after` values; the first on top.
    unpack_ex = UnpackEx { before: u32, after: u32 }, "iterable -- after… list before…",
        1 => before.saturating_add(after).saturating_add(1), [may_raise];

    // ---- formatting ----
    /// Applies `!s`, `!r` or `!a`.
    convert_value = ConvertValue { conversion: Conversion }, "value -- string", 1 => 1, [may_raise];
    /// `format(value, spec)` after a conversion; the spec is on top of the stack when `has_spec`.
    format_value = FormatValue { conversion: Conversion, has_spec: bool }, "value [spec] -- string",
        1 + has_spec as u32 => 1, [may_raise];

    // ---- control flow ----
    /// Jumps. `polls`: the interpreter looks at its eval breaker (signals, other threads) there.
    jump = Jump { target: InstrId, polls: bool }, "--", 0 => 0, taken 0 => 0, [may_raise, jumps, ends];
    /// Pops a value and jumps if it meets the condition (testing truth may run user code).
    pop_jump_if = PopJumpIf { condition: Condition, target: InstrId, polls: bool }, "value --",
        1 => 0, taken 1 => 0, [may_raise, jumps];
    /// Jumps and keeps the value if it meets the condition, else pops it.
    jump_if_or_pop = JumpIfOrPop { condition: Condition, target: InstrId }, "value --",
        1 => 0, taken 1 => 1, [may_raise, jumps];
    /// Returns the popped value.
    return_value = ReturnValue {}, "value --", 1 => 0, [ends];

    // ---- iteration ----
    /// `iter(value)`
    get_iter = GetIter {}, "iterable -- iterator", 1 => 1, [may_raise];
    /// `iter(value)` for `yield from`: generators pass, coroutines only in coroutines.
    get_yield_from_iter = GetYieldFromIter {}, "iterable -- iterator", 1 => 1, [may_raise];
    /// Pushes the iterator's next value; when exhausted pops the iterator and jumps. The target is where
    /// execution really continues, past any `end_for` of the loop.
    for_iter = ForIter { target: InstrId }, "iterator -- iterator next", 1 => 2, taken 1 => 0, [may_raise, jumps];
    /// Pops `count` values after an inlined generator's loop ended; never reached through `for_iter`.
    end_for = EndFor { count: u32 }, "values… --", count => 0, [];

    // ---- generators and coroutines ----
    /// Makes the generator object and returns it to the caller; execution resumes here with the first sent
    /// value (always None) pushed.
    return_generator = ReturnGenerator {}, "-- sent", 0 => 1, [may_raise];
    /// Yields the popped value; execution resumes here with the sent value pushed.
    yield_value = YieldValue {}, "value -- sent", 1 => 1, [may_raise];
    /// Sends the top value to the receiver: falls through with the value it yielded on top, jumps with the
    /// value it returned.
    send = Send { target: InstrId, receiver: SendReceiver }, "receiver value -- receiver yielded",
        2 => 2, taken 2 => 1 + (receiver == $crate::operand::SendReceiver::Kept) as u32, [may_raise, jumps];
    /// Drops the receiver below the result.
    end_send = EndSend {}, "receiver result -- result", 2 => 1, [];
    /// An exception thrown in at a `send`: a StopIteration becomes its value, others are raised again.
    cleanup_throw = CleanupThrow {}, "receiver sent exception -- None value", 3 => 2, [may_raise];
    /// The point where a frame starts or continues: the eval breaker is looked at.
    resume = Resume { origin: ResumeOrigin }, "--", 0 => 0, [may_raise];
    /// The awaitable's iterator.
    get_awaitable = GetAwaitable { origin: AwaitOrigin }, "awaitable -- iterator", 1 => 1, [may_raise];
    /// `aiter(value)`
    get_aiter = GetAiter {}, "iterable -- async_iterator", 1 => 1, [may_raise];
    /// Pushes the awaitable of the async iterator's next value.
    get_anext = GetAnext {}, "async_iterator -- async_iterator awaitable", 1 => 2, [may_raise];
    /// Ends an `async for` on StopAsyncIteration; raises other exceptions again.
    end_async_for = EndAsyncFor {}, "async_iterator exception --", 2 => 0, [may_raise];

    // ---- calls ----
    /// Calls with `argc` arguments (keyword ones included) above the two leading slots of `layout`.
    call = Call { argc: u32, kw: KwNames, layout: CallLayout }, "slot0 slot1 args… [names] -- result",
        argc.saturating_add(2 + kw.slots()) => 1, [may_raise];
    /// `callable(*args, **kwargs)`: a tuple or iterable of positional ones, a mapping when `has_kwargs`.
    call_function_ex = CallFunctionEx { has_kwargs: bool, layout: CallLayout },
        "slot0 slot1 args [kwargs] -- result", 3 + has_kwargs as u32 => 1, [may_raise];
    /// Applies an interpreter helper to one or two operands.
    intrinsic = Intrinsic { op: Intrinsic }, "operands… -- result", op.operands() => 1, [may_raise];

    // ---- functions, classes, modules ----
    /// Makes a function from a code object and the attributes below it.
    make_function = MakeFunction { flags: FunctionFlags }, "attributes… code -- function",
        1 + flags.count() => 1, [may_raise];
    /// Sets one attribute of the function on top from the value below it.
    set_function_attribute = SetFunctionAttribute { attribute: FunctionAttribute },
        "value function -- function", 2 => 1, [];
    /// Pushes `builtins.__build_class__`.
    load_build_class = LoadBuildClass {}, "-- function", 0 => 1, [may_raise];
    /// Makes sure the locals mapping has an `__annotations__` dict.
    setup_annotations = SetupAnnotations {}, "--", 0 => 0, [may_raise];
    /// `__import__(name, globals, locals, fromlist, level)`
    import_name = ImportName { name: NameId }, "level fromlist -- module", 2 => 1, [may_raise];
    /// Pushes an attribute (or submodule) of the module on top.
    import_from = ImportFrom { name: NameId }, "module -- module value", 1 => 2, [may_raise];

    // ---- with ----
    /// Pushes the bound `__exit__` and the result of `__enter__()`.
    before_with = BeforeWith {}, "manager -- exit entered", 1 => 2, [may_raise];
    /// Pushes the bound `__aexit__` and the awaitable of `__aenter__()`.
    before_async_with = BeforeAsyncWith {}, "manager -- exit awaitable", 1 => 2, [may_raise];
    /// Calls `exit(type, exception, traceback)` and pushes its result.
    with_except_start = WithExceptStart {}, "exit lasti previous exception -- exit lasti previous exception result",
        4 => 5, [may_raise];

    // ---- exceptions ----
    /// Makes the exception on top the handled one, pushing the previously handled one below it.
    push_exc_info = PushExcInfo {}, "exception -- previous exception", 1 => 2, [];
    /// Pops the previously handled exception and reinstates it.
    pop_except = PopExcept {}, "previous --", 1 => 0, [];
    /// Whether the exception below matches the popped type.
    check_exc_match = CheckExcMatch {}, "exception type -- exception bool", 2 => 2, [may_raise];
    /// Splits an exception group by the popped type: what is left (or None), what matched (or None).
    check_eg_match = CheckEgMatch {}, "exception type -- rest match", 2 => 2, [may_raise];
    /// Raises the popped exception again. If `lasti_depth` is not 0, the instruction it is attributed to is the
    /// integer `lasti_depth` below the exception.
    reraise = Reraise { lasti_depth: u32 }, "[lasti …] exception --", lasti_depth.saturating_add(1) => lasti_depth,
        [may_raise, ends];
    /// `raise`, `raise exception`, `raise exception from cause` by `count`.
    raise_varargs = RaiseVarargs { count: u32 }, "[exception [cause]] --", count => 0, [may_raise, ends];
    /// Pushes AssertionError.
    load_assertion_error = LoadAssertionError {}, "-- type", 0 => 1, [];

    // ---- match ----
    /// Class pattern with `count` positional sub-patterns: a tuple of attributes, or None.
    match_class = MatchClass { count: u32 }, "subject type names -- attributes|None", 3 => 1, [may_raise];
    /// Whether the subject is a mapping.
    match_mapping = MatchMapping {}, "subject -- subject bool", 1 => 2, [];
    /// Whether the subject is a sequence.
    match_sequence = MatchSequence {}, "subject -- subject bool", 1 => 2, [];
    /// The subject's values for a tuple of keys as a tuple, or None.
    match_keys = MatchKeys {}, "subject keys -- subject keys values|None", 2 => 3, [may_raise];
    /// `len(subject)`
    get_len = GetLen {}, "subject -- subject length", 1 => 2, [may_raise];
    }};
}

/// Values taken from and put onto the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackEffect {
    /// Values that must be on the stack and are removed.
    pub pops: u32,
    /// Values put in their place.
    pub pushes: u32,
}

/// Properties of an instruction that don't depend on its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// It can raise a Python exception.
    pub may_raise: bool,
    /// It has a jump target.
    pub jumps: bool,
    /// It never falls through to the next instruction.
    pub ends: bool,
}

impl Flags {
    const NONE: Flags = Flags { may_raise: false, jumps: false, ends: false };
}

macro_rules! taken_effect {
    () => {
        None
    };
    ($pops:expr, $pushes:expr) => {
        Some(StackEffect { pops: $pops, pushes: $pushes })
    };
}

macro_rules! flags {
    ($($flag:ident),*) => { Flags { $($flag: true,)* ..Flags::NONE } };
}

macro_rules! define_instr {
    ([] $($(#[$doc:meta])* $method:ident = $variant:ident { $($operand:ident : $ty:ident),* }, $stack:literal,
        $pops:expr => $pushes:expr $(, taken $tpops:expr => $tpushes:expr)?, [$($flag:ident),*];)*) => {
        /// One neutral instruction with its operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Instr {
            $($(#[$doc])* #[doc = concat!("\n\nStack: `", $stack, "`")]
            $variant { $(#[allow(missing_docs, reason = "the row's doc explains its operands")]
                $operand: $crate::operand::$ty),* },)*
        }

        impl Instr {
            /// The names of all instructions, in table order.
            pub const MNEMONICS: &'static [&'static str] = &[$(stringify!($method),)*];

            /// The instruction's name.
            pub fn mnemonic(&self) -> &'static str {
                match self { $(Instr::$variant { .. } => stringify!($method),)* }
            }

            /// The text of its stack effect on fall-through, top of the stack last.
            pub fn stack_text(&self) -> &'static str {
                match self { $(Instr::$variant { .. } => $stack,)* }
            }

            /// Its operand-independent properties.
            #[allow(clippy::needless_update, reason = "some rows set every flag")]
            pub fn flags(&self) -> Flags {
                match self { $(Instr::$variant { .. } => flags!($($flag),*),)* }
            }

            /// Its effect on the value stack when it falls through (or, for those that end a block, leaves).
            #[allow(unused_variables, reason = "most effects don't depend on the operands")]
            pub fn stack_effect(&self) -> StackEffect {
                match *self { $(Instr::$variant { $($operand),* } => {
                    StackEffect { pops: $pops, pushes: $pushes }
                })* }
            }

            /// Its effect on the value stack when its jump is taken; `None` if it has no target.
            #[allow(unused_variables, reason = "most effects don't depend on the operands")]
            pub fn taken_effect(&self) -> Option<StackEffect> {
                match *self { $(Instr::$variant { $($operand),* } => taken_effect!($($tpops, $tpushes)?),)* }
            }
        }

        impl std::fmt::Display for Instr {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self { $(Instr::$variant { $($operand),* } => {
                    f.write_str(stringify!($method))?;
                    $($crate::operand::Operand::write($operand, stringify!($operand), f)?;)*
                    Ok(())
                })* }
            }
        }
    };
}

for_each_instr!(define_instr![]);

impl Instr {
    /// Where its jump goes, for those that have one.
    pub fn target(&self) -> Option<crate::operand::InstrId> {
        match *self {
            Instr::Jump { target, .. }
            | Instr::PopJumpIf { target, .. }
            | Instr::JumpIfOrPop { target, .. }
            | Instr::ForIter { target }
            | Instr::Send { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Its jump target, for decoders that resolve targets after all instructions are known.
    pub(crate) fn target_mut(&mut self) -> Option<&mut crate::operand::InstrId> {
        match self {
            Instr::Jump { target, .. }
            | Instr::PopJumpIf { target, .. }
            | Instr::JumpIfOrPop { target, .. }
            | Instr::ForIter { target }
            | Instr::Send { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Whether it can raise a Python exception, given its operands. Polling the eval breaker can: a signal
    /// handler or another thread may raise into the frame there.
    pub fn may_raise(&self) -> bool {
        use crate::operand::Condition;
        match *self {
            Instr::LoadFast { checked, .. } => checked,
            Instr::Jump { polls, .. } => polls,
            Instr::PopJumpIf { condition: Condition::None | Condition::NotNone, polls, .. } => polls,
            _ => self.flags().may_raise,
        }
    }

    /// Whether execution can continue at the next instruction.
    pub fn falls_through(&self) -> bool {
        !self.flags().ends
    }
}

/// Defines a trait with one required method per instruction, and the function that calls the right one.
///
/// ```
/// oxy_bytecode::define_visitor! {
///     /// Performs single instructions.
///     pub trait Step(next: u32) -> Result<u32, String>;
///     pub fn dispatch;
/// }
/// ```
///
/// gives `trait Step { fn load_fast(&mut self, var: Var, checked: bool, next: u32) -> Result<u32, String>; … }`
/// and `fn dispatch<V: Step + ?Sized>(visitor: &mut V, instr: &Instr, next: u32) -> Result<u32, String>`.
/// An implementation that forgets an instruction doesn't compile.
#[macro_export]
macro_rules! define_visitor {
    ($(#[$doc:meta])* $vis:vis trait $trait:ident ($($arg:ident : $argty:ty),* $(,)?) -> $ret:ty;
     $(#[$fdoc:meta])* $fvis:vis fn $dispatch:ident;) => {
        $crate::for_each_instr!($crate::define_visitor_rows![
            ($(#[$doc])*) ($vis) $trait ($(($arg : $argty))*) ($ret) ($(#[$fdoc])*) ($fvis) $dispatch
        ]);
    };
}

/// The row-consuming half of [`define_visitor!`](crate::define_visitor).
#[doc(hidden)]
#[macro_export]
macro_rules! define_visitor_rows {
    ([($(#[$tdoc:meta])*) ($vis:vis) $trait:ident $args:tt ($ret:ty) ($(#[$fdoc:meta])*) ($fvis:vis) $dispatch:ident]
     $($(#[$doc:meta])* $method:ident = $variant:ident { $($operand:ident : $ty:ident),* }, $stack:literal,
        $pops:expr => $pushes:expr $(, taken $tpops:expr => $tpushes:expr)?, [$($flag:ident),*];)*) => {
        $(#[$tdoc])*
        $vis trait $trait {
            $($crate::visitor_method!($(#[$doc])* $method ($($operand : $ty),*) $args ($ret));)*
        }

        $crate::visitor_dispatch!(($(#[$fdoc])*) ($fvis) $dispatch $trait $args ($ret)
            $($method $variant { $($operand),* })*);
    };
}

/// One method of a visitor trait.
#[doc(hidden)]
#[macro_export]
macro_rules! visitor_method {
    ($(#[$doc:meta])* $method:ident ($($operand:ident : $ty:ident),*) ($(($arg:ident : $argty:ty))*) ($ret:ty)) => {
        $(#[$doc])*
        fn $method(&mut self $(, $operand: $crate::operand::$ty)* $(, $arg: $argty)*) -> $ret;
    };
}

/// The dispatch function of a visitor trait.
#[doc(hidden)]
#[macro_export]
macro_rules! visitor_dispatch {
    (($(#[$fdoc:meta])*) ($fvis:vis) $dispatch:ident $trait:ident ($(($arg:ident : $argty:ty))*) ($ret:ty) $($rows:tt)*) => {
        $(#[$fdoc])*
        $fvis fn $dispatch<V: $trait + ?Sized>(
            visitor: &mut V, instr: &$crate::Instr $(, $arg: $argty)*
        ) -> $ret {
            $crate::visitor_match!(visitor instr ($($arg)*) [] $($rows)*)
        }
    };
}

/// Accumulates the arms of a dispatch function (the extra arguments repeat in every arm).
#[doc(hidden)]
#[macro_export]
macro_rules! visitor_match {
    ($visitor:ident $instr:ident $args:tt [$(($method:ident $variant:ident { $($operand:ident),* }))*]) => {
        match *$instr {
            $($crate::Instr::$variant { $($operand),* } =>
                $crate::visitor_call!($visitor $method ($($operand)*) $args),)*
        }
    };
    ($visitor:ident $instr:ident $args:tt [] $($method:ident $variant:ident { $($operand:ident),* })+) => {
        $crate::visitor_match!($visitor $instr $args [$(($method $variant { $($operand),* }))+])
    };
}

/// One call of a visitor's method.
#[doc(hidden)]
#[macro_export]
macro_rules! visitor_call {
    ($visitor:ident $method:ident ($($operand:ident)*) ($($arg:ident)*)) => {
        $visitor.$method($($operand,)* $($arg,)*)
    };
}

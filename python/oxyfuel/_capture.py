"""Fake tensors, and the recording of ATen operators called on them.

A ``Capture`` is one trace. ``input`` gives a fake for a real tensor; ``call`` performs any torch callable on
fakes, and every ATen operator that reaches the dispatcher below autograd is recorded in the engine's
``GraphBuilder`` in the same pass. The metadata of results is found by a rule (``_shapes``), by the operator's
meta kernel where that is cheap, by running the operator on zeros where these are small, or by torch's own fake
tensors, which know every operator but import Dynamo; what was found is kept, so that a layer seen before costs
a look-up.

Promises: a fake has a real tensor's sizes, strides, offset, dtype, device, requires_grad and place in the
autograd graph, so composite operators choose what they choose in eager; nothing is drawn from a random
generator and no data of the program is touched; no dispatch mode is left behind, also when a call raises. An
operator whose result depends on data raises ``DataDependent``; one that can't be part of a graph,
``NotCapturable``; other exceptions are the operator's own, with eager's text where the operator can run on zeros.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from oxyfuel import _engine, _shapes
from oxyfuel._meta import Meta, meta

aten = torch.ops.aten
_push = torch._C._push_on_torch_dispatch_stack
_pop = torch._C._pop_torch_dispatch_stack
_make_wrapper_subclass = Tensor._make_wrapper_subclass


class CaptureError(Exception):
    """Base of what a trace raises on its own account."""


class DataDependent(CaptureError):
    """The result, or its shape, depends on the values of tensors."""


class NotCapturable(CaptureError):
    """A tensor or an operator that graphs don't have."""


class Fake(Tensor):
    """A tensor's metadata and place in the autograd graph, without data."""

    _meta: Meta
    _root: object
    """Stands for the storage: views share it with their base."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotCapturable(f"{func} of a fake tensor outside of its trace")

    @property
    def fake_device(self) -> torch.device:
        return self._meta.device

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Fake({tuple(self.shape)}, {self.dtype}, {self.device})"

    def tolist(self) -> Any:
        if self.dim() == 0:
            return self.item()
        raise DataDependent("Tensor.tolist")

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def numpy(self, *, force: bool = False) -> Any:
        raise DataDependent("Tensor.numpy")

    def __array__(self, dtype: Any = None) -> Any:
        raise DataDependent("Tensor.__array__")


def _fake(m: Meta, requires_grad: bool = False) -> Fake:
    made = _make_wrapper_subclass(
        Fake, m.shape, strides=m.stride, storage_offset=m.offset, dtype=m.dtype, device=m.device,
        requires_grad=requires_grad,
    )  # fmt: skip
    made._meta = m
    return made


class _Recorder(TorchDispatchMode):
    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture


def _record(self: _Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return self.capture.dispatch(func, args, kwargs or {})


# Not in the class body: there torch wraps the method to hide it from Dynamo, which it imports for that.
_Recorder.__torch_dispatch__ = _record  # type: ignore[method-assign]


class Capture:
    """One trace: fakes of its inputs, calls on them, and the recorded graph."""

    def __init__(self) -> None:
        self.builder = _engine.GraphBuilder()
        self.constants: list[Tensor] = []
        """Real tensors that the graph refers to by itself: its last inputs, in this order."""
        self._recorder = _Recorder(self)
        self._inputs: dict[int, Fake] = {}
        self._lifted: dict[int, Fake] = {}
        self._real: list[Tensor] = []  # keeps alive what `_inputs` and `_lifted` know by address
        self._outside: set[int] = set()  # addresses of fakes that stand for real tensors
        self._recording = True
        self._state: Any = None

    def enter(self) -> None:
        """Begin: from here to ``exit``, grad mode and autocast belong to the trace."""
        self._state = _thread_state()

    def exit(self) -> None:
        """End: the thread's state is again what it was at ``enter``."""
        if self._state is not None:
            state, self._state = self._state, None
            _restore_thread_state(state)

    def input(self, tensor: Tensor, index: int | None = None) -> Fake:
        """The fake of a real tensor that is the graph's next input. The same tensor gives the same fake."""
        known = self._inputs.get(id(tensor))
        fake = self._fake_of(tensor)
        self.builder.input(fake)
        self._outside.add(id(fake))
        if known is not None:
            return known  # the graph's input of that number is not used
        self._inputs[id(tensor)] = fake
        return fake

    def call(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """``fn`` on fakes. Recorded operators of a call that raises are the caller's to roll back."""
        _push(self._recorder)
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        except RuntimeError as error:
            if "data is not allocated yet" in str(error):
                raise DataDependent("the data of a tensor") from None
            raise
        finally:
            _pop(None)

    def mark(self) -> int:
        """A point to which ``rollback`` returns."""
        return self.builder.mark()

    def rollback(self, mark: int) -> None:
        """Drop the operators recorded since the mark; their results must not be used any more."""
        self.builder.rollback(mark)

    def storage_of(self, fake: Fake) -> object:
        """An object that fakes have in common if, and only if, they share memory."""
        return fake._root

    def finish(self, outputs: Sequence[Fake]) -> Any:
        """The recorded graph (``_engine.Graph``) that gives ``outputs``."""
        return self.builder.finish(list(outputs))

    # -- Tensors ---------------------------------------------------------------------------------------------------

    def _fake_of(self, tensor: Tensor) -> Fake:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NotCapturable(f"a tensor of layout {tensor.layout}")
        if tensor.is_conj() or tensor.is_neg():
            raise NotCapturable("a lazily conjugated or negated tensor")
        kind = meta(tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)
        if tensor.is_inference() == torch.is_inference_mode_enabled():
            fake = _fake(kind, tensor.requires_grad)
        else:
            with torch.inference_mode(tensor.is_inference()):
                fake = _fake(kind, tensor.requires_grad)
        root = ("storage", tensor.untyped_storage()._cdata)
        self._real.append(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            self._recording = False
            try:
                with torch.enable_grad():
                    fake = self.call(torch.clone, (fake,))
            finally:
                self._recording = True
        fake._root = root
        return fake

    def _constant(self, tensor: Tensor) -> Fake:
        """The fake of a real tensor that an operator meets inside the trace."""
        fake = self._inputs.get(id(tensor))
        if fake is None:
            fake = self._lifted.get(id(tensor))
        if fake is None:
            if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
                raise NotCapturable(f"a {type(tensor).__name__} inside of a trace")
            fake = self._fake_of(tensor)
            self.builder.constant(fake)
            self.constants.append(tensor)
            self._outside.add(id(fake))
            self._lifted[id(tensor)] = fake
        return fake

    def _lift(self, values: Any) -> Any:
        """Arguments with real tensors replaced by fakes of constants."""
        if type(values) is dict:
            return {name: self._lift(value) for name, value in values.items()}
        if type(values) in (list, tuple):
            return type(values)([self._lift(value) for value in values])
        if isinstance(values, Tensor) and type(values) is not Fake:
            return self._constant(values)
        return values

    # -- Operators -------------------------------------------------------------------------------------------------

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one ATen operator; no mode and no autograd is active here."""
        if not self._recording:
            return _fake(args[0]._meta)
        op = _operators.get(func) or _describe(func)
        if op.special is not None:
            out = op.special(self, op, args, kwargs)
            if out is not NotImplemented:
                return out
        key: list[Any] = [func, torch.get_default_dtype()]
        fakes: list[Fake] = []
        if not (_scan(args, key, fakes) and _scan_keywords(kwargs, key, fakes)):
            args, kwargs = self._lift(args), self._lift(kwargs)
            del key[2:]
            fakes.clear()
            _scan(args, key, fakes)
            _scan_keywords(kwargs, key, fakes)
        found = tuple(key)
        result = _results.get(found)
        if result is None:
            result = _infer(op, args, kwargs, fakes)
            if len(_results) >= _RESULTS_MAX:
                _results.clear()
            _results[found] = result
        if type(result) is Meta:
            out = _fake(result)
            out._root = fakes[0]._root if op.is_view else object()
        elif type(result) is int:
            out = fakes[result]
        else:
            out = _build(result, fakes, op.is_view)
        self.builder.add(op.name, args, kwargs, out)
        return out


# -- What is known of an operator ----------------------------------------------------------------------------------


class _Operator:
    """Facts about an operator, read once from its schema."""

    __slots__ = ("func", "is_direct", "is_pure", "is_view", "name", "rule", "special")

    def __init__(self, func: Any) -> None:
        self.func = func
        self.name = str(func)
        schema = func._schema
        tags = set(func.tags)
        short = self.name.removeprefix("aten.").removesuffix(".default")
        rule = _shapes.RULES.get(short)
        if torch.Tag.inplace in tags or short.partition(".")[0].endswith("_"):
            name, dot, overload = short.partition(".")
            rule = _shapes.in_place(_shapes.RULES.get(name.removesuffix("_") + dot + overload), short)
        self.rule: Callable[..., Any] | None = rule if self.name.startswith("aten.") else None
        aliases = [result.alias_info for result in schema.returns]
        self.is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.is_direct = func in _DIRECT
        # Running it on other tensors changes nothing else, and checks nothing about their data.
        self.is_pure = self.name.startswith("aten.") and torch.Tag.nondeterministic_seeded not in tags and bool(aliases)
        self.special: Callable[..., Any] | None = None
        if func in _SPECIAL:
            self.special = _SPECIAL[func]
        elif torch.Tag.inplace_view in tags:
            self.special = _in_place_view
        elif torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
            self.special = _refuse_data_dependent
        elif schema.name.startswith("profiler::"):
            self.special = _refuse
        elif torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            self.special = _decompose


_operators: dict[Any, _Operator] = {}


def _describe(func: Any) -> _Operator:
    op = _operators[func] = _Operator(func)
    return op


def _refuse(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    raise NotCapturable(op.name)


def _refuse_data_dependent(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    raise DataDependent(op.name)


def _decompose(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    """Under inference mode composite operators arrive whole."""
    return capture.call(op.func.decompose, args, kwargs)


def _scalar(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    """``item()``: known of a tensor that was made from Python numbers and not written since."""
    known = getattr(args[0], "_known", None)
    if known is None or known[1] != args[0]._version:
        raise DataDependent("the value of a tensor")
    return known[0].item()


def _lift_fresh(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    """``torch.tensor(data)``: the data is a constant, and each run has a tensor of its own."""
    if type(args[0]) is Fake:
        return capture.dispatch(aten.alias.default, args, kwargs)
    out = capture.dispatch(aten.lift_fresh_copy.default, args, kwargs)
    out._known = (args[0], out._version)
    return out


def _index(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    for index in args[1]:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            raise DataDependent("indexing by a mask")
    return NotImplemented


def _repeat_interleave(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    if kwargs.get("output_size") is None:
        raise DataDependent(op.name)
    return NotImplemented


def _detach(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    """Autograd forgets the history by itself; nothing is computed."""
    return args[0]


def _in_place_view(capture: Capture, op: _Operator, args: Any, kwargs: Any) -> Any:
    """A tensor of this trace that changes its shape: recorded as the view operator, whose result it becomes."""
    view_op = _VIEWS_IN_PLACE.get(op.func)
    if view_op is None or type(args[0]) is not Fake or id(args[0]) in capture._outside:
        raise NotCapturable(op.name)
    view = capture.dispatch(view_op, args, kwargs)
    guard = torch._C._DisableTorchDispatch()
    try:
        op.func(*args, **kwargs)
    finally:
        del guard
    args[0]._meta = view._meta
    capture.builder.rebind(args[0], view)
    return args[0]


_VIEWS_IN_PLACE = {
    aten.as_strided_.default: aten.as_strided.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.unsqueeze_.default: aten.unsqueeze.default,
}

_SPECIAL: dict[Any, Callable[..., Any]] = {
    aten._local_scalar_dense.default: _scalar,
    aten.item.default: _scalar,
    aten.lift_fresh.default: _lift_fresh,
    aten.lift.default: _lift_fresh,
    aten.detach_.default: _detach,
    aten.index.Tensor: _index,
    aten.repeat_interleave.Tensor: _repeat_interleave,
}

_DIRECT = frozenset(
    getattr(getattr(aten, name.partition(".")[0]), name.partition(".")[2] or "default")
    for name in (
        "_conj _reshape_alias _to_copy alias arange.start_step as_strided clone contiguous detach diagonal expand "
        "lift_fresh_copy permute select.int slice.Tensor split.Tensor split_with_sizes squeeze squeeze.dim "
        "squeeze.dims t transpose.int unbind.int unfold unsqueeze view view.dtype view_as_real"
    ).split()
)
"""Operators whose meta kernel is C++, or composed of such: quick, and without imports."""


# -- Results -------------------------------------------------------------------------------------------------------


class _Sequence:
    """A tuple or list of results."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: type, items: Sequence[Any]) -> None:
        self.kind = kind
        self.items = tuple(items)


class _Value:
    """A result that is not a tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_results: dict[tuple[Any, ...], Any] = {}
"""What operators give, by operator and arguments: a Meta, the number of a tensor argument, or one of the above."""
_RESULTS_MAX = 1 << 14


_LITERALS = frozenset(
    {bool, float, complex, str, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format}
)


def _scan(values: Any, key: list[Any], fakes: list[Fake]) -> bool:
    """Appends the arguments to the key and to the fakes; False when there is a real tensor among them."""
    for value in values:
        kind = type(value)
        if kind is Fake:
            key.append(value._meta)
            fakes.append(value)
        elif kind is int or value is None:
            key.append(value)
        elif kind is list or kind is tuple:
            key.append((kind, len(value)))
            if not _scan(value, key, fakes):
                return False
        elif isinstance(value, Tensor):
            return False
        elif kind in _LITERALS:  # with its type: 1, 1.0 and True are equal
            key.append((kind, value))
        elif kind is torch.Generator:
            key.append(kind)
        else:
            key.append(object())  # never found again
    return True


def _scan_keywords(keywords: dict[str, Any], key: list[Any], fakes: list[Fake]) -> bool:
    key.extend(keywords)
    return _scan(keywords.values(), key, fakes)


def _build(result: Any, fakes: list[Fake], is_view: bool) -> Any:
    kind = type(result)
    if kind is Meta:
        out = _fake(result)
        out._root = fakes[0]._root if is_view else object()
        return out
    if kind is int:
        return fakes[result]
    if kind is _Sequence:
        return result.kind([_build(item, fakes, is_view) for item in result.items])
    return result.value


def _infer(op: _Operator, args: Any, kwargs: Any, fakes: list[Fake]) -> Any:
    """The results of an operator that was not met before."""
    device = _common_device(fakes)
    run_bytes_max = _RUN_BYTES_MAX if "torch._dynamo" in sys.modules else _RUN_ALONE_BYTES_MAX
    if device is not None and op.rule is not None:
        try:
            result = op.rule(*_metas(args), **_metas(kwargs))
        except Exception:  # a rule covers valid calls; eager says what is wrong with the others
            if _can_run(op, kwargs, fakes, _RUN_WRONG_BYTES_MAX):
                return _by_running(op, args, kwargs, fakes)
            result = None
        if result is not None:
            return _Sequence(tuple, result) if type(result) is tuple else result
    wrong: Exception | None = None
    if device is not None and op.is_direct:
        try:
            return _by_meta_kernel(op, args, kwargs, fakes, device)
        except Exception as error:
            wrong, run_bytes_max = error, _RUN_WRONG_BYTES_MAX
    if _can_run(op, kwargs, fakes, run_bytes_max):
        try:
            return _by_running(op, args, kwargs, fakes)
        except Exception as error:
            wrong = error
    try:
        return _by_torch(op, args, kwargs, fakes)
    except CaptureError:
        raise
    except Exception as error:
        if wrong is None and _can_run(op, kwargs, fakes, _RUN_WRONG_BYTES_MAX):
            return _by_running(op, args, kwargs, fakes)
        raise wrong or error from None


_RUN_BYTES_MAX = 1 << 22
"""Size of arguments up to which an operator without rule runs on zeros."""
_RUN_ALONE_BYTES_MAX = 1 << 26
"""The same while torch's fake tensors are not in use: they take seconds to load."""
_RUN_WRONG_BYTES_MAX = 1 << 28
"""The same for a call that seems wrong."""


def _can_run(op: _Operator, kwargs: Any, fakes: list[Fake], bytes_max: int) -> bool:
    if not op.is_pure or kwargs.get("generator") is not None:
        return False
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    metas = [fake._meta for fake in fakes]
    return all(m.device.type == "cpu" for m in metas) and sum(m.storage_bytes() for m in metas) <= bytes_max


def _by_running(op: _Operator, args: Any, kwargs: Any, fakes: list[Fake]) -> Any:
    """The operator on zeros: eager's metadata, and for wrong calls eager's errors, word for word."""
    made = {id(fake): _zeros(fake._meta) for fake in fakes}
    out = op.func(*_map(args, lambda f: made[id(f)]), **_map(kwargs, lambda f: made[id(f)]))
    return _describe_result(out, [made[id(fake)] for fake in fakes], lambda tensor: tensor.device)


def _zeros(m: Meta) -> Tensor:
    storage = torch.zeros(m.storage_bytes(), dtype=torch.uint8).untyped_storage()
    made = torch.empty(0, dtype=m.dtype)
    return made.set_(storage, m.offset, m.shape, m.stride)  # type: ignore[call-overload]


def _common_device(fakes: list[Fake]) -> torch.device | None:
    """The device of the results; None where torch has to find out."""
    if not fakes:
        return torch.device("cpu")
    device = fakes[0]._meta.device
    for fake in fakes:
        if fake._meta.device != device:
            return None
    return device


def _map(values: Any, change: Callable[[Fake], Any]) -> Any:
    if type(values) is dict:
        return {name: _map(value, change) for name, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)([_map(value, change) for value in values])
    return change(values) if type(values) is Fake else values


def _metas(values: Any) -> Any:
    return _map(values, lambda fake: fake._meta)


def _by_meta_kernel(op: _Operator, args: Any, kwargs: Any, fakes: list[Fake], device: torch.device) -> Any:
    if "device" in kwargs and kwargs["device"] is not None:
        device = torch.device(kwargs["device"])
        if device.type != "cpu" and device.index is None:
            return _by_torch(op, args, kwargs, fakes)
    if "device" in kwargs or not fakes:
        kwargs = {**kwargs, "device": torch.device("meta")}
        kwargs.pop("pin_memory", None)
    out = op.func(*_map(args, lambda fake: fake._meta.tensor()), **_map(kwargs, lambda fake: fake._meta.tensor()))
    return _describe_result(out, [], lambda made: device)


def _by_torch(op: _Operator, args: Any, kwargs: Any, fakes: list[Fake]) -> Any:
    """torch's own fake tensors: every operator, with its checks, custom operators and devices."""
    from torch._subclasses import fake_tensor as torch_fake

    mode = torch_fake.FakeTensorMode(shape_env=None)
    was_disabled, torch_fake.log.disabled = torch_fake.log.disabled, True  # it logs what it raises
    try:
        return _in_torch_mode(torch_fake, mode, op, args, kwargs, fakes)
    finally:
        torch_fake.log.disabled = was_disabled


def _in_torch_mode(torch_fake: Any, mode: Any, op: _Operator, args: Any, kwargs: Any, fakes: list[Fake]) -> Any:
    with mode:
        made = {id(fake): _torch_fake(fake._meta) for fake in fakes}
        kwargs = {name: None if type(value) is torch.Generator else value for name, value in kwargs.items()}
        try:
            out = op.func(*_map(args, lambda f: made[id(f)]), **_map(kwargs, lambda f: made[id(f)]))
        except (torch_fake.DataDependentOutputException, torch_fake.DynamicOutputShapeException):
            raise DataDependent(op.name) from None
        except torch_fake.UnsupportedOperatorException:
            raise NotCapturable(op.name) from None
    return _describe_result(out, [made[id(fake)] for fake in fakes], lambda tensor: tensor.device)


def _torch_fake(m: Meta) -> Tensor:
    made = torch.empty_strided(m.shape, m.stride, dtype=m.dtype, device=m.device)
    return made.as_strided(m.shape, m.stride, m.offset) if m.offset else made


def _describe_result(out: Any, arguments: list[Tensor], device_of: Callable[[Tensor], torch.device]) -> Any:
    if isinstance(out, Tensor):
        for number, argument in enumerate(arguments):
            if out is argument:
                return number
        if out.is_conj() or out.is_neg() or out.layout is not torch.strided:
            raise NotCapturable("a result that is sparse, or lazily conjugated or negated")
        return meta(tuple(out.shape), out.stride(), out.storage_offset(), out.dtype, device_of(out))
    if isinstance(out, (list, tuple)):
        kind = list if isinstance(out, list) else tuple
        return _Sequence(kind, [_describe_result(item, arguments, device_of) for item in out])
    return _Value(out)


# -- The thread's state --------------------------------------------------------------------------------------------

_AUTOCAST_DEVICES = ("cpu", "cuda")


def _thread_state() -> tuple[Any, ...]:
    autocast = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _AUTOCAST_DEVICES]
    torch.autocast_increment_nesting()
    return torch.is_grad_enabled(), autocast, torch.is_autocast_cache_enabled(), torch.autocast_decrement_nesting()


def _restore_thread_state(state: tuple[Any, ...]) -> None:
    is_grad_enabled, autocast, is_cache_enabled, nesting = state
    if torch.is_grad_enabled() != is_grad_enabled:
        torch._C._set_grad_enabled(is_grad_enabled)
    for kind, (enabled, dtype) in zip(_AUTOCAST_DEVICES, autocast, strict=True):
        if enabled or torch.is_autocast_enabled(kind):
            torch.clear_autocast_cache()  # it may hold fakes
            torch.set_autocast_dtype(kind, dtype)
            torch.set_autocast_enabled(kind, enabled)
    torch.set_autocast_cache_enabled(is_cache_enabled)
    now = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    for _ in range(nesting, now):
        torch.autocast_decrement_nesting()


# -- Backend of torch.compile --------------------------------------------------------------------------------------


def torch_dynamo_backend(gm: Any, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    """``torch.compile(..., backend="oxyfuel")``: torch's capture, our backend.

    What our backend does not take (symbolic sizes, gradients, written inputs) runs as torch captured it.
    """
    if not all(isinstance(value, Tensor) for value in example_inputs):
        return gm.forward
    if torch.is_grad_enabled() and any(value.requires_grad for value in (*example_inputs, *gm.parameters())):
        return gm.forward
    capture = Capture()
    fakes = [capture.input(value) for value in example_inputs]
    versions = [fake._version for fake in fakes]
    capture.enter()
    try:
        results = capture.call(gm.forward, fakes)
    except CaptureError:
        return gm.forward
    finally:
        capture.exit()
    is_single = isinstance(results, Tensor)
    results = (results,) if is_single else tuple(results)
    # torch does not guard against written inputs that overlap others.
    is_written = [fake._version for fake in fakes] != versions
    if is_written or not all(value is None or type(value) is Fake for value in results):
        return gm.forward
    graph = capture.finish([value for value in results if value is not None])
    try:
        compiled = _engine.compile_graph(graph, capture.constants)
    except RuntimeError as error:
        logging.getLogger("oxyfuel").warning("backend: a graph runs as torch captured it: %s", error)
        return gm.forward
    slots = [value is not None for value in results]

    def run(*inputs: Any) -> Any:
        tensors = iter(compiled(*inputs))
        out = tuple(next(tensors) if slot else None for slot in slots)
        return out[0] if is_single else out

    return run

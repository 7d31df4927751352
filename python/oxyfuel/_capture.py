"""Fake tensors and the recording of ATen operators.

A `Fake` has a tensor's metadata and no data: it is a meta tensor that answers for another device (the
construction is `torch._subclasses.FakeTensor`'s, without its cache, symbolic shapes and imports). While a
`Capture` is entered, every operator that reaches the dispatcher below autograd runs its meta kernel on fakes
and is recorded in an engine `GraphBuilder`.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oxyfuel import _engine

aten = torch.ops.aten
_META = torch.device("meta")
_CPU = torch.device("cpu")


class DataDependent(Exception):
    """The result, or its shape, depends on the values of tensors."""


class _Kernel:
    """Whether a meta kernel is running: fakes then say that they are on the meta device."""

    running = False


class Fake(torch.Tensor):
    """A tensor's metadata."""

    fake_device: torch.device = _CPU  # until it is set: construction already asks

    @staticmethod
    def __new__(cls, meta: torch.Tensor, device: torch.device, requires_grad: bool = False) -> Fake:
        self = torch.Tensor._make_subclass(
            cls, meta, requires_grad, dispatch_device=True, device_for_backend_keys=device
        )
        self.fake_device = device
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return _META if _Kernel.running else self.fake_device

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Fake({tuple(self.shape)}, {self.dtype}, {self.fake_device})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return _META if _Kernel.running else args[0].fake_device
        raise RuntimeError(f"oxyfuel: {func} of a fake tensor outside of its trace")


@contextlib.contextmanager
def _meta_kernels() -> Any:
    included = torch._C._meta_in_tls_dispatch_include()
    guard = torch._C._DisableTorchDispatch()
    preserve = torch._C._PreserveDispatchKeyGuard()
    torch._C._set_meta_in_tls_dispatch_include(True)
    _Kernel.running = True
    try:
        yield
    finally:
        _Kernel.running = False
        torch._C._set_meta_in_tls_dispatch_include(included)
        del preserve, guard


_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_UNDECIDED = (aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default)


class _Recorder(TorchDispatchMode):
    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self.capture = capture

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.capture.dispatch(func, args, kwargs or {})

    # torch wraps the method so that Dynamo, which it imports for that, doesn't trace it: there is nothing to disable.
    setattr(__torch_dispatch__, "__dynamo_disable", __torch_dispatch__)


class Capture:
    """One trace: fakes of its inputs, calls on them, and the recorded graph."""

    def __init__(self) -> None:
        self.builder = _engine.GraphBuilder()
        self.recorder = _Recorder(self)
        self.constants: list[torch.Tensor] = []
        self.constant_fakes: list[Fake] = []
        self.kept: list[Any] = []
        self.storages: dict[int, torch.UntypedStorage] = {}

    def enter(self) -> None:
        self.recorder.__enter__()

    def exit(self) -> None:
        self.recorder.__exit__(None, None, None)

    def input(self, tensor: torch.Tensor, index: int) -> Fake:
        """The fake of a real tensor that the graph takes as input number ``index``."""
        with _paused():
            fake = self._fake(tensor)
        self.builder.input(fake)
        return fake

    def _fake(self, tensor: torch.Tensor) -> Fake:
        with torch.no_grad():
            address = tensor.untyped_storage()._cdata
            storage = self.storages.get(address)
            if storage is None:
                storage = torch.UntypedStorage(tensor.untyped_storage().nbytes(), device="meta")
                self.storages[address] = storage
            meta = torch.empty(0, dtype=tensor.dtype, device="meta")
            meta.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
        self.kept.append(tensor)
        fake = Fake(meta, tensor.device, tensor.requires_grad)
        return fake

    def mark(self) -> int:
        return self.builder.mark()

    def rollback(self, mark: int) -> None:
        self.builder.rollback(mark)

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``fn`` on fakes; the process's own random state stays as it is."""
        return fn(*args, **kwargs)

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in _UNDECIDED or not _DATA.isdisjoint(func.tags):
            raise DataDependent(str(func))
        fakes: list[Fake] = []
        args, kwargs = self._lift(args, fakes), {k: self._lift(v, fakes) for k, v in kwargs.items()}
        device = kwargs.get("device")
        if device is None:
            device = next((f.fake_device for f in fakes if f.dim() > 0), None)
            if device is None:
                device = fakes[0].fake_device if fakes else _CPU
        else:
            device = torch.device(device)
        if func is aten.lift_fresh.default or func is aten.lift.default:
            return args[0]
        if func is aten._to_copy.default or "device" in kwargs:
            run = {**kwargs, "device": _META}
        elif not fakes and _takes_device(func):
            run = {**kwargs, "device": _META}
        else:
            run = kwargs
        try:
            with _meta_kernels():
                out = func(*args, **run)
        except NotImplementedError:
            decomposed = func.decompose(*args, **kwargs) if func._can_decompose() else NotImplemented
            if decomposed is NotImplemented:
                raise
            return decomposed
        if isinstance(out, torch.Tensor):
            out = out if type(out) is Fake else Fake(out, device)
        elif isinstance(out, (tuple, list)):
            out = type(out)(
                Fake(item, device) if isinstance(item, torch.Tensor) and type(item) is not Fake else item
                for item in out
            )
        self.builder.add(_name(func), args, kwargs, out)
        return out

    def _lift(self, arg: Any, fakes: list[Fake]) -> Any:
        """Replaces real tensors by fakes of constants, and notes the fakes."""
        if type(arg) is Fake:
            fakes.append(arg)
            return arg
        if isinstance(arg, torch.Tensor):
            fake = self._constant(arg)
            fakes.append(fake)
            return fake
        if isinstance(arg, (list, tuple)) and any(isinstance(item, (torch.Tensor, list, tuple)) for item in arg):
            return type(arg)([self._lift(item, fakes) for item in arg])
        return arg

    def _constant(self, tensor: torch.Tensor) -> Fake:
        for known, fake in zip(self.constants, self.constant_fakes):
            if known is tensor:
                return fake
        with _paused():
            fake = self._fake(tensor)
        self.constants.append(tensor)
        self.constant_fakes.append(fake)
        self.builder.constant(fake)
        return fake

    def finish(self, outputs: list[Fake]) -> Any:
        """The recorded graph that gives ``outputs``; its inputs are the trace's, then the constants."""
        return self.builder.finish(outputs)


@contextlib.contextmanager
def _paused() -> Any:
    """Outside of any dispatch mode: for making fakes while a trace is going on."""
    guard = torch._C._DisableTorchDispatch()
    try:
        yield
    finally:
        del guard


_names: dict[Any, str] = {}


def _name(func: Any) -> str:
    name = _names.get(func)
    if name is None:
        name = _names[func] = str(func)
    return name


_devices: dict[Any, bool] = {}


def _takes_device(func: Any) -> bool:
    takes = _devices.get(func)
    if takes is None:
        takes = _devices[func] = any(argument.name == "device" for argument in func._schema.arguments)
    return takes


def torch_dynamo_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    """The backend of ``torch.compile(..., backend="oxyfuel")``."""
    tensors = all(isinstance(value, torch.Tensor) for value in example_inputs)
    if not tensors or (torch.is_grad_enabled() and any(value.requires_grad for value in example_inputs)):
        return gm.forward
    capture = Capture()
    fakes = [capture.input(value, index) for index, value in enumerate(example_inputs)]
    capture.enter()
    try:
        result = gm(*fakes)
    finally:
        capture.exit()
    outputs = [value for value in result if isinstance(value, torch.Tensor)]
    compiled = _engine.compile_graph(capture.finish(outputs), capture.constants)
    slots = [isinstance(value, torch.Tensor) for value in result]

    def run(*inputs: Any) -> Any:
        tensors = iter(compiled(*inputs))
        return tuple(next(tensors) if slot else value for slot, value in zip(slots, result))

    return run

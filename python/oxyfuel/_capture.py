"""Fake tensors for the tracer: what a torch call would give, without computing it."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)


class DataDependent(Exception):
    """The result depends on the values of tensors."""


class Capture:
    """One trace: fakes of its inputs, and calls on them."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=False)
        self.memo: dict[int, Any] = {}
        self.kept: list[Any] = []

    def enter(self) -> None:
        pass

    def exit(self) -> None:
        pass

    def input(self, tensor: torch.Tensor, index: int) -> Any:
        fake = self.mode.from_tensor(tensor, static_shapes=True)
        self.kept.append(tensor)
        return fake

    def mark(self) -> int:
        return 0

    def rollback(self, mark: int) -> None:
        pass

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with self.mode:
                return fn(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise DataDependent(str(error)) from error

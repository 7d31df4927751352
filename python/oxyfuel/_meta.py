"""Metadata of tensors: what fakes share, layouts, type promotion, and what TensorIterator allocates.

The rules are c10's and ATen's, written over plain tuples. Nothing here makes a tensor except ``Meta.tensor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Dims = tuple[int, ...]


class Meta:
    """Metadata that all fakes of one kind share. One object for equal metadata: compared by identity."""

    __slots__ = ("_tensor", "device", "dtype", "offset", "shape", "stride")

    def __init__(self, shape: Dims, stride: Dims, offset: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self.stride = stride
        self.offset = offset
        self.dtype = dtype
        self.device = device
        self._tensor: torch.Tensor | None = None

    def tensor(self) -> torch.Tensor:
        """A meta tensor like this."""
        if self._tensor is None:
            made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
            self._tensor = made.as_strided(self.shape, self.stride, self.offset) if self.offset else made
        return self._tensor

    def storage_bytes(self) -> int:
        """Of the smallest storage that holds it."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        return 0 if 0 in self.shape else (self.offset + last + 1) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"Meta({self.shape}, {self.stride}, {self.offset}, {self.dtype}, {self.device})"


_interned: dict[tuple[Any, ...], Meta] = {}
_INTERNED_MAX = 1 << 16


def meta(shape: Dims, stride: Dims, offset: int, dtype: torch.dtype, device: torch.device) -> Meta:
    """The ``Meta`` of these values."""
    key = (shape, stride, offset, dtype, device)
    found = _interned.get(key)
    if found is None:
        if len(_interned) >= _INTERNED_MAX:
            _interned.clear()  # those in use live on; equal ones made later are other objects, and miss the cache
        found = _interned[key] = Meta(tuple(shape), tuple(stride), offset, dtype, device)
    return found


def contiguous(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Meta:
    shape = tuple(shape)
    return meta(shape, contiguous_strides(shape), 0, dtype, device)


def contiguous_strides(shape: Dims) -> Dims:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def channels_last_strides(shape: Dims) -> Dims:
    """Of 4 or 5 dimensions."""
    strides = [0] * len(shape)
    step = 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _is_packed(m: Meta, order: Sequence[int]) -> bool:
    """Whether the dimensions, innermost first in ``order``, lie without gaps; size 1 fits anywhere."""
    step = 1
    for dim in order:
        size = m.shape[dim]
        if size != 1:
            if m.stride[dim] != step:
                return False
            step *= size
    return True


def is_contiguous(m: Meta) -> bool:
    return 0 in m.shape or _is_packed(m, range(len(m.shape) - 1, -1, -1))


def is_channels_last(m: Meta) -> bool:
    """Channels-last contiguous: 4 dimensions."""
    return len(m.shape) == 4 and _is_packed(m, (1, 3, 2, 0))


def is_dense(m: Meta) -> bool:
    """Non-overlapping and dense."""
    order = sorted(range(len(m.shape)), key=lambda dim: (m.shape[dim] < 2, m.stride[dim]))
    step = 1
    for dim in order:
        if m.shape[dim] < 2:
            return True
        if m.stride[dim] != step:
            return False
        step *= m.shape[dim]
    return True


def suggests_channels_last(m: Meta) -> bool:
    """``suggest_memory_format() == channels_last``: c10's is_channels_last_strides_2d."""
    if len(m.shape) != 4 or m.stride[1] == 0:
        return False
    least = 0
    for dim in (1, 3, 2, 0):
        if m.shape[dim] == 0 or m.stride[dim] < least:
            return False
        if dim == 0 and least == m.stride[1]:
            return False
        least = m.stride[dim]
        if m.shape[dim] > 1:
            least *= m.shape[dim]
    return True


def like(m: Meta, dtype: torch.dtype | None = None) -> Meta:
    """``empty_like(preserve_format)``."""
    if is_dense(m):
        return meta(m.shape, m.stride, 0, dtype or m.dtype, m.device)
    return _iterate([m], m.shape, dtype or m.dtype, m.device)


def like_format(m: Meta) -> Meta:
    """Contiguous in the memory format that the tensor suggests."""
    if suggests_channels_last(m):
        return meta(m.shape, channels_last_strides(m.shape), 0, m.dtype, m.device)
    return contiguous(m.shape, m.dtype, m.device)


# -- Types ---------------------------------------------------------------------------------------------------------


def is_meta(value: Any) -> bool:
    return type(value) is Meta


def category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1


def result_type(*operands: Any) -> torch.dtype:
    """torch's promotion: tensors with dimensions, then those without, then Python numbers."""
    ranks: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if is_meta(operand):
            rank, dtype = (0 if operand.shape else 1), operand.dtype
        elif isinstance(operand, bool):
            rank, dtype = 2, torch.bool
        elif isinstance(operand, int):
            rank, dtype = 2, torch.int64
        elif isinstance(operand, float):
            rank, dtype = 2, torch.get_default_dtype()
        else:
            raise TypeError("complex numbers are left to torch")
        known = ranks[rank]
        ranks[rank] = dtype if known is None else torch.promote_types(known, dtype)
    return _combine(ranks[0], _combine(ranks[1], ranks[2]))  # type: ignore[return-value]


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if category(higher) >= category(lower):
        return higher
    return torch.promote_types(higher, lower)


def broadcast(*shapes: Dims) -> Dims:
    rank = max(map(len, shapes))
    out = [1] * rank
    for shape in shapes:
        start = rank - len(shape)
        for dim, size in enumerate(shape):
            have = out[start + dim]
            if size != have:
                if have == 1:
                    out[start + dim] = size
                elif size != 1:
                    raise ValueError("shapes do not broadcast")
    return tuple(out)


# -- Elementwise ---------------------------------------------------------------------------------------------------


def pointwise(operands: Sequence[Any], dtype: torch.dtype) -> Meta:
    """The output that TensorIterator allocates. Numbers count as tensors without dimensions."""
    tensors = [operand for operand in operands if is_meta(operand)]
    first = tensors[0]
    device = first.device
    for tensor in tensors:
        if tensor.device != device:
            device = next(t.device for t in tensors if t.shape)
    shape = broadcast(*(t.shape for t in tensors))
    same = all(t.shape == shape for t in tensors) and (shape == () or len(tensors) == len(operands))
    if same:
        if all(map(is_contiguous, tensors)):
            return meta(shape, contiguous_strides(shape), 0, dtype, device)
        if all(map(is_channels_last, tensors)):
            return meta(shape, channels_last_strides(shape), 0, dtype, device)
        if all(t.stride == first.stride for t in tensors) and is_dense(first):
            return meta(shape, first.stride, 0, dtype, device)
    elif all(t.shape == shape or not t.shape for t in tensors) and all(is_contiguous(t) for t in tensors):
        # The general way, below, ends there too unless dimensions of size 1 are in the way.
        if 1 not in shape:
            return meta(shape, contiguous_strides(shape), 0, dtype, device)
    return _iterate(tensors, shape, dtype, device)


def _iterate(tensors: Sequence[Meta], shape: Dims, dtype: torch.dtype, device: torch.device) -> Meta:
    """TensorIterator's reorder_dimensions, and its allocation in that order."""
    rank = len(shape)
    strides = []
    for tensor in tensors:
        lead = rank - len(tensor.shape)
        own = [0] * lead
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride, strict=False)):
            own.append(0 if size == 1 and shape[lead + dim] != 1 else stride)
        strides.append(own)

    def compare(dim0: int, dim1: int) -> int:
        for own in strides:
            stride0, stride1 = own[dim0], own[dim1]
            if stride0 == 0 or stride1 == 0:
                continue
            if stride0 != stride1:
                return -1 if stride0 < stride1 else 1
            if shape[dim0] > shape[dim1]:
                return 1
        return 0

    perm = list(range(rank - 1, -1, -1))
    for i in range(1, rank):
        dim1 = i
        for dim0 in range(i - 1, -1, -1):
            order = compare(perm[dim0], perm[dim1])
            if order > 0:
                perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
                dim1 = dim0
            elif order < 0:
                break
    if perm == list(range(rank - 1, -1, -1)):
        return meta(shape, contiguous_strides(shape), 0, dtype, device)
    out = [0] * rank
    step = 1
    for dim in perm:
        out[dim] = step
        step *= shape[dim]
    return meta(shape, tuple(out), 0, dtype, device)

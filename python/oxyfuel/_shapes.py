"""Shape rules: metadata of the results of common ATen operators, from metadata of their arguments.

A rule is called with the operator's own arguments, tensors replaced by ``Meta``, and returns a ``Meta`` or a
tuple of them. **Returning None is always safe**: the operator is then run on zeros, or given to torch's own
fake tensors, which costs a thousandfold; so does any exception in a rule. Rules therefore cover valid calls only
and leave errors, complex numbers and odd layouts to torch.

Promises: sizes, strides, dtype and device are those of eager's kernels on the CPU (the tests compare them).
An in-place operator uses the rule of the functional one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from oxyfuel._meta import (
    Dims,
    Meta,
    broadcast,
    category,
    channels_last_strides,
    contiguous,
    contiguous_strides,
    is_contiguous,
    is_meta,
    like,
    like_format,
    meta,
    pointwise,
    result_type,
    suggests_channels_last,
)

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""Rules by the operator's name without ``aten.``; the ``default`` overload is left out."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return register


def _float_of(dtype: torch.dtype) -> torch.dtype:
    return dtype if category(dtype) >= 2 else torch.get_default_dtype()


@_rule(
    *"relu silu gelu hardswish hardsigmoid hardtanh mish elu leaky_relu softplus threshold celu selu relu6".split(),
    *"neg sign floor ceil round trunc frac abs positive bitwise_not".split(),
)
def _unary(x: Meta, *_: Any, **__: Any) -> Any:
    if x.dtype is torch.bool or x.dtype.is_complex:
        return None
    return pointwise([x], x.dtype)


@_rule(
    *"exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh".split(),
    *"asinh acosh atanh sigmoid erf erfc erfinv reciprocal lgamma digamma logit".split(),
)
def _unary_float(x: Meta, *_: Any) -> Meta:
    return pointwise([x], _float_of(x.dtype))


@_rule("logical_not", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit")
def _unary_bool(x: Meta) -> Meta:
    return pointwise([x], torch.bool)


@_rule(
    *"add.Tensor sub.Tensor mul.Tensor add.Scalar sub.Scalar mul.Scalar rsub.Scalar rsub.Tensor".split(),
    *"maximum minimum fmax fmin fmod.Tensor fmod.Scalar remainder.Tensor remainder.Scalar floor_divide".split(),
    *"floor_divide.Scalar pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar logaddexp".split(),
    *"bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar".split(),
    *"bitwise_xor.Scalar hypot nextafter".split(),
)
def _binary(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    dtype = result_type(a, b)
    if dtype is torch.bool and alpha != 1:
        return None
    return pointwise([a, b], dtype)


@_rule("bitwise_not")
def _bitwise_not(x: Meta) -> Any:
    return None if category(x.dtype) > 1 else pointwise([x], x.dtype)


@_rule("sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor")
def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    if any(value.dtype is torch.bool if is_meta(value) else type(value) is bool for value in (a, b)):
        raise TypeError("a boolean operand")  # the words are eager's
    return pointwise([a, b], result_type(a, b))


@_rule("div.Tensor", "div.Scalar", "atan2", "xlogy.Tensor", "copysign.Tensor", "copysign.Scalar")
def _binary_float(a: Any, b: Any) -> Meta:
    return pointwise([a, b], _float_of(result_type(a, b)))


@_rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(a: Any, b: Any, *, rounding_mode: str | None) -> Meta:
    dtype = result_type(a, b)
    return pointwise([a, b], _float_of(dtype) if rounding_mode is None else dtype)


@_rule(*(f"{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")))
def _compare(a: Any, b: Any) -> Meta:
    return pointwise([a, b], torch.bool)


@_rule("logical_and", "logical_or", "logical_xor")
def _logical(a: Any, b: Any) -> Meta:
    return pointwise([a, b], torch.bool)


@_rule("where.self")
def _where(condition: Meta, a: Meta, b: Meta) -> Any:
    if condition.dtype is not torch.bool:
        return None
    return pointwise([condition, a, b], result_type(a, b))


@_rule("addcmul", "addcdiv")
def _addcmul(a: Meta, b: Meta, c: Meta, *, value: Any = 1) -> Any:
    dtype = result_type(a, b, c)
    return pointwise([a, b, c], dtype) if dtype.is_floating_point else None


@_rule("lerp.Scalar", "lerp.Tensor")
def _lerp(a: Meta, b: Meta, weight: Any) -> Any:
    if a.dtype is not b.dtype:
        return None
    return pointwise([a, b, weight] if is_meta(weight) else [a, b], a.dtype)


@_rule("clamp", "clamp.Tensor", "clamp_min", "clamp_max", "clamp_min.Tensor", "clamp_max.Tensor")
def _clamp(x: Meta, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Any:
    bounds = [bound for bound in (low, high, min, max) if bound is not None]
    if x.dtype is torch.bool:
        return None
    dtype = result_type(x, *bounds)
    return pointwise([x, *(bound for bound in bounds if is_meta(bound))], dtype)


@_rule("native_dropout")
def _native_dropout(x: Meta, p: float, train: bool | None) -> Any:
    if not x.dtype.is_floating_point:
        return None
    return like(x), like(x, torch.bool)


@_rule("mse_loss", "smooth_l1_loss", "huber_loss")
def _loss(x: Meta, target: Meta, reduction: int = 1, *_: Any) -> Meta:
    dtype = result_type(x, target)
    each = pointwise([x, target], dtype)
    return each if reduction == 0 else contiguous((), dtype, x.device)


# -- Reductions ----------------------------------------------------------------------------------------------------


def _dims_of(dims: Any, rank: int) -> list[int]:
    """Normalised; all of them when none are given."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    dims = [dims] if isinstance(dims, int) else dims
    out = [_dim_of(dim, rank) for dim in dims]
    if len(set(out)) != len(out):
        raise ValueError("a dimension is given twice")
    return out


def _dim_of(dim: int, rank: int) -> int:
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise ValueError("no such dimension")
    return dim % limit


def _reduced(x: Meta, dims: Any, keepdim: bool, dtype: torch.dtype) -> Meta:
    gone = _dims_of(dims, len(x.shape))
    if keepdim:
        shape = [1 if dim in gone else size for dim, size in enumerate(x.shape)]
    else:
        shape = [size for dim, size in enumerate(x.shape) if dim not in gone]
    return contiguous(shape, dtype, x.device)


@_rule("sum", "prod")
def _sum(x: Meta, *, dtype: torch.dtype | None = None) -> Meta:
    return _reduced(x, None, False, dtype or (x.dtype if category(x.dtype) >= 2 else torch.int64))


@_rule("sum.dim_IntList", "prod.dim_int", "nansum")
def _sum_dims(x: Meta, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Meta:
    return _reduced(x, dim, keepdim, dtype or (x.dtype if category(x.dtype) >= 2 else torch.int64))


@_rule("mean", "mean.dim")
def _mean(x: Meta, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    dtype = dtype or x.dtype
    return _reduced(x, dim, keepdim, dtype) if category(dtype) >= 2 else None


@_rule("amax", "amin", "logsumexp")
def _amax(x: Meta, dim: Any = (), keepdim: bool = False) -> Any:
    if any(x.shape[d] == 0 for d in _dims_of(dim, len(x.shape)) if x.shape):
        return None
    return _reduced(x, dim, keepdim, x.dtype)


@_rule("logsumexp")
def _logsumexp(x: Meta, dim: Any, keepdim: bool = False) -> Meta:
    return _reduced(x, dim, keepdim, _float_of(x.dtype))


@_rule("max", "min")
def _max(x: Meta) -> Any:
    return None if 0 in x.shape else contiguous((), x.dtype, x.device)


@_rule("max.dim", "min.dim")
def _max_dim(x: Meta, dim: int, keepdim: bool = False) -> Any:
    if 0 in x.shape:
        return None
    return _reduced(x, dim, keepdim, x.dtype), _reduced(x, dim, keepdim, torch.int64)


@_rule("argmax", "argmin")
def _argmax(x: Meta, dim: int | None = None, keepdim: bool = False) -> Any:
    return None if 0 in x.shape else _reduced(x, dim, keepdim, torch.int64)


@_rule("any", "all", "any.dim", "all.dim", "any.dims", "all.dims")
def _any(x: Meta, dim: Any = None, keepdim: bool = False) -> Meta:
    return _reduced(x, dim, keepdim, torch.uint8 if x.dtype is torch.uint8 else torch.bool)


@_rule("var.correction", "std.correction")
def _var(x: Meta, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _reduced(x, dim, keepdim, x.dtype) if x.dtype.is_floating_point else None


@_rule("var_mean.correction", "std_mean.correction")
def _var_mean(x: Meta, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    out = _var(x, dim, correction=correction, keepdim=keepdim)
    return out and (out, out)


@_rule("linalg_vector_norm")
def _vector_norm(x: Meta, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dtype is not None or not x.dtype.is_floating_point or 0 in x.shape:
        return None
    return _reduced(x, dim, keepdim, x.dtype)


@_rule("cumsum", "cumprod")
def _cumsum(x: Meta, dim: int, *, dtype: torch.dtype | None = None) -> Meta:
    _dim_of(dim, len(x.shape))
    return contiguous(x.shape, dtype or (x.dtype if category(x.dtype) >= 2 else torch.int64), x.device)


@_rule("_softmax", "_log_softmax")
def _softmax(x: Meta, dim: int, half_to_float: bool) -> Any:
    _dim_of(dim, len(x.shape))
    return None if half_to_float or not x.dtype.is_floating_point else contiguous(x.shape, x.dtype, x.device)


# -- Matrix products -----------------------------------------------------------------------------------------------


def _product(a: Meta, b: Meta, rank: int) -> Meta:
    if len(a.shape) != rank or len(b.shape) != rank or a.dtype is not b.dtype or a.dtype is torch.bool:
        raise ValueError
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError
    return contiguous((*a.shape[:-1], b.shape[-1]), a.dtype, a.device)


@_rule("mm")
def _mm(a: Meta, b: Meta) -> Meta:
    return _product(a, b, 2)


@_rule("bmm")
def _bmm(a: Meta, b: Meta) -> Meta:
    return _product(a, b, 3)


def _added(bias: Meta, out: Meta) -> Any:
    return out if bias.dtype is out.dtype and broadcast(bias.shape, out.shape) == out.shape else None


@_rule("addmm")
def _addmm(bias: Meta, a: Meta, b: Meta, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(bias, _product(a, b, 2))


@_rule("baddbmm")
def _baddbmm(bias: Meta, a: Meta, b: Meta, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(bias, _product(a, b, 3))


@_rule("mv")
def _mv(a: Meta, b: Meta) -> Any:
    if len(a.shape) != 2 or a.shape[1:] != b.shape or a.dtype is not b.dtype:
        return None
    return contiguous(a.shape[:1], a.dtype, a.device)


@_rule("dot")
def _dot(a: Meta, b: Meta) -> Any:
    if len(a.shape) != 1 or a.shape != b.shape or a.dtype is not b.dtype:
        return None
    return contiguous((), a.dtype, a.device)


# -- Neural networks -----------------------------------------------------------------------------------------------


@_rule("native_layer_norm")
def _layer_norm(x: Meta, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    lead = len(x.shape) - len(shape)
    if x.shape[lead:] != tuple(shape) or not x.dtype.is_floating_point or 0 in x.shape:
        return None
    if any(p is not None and (p.dtype is not x.dtype or p.shape != tuple(shape)) for p in (weight, bias)):
        return None
    row = contiguous((*x.shape[:lead], *([1] * len(shape))), x.dtype, x.device)
    return contiguous(x.shape, x.dtype, x.device), row, row


@_rule("native_group_norm")
def _group_norm(x: Meta, weight: Any, bias: Any, n: int, c: int, hxw: int, groups: int, eps: float) -> Any:
    if not x.dtype.is_floating_point or any(p is not None and p.dtype is not x.dtype for p in (weight, bias)):
        return None
    row = contiguous((n, groups), x.dtype, x.device)
    return like_format(x), row, row


@_rule("native_batch_norm")
def _batch_norm(
    x: Meta, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    given = [p for p in (weight, bias, mean, var) if p is not None]
    if x.device.type != "cpu" or any(p.dtype is not x.dtype or p.shape != x.shape[1:2] for p in given) or 0 in x.shape:
        return None
    saved = contiguous(x.shape[1:2] if training else (0,), x.dtype, x.device)
    return like_format(x), saved, saved


@_rule("convolution")
def _convolution(
    x: Meta,
    weight: Meta,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    rank = len(weight.shape) - 2
    if transposed or x.device.type != "cpu" or rank != 2 or len(x.shape) != 4 or x.dtype is not weight.dtype:
        return None
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups or 0 in x.shape or 0 in weight.shape:
        return None
    if bias is not None and (bias.dtype is not x.dtype or bias.shape != weight.shape[:1]):
        return None
    parameters = [list(p) * rank if len(p) == 1 else list(p) for p in (stride, padding, dilation)]
    sizes = [x.shape[0], weight.shape[0]]
    for size, kernel, step, pad, spread in zip(x.shape[2:], weight.shape[2:], *parameters, strict=False):
        sizes.append((size + 2 * pad - spread * (kernel - 1) - 1) // step + 1)
    if min(sizes) <= 0:
        return None
    shape = tuple(sizes)
    if suggests_channels_last(x) or suggests_channels_last(weight):
        # oneDNN and thnn keep channels last; torch knows which kernel it is.
        return None
    return contiguous(shape, x.dtype, x.device)


@_rule("embedding")
def _embedding(weight: Meta, index: Meta, *_: Any) -> Any:
    if len(weight.shape) != 2 or index.dtype not in (torch.int64, torch.int32):
        return None
    return contiguous((*index.shape, weight.shape[1]), weight.dtype, weight.device)


def _pair(value: Any) -> tuple[int, int]:
    value = [value] if isinstance(value, int) else list(value)
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def _pooled(x: Meta, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
    if len(x.shape) != 4 or 0 in x.shape:
        return None
    kernel = _pair(kernel)
    steps = zip(x.shape[2:], kernel, _pair(stride) if stride else kernel, _pair(padding), _pair(dilation), strict=False)
    sizes = []
    for size, window, step, pad, spread in steps:
        extent = size + 2 * pad - spread * (window - 1) - 1
        n = (-(-extent // step) if ceil else extent // step) + 1
        if ceil and (n - 1) * step >= size + pad:
            n -= 1
        if n <= 0 or pad * 2 > window:
            return None
        sizes.append(n)
    return _like_format_of(x, (*x.shape[:2], *sizes))


def _like_format_of(x: Meta, shape: Dims) -> Meta:
    """A tensor of another shape in the memory format that ``x`` suggests."""
    strides = channels_last_strides(shape) if suggests_channels_last(x) else contiguous_strides(shape)
    return meta(shape, strides, 0, x.dtype, x.device)


def _with_dtype(m: Meta, dtype: torch.dtype) -> Meta:
    return meta(m.shape, m.stride, m.offset, dtype, m.device)


@_rule("max_pool2d_with_indices")
def _max_pool2d(x: Meta, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Any:
    out = _pooled(x, kernel, stride, padding, dilation, ceil)
    return out and (out, _with_dtype(out, torch.int64))


@_rule("avg_pool2d")
def _avg_pool2d(x: Meta, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, *_: Any) -> Any:
    return _pooled(x, kernel, stride, padding, 1, ceil)


@_rule("_adaptive_avg_pool2d")
def _adaptive_avg_pool2d(x: Meta, size: Sequence[int]) -> Any:
    return None if len(x.shape) != 4 or 0 in x.shape else _like_format_of(x, (*x.shape[:2], *_pair(size)))


@_rule("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d")
def _upsample2d(x: Meta, size: Sequence[int], *_: Any) -> Any:
    return None if len(x.shape) != 4 or 0 in x.shape else _like_format_of(x, (*x.shape[:2], *size))


@_rule("_scaled_dot_product_flash_attention_for_cpu")
def _attention(q: Meta, k: Meta, v: Meta, *_: Any, attn_mask: Any = None, scale: Any = None) -> Any:
    batch, heads, length, _size = q.shape
    lse_dtype = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    lse = contiguous((batch, length, heads), lse_dtype, q.device)
    return like(q), _permuted(lse, (0, 2, 1))


def _permuted(m: Meta, dims: Sequence[int]) -> Meta:
    return meta(tuple(m.shape[dim] for dim in dims), tuple(m.stride[dim] for dim in dims), m.offset, m.dtype, m.device)


# -- Indexing and joining ------------------------------------------------------------------------------------------


@_rule("cat")
def _cat(tensors: Sequence[Meta], dim: int = 0) -> Any:
    first = tensors[0]
    if any(t.shape == (0,) and t.shape != first.shape for t in tensors) or not first.shape:
        return None
    dim = _dim_of(dim, len(first.shape))
    total = 0
    for t in tensors:
        if len(t.shape) != len(first.shape):
            return None
        if t.shape[:dim] != first.shape[:dim] or t.shape[dim + 1 :] != first.shape[dim + 1 :]:
            return None
        total += t.shape[dim]
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    out = contiguous(shape, result_type(*tensors), first.device)
    if len(shape) == 4 and all(map(suggests_channels_last, tensors)):
        return meta(shape, channels_last_strides(shape), 0, out.dtype, out.device)
    return None if len(shape) == 5 else out


@_rule("stack")
def _stack(tensors: Sequence[Meta], dim: int = 0) -> Any:
    first = tensors[0]
    if any(t.shape != first.shape for t in tensors) or len(first.shape) > 2:
        return None
    dim = _dim_of(dim, len(first.shape) + 1)
    shape = (*first.shape[:dim], len(tensors), *first.shape[dim:])
    return contiguous(shape, result_type(*tensors), first.device)


@_rule("index.Tensor")
def _index(x: Meta, indices: Sequence[Any]) -> Any:
    """ATen's AdvancedIndex: source and indices as operands over the result's dimensions."""
    given = [dim for dim, index in enumerate(indices) if index is not None]
    if not given or len(indices) > len(x.shape) or 0 in x.shape:
        return None
    if any(indices[dim].dtype is not torch.int64 for dim in given):
        return None
    shape = broadcast(*(indices[dim].shape for dim in given))
    order = list(range(len(x.shape)))
    first = given[0]
    if given != list(range(first, first + len(given))):  # apart: their dimensions come first
        order = given + [dim for dim in order if dim not in given]
        first = 0
    before, after = order[:first], order[first + len(given) :]
    source = meta(
        (*(x.shape[dim] for dim in before), *shape, *(x.shape[dim] for dim in after)),
        (*(x.stride[dim] for dim in before), *([0] * len(shape)), *(x.stride[dim] for dim in after)),
        0,
        x.dtype,
        x.device,
    )
    operands = [source]
    for dim in given:
        index = _expanded(indices[dim], shape)
        ones = ((1,) * len(before), (1,) * len(after))
        operands.append(
            meta((*ones[0], *shape, *ones[1]), (*ones[0], *index.stride, *ones[1]), 0, index.dtype, index.device)
        )
    return pointwise(operands, x.dtype)


def _expanded(m: Meta, shape: Dims) -> Meta:
    lead = len(shape) - len(m.shape)
    strides = [0] * lead
    for size, stride, wanted in zip(m.shape, m.stride, shape[lead:], strict=True):
        strides.append(0 if size == 1 and wanted != 1 else stride)
    return meta(shape, tuple(strides), m.offset, m.dtype, m.device)


@_rule("_unsafe_view")
def _unsafe_view(x: Meta, size: Sequence[int]) -> Any:
    if not is_contiguous(x) or 0 in x.shape:
        return None
    total, known = math.prod(x.shape), math.prod(n for n in size if n != -1)
    shape = [total // known if n == -1 else n for n in size]
    return contiguous(shape, x.dtype, x.device) if math.prod(shape) == total else None


@_rule("index_select")
def _index_select(x: Meta, dim: int, index: Meta) -> Any:
    if not x.shape or len(index.shape) > 1:
        return None
    shape = list(x.shape)
    shape[_dim_of(dim, len(shape))] = math.prod(index.shape)
    return contiguous(shape, x.dtype, x.device)


@_rule("gather")
def _gather(x: Meta, dim: int, index: Meta, *, sparse_grad: bool = False) -> Any:
    if len(x.shape) != len(index.shape) or index.dtype is not torch.int64:
        return None
    dim = _dim_of(dim, len(x.shape))
    if any(have < size for d, (have, size) in enumerate(zip(x.shape, index.shape, strict=False)) if d != dim):
        return None
    return contiguous(index.shape, x.dtype, x.device)


@_rule("topk")
def _topk(x: Meta, k: int, dim: int = -1, *_: Any) -> Any:
    if not x.shape:
        return None
    shape = list(x.shape)
    dim = _dim_of(dim, len(shape))
    if k > shape[dim]:
        return None
    shape[dim] = k
    return contiguous(shape, x.dtype, x.device), contiguous(shape, torch.int64, x.device)


@_rule("sort", "sort.stable")
def _sort(x: Meta, *_: Any, **__: Any) -> Any:
    if not is_contiguous(x):
        return None
    return contiguous(x.shape, x.dtype, x.device), contiguous(x.shape, torch.int64, x.device)


@_rule("tril", "triu")
def _tril(x: Meta, diagonal: int = 0) -> Any:
    return None if len(x.shape) < 2 else contiguous(x.shape, x.dtype, x.device)


@_rule("flip")
def _flip(x: Meta, dims: Sequence[int]) -> Any:
    _dims_of(list(dims), len(x.shape))
    return contiguous(x.shape, x.dtype, x.device) if is_contiguous(x) else None


@_rule("roll")
def _roll(x: Meta, shifts: Any, dims: Any = ()) -> Any:
    return contiguous(x.shape, x.dtype, x.device) if is_contiguous(x) else None


@_rule("repeat")
def _repeat(x: Meta, repeats: Sequence[int]) -> Any:
    lead = len(repeats) - len(x.shape)
    if lead < 0 or min(repeats, default=1) < 0:
        return None
    shape = [size * n for size, n in zip((*([1] * lead), *x.shape), repeats, strict=False)]
    return contiguous(shape, x.dtype, x.device)


@_rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(x: Meta, mask: Meta, value: Any) -> Any:
    if mask.dtype is not torch.bool or (is_meta(value) and value.shape):
        return None
    if category(result_type(x, value)) > category(x.dtype) or not is_contiguous(x):
        return None
    return contiguous(broadcast(x.shape, mask.shape), x.dtype, x.device)


@_rule("constant_pad_nd")
def _constant_pad(x: Meta, pad: Sequence[int], value: Any = 0) -> Any:
    shape = list(x.shape)
    if not is_contiguous(x) or len(pad) > 2 * len(shape) or min(pad, default=0) < 0:
        return None
    for i in range(0, len(pad), 2):
        shape[-1 - i // 2] += pad[i] + pad[i + 1]
    return contiguous(shape, x.dtype, x.device)


# -- Factories -----------------------------------------------------------------------------------------------------


def _made(size: Sequence[int], dtype: Any, device: Any, layout: Any = None, memory_format: Any = None, **_: Any) -> Any:
    if (
        layout not in (None, torch.strided)
        or memory_format not in (None, torch.contiguous_format)
        or min(size, default=0) < 0
    ):
        return None
    device = torch.device("cpu") if device is None else torch.device(device)
    if device.type != "cpu" and device.index is None:
        return None
    return contiguous(size, dtype, device)


@_rule("zeros", "ones", "rand", "randn", "empty.memory_format", "rand.generator", "randn.generator")
def _zeros(size: Sequence[int], *, dtype: Any = None, device: Any = None, **keywords: Any) -> Any:
    return _made(size, dtype or torch.get_default_dtype(), device, **keywords)


@_rule("arange", "arange.start", "arange.start_step")
def _arange(*bounds: Any, dtype: Any = None, device: Any = None, **keywords: Any) -> Any:
    if any(type(bound) is not int for bound in bounds):
        return None
    return _made((len(range(*bounds)),), dtype or torch.int64, device, **keywords)


@_rule("full")
def _full(size: Sequence[int], value: Any, *, dtype: Any = None, device: Any = None, **keywords: Any) -> Any:
    return _made(size, dtype or result_type(value), device, **keywords)


@_rule("scalar_tensor")
def _scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None, **keywords: Any) -> Any:
    return _made((), dtype or torch.get_default_dtype(), device, **keywords)


@_rule("randint.low")
def _randint(low: int, high: int, size: Sequence[int], *, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
    return _made(size, dtype or torch.int64, device, **kw)


@_rule("randint")
def _randint_high(high: int, size: Sequence[int], *, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
    return _made(size, dtype or torch.int64, device, **kw)


@_rule("randperm", "randperm.generator")
def _randperm(n: int, *, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
    return _made((n,), dtype or torch.int64, device, **kw)


@_rule("linspace")
def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
    return _made((steps,), dtype or torch.get_default_dtype(), device, **kw)


@_rule("eye")
def _eye(n: int, *, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
    return _made((n, n), dtype or torch.get_default_dtype(), device, **kw)


@_rule("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like")
def _zeros_like(x: Meta, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **keywords: Any) -> Any:
    return _made_like(x, dtype, device, memory_format, **keywords)


@_rule("full_like")
def _full_like(
    x: Meta, value: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **keywords: Any
) -> Any:
    return _made_like(x, dtype, device, memory_format, **keywords)


def _made_like(x: Meta, dtype: Any, device: Any, memory_format: Any, **keywords: Any) -> Any:
    if (device is not None and torch.device(device) != x.device) or keywords.get("layout") not in (None, torch.strided):
        return None
    if memory_format is torch.contiguous_format:
        return contiguous(x.shape, dtype or x.dtype, x.device)
    return like(x, dtype) if memory_format in (None, torch.preserve_format) else None


@_rule("new_zeros", "new_ones", "new_empty")
def _new_zeros(x: Meta, size: Sequence[int], *, dtype: Any = None, device: Any = None, **keywords: Any) -> Any:
    return _made(size, dtype or x.dtype, device or x.device, **keywords)


@_rule("new_full")
def _new_full(x: Meta, size: Sequence[int], value: Any, *, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
    return _made(size, dtype or x.dtype, device or x.device, **kw)


# -- In place ------------------------------------------------------------------------------------------------------


def in_place(rule: Rule | None, name: str) -> Rule | None:
    """The rule of an in-place operator: 0, the number of the argument that it returns, or None."""
    if name in _WRITERS:
        return lambda x, *_, **__: 0
    if name == "copy_":
        return lambda x, y, *_: 0 if broadcast(x.shape, y.shape) == x.shape else None
    if rule is None:
        return None

    def check(x: Meta, *args: Any, **keywords: Any) -> Any:
        out = rule(x, *args, **keywords)
        if not is_meta(out) or out.shape != x.shape or not torch.can_cast(out.dtype, x.dtype):
            return None
        return 0

    return check


_WRITERS = frozenset(
    "zero_ fill_.Scalar fill_.Tensor bernoulli_.float bernoulli_.Tensor uniform_ normal_ random_ random_.from "
    "random_.to exponential_ detach_".split()
)
"""In-place operators that take any tensor."""

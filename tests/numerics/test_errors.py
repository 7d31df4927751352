"""What eager raises for wrong arguments, compiled code raises too: the same type, the same text."""

import pytest
import torch
from agreement import check_error

WRONG = {
    "broadcast": (lambda x: x + torch.ones(7), "f"),
    "matmul": (lambda x: x @ x, "f"),
    "view": (lambda x: x.view(5, 5), "f"),
    "view_strides": (lambda x: x.t().view(-1), "f"),
    "cat": (lambda x: torch.cat([x, torch.ones(9, 9)]), "f"),
    "dim": (lambda x: x.sum(5), "f"),
    "softmax_integer": (lambda x: x.softmax(0), "i"),
    "mean_integer": (lambda x: x.mean(), "i"),
    "in_place_dtype": (lambda x: x.add_(1.5), "i"),
    "in_place_division": (lambda x: x.div_(2), "i"),
    "in_place_shape": (lambda x: x.add_(torch.ones(2, 4, 6)), "f"),
    "bool_subtraction": (lambda x: (x > 0) - (x < 1), "f"),
    "bool_negation": (lambda x: -(x > 0), "f"),
    "index": (lambda x: x[9], "f"),
    "index_tensor": (lambda x: x[torch.tensor([0, 9])], "f"),
    "index_select": (lambda x: torch.index_select(x, 0, torch.tensor([9])), "f"),
    "embedding": (lambda x: torch.nn.functional.embedding(torch.tensor([99]), x), "f"),
    "gather": (lambda x: x.gather(0, torch.full((1, 6), 50)), "f"),
    "mask_dtype": (lambda x: x.masked_fill(x, 0), "f"),
    "where_dtype": (lambda x: torch.where(x, x, x), "f"),
    "fill_overflow": (lambda x: torch.full_like(x, 1e10), "h"),
    "clamp_range": (lambda x: x.clamp(min=-1e39, max=1e39), "f"),
    "add_alpha_range": (lambda x: x.add(x, alpha=1e39), "f"),
    "mask_fill_range": (lambda x: x.masked_fill(x > 0, 1e39), "f"),
    "fill_range": (lambda x: x.clone().fill_(1e39), "f"),
    "clamp_nothing": (lambda x: x.clamp(), "f"),
    "layer_norm": (lambda x: torch.nn.functional.layer_norm(x, (9,)), "f"),
    "linear": (lambda x: torch.nn.functional.linear(x, torch.ones(3, 9)), "f"),
    "conv": (lambda x: torch.nn.functional.conv2d(x, torch.ones(1, 1, 3, 3)), "f"),
    "permute": (lambda x: x.permute(0, 0), "f"),
    "expand": (lambda x: x.expand(9, 9), "f"),
    "squeeze": (lambda x: x.squeeze(4), "f"),
    "amax_empty": (lambda x: x[:0].amax(), "f"),
    "max_empty": (lambda x: x[:0].max(), "f"),
    "argmax_empty": (lambda x: x[:0].argmax(), "f"),
    "integer_division_by_zero": (lambda x: x // 0, "i"),
    "integer_remainder_by_zero": (lambda x: x % (x * 0), "i"),
    "shift_float": (lambda x: x << 1, "f"),
    "bitwise_float": (lambda x: x & x, "f"),
    "dtype_mismatch": (lambda x: x @ torch.ones(6, 2, dtype=torch.float64), "f"),
    "split": (lambda x: x.split([1, 2]), "f"),
    "cross_entropy": (lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2, 77])), "f"),
    "integer_power": (lambda x: x ** -1, "i"),
}


@pytest.mark.parametrize("name", WRONG)
def test_same_error(name):
    f, kind = WRONG[name]
    dtype = {"f": torch.float32, "i": torch.int64, "h": torch.int8}[kind]
    check_error(f, torch.arange(24).reshape(4, 6).to(dtype))

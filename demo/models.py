"""The demo's models: built from configurations with random weights, in eval mode, in float32.

``build(name, size)`` gives ``(module, args, kwargs)``; size ``"demo"`` is what ``make demo`` measures,
``"small"`` what the tests run. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

TEXT = {
    "demo": {"batch": 2, "length": 128, "width": 256, "layers": 4, "heads": 4, "words": 2000},
    "small": {"batch": 2, "length": 16, "width": 32, "layers": 2, "heads": 4, "words": 64},
}


def _ids(size: dict[str, int]) -> torch.Tensor:
    return torch.randint(0, size["words"], (size["batch"], size["length"]))


def resnet18(size: str) -> Built:
    from torchvision.models import resnet18

    edge = {"demo": 224, "small": 64}[size]
    return resnet18(weights=None), (torch.randn(1, 3, edge, edge),), {}


def bert(size: str) -> Built:
    from transformers import BertConfig, BertModel

    text = TEXT[size]
    config = BertConfig(
        vocab_size=text["words"],
        hidden_size=text["width"],
        num_hidden_layers=text["layers"],
        num_attention_heads=text["heads"],
        intermediate_size=4 * text["width"],
    )
    ids = _ids(text)
    mask = torch.ones_like(ids)
    mask[0, text["length"] // 2 :] = 0
    return BertModel(config), (), {"input_ids": ids, "attention_mask": mask}


def gpt2(size: str) -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    text = TEXT[size]
    config = GPT2Config(
        vocab_size=text["words"],
        n_embd=text["width"],
        n_layer=text["layers"],
        n_head=text["heads"],
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config), (), {"input_ids": _ids(text)}


def vit(size: str) -> Built:
    import timm

    edge, depth = {"demo": (224, 12), "small": (64, 2)}[size]
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=edge, depth=depth)
    return model, (torch.randn(1, 3, edge, edge),), {}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
        seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.before_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.down(F.gelu(self.up(self.before_mlp(x)), approximate="tanh"))


class GPT(nn.Module):
    """A decoder-only language model as people write it by hand, with tied embeddings."""

    def __init__(self, words: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.word(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.word.weight)


def gpt(size: str) -> Built:
    text = TEXT[size]
    model = GPT(text["words"], text["length"], text["width"], text["layers"], text["heads"])
    return model, (_ids(text),), {}


MODELS: dict[str, Callable[[str], Built]] = {
    "torchvision resnet18": resnet18,
    "transformers BERT": bert,
    "transformers GPT-2": gpt2,
    "timm ViT": vit,
    "hand-written GPT": gpt,
}


def build(name: str, size: str = "demo") -> Built:
    torch.manual_seed(0)
    module, args, kwargs = MODELS[name](size)
    return module.eval(), args, kwargs

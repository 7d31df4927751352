"""Real models at small sizes, as ``(module, arguments)``; None where the library isn't installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def resnet18() -> tuple[nn.Module, tuple[Any, ...]]:
    import torchvision

    return torchvision.models.resnet18().eval(), (torch.randn(1, 3, 64, 64),)


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    import transformers

    config = transformers.BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    return _Plain(transformers.BertModel(config).eval(), "last_hidden_state"), (torch.randint(0, 500, (2, 16)),)


def gpt2() -> tuple[nn.Module, tuple[Any, ...]]:
    import transformers

    config = transformers.GPT2Config(vocab_size=500, n_positions=64, n_embd=64, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    return _Plain(model, "logits", use_cache=False), (torch.randint(0, 500, (2, 16)),)


def vit() -> tuple[nn.Module, tuple[Any, ...]]:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    return model, (torch.randn(1, 3, 64, 64),)


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10), nn.Softmax(-1))
    return model, (torch.randn(8, 32),)


class _Plain(nn.Module):
    """A Hugging Face model that returns one tensor."""

    def __init__(self, model: nn.Module, field: str, **keywords: Any) -> None:
        super().__init__()
        self.model = model
        self.field = field
        self.keywords = keywords

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(ids, **self.keywords), self.field)


MODELS: dict[str, tuple[Callable[[], tuple[nn.Module, tuple[Any, ...]]], str]] = {
    "mlp": (mlp, "torch"),
    "resnet18": (resnet18, "torchvision"),
    "bert": (bert, "transformers"),
    "gpt2": (gpt2, "transformers"),
    "vit": (vit, "timm"),
}


def make(name: str) -> tuple[nn.Module, tuple[Any, ...]] | None:
    builder, library = MODELS[name]
    return builder() if importlib.util.find_spec(library) else None


def main() -> None:
    """Write the ATen graph of each model to a folder: ``python capture_models.py FOLDER``."""
    import pathlib
    import sys

    from recording import record

    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        made = make(name)
        if made is not None:
            with torch.no_grad():
                recorded = record(made[0], *made[1])
            (folder / f"{name}.txt").write_text(recorded.text())
            print(name, recorded.graph.num_nodes, "operators")


if __name__ == "__main__":
    main()

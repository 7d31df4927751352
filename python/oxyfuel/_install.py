"""Taking over ``torch.compile`` in a program that knows nothing of oxyfuel.

``install()`` replaces ``torch.compile``, ``nn.Module.compile``, ``torch.compiler.reset`` and
``torch.compiler.set_stance``; ``uninstall()`` puts back what was there. Names that a module took with
``from torch import compile`` before ``install()`` are out of reach.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch

from oxyfuel import _compile, _decorators, _engine

log = logging.getLogger("oxyfuel")

_saved: list[tuple[Any, str, Any]] = []


def _keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """torch.compile's keywords in our terms: its default code generator means ours."""
    keywords = dict(keywords)
    if keywords.get("backend") == "inductor":
        keywords["backend"] = None
    if keywords.pop("dynamic_shapes", None) is not None:
        log.warning("torch.compile: dynamic_shapes is ignored; sizes turn symbolic by themselves")
    options = keywords.get("options")
    if options and keywords.get("backend") is None:
        known = {key: value for key, value in options.items() if key in _compile.OPTIONS}
        if len(known) < len(options):
            log.info("torch.compile: options of another backend are ignored: %s", sorted(set(options) - set(known)))
        keywords["options"] = known or None
    return keywords


def install() -> None:
    """Make this process's ``torch.compile`` calls use oxyfuel. Doing it twice is doing it once."""
    if _saved:
        return
    torch_reset = torch.compiler.reset

    @functools.wraps(torch.compile)
    def compile(model: Any = None, **keywords: Any) -> Any:
        return _compile.compile(model, **_keywords(keywords))

    @functools.wraps(torch.nn.Module.compile)
    def compile_in_place(self: torch.nn.Module, **keywords: Any) -> None:
        _compile.module_compile(self, **_keywords(keywords))

    @functools.wraps(torch_reset)
    def reset() -> None:
        _engine.reset()
        torch_reset()

    for owner, name, value in (
        (torch, "compile", compile),
        (torch.nn.Module, "compile", compile_in_place),
        (torch.compiler, "reset", reset),
        (torch.compiler, "set_stance", _decorators.set_stance),
    ):
        _saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)


def uninstall() -> None:
    """Undo ``install()``. What was compiled meanwhile stays oxyfuel's."""
    while _saved:
        owner, name, value = _saved.pop()
        setattr(owner, name, value)

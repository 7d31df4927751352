"""Configuration: one table of knobs, assignable at any time as ``oxyfuel.config.name = value``.

Promises: an unknown name is an ``AttributeError`` on reading, on assignment and in ``patch``; an
alias and its knob are one value; every assignment reaches the engine at once. The two sets of
logging functions are plain sets that the engine reads when it traces; change them in place.

A knob is one row of ``_KNOBS``. Names and meanings are torch's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from oxyfuel import _engine


def _is_one(text: str) -> bool:
    return text == "1"


class _Knob(NamedTuple):
    name: str
    default: Any
    variable: str | None = None
    """Environment variable that overrides the default when set and not empty."""
    parse: Callable[[str], Any] = _is_one


# fmt: off
_KNOBS = (
    # Recompilation
    _Knob("recompile_limit", 8),
    _Knob("accumulated_recompile_limit", 256),
    _Knob("fail_on_recompile_limit_hit", False),
    _Knob("error_on_recompile", False),
    # Errors
    _Knob("suppress_errors", False, "TORCHDYNAMO_SUPPRESS_ERRORS", bool),
    _Knob("verbose", False, "TORCHDYNAMO_VERBOSE"),
    _Knob("disable", False, "TORCH_COMPILE_DISABLE"),
    _Knob("strict", False, "OXYFUEL_STRICT"),  # a bug of oxyfuel's own raises instead of running eagerly
    _Knob("inject_panic", ""),  # tests: panic in the named stage of the engine
    # Capture
    _Knob("inline_depth_max", 120),
    _Knob("capture_scalar_outputs", False, "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS"),
    _Knob("capture_dynamic_output_shape_ops", False, "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS"),
    _Knob("nested_graph_breaks", True),
    _Knob("reorderable_logging_functions", frozenset()),
    _Knob("ignore_logging_functions", frozenset()),
    _Knob("rewrite_assert_with_torch_assert", True),
    _Knob("trace_numpy", True),
    _Knob("enable_trace_contextlib", True),
    _Knob("allow_rnn", True),
    _Knob("trace_autograd_ops", False),
    _Knob("enable_trace_load_build_class", False),
    _Knob("replay_side_effects", True),
    _Knob("side_effect_replay_policy", "info", None),
    # Shapes and numbers
    _Knob("automatic_dynamic_shapes", True, "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES"),
    _Knob("automatic_dynamic_shapes_mark_as", "dynamic"),
    _Knob("assume_static_by_default", True),
    _Knob("specialize_int", False),
    _Knob("specialize_float", False),
    _Knob("allow_unspec_int_on_nn_module", False),
    _Knob("force_parameter_static_shapes", True),
    _Knob("force_nn_module_property_static_shapes", True),
    _Knob("use_duck_shape", True),
    _Knob("backed_size_oblivious", False),
    _Knob("do_not_emit_runtime_asserts", False),
    _Knob("prefer_deferred_runtime_asserts_over_guards", False),
    _Knob("dynamic_sources", "", "TORCH_COMPILE_DYNAMIC_SOURCES", str),
    _Knob("static_sources", "", "TORCH_COMPILE_STATIC_SOURCES", str),
    _Knob("unbacked_sources", "", "TORCH_COMPILE_UNBACKED_SOURCES", str),
    _Knob("dynamic_values", "", "TORCH_COMPILE_DYNAMIC_VALUES", str),
    # Guards
    _Knob("guard_nn_modules", True),
    _Knob("skip_nnmodule_hook_guards", False),
    _Knob("install_free_tensors", False),
    # Artifacts
    _Knob("force_disable_caches", False, "TORCH_COMPILE_FORCE_DISABLE_CACHES"),
    _Knob("cache_key_tag", "", "TORCH_COMPILE_CACHE_KEY_TAG", str),
)
# fmt: on

_ALIASES = {
    "cache_size_limit": "recompile_limit",
    "accumulated_cache_size_limit": "accumulated_recompile_limit",
    "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit",
}


def _initial(knob: _Knob) -> Any:
    text = os.environ.get(knob.variable, "") if knob.variable else ""
    if text:
        return knob.parse(text)
    return set(knob.default) if isinstance(knob.default, frozenset) else knob.default


_values: dict[str, Any] = {knob.name: _initial(knob) for knob in _KNOBS}


def _resolve(name: str) -> str:
    name = _ALIASES.get(name, name)
    if name not in _values:
        raise AttributeError(f"oxyfuel.config has no knob named {name!r}")
    return name


class _Patch(contextlib.ContextDecorator):
    """Sets knobs on entry and restores them on exit; nests and re-enters."""

    def __init__(self, changes: dict[str, Any]) -> None:
        self._changes = {_resolve(name): value for name, value in changes.items()}
        self._saved: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._saved.append({name: _values[name] for name in self._changes})
        for name, value in self._changes.items():
            _assign(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._saved.pop().items():
            _assign(name, value)


def _assign(name: str, value: Any) -> None:
    _engine.set_config(name, value)
    _values[name] = value


class _ConfigModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _values[_resolve(name)]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):  # the import system's own attributes
            super().__setattr__(name, value)
        else:
            _assign(_resolve(name), value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"oxyfuel.config.{name} cannot be deleted; assign its default instead")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_values, *_ALIASES]

    def __iter__(self) -> Iterator[str]:
        return iter(_values)

    @staticmethod
    def patch(*arguments: Any, **changes: Any) -> _Patch:
        """Context manager and decorator: ``patch(name=value, ...)``, ``patch("name", value)`` or ``patch({...})``."""
        match arguments:
            case ():
                return _Patch(changes)
            case ({**mapping},) if not changes:
                return _Patch(mapping)
            case (str() as name, value) if not changes:
                return _Patch({name: value})
        raise TypeError("patch() takes keywords, or a name and a value, or one dict")


for _name, _value in _values.items():
    _engine.set_config(_name, _value)
sys.modules[__name__].__class__ = _ConfigModule

"""Frozen dataclasses from and to plain dictionaries, YAML and dotted overrides; a typo is an error.

Settings arrive from three places: a `config.json` beside a checkpoint, a YAML file, and
`--model.bscs.k 6` on the command line. All three pass through `build`, which knows only the
annotations of the dataclass, so a field is declared once and is available everywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from adadino.errors import ConfigError
from adadino.errors import say as say

T = TypeVar("T")

MOST_VALUES = 100_000
"""The most values of a YAML file, its aliases written out; a configuration has a hundred."""


DEEPEST = 100
"""The most brackets that may be open at once; the YAML parser takes a second for a thousand."""


class Bounds(NamedTuple):
    """The least and the most that a number may be, beside a field's help; None is no bound."""

    least: float | None = None
    most: float | None = None


class Shown(NamedTuple):
    """The option of a field whose own name or unit is not the user's; bounds are in this unit."""

    name: str
    unit: float = 1


def build(cls: type[T], data: Mapping[str, Any], where: str = "") -> T:
    """Make a dataclass out of nested mappings, checking every name and type.

    Args:
        cls: A dataclass, possibly with dataclass fields.
        data: Values by field name; fields that are absent keep their defaults.
        where: The dotted path of `data`, for messages.

    Returns:
        The instance.

    Raises:
        ConfigError: An unknown name (with the nearest known one), a wrong type, or a value that
            the dataclass itself rejects.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where or cls.__name__} must be a mapping, not {say(data)}.")
    hints = typing.get_type_hints(cls)
    fields = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in data.items():
        name = key if isinstance(key, str) else say(key)
        path = f"{where}.{name}" if where else name
        if key not in fields:
            raise ConfigError(f"unknown setting {path}; {_nearest(name, fields)}")
        values[key] = _convert(hints[key], value, path)
    try:
        return cls(**values)
    except TypeError as error:
        raise ConfigError(f"{where or cls.__name__}: {error}") from error


def added(default: T) -> T:
    """Declare a field that 0.1.0 did not have. Its default gives what 0.1.0 computed.

    `identity` leaves such a field out while it has its default, so that a new setting does not
    change the names of models and runs that never used it.
    """
    declared: Any = dataclasses.field(default=default, metadata={"added": True})
    return typing.cast(T, declared)


def to_dict(config: Any) -> dict[str, Any]:
    """Turn a dataclass into plain dictionaries and lists, ready for YAML or JSON."""
    return typing.cast(dict[str, Any], _plain(config, leave_out=False))


def identity(config: Any) -> dict[str, Any]:
    """`to_dict` for comparing and hashing: without `added` fields that have their default."""
    return typing.cast(dict[str, Any], _plain(config, leave_out=True))


def identity_repr(config: Any) -> str:
    """`repr` for hashing: without `added` fields that have their default."""
    if not dataclasses.is_dataclass(config):
        return repr(config)
    named = (f"{name}={identity_repr(value)}" for name, value in _fields(config, leave_out=True))
    return f"{type(config).__qualname__}({', '.join(named)})"


def _fields(config: Any, *, leave_out: bool) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not (leave_out and "added" in field.metadata and value == field.default):
            yield field.name, value


def _plain(value: Any, *, leave_out: bool) -> Any:
    if dataclasses.is_dataclass(value):
        named = _fields(value, leave_out=leave_out)
        return {name: _plain(inner, leave_out=leave_out) for name, inner in named}
    if isinstance(value, tuple | list):
        return [_plain(inner, leave_out=leave_out) for inner in value]
    return value


def read_yaml(path: Path | str) -> dict[str, Any]:
    """Read a YAML mapping without constructing any Python object but the plain ones."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        if _depth(text) > DEEPEST:
            raise ValueError(f"more than {DEEPEST} brackets are open at once")
        data = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check its name.") from error
    except Exception as error:  # a malformed !!int or date raises outside YAMLError
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML: {reason}; correct it there.") from error
    if data is None:
        return {}
    if _values(data, {}) > MOST_VALUES:
        raise ConfigError(
            f"{path} holds more than {MOST_VALUES} values, or values inside themselves; write "
            "them without aliases."
        )
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, not a {type(data).__name__}.")
    return data


def write_yaml(config: Any) -> str:
    """Write a dataclass as YAML text, in the order of its fields."""
    import yaml

    return yaml.safe_dump(to_dict(config), sort_keys=False, width=100)


def override(data: Mapping[str, Any], dotted: Sequence[str]) -> dict[str, Any]:
    """Lay `a.b=value` overrides over nested mappings; values are read as YAML scalars or lists.

    `a.b=1,2,3` is a list too, because that is what one types in a shell.
    """
    result: dict[str, Any] = _copy(data)
    for item in dotted:
        name, sign, text = item.partition("=")
        if not sign or not name:
            raise ConfigError(f"override {item!r} must look like model.bscs.k=6.")
        node = result
        *parents, last = name.split(".")
        for parent in parents:
            child = node.setdefault(parent, {})
            if not isinstance(child, dict):
                raise ConfigError(f"{name}: {parent} is a value, not a group of settings.")
            node = child
        node[last] = _parse(text)
    return result


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def _parse(text: str) -> Any:
    if not text or _depth(text) > DEEPEST:
        return text
    import yaml

    try:
        value = yaml.safe_load(text)
    except Exception:  # not YAML (2020-13-45 is not even a YAMLError): then it is a word
        return text
    if isinstance(value, str) and "," in value and value == text.strip():  # not if quoted
        return [_parse(part.strip()) for part in value.split(",") if part.strip()]
    return value


def _depth(text: str) -> int:
    """The most brackets that are open at once, were none of them quoted."""
    steps = ((c in "[{") - (c in "]}") for c in text)
    return max(itertools.accumulate(steps), default=0)


def _values(data: Any, known: dict[int, float]) -> float:
    """How many values there are with every alias written out; infinitely many in a circle."""
    if not isinstance(data, dict | list):
        return 1
    if id(data) not in known:
        known[id(data)] = math.inf  # until it is counted: then who asks is inside it
        inner = data.values() if isinstance(data, dict) else data
        known[id(data)] = 1 + sum(_values(value, known) for value in inner)
    return known[id(data)]


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}."


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        options = [a for a in args if a is not type(None)]
        errors = []
        for option in options:
            try:
                return _convert(option, value, path)
            except ConfigError as error:
                errors.append(error)
        raise errors[-1]
    if origin is Literal:
        # YAML 1.1 reads a bare `off` as false; the reader meant the word.
        if value is False and "off" in args:
            value = "off"
        # `precision: 32` is a number to YAML and a name here.
        if isinstance(value, int) and not isinstance(value, bool) and say(value) in args:
            value = str(value)
        if value not in args:
            names = [str(a) for a in args]
            hint_text = _nearest(value if isinstance(value, str) else say(value), names)
            raise ConfigError(
                f"{path} is {say(value)}, must be one of {', '.join(names)}; {hint_text}"
            )
        return value
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            value = [] if value in ("none", None) else [value]
        inner = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(inner) != len(value):
            raise ConfigError(f"{path} needs {len(inner)} values, got {len(value)}: {say(value)}.")
        pairs = zip(inner, value, strict=True)
        return tuple(_convert(h, v, f"{path}[{i}]") for i, (h, v) in enumerate(pairs))
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        return build(hint, value, path)  # type: ignore[arg-type]
    return _scalar(hint, value, path)


def _scalar(hint: Any, value: Any, path: str) -> Any:
    # bool is an int in Python: `k: true` must not become k = 1.
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)  # YAML 1.1 reads 1e-4 as a string
            if math.isfinite(number):
                return number
    elif hint is int and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) < 2**63:  # no setting is larger, and Python cannot even write some that are
            return value
    elif hint is bool and isinstance(value, bool):
        return value
    elif hint is str and isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # an integer of more digits than Python writes
            return str(value)
    raise ConfigError(f"{path} is {say(value)}, must be {getattr(hint, '__name__', hint)}.")

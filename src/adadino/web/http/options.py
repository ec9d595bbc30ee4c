"""What a job may choose beside its images: bands, the stretch, the correction of a shift."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from adadino.errors import InputError
from adadino.web.http.problems import RefusedError

_YES, _NO = ("true", "1", "on"), ("false", "0", "off", "")


class Options(NamedTuple):
    """As in `SceneOptions`; None leaves the choice to the program."""

    register: bool
    any_resolution: bool
    bands: list[int] | None
    scale: list[float] | None


def parse_options(fields: Mapping[str, str]) -> Options:
    """The options of a form's fields.

    Raises:
        RefusedError: One cannot be read.
    """
    return Options(**{name: parse(fields.get(name, "")) for name, parse in PARSERS.items()})


def _parse_bands(text: str) -> list[int] | None:
    """`3,2,1`, or one band to repeat."""
    if not text.strip():
        return None
    parts = [part.strip() for part in text.split(",")]
    digits = all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts)
    return check_count([int(part) for part in parts] if digits else [], text)


def _parse_scale(text: str) -> list[float] | None:
    """The raw values of black and white: `0,3000`."""
    if not text.strip():
        return None
    try:
        return check_scale([float(part) for part in text.split(",")], text)
    except ValueError:
        return check_scale([], text)


def _parse_switch(text: str, *, name: str) -> bool:
    said = text.strip().lower()
    if said not in _YES + _NO:
        raise RefusedError(422, f"{name} {said[:60]!r} must be true or false.")
    return said in _YES


PARSERS: dict[str, Callable[[str], Any]] = {
    "register": partial(_parse_switch, name="register"),
    "any_resolution": partial(_parse_switch, name="any_resolution"),
    "bands": _parse_bands, "scale": _parse_scale,
}  # fmt: skip
"""How the fields of a form are read."""


def check_count(bands: list[int], given: object) -> list[int]:
    """Three band numbers from 1, or one.

    Raises:
        RefusedError: They are not.
    """
    if len(bands) not in (1, 3) or min(bands) < 1:
        raise RefusedError(
            422, f"bands {str(given)[:60]!r} must be three band numbers from 1, or one: 3,2,1."
        )
    return bands


def check_scale(values: Sequence[float], given: object) -> list[float]:
    """Two numbers, a smaller and a larger.

    Raises:
        RefusedError: They are not.
    """
    if len(values) != 2 or not all(map(math.isfinite, values)) or values[0] >= values[1]:
        raise RefusedError(
            422, f"scale {str(given)[:60]!r} must be a smaller and a larger number: 0,3000."
        )
    return [float(value) for value in values]


def check_bands(bands: Sequence[int] | None, count: int, name: str) -> None:
    """Say that an image lacks a band before the job waits for its turn.

    Raises:
        InputError: It does.
    """
    missing = [band for band in bands or () if band > count]
    if missing:
        plural = "" if count == 1 else "s"
        raise InputError(
            f"{name} has no band {missing[0]}: it has {count} band{plural}; choose others."
        )

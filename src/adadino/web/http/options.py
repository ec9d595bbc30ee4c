"""What a job may choose beside its images: bands, the stretch, the correction of a shift."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adadino.errors import InputError
from adadino.web.http.problems import RefusedError

_YES, _NO = ("true", "1", "on"), ("false", "0", "off", "")


def parse_bands(text: str | None) -> list[int] | None:
    """Band numbers from a form's field: `3,2,1`, or one to repeat; None if it is empty.

    Raises:
        RefusedError: It holds something else.
    """
    if not text or not text.strip():
        return None
    parts = [part.strip() for part in text.split(",")]
    digits = all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts)
    if not digits or len(parts) not in (1, 3) or "0" in {part.lstrip("0") or "0" for part in parts}:
        raise RefusedError(
            422, f"bands {text[:60]!r} must be three band numbers from 1, or one: 3,2,1."
        )
    return [int(part) for part in parts]


def parse_scale(text: str | None) -> list[float] | None:
    """The raw values of black and white from a form's field: `0,3000`; None if it is empty.

    Raises:
        RefusedError: It holds something else.
    """
    if not text or not text.strip():
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    return check_scale(values, text)


def check_scale(values: Sequence[float] | None, given: object) -> list[float] | None:
    """Two numbers, a smaller and a larger.

    Raises:
        RefusedError: They are not.
    """
    if values is None:
        return None
    if len(values) != 2 or not all(map(math.isfinite, values)) or values[0] >= values[1]:
        raise RefusedError(
            422, f"scale {str(given)[:60]!r} must be a smaller and a larger number: 0,3000."
        )
    return [float(value) for value in values]


def parse_register(text: str | None) -> bool:
    """Whether a form's field says yes.

    Raises:
        RefusedError: It says neither yes nor no.
    """
    said = (text or "").strip().lower()
    if said not in _YES + _NO:
        raise RefusedError(422, f"register {said[:60]!r} must be true or false.")
    return said in _YES


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

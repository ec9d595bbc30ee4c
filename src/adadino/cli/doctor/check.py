"""A line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: Literal["ok", "note", "problem"]
    found: str
    meaning: str
    """What it means for the user."""
    remedy: str = ""
    """What to type or change; empty if nothing needs to be done."""


def first_line(error: BaseException) -> str:
    """The first line of an error, without its full stop."""
    text = str(error).strip()
    return text.splitlines()[0][:160].rstrip(".") if text else type(error).__name__

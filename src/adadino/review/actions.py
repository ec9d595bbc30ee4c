"""One action of a reviewer: a line of the log, checked whoever wrote it."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from shapely.geometry import shape

from adadino.errors import InputError, say

Do = Literal["judge", "note", "draw", "reshape", "cut", "unchanged", "erase", "undo", "redo"]
Verdict = Literal["right", "wrong", "unsure"]
Origin = Literal["random", "uncertain", "picked", "file"]
"""How a reviewer came to a polygon: from one of the two lists, by hand, or in a file."""

NEEDS: dict[Do, tuple[str, ...]] = {
    "judge": ("shape", "verdict"),
    "note": ("shape", "note"),
    "draw": ("geometry",),
    "reshape": ("shape", "geometry"),
    "cut": ("shape", "geometry"),
    "unchanged": ("geometry",),
    "erase": ("shape",),
    "undo": (),
    "redo": (),
}
"""What each action must say."""
LONGEST = {"note": 2000, "by": 200, "key": 100}
"""The most characters of a text."""
_BREAKS = str.maketrans("", "", "\n\r\t")
"""What a note may hold beside letters."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """Who did what, when."""

    do: Do
    """judge a polygon; note something of it; draw a change that was missed; reshape a polygon, or
    cut a piece away; mark an area as unchanged; erase a drawing; undo and redo one's own last."""
    by: str
    at: str
    """When, in UTC: 2026-11-18T07:40:12Z."""
    n: int = 0
    """The number of the action in its log, from 1; a drawing is known by it."""
    key: str = ""
    """What the client calls it: an action that comes twice is kept once."""
    shape: int | None = None
    """The polygon or drawing that it is about."""
    verdict: Verdict | None = None
    note: str | None = None
    list: Origin = "picked"
    geometry: dict[str, Any] | None = None
    """A Polygon or MultiPolygon of GeoJSON, in pixels; of a cut, the piece that goes."""

    def line(self) -> str:
        """The action as a line of the log; what is not said is left out."""
        said = {name: value for name, value in dataclasses.asdict(self).items() if value}
        return json.dumps(said, separators=(",", ":"), allow_nan=False) + "\n"


def make_action(data: dict[str, Any], *, by: str, at: str | None = None, key: str = "") -> Action:
    """An action from what a person, a page or a file gives.

    Args:
        data: `do`, and what that action needs.
        by: Who acts.
        at: When, if not now.
        key: What the client calls the action.

    Raises:
        InputError: A field is missing, unknown, or has a value that it cannot have.
    """
    given = {name: value for name, value in data.items() if value is not None}
    known = {field.name for field in dataclasses.fields(Action)} - {"n", "by", "at", "key"}
    if unknown := set(given) - known:
        raise InputError(f"an action has no field {say(min(unknown))}; known are {_list(known)}.")
    return _checked({**given, "by": by, "at": at or now(), "key": key})


def read_action(line: bytes, n: int) -> Action | None:
    """The action of a line of the log; None for a line that is damaged.

    Fields that a later version has added are ignored.
    """
    try:
        data = json.loads(line)
        known = {field.name for field in dataclasses.fields(Action)}
        action = _checked({**{name: data[name] for name in known & data.keys()}, "n": n})
    except (ValueError, TypeError, AttributeError, RecursionError, InputError):
        return None
    return action if action.geometry is None or _is_outline(action.geometry) else None


def _is_outline(geometry: dict[str, Any]) -> bool:
    """Whether a geometry is what `shapes.check_outline` leaves behind."""
    try:
        outline = shape(geometry)
    except Exception:  # shapely's, numpy's and Python's own, for whatever the line holds
        return False
    return outline.geom_type in ("Polygon", "MultiPolygon") and bool(outline.is_valid)


def now() -> str:
    """The time as the log writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _checked(data: dict[str, Any]) -> Action:
    for name, allowed in (("do", Do), ("verdict", Verdict), ("list", Origin)):
        values = get_args(allowed)
        if (name in data or name == "do") and data.get(name) not in values:
            raise InputError(f"{name} is {say(data.get(name))}; choose one of {_list(values)}.")
    for name in NEEDS[data["do"]]:
        if name not in data:
            raise InputError(f"{data['do']} needs {name}; the action does not say it.")
    for name, most in LONGEST.items():
        text = data.get(name, "")
        if not isinstance(text, str) or len(text) > most:
            raise InputError(f"{name} must be text of at most {most} characters; shorten it.")
        # They would be cut off in a GeoPackage, and heard by the terminal that prints them.
        if any(unicodedata.category(letter) == "Cc" for letter in text.translate(_BREAKS)):
            raise InputError(f"{name} holds control characters; take them out.")
    if not data["by"].strip():
        raise InputError("an action needs a name of who did it; give one (--by NAME).")
    number = data.get("shape")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise InputError(f"shape is {say(number)}; give the whole number that is a polygon's id.")
    if not isinstance(data.get("geometry", {}), dict):
        raise InputError(f"geometry is {say(data['geometry'])}; give a GeoJSON polygon.")
    return Action(**data)


def _list(values: Any) -> str:
    return ", ".join(sorted(map(str, values)))

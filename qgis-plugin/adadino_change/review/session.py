# SPDX-License-Identifier: GPL-2.0-or-later
"""A walk through the areas to judge, with undo; knows neither layers nor windows.

The order is the one that the command proposes (the column `rank`): the random sample comes first,
and only in its order does it say how right the map is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

OF_AREAS = ("right", "wrong", "unsure")
"""Verdicts on the areas of a map; the keys are A, R and U."""
OF_PIXELS = ("change", "no change", "unsure")
"""Verdicts on the pixels of a sample, of which nobody is told what the map says."""


@dataclass
class Area:
    """One area to judge."""

    fid: int
    rank: float
    verdict: str = ""


@dataclass(frozen=True)
class Change:
    """A verdict to write down; an empty one takes a verdict back."""

    fid: int
    verdict: str


class Session:
    """Where the reviewer stands, and what was done so far."""

    def __init__(self, areas: Iterable[Area], words: tuple[str, ...] = OF_AREAS) -> None:
        self.words = words
        self.areas = sorted(areas, key=lambda area: (area.rank, area.fid))
        self._undo: list[Change] = []
        self.place = self._open_from(0)

    @property
    def current(self) -> Area | None:
        """The area that is looked at; None if there is none at all."""
        return self.areas[self.place] if self.areas else None

    def step(self, by: int) -> None:
        """Go to the next area (1) or the one before (-1), and stay at the ends."""
        if self.areas:
            self.place = min(max(self.place + by, 0), len(self.areas) - 1)

    def judge(self, verdict: str) -> Change | None:
        """Judge the current area, and go to the next that is open."""
        area = self.current
        if area is None:
            return None
        if verdict not in self.words:
            raise ValueError(f"{verdict!r} is no verdict; choose one of {', '.join(self.words)}")
        self._undo.append(Change(area.fid, area.verdict))
        area.verdict = verdict
        self.place = self._open_from(self.place + 1)
        return Change(area.fid, verdict)

    def undo(self) -> Change | None:
        """Take the last verdict back, and go to its area."""
        if not self._undo:
            return None
        change = self._undo.pop()
        self.place = next(i for i, area in enumerate(self.areas) if area.fid == change.fid)
        self.areas[self.place].verdict = change.verdict
        return change

    def counts(self) -> str:
        """Say how far the review is."""
        found = Counter(area.verdict for area in self.areas)
        judged = sum(found[verdict] for verdict in self.words)
        parts = ", ".join(f"{found[verdict]} {verdict}" for verdict in self.words)
        return f"{judged} of {len(self.areas)} judged: {parts}"

    def _open_from(self, start: int) -> int:
        """The first area without a verdict from here on, then from the beginning, else here."""
        count = len(self.areas)
        for step in range(count):
            place = (start + step) % count
            if not self.areas[place].verdict:
                return place
        return min(start, count - 1) if count else 0

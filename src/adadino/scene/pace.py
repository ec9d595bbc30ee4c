"""How fast a scene goes, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

Report = Callable[[int, int, str], None]
"""Called with tiles done, all tiles, and a message. At the beginning of a phase the message is the
phase's name; outside of predicting there are no tiles to count, and both numbers are 0."""

Phase = Literal["opening", "preparing", "predicting", "writing"]


def begin(report: Report | None, phase: Phase, *, done: int = 0, total: int = 0) -> None:
    """Report that a phase begins."""
    if report is not None:
        report(done, total, phase)


def duration(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3 h 20 min, 2 days 4 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 36:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours + (minutes >= 30), 24)
    return f"{days} days {hours} h"


class Pace:
    """Counts tiles and reports them with megapixels per second and the time left."""

    def __init__(self, report: Report | None, *, tiles: int, done: int, megapixels: float) -> None:
        """Start the clock.

        Args:
            report: Whom to tell, if anyone.
            tiles: All tiles of the scene.
            done: Those that an earlier run has done.
            megapixels: The size of the whole scene.
        """
        self._report = report
        self._tiles = tiles
        self._first = self._done = done
        self._megapixels = megapixels
        self._empty = self._failed = 0
        self._started = time.monotonic()

    def add(self, *, seen: int, empty: int = 0, failed: int = 0) -> None:
        """Count what went through the model, what had nothing to see, and what failed."""
        self._done += seen + empty + failed
        self._empty += empty
        self._failed += failed
        if self._report is not None:
            self._report(self._done, self._tiles, self._message())

    def _message(self) -> str:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        rate = (self._done - self._first) / elapsed  # tiles per second
        left = duration((self._tiles - self._done) / max(rate, 1e-9))
        text = f"{rate * self._megapixels / self._tiles:.2f} MP/s, {left} left"
        if self._empty:
            text += f", {self._empty} empty"
        return f"{text}, {self._failed} failed" if self._failed else text

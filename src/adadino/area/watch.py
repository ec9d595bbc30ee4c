"""How a long run goes, once a minute: progress, throughput and failures, for a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Watcher = Callable[[dict[str, object]], None]

EVERY = 60.0
"""Seconds between two lines."""


class Watch:
    """Counts units and tells of them once a minute."""

    def __init__(self, watcher: Watcher | None, *, units: int, done: int) -> None:
        """Start the clock.

        Args:
            watcher: Whom to tell, if anyone.
            units: All units of the region.
            done: Those that an earlier run has done.
        """
        self._watcher, self._units = watcher, units
        self._first = self._done = self._told_done = done
        self._failed, self._problem = 0, ""
        self._started = self._told = time.monotonic()

    def add(self, *, problem: str | None = None) -> None:
        """Count a unit that is finished, or has a problem."""
        if problem is None:
            self._done += 1
        else:
            self._failed, self._problem = self._failed + 1, problem
        if time.monotonic() - self._told >= EVERY:
            self.tell()

    def tell(self) -> None:
        """Tell how it goes now."""
        if self._watcher is None:
            return
        now = time.monotonic()
        rate = (self._done - self._first) / max(now - self._started, 1e-9)
        lately = (self._done - self._told_done) / max(now - self._told, 1e-9)
        left = self._units - self._done - self._failed
        self._watcher(
            {
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "units": self._units,
                "done": self._done,
                "failed": self._failed,
                "last_problem": self._problem or None,
                "units_per_s": round(rate, 3),
                "units_per_s_lately": round(lately, 3),
                "left_s": round(left / rate) if rate else None,
            }
        )
        self._told, self._told_done = now, self._done

"""How long a job takes: by the measured speed of its model, corrected by what jobs took."""

from __future__ import annotations

from dataclasses import dataclass

from adadino.errors import InputError
from adadino.web.jobs.records import Job

BELIEF = 0.3
"""How much of an estimate's error is believed to go on."""


@dataclass(frozen=True)
class Speed:
    """How fast a model is here."""

    mp_per_s: float
    """Megapixels of a scene per second."""
    overhead_s: float
    """What a job takes beside its pixels."""


@dataclass(frozen=True)
class Ready:
    """What workers said of themselves."""

    device: str
    device_name: str
    speeds: dict[str, Speed]


class Estimates:
    """Estimates jobs, and learns from those that were done."""

    def __init__(self, most_s: float) -> None:
        """Nothing is known yet.

        Args:
            most_s: The longest a job may take.
        """
        self.ready: Ready | None = None
        self._most_s = most_s
        self._slower = 1.0
        """How much longer jobs take than was measured."""

    def speed(self, model: str) -> dict[str, float | None]:
        """How fast a model is, for the page; None until it is known."""
        speed = self.ready.speeds.get(model) if self.ready else None
        if speed is None:
            return {"mp_per_s": None, "overhead_s": None}
        return {
            "mp_per_s": round(speed.mp_per_s / self._slower, 4),
            "overhead_s": round(speed.overhead_s * self._slower, 2),
        }

    def seconds(self, model: str, pixels: int) -> float | None:
        """How long a job takes; None until the model's speed is known."""
        speed = self.speed(model)
        if speed["mp_per_s"] is None or speed["overhead_s"] is None:
            return None
        return round(speed["overhead_s"] + pixels / 1e6 / speed["mp_per_s"], 1)

    def check(self, job: Job) -> None:
        """Refuse a job that would take too long.

        Raises:
            InputError: It would.
        """
        estimate = self.seconds(job.model, job.pixels)
        if estimate is not None and estimate > self._most_s:
            raise InputError(
                f"these images would take about {_hours(estimate)}, and this server gives a job "
                f"{_hours(self._most_s)}; cut them, or use `adadino predict`."
            )

    def learn(self, job: Job, seconds: float) -> None:
        """Correct the next estimates by how long a job took."""
        estimate = self.seconds(job.model, job.pixels)
        if estimate and job.attempts <= 1:  # one that was taken up again did only the rest
            off = max(0.2, min(5.0, seconds / estimate))
            self._slower = max(0.1, min(50.0, self._slower * off**BELIEF))


def _hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

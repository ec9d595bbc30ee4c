"""The old model and the new one, on tiles that the new one was not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.metrics import Confusion

DRAWS = 4000
"""Samples of the bootstrap."""


@dataclass(frozen=True)
class Comparison:
    """Scores of both, and the interval of their difference."""

    old: Confusion
    new: Confusion
    difference: float
    """F1 of the new one minus F1 of the old one, over all held-out pixels."""
    low: float
    high: float
    """The 95 % interval: tiles are drawn with replacement, both models on the same ones."""

    @property
    def better(self) -> bool:
        """Whether the new one is better, and not by the luck of these tiles."""
        return self.low > 0

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "old": self.old.as_dict(),
            "new": self.new.as_dict(),
            "f1_difference": {"value": self.difference, "low": self.low, "high": self.high},
            "better": self.better,
        }


def compare(old: NDArray[np.int64], new: NDArray[np.int64], *, seed: int = 0) -> Comparison:
    """Compare counts (tiles, 4) of two models: tp, fp, fn, tn."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(old), (DRAWS, len(old)))
    differences = _f1(new[drawn].sum(axis=1)) - _f1(old[drawn].sum(axis=1))
    low, high = np.percentile(differences, [2.5, 97.5])
    first, second = (Confusion(*counts.sum(axis=0).tolist()) for counts in (old, new))
    return Comparison(first, second, second.f1 - first.f1, float(low), float(high))


def _f1(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    tp, fp, fn = counts[:, 0], counts[:, 1], counts[:, 2]
    return np.asarray(2 * tp / np.maximum(2 * tp + fp + fn, 1), np.float64)

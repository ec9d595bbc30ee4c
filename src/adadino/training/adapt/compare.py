"""The old model and the new one, on tiles that the new one was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.metrics import Confusion

DRAWS = 4000
"""Samples of the bootstrap."""
SURE = 0.95
"""The share of samples in which the new model must be better. The interval is told with two sides;
whether to keep the new model is a question with one."""
Looks = dict[int, NDArray[np.int64]]
"""What a model got right and wrong of some tiles (tiles, 4: tp, fp, fn, tn), by its updates."""


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
    chance: float
    """The share of these samples in which the new one is better."""

    @property
    def better(self) -> bool:
        """Whether the new one is better, and not by the luck of these tiles."""
        return self.chance >= SURE

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "old": self.old.as_dict(),
            "new": self.new.as_dict(),
            "f1_difference": {"value": self.difference, "low": self.low, "high": self.high},
            "share_of_samples_better": self.chance,
            "better": self.better,
        }


def compare(old: NDArray[np.int64], new: NDArray[np.int64], *, seed: int = 0) -> Comparison:
    """Compare counts (tiles, 4) of two models: tp, fp, fn, tn."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(old), (DRAWS, len(old)))
    differences = _f1(new[drawn].sum(axis=1)) - _f1(old[drawn].sum(axis=1))
    low, high = np.percentile(differences, [2.5, 97.5])
    first, second = (Confusion(*counts.sum(axis=0).tolist()) for counts in (old, new))
    chance = float((differences > 0).mean())
    return Comparison(first, second, second.f1 - first.f1, float(low), float(high), chance)


def held_out(folds: Sequence[Looks]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts of the old model and of the new one on the tiles of all folds.

    A fold is scored after the updates that were best on the others. Its own best number would be
    chosen by its own luck.
    """
    pairs = [
        (looks[0], looks[best_look([other for other in folds if other is not looks])])
        for looks in folds
    ]
    old, new = (np.concatenate(counts) for counts in zip(*pairs, strict=True))
    return old, new


def best_look(folds: Sequence[Looks]) -> int:
    """The updates of the highest F1 over all tiles; the fewest, where several are equal."""
    pooled = {step: sum(looks[step].sum(axis=0) for looks in folds) for step in folds[0]}
    return max(pooled, key=lambda step: (Confusion(*pooled[step].tolist()).f1, -step))


def _f1(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    tp, fp, fn = counts[:, 0], counts[:, 1], counts[:, 2]
    return np.asarray(2 * tp / np.maximum(2 * tp + fp + fn, 1), np.float64)

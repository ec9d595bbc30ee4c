"""The field's scores of semantic change, from one matrix over both dates of a whole split.

A pixel of a date counts as class 0 where no change is predicted, or none is labelled. The matrix
counts predicted against true classes of both dates together (Yang et al. 2022; SeK is theirs).

- `miou` is the mean of two intersections over unions: of unchanged pixels, and of changed ones
  whatever their class.
- `sek`, the separated kappa, is Cohen's kappa without the pixels that are unchanged in both,
  times e^(IoU of change) / e.
- `fscd` is F1 of changed pixels whose class is right: their share of the predicted change, and of
  the labelled change (Ding et al. 2022).
- `score` is 0.3 miou + 0.7 sek, by which SECOND ranks.

A changed pixel whose class nobody labelled is left out of the date that lacks it. Where 0/0 comes
out the score is 0, as in `adadino.metrics`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

NAMES = ("miou", "sek", "fscd", "score")


def semantic_counts(changed: Tensor, predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Count (classes + 1, classes + 1) int64 on the device: predicted rows, true columns.

    Args:
        changed: Predicted change (B, H, W).
        predicted: Predicted classes of both dates (B, 2, H, W), from 1.
        labels: (B, 3, H, W): change, and the classes of both dates; 0 is unlabelled.
        classes: How many classes there are.
    """
    truly = labels[:, :1] != 0  # (B, 1, H, W)
    found = torch.where(changed[:, None] != 0, predicted.long(), 0)
    true = torch.where(truly, labels[:, 1:].long(), 0)
    known = ~truly | (labels[:, 1:] != 0)
    side = classes + 1
    index = (found * side + true)[known]
    return torch.bincount(index, minlength=side * side).view(side, side)


class Matrix(NamedTuple):
    """Counts of predicted (rows) against true (columns) classes; class 0 is no change."""

    counts: tuple[tuple[int, ...], ...]

    @classmethod
    def from_counts(cls, counts: Tensor) -> Matrix:
        """Read what `semantic_counts` returned, or a sum of it; waits for the device."""
        return cls(tuple(tuple(row) for row in counts.tolist()))


@dataclass(frozen=True)
class SemanticScores:
    """The scores of a matrix."""

    miou: float
    sek: float
    fscd: float

    @property
    def score(self) -> float:
        """By which SECOND ranks."""
        return 0.3 * self.miou + 0.7 * self.sek

    @classmethod
    def of(cls, matrix: Matrix) -> SemanticScores:
        """Score a matrix; sums are Python integers, so no count is too large."""
        counts = matrix.counts
        rows = [sum(row) for row in counts]
        columns = [sum(column) for column in zip(*counts, strict=True)]
        unchanged, total = counts[0][0], sum(rows)
        missed, false = rows[0] - unchanged, columns[0] - unchanged
        both = total - unchanged - missed - false
        right = sum(counts[i][i] for i in range(1, len(counts)))
        iou = _ratio(both, both + missed + false)
        unchanged_iou = _ratio(unchanged, unchanged + missed + false)
        # Kappa without what is unchanged in both: (observed - expected) / (1 - expected).
        rest = total - unchanged
        rows[0], columns[0] = missed, false
        expected = sum(row * column for row, column in zip(rows, columns, strict=True))
        kappa = _ratio(right * rest - expected, rest * rest - expected)
        return cls(
            miou=(iou + unchanged_iou) / 2,
            sek=kappa * math.exp(iou - 1),
            fscd=_ratio(2 * right, sum(rows[1:]) + sum(columns[1:])),
        )

    def as_dict(self) -> dict[str, float]:
        """The scores by name."""
        return {name: getattr(self, name) for name in NAMES}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

"""One confusion matrix over the whole split, and every score of the change class from it (Sec. 4).

Counting happens on the device, in 64 bits and without waiting for it; scores are arithmetic on
Python integers, so a country of 10^13 pixels is scored as precisely as a tile.

The paper does not say how F1 is averaged; we score one matrix summed over all pixels, as the field
does. The mean of per-image F1 is another number.
The paper does not say what 0/0 is; we return 0.0, as torchmetrics does for precision, recall, F1
and IoU. So does kappa, where torchmetrics returns NaN, because one NaN spoils a table of means.
The paper does not say how a threshold is chosen; we offer a histogram of probabilities, which
streams over a split of any size and gives the precision-recall curve exactly at its bin edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adadino.errors import ConfigError, InputError


def confusion_counts(prediction: Tensor, target: Tensor) -> Tensor:
    """Count (tp, fp, fn, tn) on the device, as (4,) int64, without a host synchronisation.

    Args:
        prediction: Predicted change of any shape; anything but zero is change.
        target: True change of the same shape.
    """
    _same_shape(prediction, target)
    predicted, true = prediction != 0, target != 0
    tp, p, t = (predicted & true).sum(), predicted.sum(), true.sum()
    return torch.stack([tp, p - tp, t - tp, target.numel() - p - t + tp])


@dataclass(frozen=True, slots=True)
class Confusion:
    """Pixel counts of a binary change map; add them up, then read the scores."""

    tp: int = 0
    fp: int = 0
    fn: int = 0
    tn: int = 0

    @classmethod
    def from_counts(cls, counts: Tensor) -> Confusion:
        """Read what ``confusion_counts`` returned, or a sum of it; waits for the device."""
        return cls(*counts.tolist())

    @classmethod
    def from_tensors(cls, prediction: Tensor, target: Tensor) -> Confusion:
        """Count one predicted mask against the truth."""
        return cls.from_counts(confusion_counts(prediction, target))

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(
            self.tp + other.tp, self.fp + other.fp, self.fn + other.fn, self.tn + other.tn
        )

    @property
    def precision(self) -> float:
        """Share of predicted change that is change."""
        return _ratio(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float:
        """Share of change that was predicted."""
        return _ratio(self.tp, self.tp + self.fn)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def iou(self) -> float:
        """Intersection over union of predicted and true change."""
        return _ratio(self.tp, self.tp + self.fp + self.fn)

    @property
    def oa(self) -> float:
        """Overall accuracy: share of pixels that are right."""
        return _ratio(self.tp + self.tn, self.tp + self.fp + self.fn + self.tn)

    @property
    def kappa(self) -> float:
        """Cohen's kappa: agreement beyond chance."""
        tp, fp, fn, tn = self.tp, self.fp, self.fn, self.tn
        # (observed - expected) / (1 - expected), with the fractions multiplied out
        return _ratio(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))

    def as_dict(self) -> dict[str, float]:
        """Scores, then the counts they come from."""
        scores = ("f1", "iou", "precision", "recall", "oa", "kappa")
        return {name: getattr(self, name) for name in (*scores, "tp", "fp", "fn", "tn")}


class PRCurve(NamedTuple):
    """Precision, recall and F1 of ``probability >= threshold``, one entry for each threshold."""

    thresholds: NDArray[np.float64]
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]


class Histogram:
    """Streaming counts of the change probability, apart for unchanged and changed pixels."""

    def __init__(self, *, bins: int = 1024, device: torch.device | str = "cpu") -> None:
        """Start empty.

        Args:
            bins: Number of equal bins over [0, 1], a power of two: only then is p * bins exact in
                binary, and p falls into bin k or above exactly when p >= k / bins.
            device: Where the probabilities will be.
        """
        if bins < 2 or bins & (bins - 1):
            raise ConfigError(f"the histogram needs a power of two of bins, not {bins}; try 1024.")
        self.bins = bins
        self.counts = torch.zeros(2, bins, dtype=torch.int64, device=device)
        """(unchanged, changed) x bins; sum it over processes to merge them."""

    def update(self, probability: Tensor, target: Tensor) -> None:
        """Add pixels, on the device and without a host synchronisation.

        Args:
            probability: Probability of change, of any shape and precision.
            target: True change of the same shape; anything but zero is change.
        """
        _same_shape(probability, target)
        # Probability 1 belongs to the last bin; the clamp also keeps a NaN inside the table.
        bin_ = (probability.float() * self.bins).long().clamp_(0, self.bins - 1)
        index = (bin_ + self.bins * (target != 0)).flatten()
        self.counts.view(-1).scatter_add_(0, index, index.new_ones(()).expand_as(index))

    def confusion(self, threshold: float) -> Confusion:
        """The confusion matrix of ``probability >= threshold``, for a threshold at a bin edge."""
        k = threshold * self.bins
        if not 0 <= k < self.bins or k != int(k):
            raise ConfigError(
                f"threshold {threshold} is no bin edge; take k / {self.bins} with 0 <= k < "
                f"{self.bins}."
            )
        tp, fp, fn, tn = self._matrices()
        return Confusion(int(tp[int(k)]), int(fp[int(k)]), int(fn[int(k)]), int(tn[int(k)]))

    def pr_curve(self) -> PRCurve:
        """The curve at every bin edge 0, 1/bins, ... below 1; waits for the device."""
        tp, fp, fn, _ = self._matrices()
        return PRCurve(
            thresholds=np.arange(self.bins) / self.bins,
            precision=tp / np.maximum(tp + fp, 1),  # 0 / 1 where nothing is predicted
            recall=tp / np.maximum(tp + fn, 1),
            f1=2 * tp / np.maximum(2 * tp + fp + fn, 1),
        )

    def best_threshold(self) -> float:
        """The bin edge of the highest F1; among equals the one nearest 0.5, the safest margin."""
        curve = self.pr_curve()
        ties = curve.thresholds[curve.f1 == curve.f1.max()]
        return float(ties[np.abs(ties - 0.5).argmin()])

    def _matrices(self) -> tuple[NDArray[np.int64], ...]:
        """Return tp, fp, fn, tn for the threshold at the lower edge of each bin."""
        counts = self.counts.cpu().numpy()
        fp, tp = counts[:, ::-1].cumsum(axis=1)[:, ::-1]  # pixels in this bin or above
        unchanged, changed = counts.sum(axis=1)
        return tp, fp, changed - tp, unchanged - fp


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _same_shape(prediction: Tensor, target: Tensor) -> None:
    # Broadcasting would count pixels that do not exist.
    if prediction.shape != target.shape:
        raise InputError(
            f"the prediction is {tuple(prediction.shape)} and the truth {tuple(target.shape)}; "
            "they must have one shape."
        )

"""Accuracies and areas from a stratified sample, with 95 % intervals.

Every figure is a ratio of two totals, R = Y / X, where y and x are 0 or 1 for a pixel:

    overall accuracy     y: map and reference agree                x: 1
    user's accuracy      y: both say class j                       x: the map says j
    producer's accuracy  y: both say class j                       x: the reference says j
    share of the area    y: the reference says j                   x: 1

Y is the sum of N_h * mean_h(y) over the strata, and the variance of R is

    V(R) = 1 / X^2 * sum_h N_h^2 / n_h * (s2_y + R^2 s2_x - 2 R s_xy)

with sample variances of divisor n_h - 1 (Stehman 2014, Eqs. 25 to 29). Where the strata are the
map's classes these are Eqs. 1 to 11 of Olofsson et al. (2014). As there, the share of pixels that
is sampled is taken to be small: no finite-population correction, so intervals are a little wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.errors import InputError

Z95 = 1.96
"""As the paper rounds it."""


class Estimate(NamedTuple):
    """A figure and half the width of its 95 % interval."""

    value: float
    margin: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.margin

    def scaled(self, factor: float) -> Estimate:
        """The estimate in another unit."""
        return Estimate(self.value * factor, self.margin * factor)


@dataclass(frozen=True)
class Assessment:
    """What a judged sample says of a map; classes in the order of the counts' columns."""

    matrix: NDArray[np.float64]
    """The error matrix in shares of the area: map (rows) and reference (columns)."""
    overall: Estimate
    users: tuple[Estimate | None, ...]
    """None for a class that the map does not have."""
    producers: tuple[Estimate | None, ...]
    """None for a class of which the sample holds no reference."""
    shares: tuple[Estimate, ...]
    """The share of the area of each class, estimated from the sample."""
    mapped: tuple[float, ...]
    """The share of the area of each class, counted from the map."""


def assess(
    counts: NDArray[Any] | Sequence[Sequence[int]],
    sizes: Sequence[float],
    classes: Sequence[int],
) -> Assessment:
    """Estimate accuracies and areas.

    Args:
        counts: Judged pixels by stratum (rows) and reference class (columns).
        sizes: The size of each stratum, in any unit.
        classes: The class that the map gives to each stratum.

    Raises:
        InputError: A stratum has fewer than two judged pixels, so that nothing can be said of it.
    """
    counted = np.asarray(counts, dtype=np.float64)
    weights = np.asarray(sizes, dtype=np.float64)
    for index, number in enumerate(counted.sum(axis=1)):
        if number < 2:
            raise InputError(
                f"stratum {index + 1} has {number:.0f} judged pixels; two are the least from which "
                "an error can be estimated. Judge more of the sample."
            )
    weights = weights / weights.sum()
    kinds = counted.shape[1]
    # What a pixel of stratum h (row) and reference class j (column) is, for each kind of question.
    map_is = np.array([[[float(c == k)] * kinds for c in classes] for k in range(kinds)])
    reference_is = np.array([np.tile(np.eye(kinds)[k], (len(classes), 1)) for k in range(kinds)])
    ones = np.ones_like(counted)
    agree = (map_is * reference_is).sum(axis=0)

    def ratio(y: NDArray[np.float64], x: NDArray[np.float64]) -> Estimate | None:
        return _ratio(counted, weights, y, x)

    overall = ratio(agree, ones)
    assert overall is not None
    shares = tuple(_ratio_of_all(counted, weights, is_class) for is_class in reference_is)
    proportions = weights[:, None] * counted / counted.sum(axis=1, keepdims=True)
    matrix = np.array([proportions[[c == k for c in classes]].sum(axis=0) for k in range(kinds)])
    return Assessment(
        matrix=matrix,
        overall=overall,
        users=tuple(ratio(map_is[k] * reference_is[k], map_is[k]) for k in range(kinds)),
        producers=tuple(ratio(map_is[k] * reference_is[k], reference_is[k]) for k in range(kinds)),
        shares=shares,
        mapped=tuple(float(row.sum()) for row in matrix),
    )


def _ratio_of_all(
    counts: NDArray[np.float64], weights: NDArray[np.float64], y: NDArray[np.float64]
) -> Estimate:
    found = _ratio(counts, weights, y, np.ones_like(counts))
    assert found is not None
    return found


def _ratio(
    counts: NDArray[np.float64],
    weights: NDArray[np.float64],
    y: NDArray[np.float64],
    x: NDArray[np.float64],
) -> Estimate | None:
    """Y / X with half its interval; None where X is 0."""
    n = counts.sum(axis=1)
    mean_y, mean_x = (counts * y).sum(axis=1) / n, (counts * x).sum(axis=1) / n
    total = float((weights * mean_x).sum())
    if total == 0:
        return None
    value = float((weights * mean_y).sum()) / total
    # s2_y + R^2 s2_x - 2 R s_xy is the sample variance of y - R x.
    residual = (y - mean_y[:, None]) - value * (x - mean_x[:, None])
    variance = (counts * residual**2).sum(axis=1) / (n - 1)
    return Estimate(value, Z95 * float(np.sqrt((weights**2 * variance / n).sum())) / total)

"""Peers that need no training: change vector analysis and IR-MAD, for any bands.

Both judge a scene by its own statistics, so a scene is looked at as a whole first (`fit`); without
that, each image that comes is a scene. Both give every pixel a magnitude, and Otsu's threshold
parts the scene's magnitudes into two classes. The probability m / (m + threshold) says the same on
the scale of other models: it is 0.5 at the threshold.

- CVA: W. A. Malila, "Change vector analysis", LARS 1980. Every band of each date is brought to mean
  0 and deviation 1 over the scene; the magnitude is the length of the difference.
- IR-MAD: A. A. Nielsen, "The regularized iteratively reweighted MAD method", IEEE TIP 2007, without
  the regularisation. Canonical correlations of the two dates, weighted by the probability of no
  change until they rest; the magnitude is the root of the sum of squares of the MAD variates, each
  over its deviation.

Neither says how magnitudes become a map; we take Otsu's threshold for both.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adadino.errors import ConfigError, InputError
from adadino.model.detector import Detector, Normalize, Output

BINS = 256
"""Of Otsu's histogram, as scikit-image has them."""
ROUNDS = 50
"""The most reweightings of IR-MAD."""
REST = 1e-6
"""A largest change of a canonical correlation at which IR-MAD has come to rest."""
TINY = 1e-12


class Fitted(NamedTuple):
    """What turns pixels (N, n) of both dates into magnitudes."""

    means: tuple[Tensor, Tensor]
    """(N, 1) of each date."""
    maps: tuple[Tensor, Tensor]
    """(N, N) of each date; the magnitude is the length of the difference of what they give."""
    threshold: float

    def magnitude(self, before: Tensor, after: Tensor) -> Tensor:
        """(N, n) twice -> (n,), float64."""
        first, second = (
            one @ (pixels.double() - mean)
            for one, pixels, mean in zip(self.maps, (before, after), self.means, strict=True)
        )
        return (first - second).square().sum(0).sqrt()


class TrainingFree(Detector):
    """A detector with nothing to learn; a subclass says how a scene's statistics map pixels."""

    fits: ClassVar[bool] = True
    stride = 1

    def __init__(self) -> None:
        super().__init__()
        self.normalize = Normalize((0.0,) * 3, (1.0,) * 3)
        self.fitted: Fitted | None = None

    @abstractmethod
    def judge(self, before: Tensor, after: Tensor) -> Fitted:
        """Means and maps for pixels (N, n), float64; the threshold follows from them."""

    def fit(self, before: Tensor, after: Tensor) -> None:
        """Take the statistics of a scene.

        Args:
            before: Valid pixels of the first date (N, n).
            after: The same pixels of the second.
        """
        self.fitted = self.statistics(before, after)

    def statistics(self, before: Tensor, after: Tensor) -> Fitted:
        """The statistics of pixels (N, n) of both dates."""
        if before.shape[1] < 2 * len(before):
            raise InputError(
                f"{before.shape[1]} valid pixels are too few for the statistics of {len(before)} "
                "bands; give larger images."
            )
        pixels = before.double(), after.double()
        found = self.judge(*pixels)
        return found._replace(threshold=otsu(found.magnitude(*pixels)))

    def forward(
        self,
        before: Tensor,
        after: Tensor,
        *,
        k: int | None = None,
        chunks: Tensor | None = None,
    ) -> Output:
        """Find the change between two batches of images (B, N, H, W) of any bands."""
        if k is not None or chunks is not None:
            raise ConfigError(f"{type(self).__name__} has no FFN chunks to choose: leave k out.")
        if before.ndim != 4 or before.shape != after.shape:
            raise InputError(
                f"before is {tuple(before.shape)} and after {tuple(after.shape)}: both dates must "
                "have the same bands and size."
            )
        odds = torch.stack([self._odds(*pair) for pair in zip(before, after, strict=True)])
        logits = torch.stack((torch.zeros_like(odds), odds), dim=1)
        return Output(logits.float(), [], None, None)

    def _odds(self, before: Tensor, after: Tensor) -> Tensor:
        """Log-odds of change (H, W) of one pair (N, H, W)."""
        pixels = before.flatten(1), after.flatten(1)
        fitted = self.fitted
        if fitted is None:
            seen = (pixels[0] != 0).any(0) & (pixels[1] != 0).any(0)
            seen = seen if int(seen.sum()) >= 2 * len(before) else torch.ones_like(seen)
            fitted = self.statistics(pixels[0][:, seen], pixels[1][:, seen])
        magnitude = fitted.magnitude(*pixels)
        odds = (magnitude.clamp_min(TINY) / max(fitted.threshold, TINY)).log()
        return odds.view(before.shape[1:])


class ChangeVector(TrainingFree):
    """CVA with z-scored bands."""

    def judge(self, before: Tensor, after: Tensor) -> Fitted:
        """See `TrainingFree.judge`."""
        means = before.mean(1, keepdim=True), after.mean(1, keepdim=True)
        deviations = before.std(1, correction=0), after.std(1, correction=0)
        first, second = (torch.diag(1 / each.clamp_min(TINY)) for each in deviations)
        return Fitted(means, (first, second), 1.0)


class IRMAD(TrainingFree):
    """The iteratively reweighted multivariate alteration detection."""

    def judge(self, before: Tensor, after: Tensor) -> Fitted:
        """See `TrainingFree.judge`."""
        count = len(before)
        weights, last = torch.ones_like(before[0]), before.new_zeros(count)
        for _ in range(ROUNDS):
            shares = weights / weights.sum()
            means = ((before * shares).sum(1, keepdim=True), (after * shares).sum(1, keepdim=True))
            a, b, rho = canonical(before - means[0], after - means[1], shares)
            deviations = (2 * (1 - rho)).clamp_min(TINY).sqrt()[:, None]
            found = Fitted(means, (a / deviations, b / deviations), 1.0)
            if float((rho - last).abs().max()) < REST:
                break
            last, z = rho, found.magnitude(before, after).square()
            # The probability that a sum of N squares is at least as large where nothing changed.
            weights = torch.special.gammaincc(torch.full_like(z, count / 2), z / 2).clamp_min(TINY)
        return found


def canonical(first: Tensor, second: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Canonical variates of two weighted sets of centred pixels (N, n).

    Returns:
        The two maps (N, N), whose rows give variates of variance 1, and their correlations (N,),
        none of them negative.
    """
    whiten = []
    for one in (first, second):
        covariance = (one * shares) @ one.T
        covariance = covariance + TINY * torch.eye(len(one), dtype=one.dtype, device=one.device)
        lower = torch.linalg.cholesky(covariance + 1e-9 * torch.diag(covariance.diagonal()))
        eye = torch.eye(len(one), dtype=one.dtype, device=one.device)
        whiten.append(torch.linalg.solve_triangular(lower, eye, upper=False))
    cross = whiten[0] @ ((first * shares) @ second.T) @ whiten[1].T
    left, rho, right = torch.linalg.svd(cross)
    return left.T @ whiten[0], right @ whiten[1], rho.clamp(0, 1)


def otsu(values: Tensor) -> float:
    """Otsu's threshold: the middle of the bin that parts values with the least variance inside."""
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return max(high, TINY)
    counts = torch.histc(values.double(), BINS, low, high)
    centres = low + (high - low) * (torch.arange(BINS, device=values.device) + 0.5) / BINS
    below, above = counts.cumsum(0), counts.flip(0).cumsum(0).flip(0)
    sums = counts * centres
    mean_below = sums.cumsum(0) / below.clamp_min(1)
    mean_above = sums.flip(0).cumsum(0).flip(0) / above.clamp_min(1)
    between = below[:-1] * above[1:] * (mean_below[:-1] - mean_above[1:]).square()
    return float(centres[int(between.argmax())])

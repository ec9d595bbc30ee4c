"""One stretch of raw values to 0..1 for both dates.

A stretch per tile draws seams and a stretch per date invents change, so there is one low and one
high value per band for the pair: the 2nd and 98th percentiles (what QGIS cuts by default) of the
values of both dates together, where both are valid. Bytes are not stretched: 0..255 means the
same on both dates already.

Up to `SAMPLE_PIXELS` pixels per date every pixel counts and the percentiles are exact. Larger
scenes are sampled on a regular lattice of small windows at full resolution: the same pixels on
every run, whatever overviews the file has, without a second pass over the whole file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

SAMPLE_PIXELS = 2_000_000
LATTICE = 16  # windows per side
PERCENTILES = (2.0, 98.0)

Values = tuple[float, ...]  # one for each band
Pixels = NDArray[np.float32]  # (N, n)


@dataclass(frozen=True)
class Stretch:
    """Values of red, green and blue, or of a model's bands, that become 0 and 1."""

    low: Values
    high: Values

    @classmethod
    def between(cls, low: float, high: float, bands: int = 3) -> Stretch:
        """The same two values for every band."""
        return cls((low,) * bands, (high,) * bands)

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map values (N, h, w) to 0..1; what lies outside is clipped."""
        low = np.array(self.low, dtype=np.float32)[:, None, None]
        high = np.array(self.high, dtype=np.float32)[:, None, None]
        scaled = values - low
        scaled /= high - low
        return np.clip(scaled, 0.0, 1.0, out=scaled)


BYTES = Stretch((0.0, 0.0, 0.0), (255.0, 255.0, 255.0))


def fit_stretch(
    before: Pixels, after: Pixels, percentiles: tuple[float, float] = PERCENTILES
) -> Stretch:
    """Return the stretch of two samples (N, n) of valid pixels.

    A band whose percentiles coincide (a few bright pixels on a flat ground) takes its extremes;
    a band with a single value maps it to 0.
    """
    low, high = [], []
    for band in np.concatenate([before, after], axis=1).astype(np.float64):
        first, last = np.percentile(band, percentiles)
        if not _apart(first, last):
            first, last = band.min(), band.max()
        if not _apart(first, last):
            last = np.nextafter(np.float32(first), np.float32(np.inf)) + 1
        low.append(float(first))
        high.append(float(last))
    return Stretch(tuple(low), tuple(high))


def sample_windows(width: int, height: int) -> Iterator[Window]:
    """Yield the windows of the sample; together they are the whole scene if it is small."""
    if width * height <= SAMPLE_PIXELS:
        yield from all_windows(width, height)
        return
    # The shorter side first: it may be too short for its share, and the longer one makes up.
    short, long = sorted((width, height))
    short_spans = _lattice(short, math.sqrt(SAMPLE_PIXELS / (width * height)))
    taken = sum(end - start for start, end in short_spans)
    long_spans = _lattice(long, min(1.0, SAMPLE_PIXELS / (taken * long)))
    rows, columns = (long_spans, short_spans) if height > width else (short_spans, long_spans)
    for top, bottom in rows:
        for left, right in columns:
            yield Window(left, top, right - left, bottom - top)


def all_windows(width: int, height: int, side: int = 1024) -> Iterator[Window]:
    """Yield windows that cover a scene."""
    for top in range(0, height, side):
        for left in range(0, width, side):
            yield Window(left, top, min(side, width - left), min(side, height - top))


def collect(
    windows: Iterable[tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]],
    bands: int = 3,
) -> tuple[Pixels, Pixels]:
    """Gather the valid pixels (N, n) of both dates, at most `SAMPLE_PIXELS`, from windows."""
    before: list[Pixels] = [np.empty((bands, 0), dtype=np.float32)]
    after: list[Pixels] = [np.empty((bands, 0), dtype=np.float32)]
    count = 0
    for first, second, valid in windows:
        before.append(first[:, valid])
        after.append(second[:, valid])
        count += int(valid.sum())
        if count >= SAMPLE_PIXELS:
            break
    return np.concatenate(before, axis=1), np.concatenate(after, axis=1)


def _lattice(size: int, share: float) -> list[tuple[int, int]]:
    """Split a side into cells and take the middle share of each."""
    cells = min(LATTICE, size)
    edges = [size * i // cells for i in range(cells + 1)]
    spans = []
    for start, end in pairwise(edges):
        length = max(1, math.floor((end - start) * share))
        first = start + (end - start - length) // 2
        spans.append((first, first + length))
    return spans


def _apart(low: float, high: float) -> bool:
    """Whether two values still differ in the precision pixels are computed in."""
    return bool(np.float32(high) > np.float32(low))

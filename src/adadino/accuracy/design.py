"""The design of a sample: the strata of a map, how many pixels of each, and which.

- The sample's size follows from the error one wants for the overall accuracy (Olofsson et al. 2014,
  Eq. 13): n = (sum_h W_h S_h / S(O))^2, where W_h is a stratum's share of the area and
  S_h^2 = U_h (1 - U_h) for the user's accuracy U_h that one expects.
- A rare stratum gets at least `LEAST` pixels, as the paper advises (50 to 100); the others share
  the rest by their areas.
- The pixels of a stratum are drawn at random without replacement. The draw depends on the map and
  the seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.errors import InputError

CLASSES = ("no change", "change")
"""The classes of map and reference, by their number."""
EXPECTED = {"change": 0.7, "buffer": 0.85, "no change": 0.95}
"""The user's accuracy that is expected of a stratum; it decides the sample's size, no estimate."""
LEAST = 75
"""The fewest pixels of a stratum: the middle of the paper's 50 to 100."""
ROWS = 1024
"""Rows that are read at once."""


@dataclass(frozen=True)
class Stratum:
    """A part of the map from which pixels are drawn."""

    name: str
    mapped: int
    """The class that the map gives to it."""
    pixels: int
    sampled: int = 0


@dataclass(frozen=True)
class Design:
    """The strata of a map, and how pixels were drawn."""

    strata: tuple[Stratum, ...]
    seed: int
    error: float
    """Half the width of the 95 % interval of the overall accuracy that was asked for."""
    buffer: int = 0
    """How many pixels around change are a stratum of their own."""


class Drawn(NamedTuple):
    """Pixels that were drawn, in random order."""

    row: NDArray[np.int64]
    col: NDArray[np.int64]
    stratum: NDArray[np.int64]


def sample_size(weights: Sequence[float], expected: Sequence[float], error: float) -> int:
    """How many pixels give the overall accuracy to within an error.

    Args:
        weights: The share of the area of each stratum.
        expected: The user's accuracy that is expected of each.
        error: Half the width of the 95 % interval.
    """
    if not 0 < error < 0.5:
        raise InputError(f"error is {error}; give a share between 0 and 0.5, such as 0.02.")
    spread = sum(w * math.sqrt(u * (1 - u)) for w, u in zip(weights, expected, strict=True))
    # Rounded first: (x / y)^2 of shares is rarely a whole number by more than rounding.
    return math.ceil(round((spread / (error / 1.96)) ** 2, 6))


def allocate(sizes: Sequence[int], total: int) -> list[int]:
    """Pixels of each stratum: in proportion to its size, but at least `LEAST` where it has them."""
    least = [min(size, LEAST) for size in sizes]
    shares = [total * size / sum(sizes) for size in sizes]
    rare = [few > share for few, share in zip(least, shares, strict=True)]
    rest = max(total - sum(n for n, is_rare in zip(least, rare, strict=True) if is_rare), 0)
    common = sum(size for size, is_rare in zip(sizes, rare, strict=True) if not is_rare)
    return [
        few if is_rare else min(size, max(few, round(rest * size / common)))
        for few, size, is_rare in zip(least, sizes, rare, strict=True)
    ]


def plan(
    mask: Any, *, error: float, buffer: int = 0, size: int | None = None, seed: int = 0
) -> Design:
    """Count the strata of a map, and decide how many pixels of each are judged.

    Args:
        mask: An open change mask: 1 change, 0 none, everything else no data.
        error: Half the width of the 95 % interval of the overall accuracy.
        buffer: Pixels around change that are a stratum of their own: there omissions hide.
        size: The number of pixels, if it is not to follow from the error.
        seed: What the draw depends on.

    Raises:
        InputError: A stratum is empty.
    """
    names = _names(buffer)
    counted = np.zeros(len(names), dtype=np.int64)
    for _, band in _bands(mask, buffer):
        counted += np.bincount(band[band >= 0], minlength=len(names))
    for name, pixels in zip(names, counted, strict=True):
        if not pixels:
            raise InputError(
                f"the map has no pixel of the stratum {name!r}: no sample can say anything of it. "
                + _way_out(name)
            )
    weights = (counted / counted.sum()).tolist()
    total = size or sample_size(weights, [EXPECTED[name] for name in names], error)
    sampled = allocate(counted.tolist(), total)
    strata = tuple(
        Stratum(name, int(name == "change"), int(pixels), number)
        for name, pixels, number in zip(names, counted, sampled, strict=True)
    )
    return Design(strata, seed, error, buffer)


def draw(mask: Any, design: Design) -> Drawn:
    """Draw the pixels of a design from its map."""
    rng = np.random.default_rng(design.seed)
    wanted = [
        np.sort(rng.choice(stratum.pixels, stratum.sampled, replace=False))
        for stratum in design.strata
    ]
    found: list[tuple[int, int, int]] = []
    seen = [0] * len(wanted)
    for top, strata in _bands(mask, design.buffer):
        for index, ranks in enumerate(wanted):
            places = np.flatnonzero(strata.ravel() == index)
            here = ranks[(ranks >= seen[index]) & (ranks < seen[index] + len(places))]
            for place in places[here - seen[index]]:
                row, col = divmod(int(place), strata.shape[1])
                found.append((top + row, col, index))
            seen[index] += len(places)
    # In random order nobody sees from its neighbours in the table what the map says of a pixel.
    rows = np.array(found, dtype=np.int64)[rng.permutation(len(found))]
    return Drawn(rows[:, 0], rows[:, 1], rows[:, 2])


def _names(buffer: int) -> tuple[str, ...]:
    return ("change", "buffer", "no change") if buffer else ("change", "no change")


def _way_out(name: str) -> str:
    if name == "buffer":
        return "Leave --buffer out."
    if name == "change":
        return "Lower the threshold until something is change, or judge the map as unchanged."
    return "Take a smaller --buffer, or a higher threshold."


def _bands(mask: Any, buffer: int) -> Iterator[tuple[int, NDArray[np.int8]]]:
    """(first row, number of the stratum of every pixel) from top to bottom; -1 is no data."""
    from rasterio.windows import Window

    last = len(_names(buffer)) - 1
    for top in range(0, mask.height, ROWS):
        bottom = min(top + ROWS, mask.height)
        # Change in neighbouring bands has its buffer here.
        above, below = max(top - buffer, 0), min(bottom + buffer, mask.height)
        band = mask.read(1, window=Window(0, above, mask.width, below - above))
        strata = np.where(band == 0, last, -1).astype(np.int8)
        if buffer:
            strata[_near(band == 1, buffer) & (band == 0)] = 1
        strata[band == 1] = 0
        yield top, strata[top - above : bottom - above]


def _near(change: NDArray[np.bool_], distance: int) -> NDArray[np.bool_]:
    from skimage.morphology import isotropic_dilation

    near: NDArray[np.bool_] = isotropic_dilation(change, distance)  # type: ignore[no-untyped-call]
    return near

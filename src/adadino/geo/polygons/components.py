"""The connected changes of a scene and their probabilities, from bands of rows.

- Each band is labelled alone; labels that touch across a seam are joined by union-find. Memory is
  one band plus a few numbers for each component, so that the scene's height does not matter.
- Probabilities are added as whole numbers, so that a sum does not depend on where bands, or the
  parts of a scene that different processes saw, begin and end.
- A component is named by its first pixel in reading order, which no other component has. GDAL's
  polygon of the same component starts at the same pixel, so the two meet without rasterising.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label

Band = tuple[int, NDArray[np.generic], NDArray[np.generic]]
"""The first row, the mask (h, W) and the probability (h, W) of a band of rows."""

ONE = 2**28
"""What a probability of 1 adds to a sum: as fine as float32, with room for 34 gigapixels."""

CHANGE, NODATA = 1, 255
"""The mask's values for change and for nodata; 0 is no change."""


@dataclass(frozen=True)
class Components:
    """One entry for each connected change, in reading order of the first pixels."""

    row: NDArray[np.int64]
    """The first pixel's row: the smallest."""
    col: NDArray[np.int64]
    """The first pixel's column: the smallest of that row."""
    count: NDArray[np.int64]
    """The number of pixels."""
    total: NDArray[np.int64]
    """The sum of the pixels' probabilities, in units of 1 / `ONE`."""
    prob_max: NDArray[np.float64]
    """The highest probability of the pixels."""

    @property
    def prob_mean(self) -> NDArray[np.float64]:
        """The mean probability of the pixels."""
        return self.total / ONE / self.count

    def take(self, which: NDArray[np.generic]) -> Components:
        """Some of the entries, or all of them in another order."""
        return Components(*(getattr(self, field.name)[which] for field in fields(self)))


class Labelled(NamedTuple):
    """The components of a mask, and which labels of which band are part of each."""

    components: Components
    component: NDArray[np.intp]
    """For each label of all bands, in the order of the bands, the number of its component."""
    firsts: list[int]
    """For each band, how many labels the bands above have."""


def label_bands(bands: Iterable[Band], *, width: int) -> Labelled:
    """Number the connected changes of a mask: pixels that share an edge are one change.

    Args:
        bands: Full rows, from top to bottom, each band directly below the one before.
        width: The mask's number of columns.
    """
    parts: list[Sums] = []
    parent: list[int] = []  # of the labels of all bands; in pixels they count from 1
    above = np.zeros(width, np.int64)
    firsts: list[int] = []
    for row, mask, probability in bands:
        changed = mask == CHANGE
        labels, found = label_band(mask)
        at = np.flatnonzero(changed)
        values = probability.ravel()[at].astype(np.float64)
        total = np.rint(values * ONE).astype(np.int64)
        each = Sums(first=at + row * width, pixels=np.ones_like(at), total=total, top=values)
        parts.append(each.group(labels.ravel()[at] - 1, found))

        top, bottom = np.where(labels[[0, -1]] > 0, labels[[0, -1]] + len(parent), 0)
        firsts.append(len(parent))
        parent.extend(range(len(parent), len(parent) + found))
        for upper, lower in touching(above, top):
            join(parent, upper - 1, lower - 1)
        above = bottom
    # A root is its component's smallest label, and labels run in reading order: so do the roots.
    which, count = groups(parent)
    whole = Sums(*map(np.concatenate, zip(*parts, strict=True))).group(which, count)
    return Labelled(whole.components(width), which, firsts)


def label_band(mask: NDArray[np.generic]) -> tuple[NDArray[np.int64], int]:
    """The changes of a band alone, numbered from 1 in reading order, and how many there are."""
    labels, count = label(  # type: ignore[no-untyped-call]  # scikit-image has no types
        mask == CHANGE, connectivity=1, return_num=True
    )
    return labels, count


class Sums(NamedTuple):
    """What pixels or pieces of components add up to."""

    first: NDArray[np.int64]
    """The first pixel's index in the scene."""
    pixels: NDArray[np.int64]
    total: NDArray[np.int64]
    """The sum of the probabilities, in units of 1 / `ONE`."""
    top: NDArray[np.float64]
    """The highest probability."""

    def group(self, which: NDArray[np.intp], size: int) -> Sums:
        """Gather the entries into `size` groups; entry i belongs to group `which[i]`."""
        first = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(first, which, self.first)
        top = np.full(size, -np.inf)
        np.maximum.at(top, which, self.top)
        pixels = np.zeros(size, np.int64)
        np.add.at(pixels, which, self.pixels)
        total = np.zeros(size, np.int64)
        np.add.at(total, which, self.total)
        return Sums(first, pixels, total, top)

    def take(self, order: NDArray[np.intp]) -> Sums:
        """The same entries in another order."""
        first, pixels, total, top = self
        return Sums(first[order], pixels[order], total[order], top[order])

    def components(self, width: int) -> Components:
        """The same with rows and columns, in a scene of so many columns."""
        row, col = np.divmod(self.first, width)
        return Components(row, col, self.pixels, self.total, self.top)


def touching(above: NDArray[np.int64], below: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The pairs of labels that touch across a seam, each once."""
    both = np.stack([above, below])
    both = np.unique(both[:, both.all(axis=0)], axis=1)
    return zip(both[0].tolist(), both[1].tolist(), strict=True)


def groups(parent: list[int]) -> tuple[NDArray[np.intp], int]:
    """The number of each label's group, in the order of their smallest labels, and how many."""
    each = np.array([_root(parent, i) for i in range(len(parent))], np.intp)
    roots, which = np.unique(each, return_inverse=True)
    return which, len(roots)


def _root(parent: list[int], i: int) -> int:
    """The smallest label that `i` is joined to; halves the path for the next time."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def join(parent: list[int], i: int, j: int) -> None:
    """Put two labels into one group."""
    i, j = _root(parent, i), _root(parent, j)
    parent[max(i, j)] = min(i, j)

"""The blocks of a pair that are surveyed each for itself, and how their answers are blended.

- Blocks lie on a lattice of the pair's own pixels, which knows nothing of units. Each has its own
  stretch, shift and chunks, found on what it covers.
- A block reaches over its borders. Where blocks overlap, each predicts with its own survey, and the
  probabilities are blended by weights that fall from one to the other in a straight line and add
  up to 1. So a choice fades into the next one, and no border shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import shapely
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.area.units import PlacedDates, Unit
from adadino.errors import ConfigError
from adadino.geo.grid import Grid
from adadino.geo.read.interest import Interest
from adadino.geo.tile.tiles import TilePlan
from adadino.scene.extent import Extent
from adadino.scene.options import SceneOptions

OVERLAP = 512
"""Pixels across a border in which two blocks are blended: a power of 2, so that weights are exact.
A difference of 0.1 between two answers is then a slope of 0.0002 for each pixel."""

Part = tuple[slice, slice]
"""Rows and columns of a pair."""


@dataclass(frozen=True)
class Block:
    """A rectangle of a pair; its borders to other blocks run through the middle of overlaps."""

    top: int
    left: int
    bottom: int
    right: int
    shape: tuple[int, int]
    """That of the whole pair."""

    @property
    def name(self) -> str:
        """Its first row and column."""
        return f"{self.top:07d}-{self.left:07d}"

    @property
    def reach(self) -> Part:
        """The rows and columns in which it has a weight: the block and half of each overlap."""
        rows = _reached(self.top, self.bottom, self.shape[0])
        return rows, _reached(self.left, self.right, self.shape[1])

    def weights(self, part: Part) -> NDArray[np.float64]:
        """Its weight for each pixel (h, w) of a part of the pair; those of all blocks sum to 1."""
        rows = _ramp(part[0], self.top, self.bottom, self.shape[0])
        cols = _ramp(part[1], self.left, self.right, self.shape[1])
        return np.outer(rows, cols)

    @property
    def extent(self) -> Extent:
        """Where its survey looks: all of its reach."""
        return _Within(reach=self.reach)


@dataclass(frozen=True)
class _Within(Extent):
    """A rectangle in pixels as the area of interest."""

    reach: Part = (slice(0), slice(0))

    @property
    def interest(self) -> Callable[[Grid], Interest] | None:
        """Finds it on any grid."""
        window = Window.from_slices(*self.reach)
        box = np.array([shapely.box(0, 0, window.width, window.height)], object)
        return lambda grid: Interest("block", box, window, None)


def check_side(side: int) -> None:
    """Refuse blocks that are smaller than their overlaps; 0 is one survey for all.

    Raises:
        ConfigError: They are.
    """
    if side and side < 2 * OVERLAP:
        raise ConfigError(
            f"survey_block is {side}, must be at least {2 * OVERLAP} pixels, or 0 for one survey "
            "of the whole pair."
        )


def cut_blocks(shape: tuple[int, int], side: int) -> list[Block]:
    """Cut a pair into blocks of about `side` pixels, all of one size; none if `side` is 0.

    A rest would be too small to survey: the number of blocks is rounded instead.
    """
    return list(_meeting(shape, side, (slice(0, shape[0]), slice(0, shape[1])))) if side else []


def parts_of(unit: Unit, shape: tuple[int, int], side: int) -> Iterator[tuple[Block, Part]]:
    """The blocks that reach into a unit, and the rows and columns of the pair where they do."""
    for block in _meeting(shape, side, unit.part):
        rows, cols = map(_common, unit.part, block.reach)
        yield block, (rows, cols)


def _meeting(shape: tuple[int, int], side: int, part: Part) -> Iterator[Block]:
    """The blocks that reach into a part of a pair, row by row."""
    near = (
        [(a, b) for a, b in _spans(size, side) if _meet(_reached(a, b, size), span)]
        for size, span in zip(shape, part, strict=True)
    )
    for (top, bottom), (left, right) in product(*near):
        yield Block(top, left, bottom, right, shape)


def count_tiles(
    scene: PlacedDates, units: Sequence[Unit], options: SceneOptions, side: int = 0
) -> int:
    """The tiles that the units of a scene send through the model, if nothing is empty.

    Args:
        scene: The pair.
        units: Those of its units that count.
        options: Tile and overlap.
        side: That of its blocks; what lies in several is predicted for each.
    """
    grid = scene.grid
    tiles = TilePlan(*grid.shape, tile=options.tile, overlap=options.overlap)
    if not side:
        return sum(tiles.number_meeting(*unit.part) for unit in units)
    parts = (part for unit in units for _, part in parts_of(unit, grid.shape, side))
    return sum(tiles.number_meeting(*part) for part in parts)


class Blend:
    """The probabilities of a unit, added up block by block."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._total = np.zeros((unit.height, unit.width))
        self._weight = np.zeros_like(self._total)

    def add(self, block: Block, part: Part, row: int, answer: NDArray[np.float32]) -> None:
        """Add the answer (h, w) of a block to the rows from `row` on of a part of the pair."""
        first = part[0].start + row
        rows = slice(first, first + len(answer))
        known = ~np.isnan(answer)
        weight = block.weights((rows, part[1])) * known
        top, left = self._unit.row, self._unit.col
        at = (
            slice(rows.start - top, rows.stop - top),
            slice(part[1].start - left, part[1].stop - left),
        )
        self._total[at] += weight * np.where(known, answer, 0)
        self._weight[at] += weight

    def probability(self) -> NDArray[np.float32]:
        """The blended probabilities, NaN where no block has one.

        A shift that differs moves the edge of nodata by a pixel: what one block knows counts alone.
        """
        known = self._weight > 0
        total = np.divide(self._total, self._weight, where=known, out=np.full(known.shape, np.nan))
        found: NDArray[np.float32] = total.astype(np.float32)
        return found


def _spans(size: int, side: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each block along one side of a pair."""
    count = max(1, round(size / side))
    return pairwise(size * i // count for i in range(count + 1))


def _reached(first: int, last: int, size: int) -> slice:
    half = OVERLAP // 2
    return slice(max(first - half, 0), min(last + half, size))


def _ramp(span: slice, first: int, last: int, size: int) -> NDArray[np.float64]:
    """The weight along one side: from 0 to 1 across the first border, and back at the last."""
    at = np.arange(span.start, span.stop) + 0.5
    rise = _step(at, first) if first > 0 else np.ones(len(at))
    return rise - _step(at, last) if last < size else rise


def _step(at: NDArray[np.float64], border: int) -> NDArray[np.float64]:
    if not OVERLAP:
        return (at > border).astype(np.float64)
    return np.clip((at - (border - OVERLAP // 2)) / OVERLAP, 0.0, 1.0)


def _common(a: slice, b: slice) -> slice:
    return slice(max(a.start, b.start), min(a.stop, b.stop))


def _meet(a: slice, b: slice) -> bool:
    return bool(a.start < b.stop and b.start < a.stop)

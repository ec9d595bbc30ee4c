"""The tile plan of a scene: equal squares with an overlap, and reflect padding beyond the edges.

- All tiles have one size, so that they stack into batches; where the tiles reach beyond the
  scene, the excess is shared between both sides and filled by reflection.
- The plan depends on the size of the scene and the settings only: a killed run, another batch
  size, or a process that has only a part of the scene finds the same tiles with the same numbers.
- It is computed and not stored: a country at half a metre has a hundred million tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from adadino.errors import ConfigError

Scalar = TypeVar("Scalar", bound=np.generic)
Padding = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Tile:
    """One square of the plan; its top left corner may lie outside the scene."""

    index: int
    """Its number in the plan, row by row."""
    row: int
    """The scene row of its first row; negative above the scene."""
    col: int
    """The scene column of its first column; negative left of the scene."""
    size: int
    """Its height and width."""
    scene: tuple[int, int]
    """The height and width of the scene."""

    @property
    def window(self) -> tuple[slice, slice]:
        """The scene's rows and columns under the tile; `Window.from_slices(*tile.window)`."""
        height, width = self.scene
        return (
            slice(max(self.row, 0), min(self.row + self.size, height)),
            slice(max(self.col, 0), min(self.col + self.size, width)),
        )

    def seen_from(self, rows: slice, cols: slice) -> Tile:
        """The same tile of a smaller scene: a rectangle of this one."""
        scene = rows.stop - rows.start, cols.stop - cols.start
        return Tile(self.index, self.row - rows.start, self.col - cols.start, self.size, scene)

    @property
    def padding(self) -> Padding:
        """What is missing at (top, bottom), (left, right): what `pad_reflect` adds."""
        rows, cols = self.window
        return (
            (rows.start - self.row, self.row + self.size - rows.stop),
            (cols.start - self.col, self.col + self.size - cols.stop),
        )

    @property
    def inside(self) -> tuple[slice, slice]:
        """The tile's own rows and columns that lie in the scene: `window`, seen from the tile."""
        rows, cols = self.window
        return (
            slice(rows.start - self.row, rows.stop - self.row),
            slice(cols.start - self.col, cols.stop - self.col),
        )


class TilePlan(Sequence[Tile]):
    """The tiles of a scene, row by row; a tile is made when it is asked for.

    Every pixel of the scene lies in at least one tile.
    """

    def __init__(
        self,
        height: int,
        width: int,
        *,
        tile: int,
        overlap: int,
    ) -> None:
        """Cover a scene with overlapping tiles.

        Args:
            height: Rows of the scene, at least 1.
            width: Columns of the scene, at least 1.
            tile: Side of a tile.
            overlap: Rows and columns that neighbours share.

        Raises:
            ConfigError: The tile is empty, or the overlap leaves no step between tiles.
        """
        if tile < 1:
            raise ConfigError(f"a tile of {tile} pixels is empty; choose 1 or more.")
        if not 0 <= overlap < tile:
            raise ConfigError(
                f"an overlap of {overlap} pixels does not fit tiles of {tile}; choose 0 to "
                f"{tile - 1}."
            )
        self._size, self._scene = tile, (height, width)
        self._rows = _starts(height, tile, tile - overlap)
        self._cols = _starts(width, tile, tile - overlap)

    def __len__(self) -> int:
        return len(self._rows) * len(self._cols)

    @overload
    def __getitem__(self, index: int) -> Tile: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tile]: ...
    def __getitem__(self, index: int | slice) -> Tile | list[Tile]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"tile {index} of {len(self)}")
        row, col = divmod(index, len(self._cols))
        return Tile(index, self._rows[row], self._cols[col], self._size, self._scene)

    def __iter__(self) -> Iterator[Tile]:
        return map(self.__getitem__, range(len(self)))

    def meeting(self, rows: slice, cols: slice) -> list[Tile]:
        """The tiles that share pixels with a rectangle of the scene, in the plan's order."""
        down, across = self._near(self._rows, rows), self._near(self._cols, cols)
        return [self[i * len(self._cols) + j] for i in down for j in across]

    def number_meeting(self, rows: slice, cols: slice) -> int:
        """How many tiles share pixels with a rectangle of the scene."""
        return len(self._near(self._rows, rows)) * len(self._near(self._cols, cols))

    def _near(self, starts: range, span: slice) -> range:
        """The numbers of the starts whose tiles reach into a span."""
        first = -((starts.start + self._size - span.start - 1) // starts.step)
        last = (span.stop - 1 - starts.start) // starts.step
        return range(max(first, 0), min(last, len(starts) - 1) + 1)


def _starts(length: int, tile: int, step: int) -> range:
    """First pixels of the tiles along one axis."""
    count = max(1, math.ceil((length - tile) / step) + 1)
    excess = (count - 1) * step + tile - length
    first = -(excess // 2 % step)  # a single tile in a narrow scene has much excess
    return range(first, first + count * step, step)


def pad_reflect(array: NDArray[Scalar], padding: Padding) -> NDArray[Scalar]:
    """Continue an array (H, W, ...) by its mirror image, as often as the padding needs.

    The edge itself is not repeated. One row or column alone is repeated.

    Args:
        array: At least 1 x 1.
        padding: Pixels to add at (top, bottom), (left, right).
    """
    if padding == ((0, 0), (0, 0)):
        return array
    rows, cols = (_mirrored(n, *pad) for n, pad in zip(array.shape[:2], padding, strict=True))
    return array[rows[:, None], cols]


def _mirrored(length: int, before: int, after: int) -> NDArray[np.intp]:
    """Indices -before .. length + after, folded into 0 .. length as between two mirrors."""
    last = length - 1
    # The distance from the nearest multiple of the period 2 * last is a triangle wave.
    return last - abs(np.arange(-before, length + after) % max(2 * last, 1) - last)

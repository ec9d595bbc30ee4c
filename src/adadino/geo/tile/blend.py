"""One probability map from overlapping tiles, without seams and without holding the scene.

- Each tile is weighted by a raised cosine over the overlap: a pixel's probability moves smoothly
  from one tile's answer to its neighbour's, and a tile's edge, which has seen the least context,
  counts least.
- Tiles are accumulated in the order of the plan, whatever order they come in: floating-point
  sums depend on the order, and the same scene must give the same bytes.
- Memory is one band of rows, a tile high, plus tiles that came before their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from adadino.geo.tile.tiles import Tile

Float = NDArray[np.float32]


def blend_weight(tile: int, overlap: int) -> Float:
    """How much each pixel of a tile counts where tiles overlap.

    Args:
        tile: Side of a tile.
        overlap: Pixels over which the weight rises, at each side.

    Returns:
        (tile, tile), more than 0 and at most 1.
    """
    if overlap == 0:
        return np.ones((tile, tile), np.float32)
    from_edge = np.minimum(np.arange(tile), np.arange(tile)[::-1]) + 0.5
    ramp = np.sin(np.pi / 2 * np.minimum(from_edge / overlap, 1)) ** 2
    return np.outer(ramp, ramp).astype(np.float32)


class Blender:
    """Collects the tiles' probabilities and hands out the rows that are complete.

    Add a tile, take the finished rows, and so on until the last::

        blender = Blender(height, width, tiles, blend_weight(256, 64))
        for row, block in blender.finished():  # above the first tile: nothing to wait for
            write(row, block)
        for tile in tiles:
            blender.add(tile, model(read(tile)))
            for row, block in blender.finished():
                write(row, block)
    """

    def __init__(
        self,
        height: int,
        width: int,
        tiles: Iterable[Tile],
        weight: Float,
        *,
        start: int = 0,
        channels: int | None = None,
    ) -> None:
        """Expect these tiles.

        Args:
            height: Rows of the scene.
            width: Columns of the scene.
            tiles: Those that will be added; pixels that lie in none come out as NaN.
            weight: The weight of a tile's pixels (tile, tile), from `blend_weight`.
            start: The first row wanted; a resumed run has those above. Tiles that end above
                it may be left out of `tiles`.
            channels: Maps that are blended alike: tiles and blocks are (channels, h, w), not (h,
                w).
        """
        self._height = height
        self._due = deque(sorted(tiles, key=lambda tile: tile.index))
        self._expected = {tile.index for tile in self._due}
        self._arrived: dict[int, Float | None] = {}
        self._weight = weight
        self._top = start  # the scene row of the first row held
        rows = min(len(weight), height)
        above = () if channels is None else (channels,)
        self._shape = (*above, *weight.shape)
        self._sum = np.zeros((*above, rows, width), np.float32)
        self._weights = np.zeros((rows, width), np.float32)

    def add(self, tile: Tile, probability: Float | None) -> None:
        """Take one tile's probabilities (tile, tile); tiles may come in any order.

        None stands for a tile without data. Pixels without data are NaN, in every tile that has
        them, and come out as NaN.

        Raises:
            ValueError: The tile is not expected, or no longer; or it has another size.
        """
        if tile.index not in self._expected:
            raise ValueError(f"tile {tile.index} was added before or is not among the tiles")
        if probability is not None and probability.shape != self._shape:
            raise ValueError(f"a tile is {self._shape}, not {probability.shape}")
        self._expected.remove(tile.index)
        # A copy: the caller may reuse its batch before this tile's turn comes.
        copied = None if probability is None else np.array(probability, np.float32)
        self._arrived[tile.index] = copied

    def finished(self) -> Iterator[tuple[int, Float]]:
        """Yield (first row, block (h, width)) for the rows that no later tile can touch.

        Over all calls, every row appears once and in order.
        """
        while True:
            complete = self._due[0].row if self._due else self._height
            while self._top < complete:
                yield self._release(min(complete - self._top, len(self._weights)))
            if not self._due or self._due[0].index not in self._arrived:
                return
            tile = self._due.popleft()
            probability = self._arrived.pop(tile.index)
            if probability is not None:
                self._accumulate(tile, probability)

    def _accumulate(self, tile: Tile, probability: Float) -> None:
        rows, cols = tile.window
        inside = tile.inside
        # Rows above the first one held can only be those before `start`.
        skipped = max(self._top - rows.start, 0)
        inside = slice(inside[0].start + skipped, inside[0].stop), inside[1]
        held = slice(max(rows.start - self._top, 0), max(rows.stop - self._top, 0)), cols
        weight = self._weight[inside]
        self._sum[..., *held] += weight * probability[..., *inside]
        self._weights[held] += weight

    def _release(self, rows: int) -> tuple[int, Float]:
        ready = self._sum[..., :rows, :]
        block = np.full(ready.shape, np.nan, np.float32)
        covered = self._weights[:rows] > 0
        np.divide(ready, self._weights[:rows], out=block, where=covered)
        np.clip(block, 0, 1, out=block)  # rounding must not leave the range of a probability
        for band in (self._sum, self._weights):
            kept = band.shape[-2] - rows
            band[..., :kept, :] = band[..., rows:, :]
            band[..., kept:, :] = 0
        first = self._top
        self._top += rows
        return first, block

"""Tiles as the model takes them, read ahead by threads.

- Each thread has columns of the scene to itself, because each opens the files for itself and GDAL
  keeps the blocks it decoded for each opened file: with tiles dealt out at random every thread
  would decode every block.
- Bytes stay bytes until they are on the model's device: a quarter of what floats would take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.geo.read.reader import PairReader
from adadino.geo.tile.fill import fill_invalid
from adadino.geo.tile.tiles import Tile, pad_reflect
from adadino.runtime.protocol import Images

COLUMNS = 512, 2048
"""The fewest and most columns one thread reads before the next thread's begin."""
AHEAD = 128 * 2**20
"""The bytes of tiles that may wait for the model."""


Group = Sequence[Tile]
Read = tuple[Group, list[Images | None]]
"""Tiles and their images; None where a tile has no valid pixel."""


def read_tile(reader: PairReader, tile: Tile) -> Images | None:
    """Read a tile, or None if nothing in it is valid and wanted."""
    window = Window.from_slices(*tile.window)
    read = reader.read_bytes if reader.holds_bytes else reader.read
    before, after, valid = read(window)
    wanted = reader.wanted(window, valid)
    if not wanted.any():
        return None

    def whole(image: NDArray[np.generic]) -> NDArray[np.generic]:
        filled = fill_invalid(np.moveaxis(image, 0, -1), valid)  # (3, h, w) -> (h, w, 3)
        padded = pad_reflect(filled, tile.padding)
        return np.ascontiguousarray(np.moveaxis(padded, -1, 0))

    return Images(whole(before), whole(after), wanted)


def read_groups(
    reader: PairReader, groups: Iterable[Group], *, readers: int, size: int, step: int
) -> Generator[Read, None, None]:
    """Yield groups of tiles in their order, while threads read those that follow.

    Args:
        reader: The open pair.
        groups: What to read.
        readers: The number of threads.
        size: Side of a tile.
        step: Columns from one tile to the next.
    """
    pools = [ThreadPoolExecutor(1, thread_name_prefix="reader") for _ in range(readers)]
    columns = min(max(COLUMNS[0], reader.grid.width // readers), COLUMNS[1])
    # Far enough ahead that every thread has work, as far as memory allows.
    ahead = min(readers * (columns // step + 1), AHEAD // (24 * size**2))
    waiting: deque[tuple[Group, list[Future[Images | None]]]] = deque()
    count = 0
    try:
        for group in groups:
            futures = [
                pools[tile.col // columns % readers].submit(read_tile, reader, tile)
                for tile in group
            ]
            waiting.append((group, futures))
            count += len(group)
            while len(waiting) > 1 and count - len(waiting[0][0]) > max(ahead, len(group)):
                count -= len(waiting[0][0])
                yield _read(*waiting.popleft())
        while waiting:
            yield _read(*waiting.popleft())
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _read(group: Group, futures: list[Future[Images | None]]) -> Read:
    return group, [future.result() for future in futures]

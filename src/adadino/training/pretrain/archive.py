"""An archive of images without labels, as tiles for pretraining; it may be larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adadino.data.images import is_image, read_image, read_size
from adadino.data.synthetic import make_pair
from adadino.errors import DataError


def read_tiles(
    folders: Sequence[str], side: int, *, limit: int, synthetic: int
) -> NDArray[np.uint8]:
    """Cut every image of an archive into tiles (N, 3, side, side).

    Sizes are read first, so that no more than the tiles that are kept, and one image, are held.

    Args:
        folders: Where its images are, at any depth; labels are left out.
        side: Of a tile, in pixels.
        limit: At most so many tiles, drawn evenly.
        synthetic: Scenes of the synthetic world to add, both dates of each.

    Raises:
        DataError: There is nothing to cut.
    """
    files = sorted(
        path
        for folder in folders
        for path in Path(folder).rglob("*")
        if is_image(path.name) and not path.name.startswith(".") and path.parent.name != "label"
    )
    if not files and not synthetic:
        where = ", ".join(folders) or "no folder"
        raise DataError(f"there are no images in {where}; give --images DIR, or --synthetic N.")
    corners = [_corners(*read_size(path), side) for path in files]
    total = sum(map(len, corners)) + 2 * synthetic
    keep = np.unique(np.linspace(0, total - 1, min(limit, total)).astype(int))
    tiles, first = [], 0
    for path, places in zip(files, corners, strict=True):
        wanted = keep[(keep >= first) & (keep < first + len(places))] - first
        if len(wanted):
            image = _at_least(read_image(path), side)
            for row, column in (places[i] for i in wanted):
                tile = image[row : row + side, column : column + side]
                tiles.append(tile.transpose(2, 0, 1).copy())
        first += len(places)
    for index in keep[keep >= first] - first:
        # Seeds of their own: no scene of a dataset, test or demonstration is seen here.
        pair = make_pair(770_000_000 + int(index) // 2, side)
        tiles.append((pair.after if index % 2 else pair.before).transpose(2, 0, 1))
    return np.stack(tiles)


def _corners(height: int, width: int, side: int) -> list[tuple[int, int]]:
    """Rows and columns where tiles begin that cover an image; the last ones reach back."""
    return [
        (min(top, max(height - side, 0)), min(left, max(width - side, 0)))
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]


def _at_least(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """An image, mirrored where it is smaller than a tile."""
    missing = [max(side - n, 0) for n in image.shape[:2]]
    if not any(missing):
        return image
    return np.pad(image, [(0, missing[0]), (0, missing[1]), (0, 0)], mode="symmetric")

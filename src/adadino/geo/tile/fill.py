"""What the model sees where a scene has no data: the valid pixels mirrored into the hole.

Holes filled with a constant have sharp edges, and a network answers to edges. Each invalid
pixel is therefore taken from the other side of its nearest valid pixel along its row or column,
whichever is nearer: the reflection that also pads a scene's edges. Where a pixel comes from
depends on the valid mask alone, so both dates, given the one mask they share, are filled alike.
The filled values are for the model only: the stretch is made from valid pixels, and the outputs
are nodata there.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]


def fill_invalid(image: NDArray[Scalar], valid: Mask) -> NDArray[Scalar]:
    """Replace the invalid pixels of an image by reflections of the valid ones.

    Args:
        image: (H, W) or (H, W, C).
        valid: (H, W); the pixels where both dates have data.

    Returns:
        The image itself where all is valid, zeros where nothing is, else a filled copy.
    """
    if valid.all():
        return image
    if not valid.any():
        return np.zeros_like(image)
    # The first round reaches every row and column that has a valid pixel. A pixel it leaves has
    # a filled one in its row, in the column of any valid pixel: the second round reaches it.
    while not valid.all():
        rows, cols, reached = _sources(valid)
        image = image[rows, cols]
        valid = valid | reached
    return image


def _sources(valid: Mask) -> tuple[Index, Index, Mask]:
    """For each pixel: the row and column to take it from, and whether there is such a place."""
    rows: Index
    cols: Index
    rows, cols = np.indices(valid.shape)  # type: ignore[assignment]
    near_row, row_distance = _nearest(valid.T, rows.T)
    near_row, row_distance = near_row.T, row_distance.T
    near_col, col_distance = _nearest(valid, cols)
    vertical = row_distance < col_distance
    reached = np.minimum(row_distance, col_distance) < _far(valid)
    near_row = np.where(vertical & reached, near_row, rows)
    near_col = np.where(~vertical & reached, near_col, cols)
    # Beyond the nearest valid pixel, as far as this one is before it; if that is no good, itself.
    far_row = np.clip(2 * near_row - rows, 0, valid.shape[0] - 1)
    far_col = np.clip(2 * near_col - cols, 0, valid.shape[1] - 1)
    mirrored = valid[far_row, far_col]
    return np.where(mirrored, far_row, near_row), np.where(mirrored, far_col, near_col), reached


def _nearest(valid: Mask, position: Index) -> tuple[Index, Index]:
    """For each pixel: the nearest valid position in its row, and the distance to it."""
    far = _far(valid)
    left = np.maximum.accumulate(np.where(valid, position, -far), axis=1)
    right = np.where(valid, position, 2 * far)[:, ::-1]
    right = np.minimum.accumulate(right, axis=1)[:, ::-1]
    nearest = np.where(position - left <= right - position, left, right)
    return nearest, abs(nearest - position)


def _far(valid: Mask) -> int:
    """A distance that no two pixels have."""
    return sum(valid.shape)

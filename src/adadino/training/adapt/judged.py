"""A judged map as labelled tiles: from a review folder, or from its layer of verdicts alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adadino.files import work_folder
from adadino.review import Review, write_layer_tiles, write_tiles

if TYPE_CHECKING:
    from adadino.geo.read.source import OpenFile


def judged_tiles(
    judged: Path,
    before: str,
    after: str,
    output: Path,
    *,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
    open_file: OpenFile | None = None,
) -> Path:
    """Write the judged tiles of a map, parts of tiles included, for the adaptation of `output`.

    Args:
        judged: A review folder, or a layer of polygons with verdicts, or plain labelled polygons.
        before: The first date of the map.
        after: The second date.
        output: The folder of the model that is to come.
        bands: Red, green and blue, as the map was predicted with.
        scale: Raw values that are black and white, as the map was predicted with.
        open_file: How the files of a review are opened.

    Returns:
        The folder of the tiles.
    """
    folder = work_folder(output.with_name(f"{output.name}.tiles"))
    shutil.rmtree(folder, ignore_errors=True)  # the review may have gone on since
    if judged.is_dir():
        review = Review.open(judged)
        write_tiles(
            review, folder, before, after, partial=True, bands=bands, scale=scale,
            open_file=open_file,
        )  # fmt: skip
    else:
        write_layer_tiles(judged, folder, before, after, bands=bands, scale=scale)
    return folder

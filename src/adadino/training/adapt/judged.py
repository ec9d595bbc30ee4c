"""A judged map as labelled tiles: from a review folder, or from its layer of verdicts alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from adadino.files import work_folder
from adadino.review import Review, write_layer_tiles, write_tiles


def judged_tiles(judged: Path, before: str, after: str, output: Path) -> Path:
    """Write the judged tiles of a map, parts of tiles included, for the adaptation of `output`.

    Args:
        judged: A review folder, or a layer of polygons with verdicts, or plain labelled polygons.
        before: The first date of the map.
        after: The second date.
        output: The folder of the model that is to come.

    Returns:
        The folder of the tiles.
    """
    folder = work_folder(output.with_name(f"{output.name}.tiles"))
    shutil.rmtree(folder, ignore_errors=True)  # the review may have gone on since
    if judged.is_dir():
        write_tiles(Review.open(judged), folder, before, after, partial=True)
    else:
        write_layer_tiles(judged, folder, before, after)
    return folder

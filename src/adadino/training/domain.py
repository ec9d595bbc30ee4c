"""What a run's training images are like: the range that goes into its model's card.

- The ground resolution is what the user says (`data.resolution`), else what the folder's manifest
  says, else what GeoTIFFs say of themselves. It is unknown if one of the folders does not tell.
- The look is that of tiles spread evenly over the training pairs, from the 0.5th to the 99.5th
  percentile. Few tiles are no distribution, and then a model has no look.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.data.folder import PairFiles, PairFolder
from adadino.data.prepare.benchmarks import BENCHMARKS
from adadino.data.staging import MANIFEST, SPLITS
from adadino.domain import LOOKS, TILE, Domain, Range, look_of
from adadino.errors import AdaDINOError

MOST_PAIRS = 200
"""More show the same look, and a tile takes 5 ms."""
LEAST_TILES = 50
"""Of fewer tiles the extremes are chance."""
PERCENTILES = (0.5, 99.5)
GEOTIFF = (".tif", ".tiff")


def domain_of(pairs: PairFolder, *, resolution: Range | None = None) -> Domain:
    """The ground resolution and the look of training pairs.

    Args:
        pairs: The training pairs.
        resolution: Their ground resolution, if the user says it.
    """
    # A look is that of red, green and blue.
    look = look_of_all(_images(pairs)) if pairs.bands is None else {}
    return Domain(resolution or folder_resolution(pairs.pairs), look)


def folder_resolution(pairs: Sequence[PairFiles]) -> Range | None:
    """The ground resolution of pairs, by their manifests or their GeoTIFFs; None if unknown."""
    found: list[Range] = []
    for folder in {pair.before.parent.parent: pair for pair in pairs}:
        own = [pair for pair in pairs if pair.before.parent.parent == folder]
        known = _manifest_says(folder) or _geotiffs_say(own)
        if known is None:
            return None
        found.append(known)
    return min(low for low, _ in found), max(high for _, high in found)


def look_of_all(images: Iterable[NDArray[np.uint8]]) -> dict[str, Range]:
    """The look of images (3, H, W), tile by tile; empty if there are too few tiles."""
    looks: dict[str, list[float]] = {kind: [] for kind in LOOKS}
    for image in images:
        for row in range(0, max(image.shape[1] - TILE, 0) + 1, TILE):
            for col in range(0, max(image.shape[2] - TILE, 0) + 1, TILE):
                tile = image[:, row : row + TILE, col : col + TILE].astype(np.float32)
                for kind, value in look_of(tile / np.float32(255)).items():
                    looks[kind].append(value)
    if len(looks["brightness"]) < LEAST_TILES:
        return {}
    return {kind: _percentiles(values) for kind, values in looks.items()}


def _percentiles(values: list[float]) -> Range:
    low, high = (float(value) for value in np.percentile(values, PERCENTILES).round(3))
    return low, high


def _images(pairs: PairFolder) -> Iterable[NDArray[np.uint8]]:
    count = min(len(pairs), MOST_PAIRS)
    for index in np.linspace(0, len(pairs) - 1, count).astype(int).tolist():
        before, after, _, _ = pairs[index]
        yield before.numpy()
        yield after.numpy()


def _manifest_says(folder: Path) -> Range | None:
    """What `prepare`, `synthesize` or `judge` wrote into a folder, or beside its splits."""
    root = folder.parent if folder.name in SPLITS else folder
    try:
        said: Any = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        if "resolution_m" in said:
            metres = said["resolution_m"]
            return None if metres is None else _square(metres)
        if "world" in said:
            return _square(said["world"]["gsd"])
        return BENCHMARKS[said["settings"]["name"]].resolution
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _square(metres: Any) -> Range | None:
    """The range of one resolution; None if it is no number of metres."""
    known = isinstance(metres, int | float) and 0 < metres < float("inf")
    return (float(metres), float(metres)) if known else None


def _geotiffs_say(pairs: Sequence[PairFiles]) -> Range | None:
    """The resolution of georeferenced files; None if one of those looked at does not tell."""
    try:
        from adadino.geo.grid import Grid
        from adadino.geo.polygons.measure import ground_resolution
        from adadino.geo.read.source import open_dataset
    except ImportError:  # training needs no rasterio
        return None
    found = []
    for index in np.linspace(0, len(pairs) - 1, min(len(pairs), MOST_PAIRS)).astype(int).tolist():
        path = pairs[index].before
        if path.suffix.lower() not in GEOTIFF:
            return None
        try:
            with open_dataset(path) as dataset:
                metres = ground_resolution(Grid.of(dataset))
        except AdaDINOError:
            return None
        if metres is None:
            return None
        found.append(round(metres, 4))
    return min(found), max(found)

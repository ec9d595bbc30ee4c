"""Small regions for the tests: a model on disk, a scene of six units, a strip with a bad corner."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_origin

from adadino.area import predict_area
from adadino.checkpoint import save
from adadino.data.synthetic import World, make_pair, write_geotiff_pair
from adadino.scene import SceneOptions
from tests.scene.runs import a_model

SIDE = 128
OPTIONS = SceneOptions(tile=64, overlap=16, sample=2, threshold=0.32, readers=1)
"""The threshold is one that the random model's probabilities fall on both sides of."""


def make_model(folder: Path) -> str:
    return str(save(a_model(), folder, with_backbone=True))


def make_scene(folder: Path, seed: int = 7) -> tuple[str, str]:
    before, after, _ = write_geotiff_pair(folder, seed, (200, 300))
    return str(before), str(after)


def make_strip(folder: Path) -> tuple[str, str]:
    """A pair of 64 x 1280 pixels in blocks of 16, the last of which no survey looks at."""
    pair = make_pair(3, 1280, World(empty=0.0))
    profile = {
        "driver": "GTiff", "dtype": "uint8", "count": 3, "width": 1280, "height": 64,
        "crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 0.5, 0.5),
        "tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate",
    }  # fmt: skip
    folder.mkdir(parents=True)
    for name in ("before", "after"):
        with rasterio.open(folder / f"{name}.tif", "w", **profile) as raster:
            raster.write(np.moveaxis(getattr(pair, name)[:64], -1, 0))
    return str(folder / "before.tif"), str(folder / "after.tif")


def damage(path: str) -> bytes:
    """Overwrite the last block of a strip with noise; returns the whole file as it was."""
    with rasterio.open(path) as raster:
        start, size = (
            int(raster.get_tag_item(f"BLOCK_{what}_79_3", "TIFF", bidx=1))
            for what in ("OFFSET", "SIZE")
        )
    whole = Path(path).read_bytes()
    noise = random.Random(0).randbytes(size)
    Path(path).write_bytes(whole[:start] + noise + whole[start + size :])
    return whole


def area(pairs, out, model, **settings):
    given = {"options": OPTIONS, "unit": SIDE, "workers": 0, "device": "cpu", "threads": 1}
    return predict_area(pairs, out, model, **(given | settings))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a result, and what killed workers may have left."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}

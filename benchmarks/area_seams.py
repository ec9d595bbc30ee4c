"""Seams of a region that is surveyed block by block: with blending, without, and with one survey.

    python benchmarks/area_seams.py

One pair of the synthetic world in 16 bits, whose light grows fourfold from left to right on both
dates, predicted by the bundled `tiny`. Printed: the mean absolute step of the probability between
neighbouring pixels across the borders of blocks and elsewhere, and the same of what blocks add to
one survey, where the steps of the changes themselves are gone.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import rasterio

from adadino.area import blocks, predict_area
from adadino.area.units import Dates
from adadino.data.synthetic import write_geotiff_pair
from adadino.scene import SceneOptions


def main() -> None:
    parser = argparse.ArgumentParser(description="Seams between the blocks of a region.")
    parser.add_argument("--height", type=int, default=512)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--block", type=int, default=256, help="small, so that borders are many")
    parser.add_argument("--overlap", type=int, default=128)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_geotiff_pair(folder / "scene", 3, (given.height, given.width))[:2]
        for file in files:
            _light(file)
        dates = Dates("scene", *map(str, files))
        blocks.OVERLAP = given.overlap
        one = predict(dates, folder / "one", 0)
        blended = predict(dates, folder / "blended", given.block)
        blocks.OVERLAP = 0
        hard = predict(dates, folder / "hard", given.block)
    print("| survey | at borders | elsewhere | added at borders | added elsewhere |")
    print("|---|---:|---:|---:|---:|")
    for name, found in (("one", one), ("blocks, blended", blended), ("blocks, not blended", hard)):
        figures = [*steps(found, given.block), *steps(found - one, given.block)]
        print(f"| {name} | {' | '.join(f'{value:.5f}' for value in figures)} |")


def predict(dates: Dates, out: Path, block: int) -> np.ndarray[Any, Any]:
    predict_area(
        [dates], out, options=SceneOptions(any_resolution=True), probability=True, unit=1024,
        survey_block=block, workers=0, threads=1, device="cpu",
    )  # fmt: skip
    with rasterio.open(out / "probability.vrt") as raster:
        return raster.read(1)


def steps(values: np.ndarray[Any, Any], block: int) -> tuple[float, float]:
    """Mean absolute step between columns, across the borders of blocks and elsewhere."""
    step = np.abs(np.diff(values, axis=1)).mean(axis=0)
    borders = np.arange(block, values.shape[1], block) - 1
    return float(step[borders].mean()), float(np.delete(step, borders).mean())


def _light(path: Path) -> None:
    with rasterio.open(path) as raster:
        values, profile = raster.read(), raster.profile | {"dtype": "uint16", "photometric": "RGB"}
    light = np.linspace(10, 40, values.shape[2])
    with rasterio.open(path, "w", **profile) as raster:
        raster.write((values * light).astype(np.uint16))


if __name__ == "__main__":
    main()

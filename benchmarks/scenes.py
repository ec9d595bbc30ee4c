"""What a scene costs beside the model: megapixels per second and memory against its size.

    python benchmarks/scenes.py
    python benchmarks/scenes.py --megapixels 1,4,16 --csv scenes.csv

The model is a stub that compares colours, so what is measured is reading, tiling, blending, writing
and outlining. Each size runs in a process of its own on a pair of 16-bit GeoTIFFs (three bands,
tiled, deflate) that repeats a block of the synthetic world, and writes mask, probability and
polygons. Time that grows more than linearly, or memory that grows with the scene's height, is a
fault.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import torch
import torch.nn.functional as F
from rasterio.transform import from_origin
from rasterio.windows import Window
from torch import Tensor

from adadino.config import PRESETS
from adadino.data.synthetic import World, make_pair
from adadino.model.detector import Detector, Normalize, Output
from adadino.scene import SceneOptions, predict_scene

SIDE = 1024
"""Of the block that repeats."""
COLUMNS = {
    "megapixels": "MP",
    "seconds": "s",
    "rate": "MP/s",
    "outside": "s/MP not in the model",
    "cpu": "CPU s/MP, all threads",
    "share": "share not in the model",
    "memory": "peak memory, MB",
    "polygons": "polygons",
}


class Stub(Detector):
    """Stands in for a model: change is where the colours differ."""

    def __init__(self) -> None:
        super().__init__()
        tiny = PRESETS["tiny"]
        off = dataclasses.replace(tiny.bscs, selection="off")
        self.config = dataclasses.replace(tiny, bscs=off)
        self.normalize = Normalize((0.5,) * 3, (0.25,) * 3)
        self.stride = self.config.stride
        self.seconds = 0.0

    def forward(self, before: Tensor, after: Tensor, *, chunks: Tensor | None = None) -> Output:
        """Compare two batches."""
        start = time.perf_counter()
        # Smoothed, so that changes are as large and as many as a model finds.
        difference = F.avg_pool2d((before - after).abs().mean(1, keepdim=True), 16)
        score = F.interpolate(difference, before.shape[-2:], mode="bilinear")[:, 0] * 40 - 8
        output = Output(torch.stack((-score, score), 1), [], None, None)
        self.seconds += time.perf_counter() - start
        return output


def main() -> None:
    parser = argparse.ArgumentParser(description="Scenes of growing size with a stub model.")
    parser.add_argument("--megapixels", default="1,4,16,64,400")
    parser.add_argument("--csv", type=Path, help="write the figures here too")
    parser.add_argument("--folder", type=Path, help="where the scenes are made; needs 10 GB")
    parser.add_argument("--readers", type=int, help="threads that read")
    parser.add_argument("--width", type=int, help="columns of every scene; by default it is square")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one, options.readers)))
        return
    rows = []
    for megapixels in map(float, options.megapixels.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            width = options.width or round(math.sqrt(megapixels * 1e6))
            make_scene(Path(folder), width, round(megapixels * 1e6 / width))
            command = [sys.executable, __file__, "--one", folder]
            if options.readers:
                command += ["--readers", str(options.readers)]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append({"megapixels": round(megapixels)} | json.loads(said.splitlines()[-1]))
        print_row(rows[-1], header=len(rows) == 1)
    if options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(COLUMNS))
            writer.writeheader()
            writer.writerows(rows)


def print_row(row: dict[str, Any], *, header: bool) -> None:
    if header:
        print("| " + " | ".join(COLUMNS.values()) + " |")
        print("|" + "---:|" * len(COLUMNS))
    print("| " + " | ".join(f"{row[name]:.4g}" for name in COLUMNS) + " |", flush=True)


def make_scene(folder: Path, width: int, height: int) -> None:
    """Write before.tif and after.tif, 12 bits in uint16, from a block that repeats."""
    pair = make_pair(3, SIDE, World(empty=0.0, plan="organic"))
    profile = {
        "driver": "GTiff", "dtype": "uint16", "count": 3, "width": width, "height": height,
        "crs": "EPSG:32633", "transform": from_origin(400_000, 5_800_000, 0.5, 0.5),
        "tiled": True, "blockxsize": 512, "blockysize": 512, "compress": "deflate", "zlevel": 1,
        "photometric": "RGB", "num_threads": "ALL_CPUS", "bigtiff": "IF_SAFER",
    }  # fmt: skip
    noise = np.random.default_rng(0)
    for name in ("before", "after"):
        block = np.moveaxis(getattr(pair, name), -1, 0).astype(np.uint16) * 16
        block += noise.integers(0, 16, block.shape, np.uint16)
        wide = np.tile(block, (1, 1, -(-width // SIDE)))[:, :, :width]
        with rasterio.open(folder / f"{name}.tif", "w", **profile) as raster:
            for row in range(0, height, SIDE):
                rows = min(SIDE, height - row)
                raster.write(wide[:, :rows], window=Window(0, row, width, rows))


def measure(folder: Path, readers: int | None) -> dict[str, float]:
    """Predict one scene and say what it took."""
    torch.set_num_threads(1)  # the stub is too small to share
    stub = Stub()
    imported = time.process_time()
    start = time.perf_counter()
    result = predict_scene(
        folder / "before.tif",
        folder / "after.tif",
        stub,  # type: ignore[arg-type]
        output=folder / "change.tif",
        probability=folder / "probability.tif",
        vector=folder / "change.gpkg",
        options=SceneOptions(readers=readers),
        device="cpu",
    )
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    megapixels = result.grid.width * result.grid.height / 1e6
    return {
        "seconds": seconds,
        "rate": megapixels / seconds,
        "outside": (seconds - stub.seconds) / megapixels,
        "share": 1 - stub.seconds / seconds,
        "cpu": (used.ru_utime + used.ru_stime - imported) / megapixels,
        "memory": used.ru_maxrss / 1024,
        "polygons": len(result.polygons),
    }


if __name__ == "__main__":
    main()

"""Models on whole Sentinel-2 scenes, mapped by `adadino predict`: one confusion matrix over cities.

    python benchmarks/sentinel2.py DATA MODEL... --cities bordeaux,paris,rennes [--tile 128]

DATA holds A, B and label; a model is a checkpoint, `cva` or `irmad`. Every pixel of every city
counts once. `--bands 1,2,3,4,0` leaves the last band out, to see what it costs.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import rasterio
import torch

from adadino.data.folder import find_pairs
from adadino.data.images import read_mask
from adadino.metrics import Confusion
from adadino.scene import SceneOptions, predict_scene


def main() -> None:
    """Score each model and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--cities", default="bordeaux,paris,rennes")
    parser.add_argument("--tile", type=int, default=128)
    parser.add_argument("--overlap", type=int, default=32)
    parser.add_argument("--bands", help="Numbers in the model's order, 0 for an absent one.")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    bands = None if asked.bands is None else tuple(map(int, asked.bands.split(",")))
    options = SceneOptions(tile=asked.tile, overlap=asked.overlap, bands=bands)
    wanted = asked.cities.split(",")
    pairs = {pair.name: pair for pair in find_pairs(asked.data)}
    print(f"| model | F1 | precision | recall | {' | '.join(wanted)} |", flush=True)
    for name in asked.models:
        found = {}
        for city in wanted:
            pair = pairs[city]
            result = predict_scene(pair.before, pair.after, name, options=options)
            assert result.mask_path is not None
            with rasterio.open(result.mask_path) as file:
                map_of = torch.from_numpy(file.read(1) == 1)
            found[city] = Confusion.from_tensors(map_of, torch.from_numpy(read_mask(pair.label)))
        whole = sum(found.values(), Confusion())
        scores = [whole.f1, whole.precision, whole.recall, *(c.f1 for c in found.values())]
        print(f"| {name} | {' | '.join(f'{100 * s:.1f}' for s in scores)} |", flush=True)


if __name__ == "__main__":
    main()

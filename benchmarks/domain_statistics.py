"""What the bundled model's training images look like: the `domain` of its card.

    python benchmarks/domain_statistics.py --levir DATA/levir --clcd DATA/clcd/train

Reads the training parts only (scenes 1 to 24 of LEVIR-CD; the training split of CLCD; pairs of the
synthetic world), cuts both dates of every pair into tiles, and prints for each statistic the range
from the 0.5th to the 99.5th percentile of the tiles: the widest of the three sources, because each
of them was learnt. The ground resolution is the sources' own: 0.5 m (LEVIR-CD), 0.5 to 2 m (CLCD).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from adadino.data.synthetic import make_pair
from adadino.domain import LOOKS, TILE, Domain, look_of

PERCENTILES = (0.5, 99.5)
RESOLUTION = (0.5, 2.0)


def main() -> None:
    """Print the domain, and what each source contributes, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levir", type=Path, required=True)
    parser.add_argument("--clcd", type=Path, required=True)
    parser.add_argument("--synthetic", type=int, default=60, help="Pairs of the synthetic world.")
    given = parser.parse_args()
    scenes = {f"test_{number}" for number in range(1, 25)}
    sources = {
        "levir": _folder(path for path in given.levir.glob("[AB]/*") if path.stem in scenes),
        "clcd": _folder(given.clcd.glob("[AB]/*")),
        "synthetic": _drawn(given.synthetic),
    }
    ranges = {name: _ranges(images) for name, images in sources.items()}
    look = {
        kind: (
            round(min(found[kind][0] for found in ranges.values()), 3),
            round(max(found[kind][1] for found in ranges.values()), 3),
        )
        for kind in LOOKS
    }
    said = {"domain": Domain(RESOLUTION, look).as_card(), "sources": ranges}
    print(json.dumps(said, indent=1))


def _folder(paths: Iterator[Path]) -> Iterator[np.ndarray]:
    for path in sorted(paths):
        with Image.open(path) as image:
            yield np.asarray(image.convert("RGB"))


def _drawn(pairs: int) -> Iterator[np.ndarray]:
    for seed in range(pairs):
        pair = make_pair(seed, 2 * TILE)
        yield from (pair.before, pair.after)


def _ranges(images: Iterator[np.ndarray]) -> dict[str, list[float]]:
    looks: dict[str, list[float]] = {kind: [] for kind in LOOKS}
    for image in images:
        for row in range(0, image.shape[0] - TILE + 1, TILE):
            for col in range(0, image.shape[1] - TILE + 1, TILE):
                tile = image[row : row + TILE, col : col + TILE].astype(np.float32) / 255
                for kind, value in look_of(np.moveaxis(tile, -1, 0)).items():
                    looks[kind].append(value)
    tiles = {"tiles": [float(len(looks["colour"]))]}
    percentiles = {
        kind: [round(float(value), 4) for value in np.percentile(values, PERCENTILES)]
        for kind, values in looks.items()
    }
    return tiles | percentiles


if __name__ == "__main__":
    main()

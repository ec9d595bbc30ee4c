r"""Judge a map by script, adapt, predict again: F1 before and after on a scene that nobody judged.

    python benchmarks/judge_adapt.py data/levir -o runs/judge-adapt --grey \
        --judged test_25 test_26 test_27 test_28 --scored test_29 test_30

The pairs are shown as another sensor would see them: two pixels to one, and grey if asked. Those of
--judged are one scene, those of --scored another. The reviewer is the truth. He judges the first 30
polygons that are proposed: right, if half of it changed. In the tiles that he has looked at, he
draws the changes that the map lacks. Nothing is chosen by the outcome.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import torch
from numpy.typing import NDArray
from rasterio.features import geometry_mask, shapes

from adadino.data.folder import PairFiles, find_pairs
from adadino.data.images import read_image, read_mask
from adadino.metrics import Confusion
from adadino.review import Review, start_review
from adadino.scene import SceneOptions, predict_scene
from adadino.training.adapt.judged import judged_tiles
from adadino.training.adapt.options import AdaptOptions
from adadino.training.adapt.run import adapt

POLYGONS = 30
PLACE = {"crs": "EPSG:32650", "transform": rasterio.Affine(1, 0, 500_000, 0, -1, 4_000_000)}


def write_scene(pairs: Sequence[PairFiles], folder: Path, *, grey: bool) -> NDArray[np.bool_]:
    """Write both dates of some pairs as one scene; returns the truth."""
    folder.mkdir(parents=True, exist_ok=True)
    for role, date in (("A", "before"), ("B", "after")):
        scene = _mosaic([_seen(read_image(getattr(pair, date)), grey) for pair in pairs])
        height, width, bands = scene.shape
        size = {"height": height, "width": width, "count": bands, "dtype": "uint8"}
        with rasterio.open(folder / f"{role}.tif", "w", driver="GTiff", **size, **PLACE) as out:
            out.write(scene.transpose(2, 0, 1))
    return _mosaic([read_mask(pair.label)[::2, ::2] for pair in pairs])


def judge(review: Review, truth: NDArray[np.bool_]) -> None:
    """Judge the first polygons as the truth would, and draw what is missing around them."""
    looked: set[tuple[int, int]] = set()
    for proposal in review.next(POLYGONS):
        outline = review.polygons[proposal.id].outline
        inside = geometry_mask([outline], truth.shape, rasterio.Affine.identity(), invert=True)
        verdict = "right" if truth[inside].mean() >= 0.5 else "wrong"
        said = {"do": "judge", "shape": proposal.id, "verdict": verdict, "list": proposal.list}
        review.act(said, by="truth")
        centre = outline.centroid
        looked.add((int(centre.y) // 256, int(centre.x) // 256))
    with rasterio.open(review.folder / "mask.tif") as file:
        mapped = file.read(1) == 1
    for geometry, value in shapes(truth.astype(np.uint8)):
        inside = geometry_mask([geometry], truth.shape, rasterio.Affine.identity(), invert=True)
        row, col = (int(axis.mean()) // 256 for axis in np.nonzero(inside))
        if value and (row, col) in looked and not mapped[inside].any() and inside.sum() >= 20:
            review.act({"do": "draw", "geometry": geometry}, by="truth")


def predict(folder: Path, output: str, model: str) -> dict[str, Path]:
    """Predict a scene; returns its files."""
    files = {"output": folder / f"{output}.tif", "probability": folder / f"{output}-p.tif"}
    predict_scene(
        folder / "A.tif", folder / "B.tif", model, **files, overwrite=True, device="cpu",
        options=SceneOptions(),
    )  # fmt: skip
    return files


def score(mask: Path, truth: NDArray[np.bool_]) -> dict[str, float]:
    """Precision, recall and F1 of a mask over all pixels."""
    with rasterio.open(mask) as file:
        found = torch.from_numpy(file.read(1) == 1)
    counts = Confusion.from_tensors(found, torch.from_numpy(truth))
    return {name: getattr(counts, name) for name in ("precision", "recall", "f1")}


def _seen(image: NDArray[np.uint8], grey: bool) -> NDArray[np.uint8]:
    """An image (H, W, 3) as the other sensor sees it: (H / 2, W / 2, 1 or 3)."""
    bands = image.astype(np.float32)
    if grey:
        bands = bands @ np.array([[0.299], [0.587], [0.114]], np.float32)
    height, width, count = bands.shape
    half = bands.reshape(height // 2, 2, width // 2, 2, count).mean(axis=(1, 3))
    return np.rint(half).astype(np.uint8)


def _mosaic(parts: list[NDArray[Any]]) -> NDArray[Any]:
    across = math.ceil(math.sqrt(len(parts)))
    starts = range(0, len(parts), across)
    rows = [np.concatenate(parts[start : start + across], axis=1) for start in starts]
    return np.concatenate(rows, axis=0)


def main() -> None:
    """Run it, and write run.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--judged", nargs="+", required=True, metavar="NAME")
    parser.add_argument("--scored", nargs="+", required=True, metavar="NAME")
    parser.add_argument("--grey", action="store_true")
    given = parser.parse_args()
    out: Path = given.output
    pairs = {pair.name: pair for pair in find_pairs(given.data)}
    truth, unseen = (
        write_scene([pairs[name] for name in names], out / folder, grey=given.grey)
        for names, folder in ((given.judged, "judged"), (given.scored, "scored"))
    )
    files = predict(out / "judged", "old", "tiny")
    before = score(predict(out / "scored", "old", "tiny")["output"], unseen)
    review = start_review(
        out / f"review-{time.time():.0f}", mask=files["output"], probability=files["probability"]
    )
    judge(review, truth)
    dates = (str(out / "judged" / "A.tif"), str(out / "judged" / "B.tif"))
    tiles = judged_tiles(review.folder, *dates, out / "mine")
    found = adapt(
        "tiny", tiles, out / "mine",
        AdaptOptions(anyway=True),
        progress=lambda done, total, text: print(f"\r{done}/{total} {text}", end="", flush=True),
    )  # fmt: skip
    after = score(predict(out / "scored", "new", str(out / "mine"))["output"], unseen)
    said = {"review": review.summary(), "adapted": found.as_dict(), "before": before}
    said |= {"after": after}
    (out / "run.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    print(f"\nF1 {100 * before['f1']:.1f} before, {100 * after['f1']:.1f} after. {found.sentence}")


if __name__ == "__main__":
    main()

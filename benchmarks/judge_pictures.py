"""Draw the pictures of docs/how-to/judge.md: a synthetic map, judged by the truth.

python benchmarks/judge_pictures.py docs/images
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import geopandas as gpd
import numpy as np
import rasterio
from matplotlib.figure import Figure
from PIL import Image
from rasterio.features import geometry_mask

from adadino.accuracy import draw_sample
from adadino.data.synthetic import HELD_OUT, make_pair
from adadino.review import start_review
from adadino.scene import predict_scene

SEED, SIDE = 31, 512
COLOURS = {"right": "#18a558", "wrong": "#e63c1e", None: "#f2c14e"}


def main(folder: Path) -> None:
    """Predict, judge, sample, draw."""
    pair = make_pair(SEED, SIDE, HELD_OUT)
    truth = pair.mask != 0
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        place = {"crs": "EPSG:32631", "transform": rasterio.Affine(0.5, 0, 5e5, 0, -0.5, 4e6)}
        for date, image in (("before", pair.before), ("after", pair.after)):
            size = {"height": SIDE, "width": SIDE, "count": 3, "dtype": "uint8"}
            with rasterio.open(work / f"{date}.tif", "w", driver="GTiff", **size, **place) as out:
                out.write(image.transpose(2, 0, 1))
        files = {"output": work / "change.tif", "probability": work / "p.tif"}
        predict_scene(work / "before.tif", work / "after.tif", **files, device="cpu")
        review = start_review(
            work / "review", mask=files["output"], probability=files["probability"], threshold=0.5
        )
        for proposal in review.next(len(review.polygons) * 2 // 3):
            outline = review.polygons[proposal.id].outline
            inside = geometry_mask([outline], truth.shape, rasterio.Affine.identity(), invert=True)
            verdict = "right" if truth[inside].mean() >= 0.5 else "wrong"
            review.act({"do": "judge", "shape": proposal.id, "verdict": verdict}, by="ana")
        _draw_verdicts(review, pair, folder / "judge.png")
        draw_sample(files["output"], work / "sample.gpkg", size=120, buffer=6)
        squares = gpd.read_file(work / "sample.gpkg", layer="sample")
        _draw_sample(squares, pair.after, folder / "assess.png")


def _draw_verdicts(review, pair, path: Path) -> None:  # type: ignore[no-untyped-def]
    figure = Figure(figsize=(10, 5), layout="constrained")
    state = review.state()
    for number, (title, image) in enumerate((("before", pair.before), ("after", pair.after)), 1):
        axes = figure.add_subplot(1, 2, number)
        axes.imshow(image)
        axes.set(title=title, xticks=[], yticks=[])
        for shape, polygon in review.polygons.items():
            verdict = state.verdicts[shape].verdict if shape in state.verdicts else None
            axes.plot(*polygon.outline.exterior.xy, color=COLOURS[verdict], linewidth=2)
    for verdict, text in (("right", "right"), ("wrong", "wrong"), (None, "not judged yet")):
        axes.plot([], [], color=COLOURS[verdict], label=text)
    axes.legend(loc="upper left")
    _save(figure, path)


def _draw_sample(squares: gpd.GeoDataFrame, image: np.ndarray, path: Path) -> None:
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(image, extent=(5e5, 5e5 + SIDE / 2, 4e6 - SIDE / 2, 4e6))
    centres = squares.geometry.centroid
    axes.plot(centres.x, centres.y, "s", color="#ffe14d", markeredgecolor="black", markersize=5)
    axes.set(title=f"{len(squares)} pixels to judge", xticks=[], yticks=[])
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG of 128 colours: a quarter of the size."""
    figure.savefig(path, dpi=72)
    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What changed into what in a scene: rasters from and to, polygons of one kind each, transitions.

- The probabilities of all classes are blended as the change is; a row then keeps one class for each
  date (`semantic.choice`), in the journal.
- `from.tif` and `to.tif` hold a class where the mask says change, 0 elsewhere, 255 without data.
- A polygon is a connected patch of one from and one to, so that polygons can be picked by what
  happened, and their areas add up to the matrix. All else about them is as for a change.
- The matrix counts the ground that went from each class to each other, in hectares; without a
  coordinate system in pixels.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import shapely
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.config import ClassesConfig
from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.polygons.components import CHANGE
from adadino.geo.polygons.measure import areas
from adadino.geo.polygons.vector import measures, numbered
from adadino.geo.write.cog import BLOCK, MASK, Layer, raster_writer
from adadino.geo.write.qml import classes_qml
from adadino.scene.journal import Bytes, Journal
from adadino.scene.options import SceneOptions
from adadino.scene.outputs import Targets, open_mask, write_rasters
from adadino.scene.pair import OpenDates
from adadino.scene.polygons import find_polygons

if TYPE_CHECKING:
    import geopandas as gpd

HECTARE = 10_000.0
"""Square metres."""
ENDS = ("from", "to")


@dataclass(frozen=True, eq=False)  # matrices do not compare to one answer
class Transitions:
    """How much ground went from each class to each other."""

    classes: ClassesConfig
    amount: NDArray[np.float64]
    """(from, to) in the unit."""
    unit: str
    """`ha`, or `pixels` without a coordinate system."""

    def write_csv(self, path: Path | str) -> None:
        """Write the matrix with its sums."""
        names = [*self.classes.names, "total"]
        rows = np.vstack([self.amount, self.amount.sum(axis=0)])
        rows = np.column_stack([rows, rows.sum(axis=1)])
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([f"from \\ to ({self.unit})", *names])
        for name, row in zip(names, rows.tolist(), strict=True):
            writer.writerow([name, *(f"{value:.4f}".rstrip("0").rstrip(".") for value in row)])
        write_atomic(path, text.getvalue())

    @property
    def lines(self) -> Iterator[str]:
        """The largest transitions, as `summary` says them."""
        names = self.classes.names
        order = np.argsort(-self.amount, axis=None, kind="stable")[:5].tolist()
        for start, end in (divmod(at, len(names)) for at in order):
            if (much := float(self.amount[start, end])) > 0:
                yield f"{names[start]} to {names[end]}: {much:,.4g} {self.unit}"


def write_classes(
    journal: Journal,
    grid: Grid,
    classes: ClassesConfig,
    targets: Targets,
    tags: Mapping[str, object],
) -> Transitions:
    """Write the rasters, styles, matrix and pictures that were asked for; returns the matrix."""
    count = len(classes.names)
    amount = np.zeros((count, count))
    ground = _pixel_areas(grid)
    tags = {**tags, "ADADINO_CLASSES": list(classes.names)}
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                raster_writer(path, grid, _layer(end, classes), tags=tags, overwrite=True)
            )
            for end, path in targets.ends.items()
        ]
        for row, band in _bands(journal, targets.mask):
            for writer, values in zip(writers, band, strict=False):
                writer.write(row, values)
            amount += _amounts(band, ground[row : row + band.shape[1]], count)
    for path in targets.ends.values():
        _name_classes(path, classes)
    unit = "pixels" if grid.crs is None else "ha"
    found = Transitions(classes, amount if grid.crs is None else amount / HECTARE, unit)
    if targets.transitions is not None:
        from adadino.reporting.sankey import draw_sankey

        found.write_csv(targets.transitions)
        draw_sankey(
            targets.transitions.with_suffix(".png"), amount=found.amount, names=classes.names,
            colours=classes.colours, unit=unit,
        )  # fmt: skip
    return found


def find_class_polygons(
    journal: Journal,
    pair: OpenDates,
    classes: ClassesConfig,
    targets: Targets,
    options: SceneOptions,
) -> gpd.GeoDataFrame:
    """`find_polygons` for each kind of change that occurs, with columns `from` and `to`."""
    import pandas as pd

    grid, draft = pair.reader.grid, Targets(journal.folder / "kind.tif")
    codes = _codes(journal, targets.mask, len(classes.names))
    frames = []
    for code in codes or [(0, 0)]:  # without a change, an empty layer that has all its columns
        flags = _flags(journal, targets.mask, code)
        write_rasters(journal.blocks(BLOCK), draft, grid, threshold=0.5, tags={}, masks=flags)
        frame = find_polygons(journal, draft.mask, pair, options)
        for place, (end, value) in enumerate(zip(ENDS, code, strict=True), 1):
            name = classes.names[value - 1] if value else ""
            frame.insert(place, end, np.array([name] * len(frame), object))
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True).drop(columns="id")
    whole = whole.sort_values(measures(grid)[0], ascending=False, kind="stable", ignore_index=True)
    return numbered(whole)


def _bands(journal: Journal, mask: Path) -> Iterator[tuple[int, Bytes]]:
    """(first row, classes of both dates (2, h, width)): 0 is no change, 255 no data."""
    height, width = journal.shape
    with open_mask(mask) as raster:
        for row in range(0, height, BLOCK):
            rows = min(BLOCK, height - row)
            flags = raster.read(1, window=Window(0, row, width, rows))
            band = journal.read_classes(row, rows)
            yield row, np.where(flags == CHANGE, band, np.where(flags == MASK.nodata, flags, 0))


def _codes(journal: Journal, mask: Path, count: int) -> list[tuple[int, int]]:
    """The kinds of change that occur, as pairs of classes."""
    seen = np.zeros((count, count), bool)
    for _, band in _bands(journal, mask):
        seen |= _amounts(band, np.ones(band.shape[1]), count) > 0
    return [(start + 1, end + 1) for start, end in np.argwhere(seen).tolist()]


def _flags(
    journal: Journal, mask: Path, code: tuple[int, int]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The mask of one kind of change."""
    for row, (before, after) in _bands(journal, mask):
        flags = ((before == code[0]) & (after == code[1]) & (before > 0)).view(np.uint8)
        flags[before == MASK.nodata] = MASK.nodata
        yield row, flags


def _amounts(band: Bytes, ground: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The ground of each kind of change in a band (2, h, width), given that of a pixel by row."""
    before, after = band.astype(np.int64)
    changed = (before > 0) & (before != MASK.nodata)
    index = (before[changed] - 1) * count + after[changed] - 1
    weights = np.broadcast_to(ground[:, None], before.shape)[changed]
    amounts: NDArray[np.float64] = np.bincount(index, weights, count * count).astype(np.float64)
    return amounts.reshape(count, count)


def _pixel_areas(grid: Grid) -> NDArray[np.float64]:
    """The area of a pixel of each row, in square metres (1 without a coordinate system)."""
    middle = grid.width // 2
    top = np.arange(grid.height)

    def outlines() -> NDArray[np.object_]:
        boxes: NDArray[np.object_] = shapely.box(middle, top, middle + 1, top + 1)
        return boxes

    return areas(outlines, np.ones(grid.height), grid)


def _layer(end: str, classes: ClassesConfig) -> Layer:
    clear = {0: (0, 0, 0, 0), int(MASK.nodata): (0, 0, 0, 0)}
    colours = {value: (*colour, 255) for value, colour in enumerate(classes.rgb, 1)}
    numbers = ", ".join(f"{value} {name}" for value, name in enumerate(classes.names, 1))
    said = f"0 no change, {numbers}, 255 nodata" if len(numbers) < 500 else "see ADADINO_CLASSES"
    date = "first" if end == ENDS[0] else "second"
    return Layer(
        f"what changed places were at the {date} date: {said}",
        "uint8", MASK.nodata, "STANDARD", "MODE", clear | colours,
    )  # fmt: skip


def _name_classes(path: Path, classes: ClassesConfig) -> None:
    """The names beside a raster: for QGIS as a style, for GDAL as its categories."""
    listed = zip(classes.rgb, classes.names, strict=True)
    legend = [(value, colour, name) for value, (colour, name) in enumerate(listed, 1)]
    write_atomic(path.with_suffix(".qml"), classes_qml(legend))
    write_atomic(Targets.categories(path), _categories(["no change", *classes.names]))


def _categories(names: list[str]) -> str:
    from xml.etree import ElementTree

    root = ElementTree.Element("PAMDataset")
    band = ElementTree.SubElement(root, "PAMRasterBand", band="1")
    listed = ElementTree.SubElement(band, "CategoryNames")
    for name in names:
        ElementTree.SubElement(listed, "Category").text = name
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"

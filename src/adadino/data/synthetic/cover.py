"""The classes of both dates of a synthetic place, drawn from the map by the painter's own strokes.

The classes are five of SECOND's six, by its names. What counts is what the map says and the sensor
sees from above: a crop is low vegetation in every season, a wood is trees to its edge, and a car
leaves the ground below it what it is.

A pixel has `FINE` x `FINE` dots. If one of them changed, the pixel has the classes of the first
such dot at both dates; else those of its first dot. So classes differ only inside the mask, and
outside of it they are equal.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adadino.config import ClassesConfig
from adadino.data.synthetic.land import AFTER, BEFORE, Land, Point
from adadino.data.synthetic.paint import FINE, Canvas
from adadino.data.synthetic.render import Ground, paint_changes

CLASSES = ClassesConfig(
    ("water", "ground", "low vegetation", "tree", "building"),
    ("#0000ff", "#808080", "#008000", "#00ff00", "#800000"),
)
WATER, GROUND, LOW, TREE, BUILDING = range(1, 6)
GROWING = ("grass", "lawn", "meadow", "wheat", "maize", "rape")
"""Covers that are low vegetation; the others are ground."""

Classes = NDArray[np.uint8]
Value = TypeVar("Value", bound=np.generic)


class Covers(NamedTuple):
    """The classes (H, W) of both dates, from 1."""

    before: Classes
    after: Classes


def paint_covers(
    land: Land, ground: Ground, shape: tuple[int, int], *, gsd: float, lean: Point
) -> Covers:
    """What stands at every pixel at each date."""
    changed = _dots(np.asarray(paint_changes(land, ground, shape, gsd=gsd, lean=lean)) > 0)
    first = changed.argmax(axis=-1)[..., None]  # of the dots that changed; 0 where none did

    def seen(when: int) -> Classes:
        dots = _dots(_paint(land, ground, shape, when, gsd, lean))
        return np.take_along_axis(dots, first, axis=-1)[..., 0]

    return Covers(seen(BEFORE), seen(AFTER))


def _dots(fine: NDArray[Value]) -> NDArray[Value]:
    """(H FINE, W FINE) -> (H, W, FINE FINE)."""
    height, width = (side // FINE for side in fine.shape)
    cells = fine.reshape(height, FINE, width, FINE).swapaxes(1, 2)
    return cells.reshape(height, width, FINE * FINE)


def _paint(
    land: Land, ground: Ground, shape: tuple[int, int], when: int, gsd: float, lean: Point
) -> Classes:
    """One date's classes on dots: `Painter.paint` with a class for each ink."""
    covers = [land.yard] + [parcel.cover for parcel in land.parcels]
    values = np.array([LOW if cover in GROWING else GROUND for cover in covers], np.uint8)
    small = Image.fromarray(values[ground.parcels])
    size = (shape[1] * FINE, shape[0] * FINE)
    canvas = Canvas(small.resize(size, Image.Resampling.NEAREST), gsd)
    for wood in land.woods:
        canvas.polygon(wood.outline.tolist(), TREE if wood.when & when else GROUND)
    if ground.water is not None:
        canvas.image.paste(WATER, mask=ground.water)
    for road in land.roads:
        canvas.band(road.points, road.span, GROUND)
    for building in land.buildings:
        if building.pad and not building.when & when:
            for box in building.boxes:
                canvas.polygon(box.corners(), GROUND)
    if ground.flood is not None and when == AFTER:
        canvas.image.paste(WATER, mask=ground.flood)
    for tree in land.trees:
        if land.tree_when(tree) & when:
            for lobe in tree.lobes:
                canvas.disc(*lobe, TREE)
    for building, box in land.by_height():
        if building.when & when:
            canvas.body(box, lean, BUILDING)
    return np.asarray(canvas.image)

"""Right-angled outlines of buildings, on request.

A polygon's own direction is the mean of its edges' directions, in which long edges count most.
Along it and across it each run of edges becomes one straight side, at its mean place; sides shorter
than a few pixels go. A polygon keeps its outline along the pixels where the right-angled one is too
different (`LEAST_IOU`), is no valid polygon, or would overlap another.

On LEVIR-CD's scenes 25 to 30, with the bundled model, 281 of 334 polygons become right-angled. The
232 of them that match a true one go from 112 corners to 6 (the true outlines have 18), and their
mean IoU with it from 0.770 to 0.747: outlines are easier to draw and to edit, not more exact.

Areas, perimeters and the mask are still those of the changed pixels: only the drawing changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import geopandas as gpd
import numpy as np
import shapely
from numpy.typing import NDArray

from adadino.geo.grid import Grid
from adadino.geo.polygons.measure import move, to_metres

LEAST_IOU = 0.8
"""How much of both outlines together they must share."""
STEPS = 1.5
"""Pixels by which edges may leave a straight line before they are turned: stairs of pixels do."""
SHORTEST = 3.0
"""Pixels of the shortest side that stays."""


def regularise_frame(frame: gpd.GeoDataFrame, grid: Grid) -> gpd.GeoDataFrame:
    """Give polygons right-angled outlines where that is true to them.

    Args:
        frame: Polygons along pixels, which do not overlap.
        grid: Where the pixels lie. Angles are right on the ground, not in degrees.

    Returns:
        The same rows with new outlines, which do not overlap either, and with a column
        `regularised` that says whether a polygon's outline is right-angled.
    """
    raw = frame.geometry.to_numpy()
    metres = to_metres(grid)
    pixel = abs(metres.determinant) ** 0.5
    to_ground = metres * ~grid.transform
    wanted = np.array([right_angled(one, pixel) for one in move(raw, to_ground)], object)
    shown, changed = _apart(raw, move(wanted, ~to_ground) if len(raw) else raw)
    frame = frame.set_geometry(gpd.GeoSeries(shown, index=frame.index, crs=frame.crs))
    return frame.assign(regularised=changed)


def _apart(
    raw: NDArray[np.object_], wanted: NDArray[np.object_]
) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
    """Take the wanted outlines, in their order, that overlap no other outline as it is by then."""
    shown, changed = raw.copy(), np.zeros(len(raw), bool)
    fitting = ~shapely.is_missing(wanted)
    around = raw.copy()
    around[fitting] = shapely.union(raw[fitting], wanted[fitting])
    tree = shapely.STRtree(around)
    for index in np.flatnonzero(fitting).tolist():
        near = tree.query(wanted[index])
        others = shown[near[near != index]]
        if not shapely.relate_pattern(wanted[index], others, "2********").any():
            shown[index], changed[index] = wanted[index], True
    return shown, changed


def right_angled(outline: shapely.Geometry, pixel: float) -> shapely.Polygon | None:
    """The right-angled form of a polygon; None if there is none that is like it.

    Args:
        outline: A polygon on a plane.
        pixel: Side of a pixel there.
    """
    if outline.geom_type != "Polygon":
        return None
    angle = direction(outline, pixel)
    turned = _turned(outline, -angle)
    shell = _ring(turned.exterior, pixel)
    if shell is None:
        return None
    holes = [ring for hole in turned.interiors if (ring := _ring(hole, pixel)) is not None]
    found = shapely.Polygon(shell, holes)
    if not found.is_valid:
        return None
    shared = found.intersection(turned).area
    if shared < LEAST_IOU * (found.area + turned.area - shared):
        return None
    back: shapely.Polygon = shapely.normalize(_turned(found, angle))
    return back


def direction(outline: shapely.Polygon, pixel: float) -> float:
    """The angle of a polygon's sides in radians, from 0 to a quarter turn."""
    ring = shapely.get_coordinates(outline.exterior.simplify(STEPS * pixel))
    edges = np.diff(ring, axis=0) @ np.array([1, 1j])
    # The fourth power is the same for all four senses of a rectangle's sides; its modulus, halved
    # in the exponent, lets long sides count more than short ones, whose angles are less certain.
    total = np.sum(edges**4 / np.maximum(np.abs(edges), 1e-12) ** 2)
    return float(np.angle(total) / 4 % (math.pi / 2))


def _turned(outline: shapely.Polygon, angle: float) -> shapely.Polygon:
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, sin], [-sin, cos]])
    turned: shapely.Polygon = shapely.transform(outline, lambda xy: xy @ turn)
    return turned


class _Side(NamedTuple):
    """A run of edges along one axis: where it lies on the other one, and how long it is."""

    across: bool
    place: float
    length: float


def _ring(ring: shapely.LinearRing, pixel: float) -> list[tuple[float, float]] | None:
    """The corners of a ring with sides along the axes; None if too little of it is left."""
    sides = _sides(shapely.get_coordinates(ring.simplify(STEPS * pixel)))
    while len(sides) >= 4:
        lengths = [abs(_along(sides, at)) for at in range(len(sides))]
        at = int(np.argmin(lengths))
        if lengths[at] >= SHORTEST * pixel:
            return [_corner(sides[i - 1], side) for i, side in enumerate(sides)]
        sides = _without(sides, at)
    return None


def _sides(ring: NDArray[np.float64]) -> list[_Side]:
    """The sides of a closed ring, along one axis and the other by turns."""
    steps, middles = np.diff(ring, axis=0), (ring[1:] + ring[:-1]) / 2
    across = np.abs(steps[:, 0]) > np.abs(steps[:, 1])
    begins = np.flatnonzero(across != np.roll(across, 1))
    if not len(begins):
        return []
    order = np.roll(np.arange(len(across)), -begins[0])
    sides = []
    for run in np.split(order, begins[1:] - begins[0]):
        axis = 0 if across[run[0]] else 1
        weights = np.abs(steps[run, axis])
        place = np.average(middles[run, 1 - axis], weights=weights)
        sides.append(_Side(axis == 0, float(place), float(weights.sum())))
    return sides


def _along(sides: Sequence[_Side], at: int) -> float:
    """The length of a side between its two neighbours, with a sign for its sense."""
    return sides[(at + 1) % len(sides)].place - sides[at - 1].place


def _without(sides: Sequence[_Side], at: int) -> list[_Side]:
    """Take a short side away, and with it a neighbour, so that both axes still take turns.

    Two neighbours in one sense are a step: they become one side between them. In opposite senses
    they are a spike or a notch: the shorter one goes.
    """
    before, after = (at - 1) % len(sides), (at + 1) % len(sides)
    one, other = _along(sides, before), _along(sides, after)
    kept = dict(enumerate(sides))
    del kept[at]
    if one * other > 0:
        first, second = kept[before], kept.pop(after)
        weights = first.length, second.length
        place = float(np.average([first.place, second.place], weights=weights))
        kept[before] = _Side(first.across, place, sum(weights))
    else:
        del kept[before if abs(one) < abs(other) else after]
    return list(kept.values())


def _corner(one: _Side, other: _Side) -> tuple[float, float]:
    """Where two neighbouring sides meet."""
    return (other.place, one.place) if one.across else (one.place, other.place)

"""Outlines with fewer corners, simplified together and nevertheless in pieces.

- All outlines of a square of `SQUARE` pixels are simplified as one coverage (Visvalingam-Whyatt):
  what touches goes on touching, and nothing overlaps. Simplified one by one (`preserve_topology`),
  neighbours overlapped in a tenth of random masks and some were invalid.
- Squares lie on the scene's own lattice. An outline that runs through several is cut there, and its
  corners on the lines between them stay; so a square needs nothing of its neighbours. A scene of
  one square is simplified as a whole.
- Outlines are on whole pixel corners before and afterwards: corners are chosen, and none is moved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import shapely
from affine import Affine
from numpy.typing import NDArray

from adadino.geo.polygons.measure import move

SQUARE = 32_768
"""Side of a square in pixels."""

Outlines = NDArray[np.object_]
Numbers = NDArray[np.int64]


class Cuts(NamedTuple):
    """Outlines cut along the lines between squares; arrays of one length."""

    parts: Outlines
    owner: Numbers
    """The number of the outline that a part belongs to."""
    row: Numbers
    """The first row of its square."""
    col: Numbers
    several: NDArray[np.bool_]
    """Whether the outline lies in several squares."""

    def take(self, which: NDArray[np.generic]) -> Cuts:
        """Some of the parts."""
        return Cuts(*(values[which] for values in self))


def simplified(outlines: Outlines, to_metres: Affine, tolerance: float) -> Outlines:
    """Drop corners of the outlines of a scene: all stay valid, apart, and keep their holes.

    Args:
        outlines: Polygons on pixel corners, in the order in which they are simplified.
        to_metres: From pixels to a plane in metres.
        tolerance: Corners that span a triangle smaller than its square go.
    """
    cuts = cut(outlines)
    parts = np.empty(len(cuts.parts), object)
    squares, which = np.unique(np.column_stack([cuts.row, cuts.col]), axis=0, return_inverse=True)
    for number in range(len(squares)):
        mine = np.flatnonzero(which.ravel() == number)
        parts[mine] = simplify_square(cuts.take(mine), to_metres, tolerance)
    return unite(parts, cuts.owner, outlines)


def cut(outlines: Outlines) -> Cuts:
    """Cut outlines into the parts that lie in one square each, in their order."""
    bounds = shapely.bounds(outlines).reshape(len(outlines), 4)
    left, top = (np.floor(bounds[:, :2] / SQUARE)).astype(np.int64).T
    right, bottom = (np.ceil(bounds[:, 2:] / SQUARE)).astype(np.int64).T
    parts: list[shapely.Polygon] = []
    places: list[tuple[int, int, int]] = []
    for number, outline in enumerate(outlines):
        if right[number] - left[number] <= 1 and bottom[number] - top[number] <= 1:
            parts.append(outline)
            places.append((number, top[number] * SQUARE, left[number] * SQUARE))
            continue
        shapely.prepare(outline)
        for row in range(top[number] * SQUARE, bottom[number] * SQUARE, SQUARE):
            for col in range(left[number] * SQUARE, right[number] * SQUARE, SQUARE):
                found = _within(outline, row, col)
                parts += found
                places += [(number, row, col)] * len(found)
    held = np.empty(len(parts), object)
    held[:] = parts
    owner, rows, cols = np.array(places, np.int64).reshape(-1, 3).T
    several = (right - left > 1) | (bottom - top > 1)
    return Cuts(held, owner, rows, cols, several[owner])


def _within(outline: shapely.Polygon, row: int, col: int) -> list[shapely.Polygon]:
    """The parts of an outline in a square."""
    square = shapely.box(col, row, col + SQUARE, row + SQUARE)
    found = shapely.get_parts(shapely.intersection(outline, square))
    areas = [part for part in found if shapely.area(part) > 0]
    return [shapely.normalize(part) for part in areas]


def simplify_square(cuts: Cuts, to_metres: Affine, tolerance: float) -> Outlines:
    """Drop corners of all parts in one square together, but for those where it was cut."""
    if not len(cuts.parts):
        return cuts.parts
    together = move(np.concatenate([cuts.parts, _markers(cuts)]), to_metres)
    simple = shapely.coverage_simplify(together, tolerance)[: len(cuts.parts)]
    return snap(simple, ~to_metres)


def _markers(cuts: Cuts) -> Outlines:
    """Two small triangles at each corner on the square's border, outside of the square.

    A corner that three outlines have in common is kept.
    """
    corners = shapely.get_coordinates(cuts.parts[cuts.several])
    square = np.array([cuts.col[0], cuts.row[0]], np.float64)
    triangles = []
    for corner in np.unique(corners, axis=0):
        for axis in (0, 1):
            out = {0.0: -1.0, float(SQUARE): 1.0}.get(corner[axis] - square[axis])
            if out is not None:
                triangles += [_triangle(corner, axis, out, side) for side in (-1.0, 1.0)]
                break
    held = np.empty(len(triangles), object)
    held[:] = triangles
    return held


def _triangle(corner: NDArray[np.float64], axis: int, out: float, side: float) -> shapely.Polygon:
    """A triangle that leaves a square along an axis, on one side of a corner."""
    ring = np.array([(0.0, 0.0), (out, 0.1 * side), (out, 0.4 * side)])
    return shapely.Polygon(corner + (ring if axis == 0 else ring[:, ::-1]))


def unite(parts: Outlines, owner: Numbers, outlines: Outlines) -> Outlines:
    """Put the parts of each outline together again; parts of one outline follow each other.

    A part of few pixels may lose its area beside the line where it was cut. An outline that would
    be lost so stays as it was.
    """
    whole = np.empty(len(outlines), object)
    whole[owner] = parts
    number = np.bincount(owner, minlength=len(outlines))
    ends = np.cumsum(number)
    for several in np.flatnonzero(number > 1).tolist():
        together = shapely.make_valid(parts[ends[several] - number[several] : ends[several]])
        flat = shapely.get_parts(shapely.get_parts(together))  # of collections of collections
        joined = shapely.union_all(flat[shapely.area(flat) > 0])
        found = outlines[several] if joined.is_empty else shapely.simplify(joined, 0)
        whole[several] = shapely.normalize(found)
    return whole


def snap(outlines: Outlines, to_pixels: Affine) -> Outlines:
    """Go back to pixel corners; rounding undoes what the way did to the last digits."""
    snapped: Outlines = shapely.transform(move(outlines, to_pixels), np.rint)
    return snapped

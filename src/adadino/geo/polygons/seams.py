"""Changes that cross the borders between parts of a scene, joined into one.

- Each part keeps, beside its own outlines, which of them touch its four edges, pixel by pixel. Two
  that touch across a border are one change: no geometry has to be compared to find that out.
- The parts' outlines lie on whole pixel corners, so their union is exact. Borders leave corners on
  straight edges; without those the union equals, to the last vertex, the outline that is traced on
  the whole scene.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from adadino.geo.polygons.components import (
    Components,
    Sums,
    groups,
    join,
    label_band,
    touching,
)
from adadino.geo.polygons.vector import Pieces, trace

Labels = NDArray[np.int64]
"""For each pixel of an edge the number of its piece from 1, or 0."""


class Part(NamedTuple):
    """The changes of a rectangle of a scene, in the scene's pixels."""

    rows: slice
    cols: slice
    pieces: Pieces
    top: Labels
    bottom: Labels
    left: Labels
    right: Labels


def trace_part(
    mask: NDArray[np.uint8], probability: NDArray[np.float32], row: int, col: int
) -> Part:
    """Find the changes of a part (h, w) whose first pixel lies at (row, col) of the scene."""
    outlines, parts = trace(mask, probability)
    moved = shapely.transform(outlines, lambda xy: xy + np.array([col, row]))
    placed = Components(parts.row + row, parts.col + col, parts.count, parts.total, parts.prob_max)
    # Numbered in reading order of the first pixels, as the pieces are.
    labels, _ = label_band(mask)
    sides = labels[0], labels[-1], labels[:, 0], labels[:, -1]
    edges = (np.array(side, np.int64) for side in sides)
    height, width = mask.shape
    spans = slice(row, row + height), slice(col, col + width)
    return Part(*spans, Pieces(moved, placed), *edges)


def join_parts(parts: Iterable[Part], *, width: int) -> Pieces:
    """Join the changes of all parts of a scene.

    Args:
        parts: From top to bottom and from left to right, on a lattice. Where one is missing,
            nothing is joined.
        width: The scene's number of columns.

    Returns:
        The same as `trace` of the whole scene.
    """
    outlines: list[NDArray[np.object_]] = []
    sums: list[Sums] = []
    parent: list[int] = []
    # The edges that wait for the part whose first pixel is at (row, col).
    below: dict[tuple[int, int], Labels] = {}
    right_of: dict[tuple[int, int], Labels] = {}
    for part in parts:
        corner, begin = (part.rows.start, part.cols.start), len(parent)
        found, each = part.pieces
        parent.extend(range(begin, begin + len(found)))
        outlines.append(found)
        first = each.row * width + each.col
        sums.append(Sums(first, each.count, each.total, each.prob_max))
        for waiting, edge in ((below, part.top), (right_of, part.left)):
            other = waiting.pop(corner, None)
            if other is not None:
                for a, b in touching(other, _from(edge, begin)):
                    join(parent, a - 1, b - 1)
        below[part.rows.stop, part.cols.start] = _from(part.bottom, begin)
        right_of[part.rows.start, part.cols.stop] = _from(part.right, begin)
    if not outlines:
        none = np.zeros(0, np.int64)
        return Pieces(np.array([], object), Components(none, none, none, none, np.zeros(0)))
    which, count = groups(parent)
    whole = Sums(*map(np.concatenate, zip(*sums, strict=True))).group(which, count)
    order = np.argsort(whole.first)
    joined = _unions(np.concatenate(outlines), which, count)
    return Pieces(joined[order], whole.take(order).components(width))


def save_part(part: Part) -> bytes:
    """A part as the bytes of an .npz file; equal parts give equal bytes."""
    geometry = shapely.to_wkb(part.pieces.outlines)
    arrays = {
        "place": np.array([part.rows.start, part.rows.stop, part.cols.start, part.cols.stop]),
        "wkb": np.frombuffer(b"".join(geometry), np.uint8),
        "lengths": np.array([len(text) for text in geometry], np.int64),
        **{name: getattr(part.pieces.parts, name) for name in _COMPONENTS},
        **{name: getattr(part, name) for name in _EDGES},
    }
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def load_part(path: Path) -> Part:
    """Read a part again."""
    with np.load(path, allow_pickle=False) as file:
        top, bottom, left, right = file["place"].tolist()
        raw, ends = file["wkb"].tobytes(), np.cumsum(file["lengths"]).tolist()
        texts = [raw[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)] if ends else []
        outlines = np.array(shapely.from_wkb(texts), object)
        pieces = Pieces(outlines, Components(*(file[name] for name in _COMPONENTS)))
        spans = slice(top, bottom), slice(left, right)
        return Part(*spans, pieces, *(file[name] for name in _EDGES))


_COMPONENTS = ("row", "col", "count", "total", "prob_max")
_EDGES = ("top", "bottom", "left", "right")


def _from(edge: Labels, begin: int) -> Labels:
    """An edge's numbers counted among the pieces of all parts."""
    return np.where(edge > 0, edge + begin, 0)


def _unions(
    outlines: NDArray[np.object_], which: NDArray[np.intp], count: int
) -> NDArray[np.object_]:
    """One geometry for each group, in its normal form."""
    union = np.empty(count, object)
    union[which] = outlines
    members = np.bincount(which, minlength=count)
    of_several = np.flatnonzero(members > 1)
    by_group = np.argsort(which, kind="stable")
    ends = np.cumsum(members)
    for group in of_several.tolist():
        together = by_group[ends[group] - members[group] : ends[group]]
        whole = shapely.normalize(shapely.union_all(outlines[together]))
        # A ring's first corner stays; in the normal form that is an outermost one, never one of
        # those that a border has left on a straight edge.
        union[group] = shapely.normalize(shapely.simplify(whole, 0))
    return union

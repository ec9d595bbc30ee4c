"""Changes that cross the borders between parts of a scene, joined into one.

- Each part keeps, beside its own outlines, which of them touch its four edges, pixel by pixel. Two
  that touch across a border are one change: no geometry has to be compared to find that out.
- What is joined is a part again, so that parts are joined in pieces: first those of a block of
  units, then those blocks' outermost changes.
- The parts' outlines lie on whole pixel corners, so their union is exact. Borders leave corners on
  straight edges; without those the union equals, to the last vertex, the outline that is traced on
  the whole scene.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

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

WIDE = 2**31
"""Columns of a scene, at most: a pixel's number is its row times this, plus its column."""


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


def merge_parts(parts: Iterable[Part]) -> Part:
    """Join the changes of neighbouring parts; the result is again a part, which others can join.

    Args:
        parts: At least one, from top to bottom and from left to right, on a lattice. Where one is
            missing, nothing is joined.

    Returns:
        The part that `trace_part` finds in the rectangle around all of them.
    """
    seen: list[Part] = []
    parent: list[int] = []
    begins: list[int] = []
    # The edges that wait for the part whose first pixel is at (row, col).
    below: dict[tuple[int, int], Labels] = {}
    right_of: dict[tuple[int, int], Labels] = {}
    for part in parts:
        corner, begin = (part.rows.start, part.cols.start), len(parent)
        parent.extend(range(begin, begin + len(part.pieces.outlines)))
        for waiting, edge in ((below, part.top), (right_of, part.left)):
            other = waiting.pop(corner, None)
            if other is not None:
                for a, b in touching(other, count_from(edge, begin)):
                    join(parent, a - 1, b - 1)
        below[part.rows.stop, part.cols.start] = count_from(part.bottom, begin)
        right_of[part.rows.start, part.cols.stop] = count_from(part.right, begin)
        seen.append(part)
        begins.append(begin)
    which, count = groups(parent)
    whole = union([part.pieces for part in seen], which, count)
    order = np.lexsort((whole.parts.col, whole.parts.row))
    number = np.empty(count + 1, np.int64)
    number[0], number[order + 1] = 0, np.arange(1, count + 1)
    renumbered = number[np.concatenate([[0], which + 1])]
    return _frame(seen, begins, take(whole, order), renumbered)


def union(pieces: Sequence[Pieces], which: NDArray[np.intp], count: int) -> Pieces:
    """One change for each group of pieces; piece i of all belongs to group `which[i]`."""
    outlines = np.concatenate([found for found, _ in pieces])
    each = [
        Sums(p.row * WIDE + p.col, p.count, p.total, p.prob_max)
        for p in (parts for _, parts in pieces)
    ]
    whole = Sums(*map(np.concatenate, zip(*each, strict=True))).group(which, count)
    return Pieces(_unions(outlines, which, count), whole.components(WIDE))


def take(pieces: Pieces, which: NDArray[np.generic]) -> Pieces:
    """Some of the pieces, or all of them in another order."""
    return Pieces(pieces.outlines[which], pieces.parts.take(which))


def on_edge(part: Part) -> Labels:
    """The pieces that touch an edge of a part, counted from 0."""
    edges = np.concatenate([part.top, part.bottom, part.left, part.right])
    return np.unique(edges[edges > 0]) - 1


def count_from(edge: Labels, begin: int) -> Labels:
    """An edge's numbers counted among the pieces of all parts."""
    return np.where(edge > 0, edge + begin, 0)


def _frame(parts: Sequence[Part], begins: Sequence[int], whole: Pieces, number: Labels) -> Part:
    """The part around others, with the new `number` of each of their pieces on its edges."""
    top, left = min(p.rows.start for p in parts), min(p.cols.start for p in parts)
    bottom, right = max(p.rows.stop for p in parts), max(p.cols.stop for p in parts)
    sides = {name: np.zeros(right - left, np.int64) for name in ("top", "bottom")}
    sides |= {name: np.zeros(bottom - top, np.int64) for name in ("left", "right")}
    for part, begin in zip(parts, begins, strict=True):
        rows = slice(part.rows.start - top, part.rows.stop - top)
        cols = slice(part.cols.start - left, part.cols.stop - left)
        for name, at, outermost in (
            ("top", cols, part.rows.start == top),
            ("bottom", cols, part.rows.stop == bottom),
            ("left", rows, part.cols.start == left),
            ("right", rows, part.cols.stop == right),
        ):
            if outermost:
                sides[name][at] = number[count_from(getattr(part, name), begin)]
    return Part(slice(top, bottom), slice(left, right), whole, **sides)


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


def load_part(file: Path | BinaryIO) -> Part:
    """Read a part again."""
    with np.load(file, allow_pickle=False) as arrays:
        raw, ends = arrays["wkb"].tobytes(), np.cumsum(arrays["lengths"]).tolist()
        texts = [raw[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)] if ends else []
        outlines = np.array(shapely.from_wkb(texts), object)
        return _part(arrays, outlines)


def load_edges(file: Path | BinaryIO) -> Part:
    """Read a part without its outlines, which take most of the time and the memory."""
    with np.load(file, allow_pickle=False) as arrays:
        return _part(arrays, np.array([], object))


def _part(arrays: Mapping[str, NDArray[Any]], outlines: NDArray[np.object_]) -> Part:
    top, bottom, left, right = arrays["place"].tolist()
    pieces = Pieces(outlines, Components(*(arrays[name] for name in _COMPONENTS)))
    spans = slice(top, bottom), slice(left, right)
    return Part(*spans, pieces, *(arrays[name] for name in _EDGES))


_COMPONENTS = ("row", "col", "count", "total", "prob_max")
_EDGES = ("top", "bottom", "left", "right")


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

"""The least area in a region: mask, percentage and polygons without what is smaller.

A change is judged by its whole area, and so is a hole, through however many units they run. That is
known when all units are predicted. Until then a unit has its mask as the threshold gives it (`raw`)
and the probabilities that may be needed (`kept`). Three passes over the units make the rest:

1. The changes on the edges of units are joined, and those that are too small are known.
2. The same with what is no change, once those are gone: the holes that are too small are known.
3. Each unit writes its mask and traces its polygons, which are then joined as ever.

The rules are those of `geo.polygons.vector.sieved`, so that the result is that of one scene. The
driver holds a few numbers for each change or hole on an edge.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rasterio.io import MemoryFile
from rasterio.windows import Window

from adadino.area.ledger import Ledger, Record, Spread
from adadino.area.units import PlacedDates, Unit
from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.polygons.components import CHANGE, NODATA, groups, join, label_band, touching
from adadino.geo.polygons.measure import areas, to_metres
from adadino.geo.polygons.seams import count_from, save_part, take, trace_part, union
from adadino.geo.write.cog import BLOCK
from adadino.scene.outputs import Targets, write_rasters

Flags = NDArray[np.uint8]
Labels = NDArray[np.int64]
Choice = tuple[int, ...]
"""Labels on the edges of a unit."""


class _Edges(NamedTuple):
    """What lies on the edges of a unit."""

    numbers: Labels
    """The labels there."""
    sides: tuple[Labels, Labels, Labels, Labels]
    """For each pixel of top, left, bottom and right the place in `numbers` from 1, or 0."""
    pixels: Labels
    """How many each has in the unit."""
    opened: NDArray[np.bool_]
    """Whether each of them reaches nodata, or an edge with no unit beyond."""


@dataclass(frozen=True)
class _Rules:
    """What is the same for all units of a pair."""

    ledger: Ledger
    scene: PlacedDates
    min_area: float


@dataclass(frozen=True)
class _Task:
    """A unit, and what was decided of its edges so far."""

    unit: Unit
    record: Record
    free: tuple[bool, bool, bool, bool]
    """Whether nothing lies beyond top, left, bottom and right."""
    small: Choice | None = None
    """The changes on its edges that go; None where that is not known."""
    filled: Choice = ()
    """The holes on its edges that are filled."""


def save_kept(flags: Flags, probability: NDArray[np.float32], grid: Grid, min_area: float) -> bytes:
    """The probabilities of changes, and of what may be a hole, as the bytes of an .npz file."""
    labels, count = label_band((flags != CHANGE).astype(np.uint8))
    may_fill = np.bincount(labels.ravel(), minlength=count + 1) * _pixel(grid) < min_area
    kept = (flags == CHANGE) | (may_fill[labels] & (flags != NODATA))
    file = io.BytesIO()
    arrays = {"kept": np.packbits(kept), "values": probability[kept]}
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def sieve_pair(
    ledger: Ledger,
    scene: PlacedDates,
    records: Mapping[Unit, Record],
    side: int,
    min_area: float,
    spread: Spread,
) -> dict[Unit, Record]:
    """Write masks and polygons of the units that were predicted for a least area.

    Args:
        ledger: Where the units are.
        scene: The pair.
        records: Its finished units, from top to bottom.
        side: Side of a unit in pixels.
        min_area: Smaller changes and holes go, in square metres (pixels without a CRS).
        spread: What runs the pieces of the work.

    Returns:
        The records of all units, in the same order, with the files that are tied together.
    """
    rules = _Rules(ledger, scene, min_area)
    there = {(unit.row, unit.col) for unit in records}
    tasks = []
    for unit, record in records.items():
        row, col = unit.row, unit.col
        beyond = (row - side, col), (row, col - side), (row + side, col), (row, col + side)
        free = tuple(at not in there for at in beyond)
        tasks.append(_Task(unit, record, (free[0], free[1], free[2], free[3])))
    tasks = [task for task in tasks if "min_area" in task.record]
    if min_area > 0:
        small = _decide(rules, tasks, partial(_change_edges, rules), _small_changes, spread)
        tasks = [
            _Task(task.unit, task.record, task.free, chosen)
            for task, chosen in zip(tasks, small, strict=True)
        ]
        filled = _decide(rules, tasks, partial(_hole_edges, rules), _small_holes, spread)
        tasks = [
            _Task(task.unit, task.record, task.free, task.small, chosen)
            for task, chosen in zip(tasks, filled, strict=True)
        ]
    written = spread(partial(_write, rules), tasks)
    done = {task.unit: record for task, record in zip(tasks, written, strict=True)}
    return {unit: done.get(unit, record) for unit, record in records.items()}


class _Group(NamedTuple):
    """What edges of all units add up to, each group once."""

    which: NDArray[np.intp]
    """For each entry of each unit its group."""
    pixels: Labels
    opened: NDArray[np.bool_]


Decide = Callable[[_Rules, Sequence[_Task], list[Labels], _Group], NDArray[np.bool_]]


def _decide(
    rules: _Rules,
    tasks: Sequence[_Task],
    look: Callable[[_Task], _Edges],
    decide: Decide,
    spread: Spread,
) -> list[Choice]:
    """Join what units have on their edges; returns for each unit the labels that are chosen."""
    parent: list[int] = []
    numbers: list[Labels] = []
    counts: list[Labels] = [np.empty(0, np.int64)]
    opened: list[NDArray[np.bool_]] = [np.empty(0, bool)]
    waiting: dict[tuple[int, int, int], Labels] = {}  # by the unit that lies beyond, and its side
    for task, edges in zip(tasks, spread(look, tasks), strict=True):
        unit, begin = task.unit, len(parent)
        parent.extend(range(begin, begin + len(edges.numbers)))
        top, left, bottom, right = (count_from(each, begin) for each in edges.sides)
        for side, mine in enumerate((top, left)):
            other = waiting.pop((unit.row, unit.col, side), None)
            if other is not None:
                for a, b in touching(other, mine):
                    join(parent, a - 1, b - 1)
        waiting[unit.row + unit.height, unit.col, 0] = bottom
        waiting[unit.row, unit.col + unit.width, 1] = right
        numbers.append(edges.numbers)
        counts.append(edges.pixels)
        opened.append(edges.opened)
    which, size = groups(parent)
    count, free = np.zeros(size, np.int64), np.zeros(size, bool)
    np.add.at(count, which, np.concatenate(counts))
    np.logical_or.at(free, which, np.concatenate(opened))
    chosen = decide(rules, tasks, numbers, _Group(which, count, free))[which]
    ends = np.cumsum([len(each) for each in numbers])
    split = np.split(chosen, ends[:-1]) if numbers else []
    return [tuple(n[c].tolist()) for n, c in zip(numbers, split, strict=True)]


def _small_changes(
    rules: _Rules, tasks: Sequence[_Task], numbers: list[Labels], group: _Group
) -> NDArray[np.bool_]:
    def outlines() -> NDArray[np.object_]:
        """Those of changes on edges, joined: only where areas are not those of pixels."""
        pieces = []
        for task, some in zip(tasks, numbers, strict=True):
            flags = _raw(rules.ledger, task.unit)[0]
            part = trace_part(
                flags, np.zeros(flags.shape, np.float32), task.unit.row, task.unit.col
            )
            pieces.append(take(part.pieces, some - 1))
        return union(pieces, group.which, len(group.pixels)).outlines

    small: NDArray[np.bool_] = areas(outlines, group.pixels, rules.scene.grid) < rules.min_area
    return small


def _small_holes(
    rules: _Rules, tasks: Sequence[_Task], numbers: list[Labels], group: _Group
) -> NDArray[np.bool_]:
    small: NDArray[np.bool_] = group.pixels * _pixel(rules.scene.grid) < rules.min_area
    return small & ~group.opened


def _change_edges(rules: _Rules, task: _Task) -> _Edges:
    flags, _ = _raw(rules.ledger, task.unit)
    labels, count = label_band(flags)
    return _edges(labels, count, np.zeros(count + 1, bool))


def _hole_edges(rules: _Rules, task: _Task) -> _Edges:
    flags = _without_small(rules, task, _raw(rules.ledger, task.unit)[0])
    return _edges(*_holes(task, flags))


def _edges(labels: Labels, count: int, opened: NDArray[np.bool_]) -> _Edges:
    sides = labels[0], labels[:, 0], labels[-1], labels[:, -1]
    numbers = np.unique(np.concatenate(sides))
    numbers = numbers[numbers > 0].astype(np.int64)
    place = np.zeros(count + 1, np.int64)
    place[numbers] = np.arange(1, len(numbers) + 1)
    pixels = np.bincount(labels.ravel(), minlength=count + 1)
    top, left, bottom, right = (place[side] for side in sides)
    return _Edges(numbers, (top, left, bottom, right), pixels[numbers], opened[numbers])


def _without_small(rules: _Rules, task: _Task, flags: Flags) -> Flags:
    """The mask of a unit without the changes that are too small."""
    labels, count = label_band(flags)
    unit = task.unit

    def outlines() -> NDArray[np.object_]:
        part = trace_part(flags, np.zeros(flags.shape, np.float32), unit.row, unit.col)
        return part.pieces.outlines

    pixels = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    small = np.concatenate([[False], areas(outlines, pixels, rules.scene.grid) < rules.min_area])
    _settle(small, labels, task.small or ())
    return np.where(small[labels], 0, flags).astype(np.uint8)


def _holes(task: _Task, flags: Flags) -> tuple[Labels, int, NDArray[np.bool_]]:
    """What is no change, numbered, and which of it is open."""
    labels, count = label_band((flags != CHANGE).astype(np.uint8))
    opened = np.zeros(count + 1, bool)
    opened[labels[flags == NODATA]] = True
    sides = labels[0], labels[:, 0], labels[-1], labels[:, -1]
    for side, free in zip(sides, task.free, strict=True):
        if free:
            opened[side] = True
    return labels, count, opened


def _settle(chosen: NDArray[np.bool_], labels: Labels, on_edges: Iterable[int]) -> None:
    """On the edges of a unit, what was decided for the whole pair counts."""
    for side in (labels[0], labels[:, 0], labels[-1], labels[:, -1]):
        chosen[side] = False
    chosen[list(on_edges)] = True
    chosen[0] = False


def _write(rules: _Rules, task: _Task) -> Record:
    """Write the mask and the polygons of a unit; returns the record that is tied."""
    ledger, unit = rules.ledger, task.unit
    flags, tags = _raw(ledger, unit)
    tags["ADADINO_MIN_AREA"] = str(rules.min_area)
    if task.small is None:
        del tags["ADADINO_MIN_AREA"]
    else:
        flags = _without_small(rules, task, flags)
        labels, count, opened = _holes(task, flags)
        pixels = np.bincount(labels.ravel(), minlength=count + 1)
        fill = (pixels * _pixel(rules.scene.grid) < rules.min_area) & ~opened
        _settle(fill, labels, task.filled)
        flags = np.where(fill[labels], CHANGE, flags).astype(np.uint8)
    probability = _kept(ledger, unit)
    starts = range(0, unit.height, BLOCK)
    changed, valid = write_rasters(
        ((row, probability[row : row + BLOCK]) for row in starts),
        Targets(mask=ledger.store.path(ledger.file(unit, "mask"))),
        rules.scene.grid.part(Window(unit.col, unit.row, unit.width, unit.height)),
        threshold=0.5,  # not used: the mask is given
        tags=tags,
        masks=((row, flags[row : row + BLOCK]) for row in starts),
    )
    part = save_part(trace_part(flags, probability, unit.row, unit.col))
    write_atomic(ledger.store.path(ledger.file(unit, "polygons")), part)
    files = ledger.publish(unit, ("mask", "polygons"))
    kept = ledger.file(unit, "probability")
    files |= {name: said for name, said in task.record["files"].items() if name == kept}
    return {"files": files, "changed": changed, "valid": valid}


def _raw(ledger: Ledger, unit: Unit) -> tuple[Flags, dict[str, str]]:
    """The mask of a unit as the threshold gives it, and what it says of itself."""
    content = ledger.store.read(ledger.file(unit, "raw"))
    with MemoryFile(content or b"") as file, file.open() as raster:
        ours = {n: v for n, v in raster.tags().items() if n.startswith(("ADADINO_", "TIFFTAG_"))}
        return raster.read(1), ours


def _kept(ledger: Ledger, unit: Unit) -> NDArray[np.float32]:
    """The probabilities of a unit, 0 where they are not needed."""
    content = ledger.store.read(ledger.file(unit, "kept"))
    with np.load(io.BytesIO(content or b""), allow_pickle=False) as arrays:
        count = unit.height * unit.width
        kept = np.unpackbits(arrays["kept"], count=count).astype(bool)
        probability = np.zeros(count, np.float32)
        probability[kept] = arrays["values"]
    return probability.reshape(unit.height, unit.width)


def _pixel(grid: Grid) -> float:
    """The area of a pixel in the scene's middle."""
    return 1.0 if grid.crs is None else float(abs(to_metres(grid).determinant))

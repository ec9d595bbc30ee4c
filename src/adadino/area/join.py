"""The polygons of a region, joined in pieces by as many workers as there are.

1. The units of a cell are joined into one part (`merge_cell`), which keeps the changes on its edges
   apart from the others. Memory is that of a cell.
2. The driver reads the edges of all cells and finds which changes touch across a border
   (`find_links`). It holds a few numbers for each change on an edge, and no outline.
3. A polygon belongs to the partition in which its first pixel lies, in reading order. Whoever
   writes a partition (`write_partition`) takes what its cells hold alone, and unites what begins
   there and crosses borders, through however many cells it runs.

Partitions lie on a lattice that knows nothing of units. Therefore nothing depends on workers, their
order or the side of a unit. What was joined before from the same units is kept.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import geopandas as gpd
import numpy as np
import shapely

from adadino.area.ledger import Ledger, Record, checksum
from adadino.area.units import PlacedDates, Unit
from adadino.geo.polygons.components import groups, join, touching
from adadino.geo.polygons.parquet import write_parquet
from adadino.geo.polygons.seams import (
    Labels,
    Part,
    count_from,
    load_edges,
    load_part,
    merge_parts,
    on_edge,
    save_part,
    take,
    union,
)
from adadino.geo.polygons.simplify import SQUARE, Outlines
from adadino.geo.polygons.vector import Pieces, Ranked, drawn, rank

CELL = SQUARE
"""Side of a partition in pixels: 8 x 8 units of 4096."""

Member = tuple[str, int]
"""A change on an edge: the file of its cell, and its number there from 0."""


class Cell(NamedTuple):
    """Units that are joined as one part."""

    row: int
    col: int
    units: tuple[Unit, ...]
    file: str
    """The name of the joined part, which holds a digest of what it was made of."""


@dataclass(frozen=True)
class Partition:
    """What makes one file of polygons."""

    row: int
    col: int
    file: str
    cells: dict[str, frozenset[int]]
    """The cells that reach into it, each with the changes that are not its own alone."""
    links: tuple[tuple[Member, ...], ...]
    """The changes that begin in it and cross borders."""


@dataclass(frozen=True)
class Rules:
    """What is the same for all partitions of a pair."""

    scene: PlacedDates
    min_area: float
    simplify: float
    degrees: bool
    """Whether all polygons are in longitude and latitude, because pairs have several systems."""


def cut_cells(scene: PlacedDates, done: Mapping[Unit, Record], side: int) -> list[Cell]:
    """Gather the finished units of a pair into cells, from top to bottom."""
    step = max(1, CELL // side) * side
    inside: dict[tuple[int, int], list[Unit]] = {}
    for unit in done:
        inside.setdefault((unit.row // step, unit.col // step), []).append(unit)
    cells = []
    for (row, col), units in sorted(inside.items()):
        digest = hashlib.sha256()
        for unit in units:
            files = done[unit]["files"]
            digest.update(
                f"{unit.name} {files[Ledger.file(unit, 'polygons')]['sha256']}\n".encode()
            )
        name = f"{row * step:07d}-{col * step:07d}-{digest.hexdigest()[:16]}.npz"
        file = f"pairs/{scene.dates.name}/cells/{name}"
        cells.append(Cell(row * step, col * step, tuple(units), file))
    return cells


def merge_cell(ledger: Ledger, cell: Cell) -> None:
    """Join the units of a cell."""
    parts = (_load(ledger, Ledger.file(unit, "polygons")) for unit in cell.units)
    ledger.write(cell.file, save_part(merge_parts(parts)))


def find_links(ledger: Ledger, cells: Sequence[Cell]) -> list[tuple[Member, ...]]:
    """Find the changes that cross borders between cells; each is the list of its pieces.

    Args:
        ledger: Where the cells are.
        cells: From top to bottom.

    Returns:
        The members of each change, the one with its first pixel first.
    """
    members: list[Member] = []
    firsts: list[tuple[int, int]] = []
    parent: list[int] = []
    below: dict[tuple[int, int], Labels] = {}
    right_of: dict[tuple[int, int], Labels] = {}
    for cell in cells:
        part = load_edges(io.BytesIO(_read(ledger, cell.file)))
        outermost, begin = on_edge(part), len(parent)
        parent.extend(range(begin, begin + len(outermost)))
        members.extend((cell.file, number) for number in outermost.tolist())
        each = part.pieces.parts
        at = each.row[outermost].tolist(), each.col[outermost].tolist()
        firsts.extend(zip(*at, strict=True))
        number = np.zeros(len(each.row) + 1, np.int64)
        number[outermost + 1] = np.arange(1, len(outermost) + 1)
        corner = part.rows.start, part.cols.start
        for waiting, edge in ((below, part.top), (right_of, part.left)):
            other = waiting.pop(corner, None)
            if other is not None:
                for a, b in touching(other, count_from(number[edge], begin)):
                    join(parent, a - 1, b - 1)
        below[part.rows.stop, part.cols.start] = count_from(number[part.bottom], begin)
        right_of[part.rows.start, part.cols.stop] = count_from(number[part.right], begin)
    which, count = groups(parent)
    gathered: list[list[tuple[tuple[int, int], Member]]] = [[] for _ in range(count)]
    for group, first, member in zip(which.tolist(), firsts, members, strict=True):
        gathered[group].append((first, member))
    linked = sorted(sorted(group) for group in gathered if len(group) > 1)
    return [tuple(member for _, member in group) for group in linked]


def cut_partitions(
    ledger: Ledger, scene: PlacedDates, cells: Sequence[Cell]
) -> Iterator[Partition]:
    """Say what each partition of a pair consists of."""
    links = find_links(ledger, cells)
    shared: dict[str, set[int]] = {cell.file: set() for cell in cells}
    begun: dict[tuple[int, int], list[tuple[Member, ...]]] = {}
    for link in links:
        for file, number in link:
            shared[file].add(number)
        begun.setdefault(_first_pixel(ledger, link[0]), []).append(link)
    inside: dict[tuple[int, int], dict[str, frozenset[int]]] = {}
    for cell in cells:
        bottom = max(unit.row + unit.height for unit in cell.units)
        right = max(unit.col + unit.width for unit in cell.units)
        for row in range(cell.row // CELL, (bottom - 1) // CELL + 1):
            for col in range(cell.col // CELL, (right - 1) // CELL + 1):
                inside.setdefault((row, col), {})[cell.file] = frozenset(shared[cell.file])
    for (row, col), files in sorted(inside.items()):
        name = f"{scene.dates.name}-{row * CELL:07d}-{col * CELL:07d}.parquet"
        mine = tuple(begun.get((row, col), ()))
        yield Partition(row * CELL, col * CELL, f"change.parquet/{name}", files, mine)


def find_pieces(ledger: Ledger, partition: Partition) -> Pieces:
    """The changes of a partition in pixels, in no particular order."""
    load = lru_cache(maxsize=16)(lambda file: _load(ledger, file))
    found: list[Pieces] = []
    for file, shared in partition.cells.items():
        pieces = load(file).pieces
        each = pieces.parts
        mine = (each.row // CELL * CELL == partition.row) & (
            each.col // CELL * CELL == partition.col
        )
        mine[list(shared)] = False
        found.append(take(pieces, mine))
    if partition.links:
        several, which = [], []
        for group, link in enumerate(partition.links):
            several += [take(load(file).pieces, np.array([number])) for file, number in link]
            which += [group] * len(link)
        found.append(union(several, np.array(which), len(partition.links)))
    return concatenate(found)


def concatenate(pieces: Sequence[Pieces]) -> Pieces:
    """All of several lists of pieces."""
    count = sum(len(some.outlines) for some in pieces)
    return union(pieces, np.arange(count), count)


def write_partition(ledger: Ledger, rules: Rules, partition: Partition) -> tuple[int, int, str]:
    """Write the polygons of a partition; returns how many there are, bytes and SHA-256."""
    ranked = find_ranked(ledger, rules, partition)
    return write_rows(ledger, rules, partition, ranked, ranked.pieces.outlines)


def find_ranked(ledger: Ledger, rules: Rules, partition: Partition) -> Ranked:
    """The changes of a partition that are large enough, the largest first."""
    return rank(find_pieces(ledger, partition), rules.scene.grid, min_area=rules.min_area)


def write_rows(
    ledger: Ledger, rules: Rules, partition: Partition, ranked: Ranked, outlines: Outlines
) -> tuple[int, int, str]:
    """Write the rows of a partition; returns how many there are, bytes and SHA-256."""
    frame, bounds = drawn(ranked, rules.scene.grid, outlines), rules.scene.grid.bounds
    frame.insert(0, "pair", rules.scene.dates.name)
    if rules.degrees:
        corners = gpd.GeoSeries([shapely.box(*bounds)], crs=frame.crs)
        frame, bounds = frame.to_crs("EPSG:4326"), corners.to_crs("EPSG:4326").total_bounds
    path = ledger.store.path(partition.file)
    write_parquet(path, frame, bounds)
    facts = len(frame), path.stat().st_size, checksum(path)
    ledger.store.publish(partition.file)
    return facts


def partition_digest(rules: Rules, partition: Partition) -> str:
    """A digest of everything that the bytes of a partition depend on."""
    cells = {file: sorted(shared) for file, shared in sorted(partition.cells.items())}
    limits = rules.min_area, rules.simplify, rules.degrees
    return hashlib.sha256(repr((cells, partition.links, limits)).encode()).hexdigest()


def _first_pixel(ledger: Ledger, member: Member) -> tuple[int, int]:
    """The partition in which a change on an edge begins."""
    file, number = member
    each = _edges(ledger, file).pieces.parts
    return int(each.row[number]) // CELL, int(each.col[number]) // CELL


@lru_cache(maxsize=64)
def _edges(ledger: Ledger, file: str) -> Part:
    return load_edges(io.BytesIO(_read(ledger, file)))


def _load(ledger: Ledger, file: str) -> Part:
    return load_part(io.BytesIO(_read(ledger, file)))


def _read(ledger: Ledger, file: str) -> bytes:
    content = ledger.store.read(file)
    if content is None:
        raise FileNotFoundError(f"{ledger.where}/{file} is gone")
    return content

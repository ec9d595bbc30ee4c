"""The outlines of a pair simplified in pieces, by as many workers as there are.

1. Each partition cuts its outlines along the lines between squares (`cut_partition`).
2. Each square simplifies what lies in it, whichever partition it belongs to (`simplify_square`).
3. Each partition unites the parts of its outlines, and writes its rows (`write_simplified`).

The rule is that of one scene (`geo.polygons.simplify`), so that the result is, too. A worker holds
a square, and the outlines that begin there.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from adadino.area.join import Partition, Rules, find_ranked, write_rows
from adadino.area.ledger import Ledger, Spread
from adadino.geo.polygons import simplify as rule
from adadino.geo.polygons.measure import to_metres

Place = tuple[int, int]
"""The first row and column of a square."""


@dataclass(frozen=True)
class _Square:
    """A square, and the partitions whose outlines reach into it."""

    place: Place
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class _Begun:
    """A partition, and the squares into which its outlines reach."""

    partition: Partition
    places: tuple[Place, ...]


def simplify_partitions(
    ledger: Ledger, rules: Rules, partitions: Sequence[Partition], spread: Spread
) -> Iterable[tuple[int, int, str]]:
    """Write the simplified polygons of all partitions of a pair.

    Yields:
        For each partition how many there are, bytes and SHA-256.
    """
    folder = _folder(rules)
    places = list(spread(partial(cut_partition, ledger, rules), partitions))
    inside: dict[Place, list[Partition]] = {}
    for partition, reached in zip(partitions, places, strict=True):
        for place in reached:
            inside.setdefault(place, []).append(partition)
    squares = [_Square(place, tuple(found)) for place, found in sorted(inside.items())]
    for _ in spread(partial(simplify_square, ledger, rules), squares):
        pass
    begun = [_Begun(*each) for each in zip(partitions, places, strict=True)]
    yield from spread(partial(write_simplified, ledger, rules), begun)
    ledger.store.remove(folder)


def cut_partition(ledger: Ledger, rules: Rules, partition: Partition) -> tuple[Place, ...]:
    """Cut the outlines of a partition; returns the squares into which they reach."""
    ranked = find_ranked(ledger, rules, partition)
    cuts, parts = rule.cut(ranked.pieces.outlines), ranked.pieces.parts
    places = sorted(set(zip(cuts.row.tolist(), cuts.col.tolist(), strict=True)))
    for place in places:
        mine = cuts.take(np.flatnonzero((cuts.row == place[0]) & (cuts.col == place[1])))
        arrays = {
            "owner": mine.owner,
            "several": mine.several,
            "area": ranked.area[mine.owner],
            "row": parts.row[mine.owner],
            "col": parts.col[mine.owner],
        }
        _write(ledger, _file(rules, partition, place), mine.parts, arrays)
    return tuple(places)


def simplify_square(ledger: Ledger, rules: Rules, square: _Square) -> None:
    """Simplify what lies in a square, and give each partition its parts back."""
    outlines, found = zip(
        *(_read(ledger, _file(rules, p, square.place)) for p in square.partitions), strict=True
    )
    fields = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
    # As in one scene: the largest first, equal areas in reading order, parts in their own order.
    order = np.lexsort((fields["col"], fields["row"], -fields["area"]))
    row, col = (np.full(len(order), at) for at in square.place)
    cuts = rule.Cuts(np.concatenate(outlines), fields["owner"], row, col, fields["several"])
    simple = np.empty(len(order), object)
    simple[order] = rule.simplify_square(
        cuts.take(order), to_metres(rules.scene.grid), rules.simplify
    )
    ends = np.cumsum([len(each) for each in outlines])[:-1]
    for partition, parts, known in zip(
        square.partitions, np.split(simple, ends), found, strict=True
    ):
        # Under another name: a worker that repeats this must find what was cut.
        _write(ledger, _file(rules, partition, square.place, "simple"), parts, known)


def write_simplified(ledger: Ledger, rules: Rules, begun: _Begun) -> tuple[int, int, str]:
    """Write the simplified polygons that begin in a partition."""
    ranked = find_ranked(ledger, rules, begun.partition)
    parts: list[rule.Outlines] = [np.empty(0, object)]
    owner: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for place in begun.places:
        found, fields = _read(ledger, _file(rules, begun.partition, place, "simple"))
        parts.append(found)
        owner.append(fields["owner"])
    owners = np.concatenate(owner)
    # Squares come in reading order, as one scene cuts them.
    order = np.argsort(owners, kind="stable")
    whole = rule.unite(np.concatenate(parts)[order], owners[order], ranked.pieces.outlines)
    return write_rows(ledger, rules, begun.partition, ranked, whole)


def _folder(rules: Rules) -> str:
    return f"pairs/{rules.scene.dates.name}/outlines"


def _file(rules: Rules, partition: Partition, place: Place, kind: str = "cut") -> str:
    ends = (f"{at:07d}" for at in (partition.row, partition.col, *place))
    name = f"{kind}-{'-'.join(ends)}.npz"
    return f"{_folder(rules)}/{name}"


def _write(
    ledger: Ledger, name: str, outlines: rule.Outlines, fields: dict[str, NDArray[Any]]
) -> None:
    texts = shapely.to_wkb(outlines)
    arrays: dict[str, Any] = {
        "wkb": np.frombuffer(b"".join(texts), np.uint8),
        "lengths": np.array([len(text) for text in texts], np.int64),
        **fields,
    }
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    ledger.write(name, file.getvalue())


def _read(ledger: Ledger, name: str) -> tuple[rule.Outlines, dict[str, NDArray[Any]]]:
    content = ledger.store.read(name)
    with np.load(io.BytesIO(content or b""), allow_pickle=False) as arrays:
        raw, ends = arrays["wkb"].tobytes(), np.cumsum(arrays["lengths"]).tolist()
        texts = [raw[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        fields = {name: arrays[name] for name in ("owner", "several", "area", "row", "col")}
        return np.array(shapely.from_wkb(texts), object), fields

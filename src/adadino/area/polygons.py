"""The polygons of a region as files: a folder of GeoParquet, and a GeoPackage if they are few.

`OUT/pairs/NAME/partitions.json` says what each file of GeoParquet was made of. A file whose parts
are still the same is kept, so that one unit more does not join a country again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd

from adadino.area.join import (
    Partition,
    Rules,
    cut_cells,
    cut_partitions,
    merge_cell,
    partition_digest,
    write_partition,
)
from adadino.area.ledger import Done, Ledger, Spread, read_object
from adadino.area.simplify import simplify_partitions
from adadino.area.units import PlacedDates
from adadino.geo.grid import crs_name
from adadino.geo.polygons.vector import numbered
from adadino.geo.write.layers import write_layer
from adadino.geo.write.qml import qml_text
from adadino.scene.options import SceneOptions

FEW = 200_000
"""Polygons up to which there is a GeoPackage, too; it is written in one piece, from memory."""
FOLDER = "change.parquet"
LAYER = "change.gpkg"


@dataclass(frozen=True)
class Joined:
    """The polygons of a region on disk."""

    count: int
    files: dict[str, dict[str, Any]]
    """The files of GeoParquet, by name: polygons, bytes and SHA-256."""


def join_region(
    ledger: Ledger,
    scenes: Sequence[PlacedDates],
    done: Done,
    side: int,
    options: SceneOptions,
    spread: Spread,
) -> Joined:
    """Join the polygons of all pairs and write them as GeoParquet.

    Args:
        ledger: Where the units are.
        scenes: The pairs.
        done: Their finished units.
        side: Side of a unit in pixels.
        options: The smallest area, and how far outlines may move.
        spread: What runs the pieces of the work.
    """
    degrees = len({crs_name(scene.grid.crs) for scene in scenes}) > 1
    files: dict[str, dict[str, Any]] = {}
    for scene in scenes:
        rules = Rules(scene, options.min_area, options.simplify, degrees)
        files |= _join_pair(ledger, rules, done, side, spread)
    for name in ledger.store.sizes(FOLDER).keys() - {file.partition("/")[2] for file in files}:
        ledger.store.remove(f"{FOLDER}/{name}")
    return Joined(sum(said["polygons"] for said in files.values()), files)


def _join_pair(
    ledger: Ledger, rules: Rules, done: Done, side: int, spread: Spread
) -> dict[str, dict[str, Any]]:
    scene, folder = rules.scene, f"pairs/{rules.scene.dates.name}"
    cells = cut_cells(scene, done[scene.dates], side)
    there = {f"{folder}/cells/{name}" for name in ledger.store.sizes(f"{folder}/cells")}
    new = [cell for cell in cells if cell.file not in there]
    for _ in spread(partial(merge_cell, ledger), new):
        pass
    partitions = list(cut_partitions(ledger, scene, cells))
    old = read_object(ledger.store.read(f"{folder}/partitions.json")) or {}
    sizes = ledger.store.sizes(FOLDER)
    said = {}
    for at in partitions:
        before, size = old.get(at.file), sizes.get(at.file.partition("/")[2])
        wanted = {"made_of": partition_digest(rules, at), "bytes": size}
        if isinstance(before, dict) and wanted.items() <= before.items():
            said[at.file] = before
    for file, written in _write(ledger, rules, partitions, said.keys(), spread):
        said[file] = written
    said = {file: said[file] for file in sorted(said)}
    ledger.write(f"{folder}/partitions.json", json.dumps(said, indent=1) + "\n")
    for name in there - {cell.file for cell in cells}:
        ledger.store.remove(name)
    return {
        file: {name: value for name, value in written.items() if name != "made_of"}
        for file, written in said.items()
    }


def _write(
    ledger: Ledger,
    rules: Rules,
    partitions: Sequence[Partition],
    kept: Iterable[str],
    spread: Spread,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Write the partitions that are not there yet; yields what each file holds."""
    kept = set(kept)
    missing = [at for at in partitions if at.file not in kept]
    if rules.simplify and missing:
        missing = list(partitions)  # outlines that touch are simplified together
        facts = simplify_partitions(ledger, rules, partitions, spread)
    else:
        facts = spread(partial(write_partition, ledger, rules), missing)
    for at, (count, size, sha256) in zip(missing, facts, strict=True):
        made_of = partition_digest(rules, at)
        yield at.file, {"polygons": count, "bytes": size, "sha256": sha256, "made_of": made_of}


def read_polygons(ledger: Ledger, files: Iterable[str], *, several: bool) -> gpd.GeoDataFrame:
    """All polygons of a region, the largest first, numbered; `pair` names that of each of several.

    They are the rows that `adadino.geo.polygons.vector.polygons` gives for a whole scene.
    """
    frames = [gpd.read_parquet(io.BytesIO(ledger.store.read(file) or b"")) for file in files]
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    whole = gpd.GeoDataFrame(pd.concat(filled, ignore_index=True), crs=filled[0].crs)
    whole = whole.drop(columns="bbox", errors="ignore")
    area = "area_px" if "area_px" in whole else "area_m2"
    pairs = list(dict.fromkeys(frame["pair"].iloc[0] for frame in filled if len(frame)))
    order = whole["pair"].map({pair: number for number, pair in enumerate(pairs)})
    by_size = np.lexsort((whole["col"], whole["row"], order, -whole[area]))
    whole = numbered(whole.iloc[by_size].reset_index(drop=True).drop(columns=["row", "col"]))
    pair = whole.pop("pair")
    return whole.assign(pair=pair) if several else whole


def write_geopackage(ledger: Ledger, joined: Joined, *, several: bool) -> gpd.GeoDataFrame | None:
    """Write all polygons as one layer, and return them; None if they are too many."""
    if joined.count > FEW:
        ledger.store.remove(LAYER)
        return None
    frame = read_polygons(ledger, joined.files, several=several)
    write_layer(frame, ledger.store.path(LAYER), overwrite=True, style=qml_text("polygons"))
    ledger.store.publish(LAYER)
    return frame

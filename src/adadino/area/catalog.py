"""A region as a STAC collection: an item for each unit, with the projection and raster extensions.

    OUT/collection.json                 what and where the region is; links to all items
    OUT/pairs/NAME/items/UNIT.json      a unit: its rasters, their grid, the time of the two dates

Addresses are relative, so that the folder may move. Items of finished units stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from rasterio.windows import Window

from adadino.area.bucket import object_time
from adadino.area.ledger import Done, Ledger, Spread
from adadino.area.polygons import FOLDER
from adadino.area.store import is_remote
from adadino.area.units import PlacedDates, Unit
from adadino.errors import AdaDINOError
from adadino.geo.read.dates import Moment, both_taken
from adadino.geo.write.cog import MASK, PROBABILITY
from adadino.geo.write.stac import COG, VERSION, file_times, make_item

RASTER = "https://stac-extensions.github.io/raster/v1.1.0/schema.json"
NAME = "collection.json"
LAYERS = {"mask": MASK, "probability": PROBABILITY}
BATCH = 256
"""Items that a worker writes at a time."""


def write_catalog(
    ledger: Ledger,
    scenes: Sequence[PlacedDates],
    done: Done,
    outputs: Sequence[str],
    spread: Spread,
) -> list[str]:
    """Write the collection and its items; returns the outputs, none if there is no place or time.

    Args:
        ledger: Where the units are.
        scenes: The pairs.
        done: Their finished units.
        outputs: What the region consists of.
        spread: What runs the pieces of the work.
    """
    links, boxes, times = [], [], []
    for scene in scenes:
        moments = _moments(scene)
        units = list(done[scene.dates])
        if moments is None or not scene.grid.on_earth or not units:
            continue
        folder = f"pairs/{scene.dates.name}"
        there = ledger.store.sizes(f"{folder}/items")
        new = [unit for unit in units if f"{unit.name}.json" not in there]
        batches = [new[at : at + BATCH] for at in range(0, len(new), BATCH)]
        kinds = [kind for kind in LAYERS if ledger.file(units[0], kind) in _files(done, units[0])]
        for _ in spread(partial(_write_items, ledger, scene, moments, kinds), batches):
            pass
        whole = make_item("", scene.grid, {}, moments=moments)
        boxes.append(whole["bbox"])
        times += [whole["properties"]["start_datetime"], whole["properties"]["end_datetime"]]
        links += [
            {
                "rel": "item",
                "href": f"./{folder}/items/{unit.name}.json",
                "type": "application/json",
            }
            for unit in units
        ]
    if not links:
        ledger.store.remove(NAME)
        return []
    collection = {
        "type": "Collection",
        "stac_version": VERSION,
        "stac_extensions": [],
        "id": "change",
        "description": "What changed between two dates: masks, probabilities and polygons.",
        "license": "other",
        "extent": {
            "spatial": {"bbox": [_around(boxes), *(boxes if len(boxes) > 1 else [])]},
            "temporal": {"interval": [[min(times), max(times)]]},
        },
        "links": [{"rel": "root", "href": f"./{NAME}", "type": "application/json"}, *links],
        "assets": {name: _output(name) for name in outputs if not name.endswith(".qml")},
    }
    ledger.write(NAME, json.dumps(collection, indent=1) + "\n")
    return [NAME]


def _files(done: Done, unit: Unit) -> dict[str, Any]:
    files: dict[str, Any] = done[unit.dates][unit]["files"]
    return files


def _moments(scene: PlacedDates) -> Sequence[Moment] | None:
    """When the two dates were taken, else when their files were written."""
    names = scene.dates.before, scene.dates.after
    try:
        taken = both_taken(*names)
        if taken is None and all(map(is_remote, names)):
            return [Moment(object_time(name), "object modification time") for name in names]
        return taken or file_times(*names)
    except AdaDINOError:
        return None


def _write_items(
    ledger: Ledger,
    scene: PlacedDates,
    moments: Sequence[Moment],
    kinds: Sequence[str],
    units: Sequence[Unit],
) -> None:
    for unit in units:
        grid = scene.grid.part(Window(unit.col, unit.row, unit.width, unit.height))
        assets = {kind: _raster(ledger, unit, kind, grid.resolution[0]) for kind in kinds}
        item = make_item(f"{unit.dates.name}-{unit.name}", grid, assets, moments=moments)
        item["stac_extensions"].append(RASTER)
        item["collection"] = "change"
        item["links"] = [
            {"rel": rel, "href": f"../../../{NAME}", "type": "application/json"}
            for rel in ("root", "parent", "collection")
        ]
        ledger.write(
            f"pairs/{unit.dates.name}/items/{unit.name}.json", json.dumps(item, indent=1) + "\n"
        )


def _raster(ledger: Ledger, unit: Unit, kind: str, resolution: float) -> dict[str, Any]:
    layer = LAYERS[kind]
    band = {
        "data_type": layer.dtype,
        "nodata": "nan" if layer.nodata != layer.nodata else layer.nodata,
        "spatial_resolution": resolution,
        "sampling": "area",
    }
    return {
        "href": f"../{kind}/{ledger.file(unit, kind).rpartition('/')[2]}",
        "type": COG,
        "title": layer.description,
        "roles": ["data"],
        "raster:bands": [band],
    }


def _output(name: str) -> dict[str, Any]:
    kinds = {
        FOLDER: "application/vnd.apache.parquet",
        "change.gpkg": "application/geopackage+sqlite3",
    }
    kind = kinds.get(
        name, "application/xml" if name.endswith(".vrt") else "application/octet-stream"
    )
    return {"href": f"./{name}", "type": kind, "roles": ["data"]}


def _around(boxes: Sequence[Sequence[float]]) -> list[float]:
    """The box around others; around the whole Earth if one crosses the antimeridian."""
    wests, souths, easts, norths = zip(*boxes, strict=True)
    if len(boxes) == 1:
        return list(boxes[0])
    if any(west > east for west, east in zip(wests, easts, strict=True)):
        return [-180.0, min(souths), 180.0, max(norths)]
    return [min(wests), min(souths), max(easts), max(norths)]

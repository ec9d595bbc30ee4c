"""A STAC item beside the outputs, so that catalogues find them by place and time.

- STAC 1.1 with the projection extension 2.0: https://stacspec.org. Positions are longitude and
  latitude (EPSG:4326), as GeoJSON wants them; the native grid is in `proj:*`.
- Edges that bend when they are reprojected are followed, point by point. A scene across the
  antimeridian gets a geometry of two parts and a `bbox` whose west is larger than its east
  (RFC 7946, 5.2); one around a pole is all that lies beyond its outermost latitude.
- An item needs a time. `adadino:datetime_source` says where it is from: the user, a tag of the
  images, or only the time at which their files were written.
- The same outputs and properties give the same bytes: nothing depends on the clock or the order.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray

from adadino.errors import InputError
from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.read.dates import Moment, modified
from adadino.geo.read.source import ImagePath

VERSION = "1.1.0"
PROJECTION = "https://stac-extensions.github.io/projection/v2.0.0/schema.json"
EDGE_POINTS = 21
DIGITS = 7  # about a centimetre
TIMES = ("datetime", "start_datetime", "end_datetime")

COG = "image/tiff; application=geotiff; profile=cloud-optimized"
MEDIA_TYPES = {
    ".tif": COG,
    ".tiff": COG,
    ".png": "image/png",
    ".gpkg": "application/geopackage+sqlite3",
    ".geojson": "application/geo+json",
    ".json": "application/geo+json",
    ".fgb": "application/vnd.flatgeobuf",
    ".shp": "application/vnd.shp",
    ".qml": "application/xml",
}
ROLES = {"overview": "overview", ".qml": "metadata"}
"""By the output's name or its suffix; everything else is data."""


def write_item(
    path: Path | str,
    *,
    grid: Grid,
    outputs: Mapping[str, Path],
    properties: Mapping[str, object],
    moments: Sequence[Moment] = (),
) -> None:
    """Write a STAC item that describes a result.

    Args:
        path: The item; its name without the suffix is the item's id.
        grid: Where the result lies.
        outputs: Files by what they are: `mask`, `probability`, `polygons`, `overview`, ...
        properties: What else is known, for example the threshold. A `datetime` here, or
            `start_datetime` and `end_datetime`, in RFC 3339, is the item's time.
        moments: When the two images were taken, for the time if `properties` has none.

    Raises:
        InputError: There is no coordinate system, no time, or a time that is none.
        WriteError: The item cannot be written.
    """
    path = Path(path)
    if not grid.on_earth:
        raise InputError(no_place(path, grid))
    assets = {name: _asset(name, outputs[name], path) for name in sorted(outputs)}
    item = make_item(path.stem, grid, assets, properties=properties, moments=moments)
    try:
        text = json.dumps(item, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"cannot write {path}: a property is no JSON ({error}); give text, numbers or lists."
        ) from error
    write_atomic(path, text + "\n")


def make_item(
    name: str,
    grid: Grid,
    assets: Mapping[str, object],
    *,
    properties: Mapping[str, object] | None = None,
    moments: Sequence[Moment] = (),
) -> dict[str, Any]:
    """A STAC item as JSON holds it; see `write_item`.

    Args:
        name: The item's id.
        grid: Where the result lies, on Earth.
        assets: Its files, as STAC describes them.
        properties: What else is known.
        moments: When the two images were taken.
    """
    geometry, bbox = _footprint(grid)
    known = properties or {}
    return {
        "type": "Feature",
        "stac_version": VERSION,
        "stac_extensions": [PROJECTION],
        "id": name,
        "geometry": geometry,
        "bbox": bbox,
        "properties": dict(known) | _times(known, moments) | _projection(grid),
        "links": [],
        "assets": dict(assets),
    }


def no_place(path: Path, grid: Grid) -> str:
    """Why there is no item of a scene that is not on Earth."""
    system = "no" if grid.crs is None else "a local"
    return (
        f"cannot write {path}: a STAC item needs a place on Earth, and the images have {system} "
        "coordinate system; georeference them, or leave the item out."
    )


def _projection(grid: Grid) -> dict[str, object]:
    """The native grid: its system, its size and where its pixels lie."""
    assert grid.crs is not None
    authority = grid.crs.to_authority()
    system: dict[str, object] = {"proj:code": ":".join(authority) if authority else None}
    if not authority:
        system["proj:wkt2"] = pyproj.CRS.from_wkt(grid.crs.to_wkt()).to_wkt("WKT2_2019")
    return system | {
        "proj:shape": [grid.height, grid.width],
        "proj:transform": [float(value) for value in tuple(grid.transform)[:6]],
        "proj:bbox": [float(value) for value in grid.bounds],
    }


def _footprint(grid: Grid) -> tuple[dict[str, Any], list[float]]:
    """The outline in longitude and latitude, and its bounding box."""
    outline = _outline(grid)
    if not np.isfinite(outline).all() or abs(outline[:, 1]).max() > 90:
        raise InputError(
            f"the grid with bounds {grid.bounds} leaves the Earth in its own coordinate system; "
            "correct its georeferencing (gdal_edit.py -a_srs, -a_ullr)."
        )
    # Steps of more than half the globe are jumps over the antimeridian, not ways around it.
    outline[:, 0] = np.degrees(np.unwrap(np.radians(outline[:, 0])))
    outline[:, 0] -= 360 * math.floor((outline[0, 0] + 180) / 360)
    south, north = outline[:, 1].min(), outline[:, 1].max()
    if abs(outline[-1, 0] - outline[0, 0]) > 180:  # once around: a pole lies inside
        around = (-180, south, 180, 90) if north > 0 else (-180, -90, 180, north)
        shape = shapely.box(*around)
    else:
        shape = shapely.Polygon(outline)
    west, _, east, _ = shape.bounds
    parts = [_part(shape, turn) for turn in (-360, 0, 360)]
    parts = [part for part in parts if part.area > 0]
    placed = shapely.orient_polygons(shapely.union_all(parts))
    if len(parts) == 1 or east - west >= 360:
        west, _, east, _ = placed.bounds
    else:
        west, east = _wrapped(west), _wrapped(east)
    geometry: dict[str, Any] = json.loads(shapely.to_geojson(placed))
    _, south, _, north = placed.bounds
    return geometry, [round(float(value), DIGITS) for value in (west, south, east, north)]


def _part(shape: Any, turn: int) -> Any:
    """What of a shape lies on the world that is `turn` degrees east of ours, brought to ours."""
    world = shapely.box(-180 + turn, -90, 180 + turn, 90)
    part = shapely.intersection(shape, world)
    return shapely.transform(part, lambda xy: (xy - (turn, 0)).round(DIGITS))


def _outline(grid: Grid) -> NDArray[np.float64]:
    """Points (n, 2) along the four edges and back to the first, in longitude and latitude."""
    x, y = grid.place(grid.outline(EDGE_POINTS))
    to_degrees = pyproj.Transformer.from_crs(grid.system, "EPSG:4326", always_xy=True)
    return np.stack(to_degrees.transform(x, y), axis=1)


def _wrapped(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


def _asset(name: str, file: Path, item: Path) -> dict[str, object]:
    suffix = Path(file).suffix.lower()
    role = ROLES.get(name) or ROLES.get(suffix) or "data"
    asset: dict[str, object] = {"href": _href(Path(file), item), "roles": [role]}
    if suffix in MEDIA_TYPES:
        asset["type"] = MEDIA_TYPES[suffix]
    if suffix in (".geojson", ".json"):
        asset["proj:code"] = "EPSG:4326"
    elif suffix == ".png":  # a picture of the place, not on its grid
        asset["proj:code"] = None
    asset["title"] = name.replace("_", " ").capitalize()
    return asset


def _href(file: Path, item: Path) -> str:
    """A file's address as seen from the item, with what a URL cannot hold escaped."""
    try:
        relative = os.path.relpath(file.resolve(), item.resolve().parent)
    except ValueError:  # another drive of Windows
        return file.resolve().as_uri()
    steps = quote(Path(relative).as_posix())
    return steps if steps.startswith("../") else f"./{steps}"


def file_times(*paths: ImagePath) -> tuple[Moment, ...]:
    """When files were written, for an item that has no better time.

    Raises:
        InputError: One is no file.
    """
    found = [modified(path) for path in paths]
    if None in found:
        raise InputError(
            "a STAC item needs a time, and nothing says when the images were taken; give --dates, "
            "as in --dates 2009-06-01,2018-07-15."
        )
    return tuple(moment for moment in found if moment is not None)


def _times(properties: Mapping[str, object], moments: Sequence[Moment]) -> dict[str, object]:
    """The item's time: what `properties` says, else the moments."""
    given = {name: properties[name] for name in TIMES if properties.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, str) or _parsed(value) is None:
            raise InputError(
                f"{name} is {value!r}; give date, time and zone, as in 2024-05-31T10:15:00Z."
            )
    if "datetime" in given or {"start_datetime", "end_datetime"} <= given.keys():
        return {"datetime": None} | given
    if not moments:
        raise InputError(
            "a STAC item needs a time, and neither the properties nor the images have one; give "
            "datetime, or start_datetime and end_datetime."
        )
    return {
        "datetime": None,
        "start_datetime": _text(min(moment.time for moment in moments)),
        "end_datetime": _text(max(moment.time for moment in moments)),
        "adadino:datetime_source": moments[0].source,
    }


def _parsed(text: str) -> datetime | None:
    """An RFC 3339 time, or None; Python alone would take dates without a time or a zone."""
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    return None


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

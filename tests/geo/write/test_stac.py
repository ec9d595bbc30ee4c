"""The STAC item: what the specification demands, in the right place, the same every time."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import rasterio
from affine import Affine
from pyproj import Transformer
from rasterio.crs import CRS
from shapely.geometry import box, shape

from adadino.errors import InputError
from adadino.geo.grid import Grid
from adadino.geo.read.dates import both_taken
from adadino.geo.write.stac import file_times, write_item
from tests.geo.rasters import noise, write

UTM = Grid(CRS.from_epsg(32633), Affine(10, 0, 4e5, 0, -10, 5.8e6), 3000, 2000)
TIME = {"datetime": "2024-05-31T10:15:00Z"}
OUTPUTS = ("mask.tif", "probability.tif", "polygons.gpkg", "overview.png", "outline.geojson")


def item_of(folder: Path, grid: Grid = UTM, **arguments: Any) -> dict[str, Any]:
    outputs = {Path(name).stem: folder / name for name in OUTPUTS}
    known: dict[str, Any] = {"outputs": outputs, "properties": TIME}
    write_item(folder / "change.json", grid=grid, **(known | arguments))
    item: dict[str, Any] = json.loads((folder / "change.json").read_text(encoding="utf-8"))
    check(item)
    return item


def check(item: dict[str, Any]) -> None:
    """What the item specification (1.1.0) demands of every item."""
    assert item["type"] == "Feature"
    assert item["stac_version"] == "1.1.0"
    assert isinstance(item["id"], str)
    assert item["id"]
    west, south, east, north = item["bbox"]
    assert -180 <= west <= 180
    assert -180 <= east <= 180
    assert -90 <= south < north <= 90
    geometry = shape(item["geometry"])
    assert geometry.is_valid
    assert geometry.area > 0
    properties = item["properties"]
    assert "datetime" in properties
    times = ["datetime"] if properties["datetime"] else ["start_datetime", "end_datetime"]
    for name in times:
        assert datetime.fromisoformat(properties[name]).tzinfo is not None
    if len(times) == 2:
        assert properties["start_datetime"] <= properties["end_datetime"]
    assert all({"rel", "href"} <= link.keys() for link in item["links"])
    for asset in item["assets"].values():
        assert isinstance(asset["href"], str)
        assert isinstance(asset["roles"], list)
    assert "collection" not in item  # it would need a link of that kind
    if any(name.startswith("proj:") for name in properties):
        assert any("projection" in uri for uri in item["stac_extensions"])
        assert "proj:code" in properties
        assert len(properties["proj:shape"]) == 2
        assert len(properties["proj:transform"]) in (6, 9)


def test_it_lies_where_the_grid_lies(tmp_path):
    item = item_of(tmp_path)
    assert item["id"] == "change"
    properties = item["properties"]
    assert properties["proj:code"] == "EPSG:32633"
    assert properties["proj:shape"] == [2000, 3000]
    assert properties["proj:transform"] == [10, 0, 4e5, 0, -10, 5.8e6]
    assert properties["proj:bbox"] == [4e5, 5.78e6, 4.3e5, 5.8e6]
    to_degrees = Transformer.from_crs(32633, 4326, always_xy=True)
    expected = to_degrees.transform_bounds(*UTM.bounds, densify_pts=101)
    assert item["bbox"] == pytest.approx(expected, abs=1e-4)
    outline = shape(item["geometry"])
    assert outline.bounds == pytest.approx(item["bbox"])
    assert outline.exterior.is_ccw
    assert len(outline.exterior.coords) > 40  # the edges bend


def test_assets_say_what_they_are_and_where_seen_from_the_item(tmp_path):
    (tmp_path / "maps").mkdir()
    outputs = {
        "mask": tmp_path / "c h#ange.tif",
        "polygons": tmp_path / "maps" / "p.gpkg",
        "outline": tmp_path / "o.geojson",
        "flat": tmp_path.parent / "f.fgb",
        "style": tmp_path / "p.qml",
        "overview": tmp_path / "overview.png",
    }
    assets = item_of(tmp_path, outputs=outputs)["assets"]
    cog = "image/tiff; application=geotiff; profile=cloud-optimized"
    expected = {
        "mask": ("./c%20h%23ange.tif", cog, "data"),
        "polygons": ("./maps/p.gpkg", "application/geopackage+sqlite3", "data"),
        "outline": ("./o.geojson", "application/geo+json", "data"),
        "flat": ("../f.fgb", "application/vnd.flatgeobuf", "data"),
        "style": ("./p.qml", "application/xml", "metadata"),
        "overview": ("./overview.png", "image/png", "overview"),
    }
    said = {name: (a["href"], a["type"], *a["roles"]) for name, a in assets.items()}
    assert said == expected
    # What is not on the item's grid must not inherit it.
    assert assets["outline"]["proj:code"] == "EPSG:4326"
    assert assets["overview"]["proj:code"] is None
    assert "proj:code" not in assets["mask"]


def test_a_relative_path_is_seen_from_the_item_and_not_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_item("out/i.json", grid=UTM, outputs={"mask": Path("out/m.tif")}, properties=TIME)
    item = json.loads(Path("out/i.json").read_text())
    assert item["assets"]["mask"]["href"] == "./m.tif"


def test_same_content_same_bytes_whatever_the_order(tmp_path):
    outputs = {Path(name).stem: tmp_path / name for name in OUTPUTS}
    properties = TIME | {"adadino:threshold": 0.5, "adadino:model": "größer"}
    item_of(tmp_path, outputs=outputs, properties=properties)
    first = (tmp_path / "change.json").read_bytes()
    backwards = [dict(reversed(d.items())) for d in (outputs, properties)]
    item = item_of(tmp_path, outputs=backwards[0], properties=backwards[1])
    assert (tmp_path / "change.json").read_bytes() == first
    assert item["properties"]["adadino:model"] == "größer"


def test_a_system_without_a_code_is_written_out(tmp_path):
    crs = CRS.from_proj4("+proj=laea +lat_0=10 +lon_0=20 +datum=WGS84 +units=m")
    properties = item_of(tmp_path, Grid(crs, UTM.transform, 50, 50))["properties"]
    assert properties["proj:code"] is None
    assert "Lambert Azimuthal" in properties["proj:wkt2"]


@pytest.mark.parametrize(
    ("epsg", "transform", "bbox", "covered"),
    [
        (4326, Affine(0.1, 0, 5, 0, -0.1, 50), [5, 40, 15, 50], (10, 45)),
        (4326, Affine(0.1, 0, 5, 0, 0.1, 40), [5, 40, 15, 50], (10, 45)),
        (4326, Affine(0.1, 0, 175, 0, -0.1, 50), [175, 40, -175, 50], (179, 45)),
        (4326, Affine(0.1, 0, 175, 0, -0.1, 50), [175, 40, -175, 50], (-179, 45)),
        (4326, Affine(3.6, 0, -180, 0, -1.8, 90), [-180, -90, 180, 90], (0, 0)),
        (4326, Affine(3.6, 0, 0, 0, -1.8, 90), [-180, -90, 180, 90], (-100, 0)),
        (32601, Affine(1e4, 0, -2e5, 0, -1e4, 2e6), None, (179.5, 15)),
        (3413, Affine(2e4, 0, -1e6, 0, -2e4, 1e6), None, (77, 89.9)),
        (3031, Affine(2e4, 0, -1e6, 0, -2e4, 1e6), None, (0, -90)),
    ],
    ids=["plain", "south-up", "antimeridian", "its other side", "world", "world from 0 to 360",
         "bent antimeridian", "north pole", "south pole"],
)  # fmt: skip
def test_unusual_places(tmp_path, epsg, transform, bbox, covered):
    item = item_of(tmp_path, Grid(CRS.from_epsg(epsg), transform, 100, 100))
    if bbox is not None:
        assert item["bbox"] == pytest.approx(bbox)
    geometry = shape(item["geometry"])
    assert geometry.intersects(box(*covered, *covered))
    assert geometry.bounds[0] >= -180
    assert geometry.bounds[2] <= 180
    west, south, east, north = item["bbox"]
    if west > east:
        assert geometry.geom_type == "MultiPolygon"
        halves = box(west, south, 180, north).union(box(-180, south, east, north))
        assert halves.buffer(1e-6).covers(geometry)
    if epsg in (3413, 3031):
        assert (west, east) == (-180, 180)
        assert abs(north if epsg == 3413 else south) == 90


def dated(path: Path, when: str | None) -> Path:
    write(path, noise(3, 8, 8))
    if when is not None:
        with rasterio.open(path, "r+") as file:
            file.update_tags(TIFFTAG_DATETIME=when)
    os.utime(path, (1.5e9, 1.5e9))  # 2017-07-14
    return path


def test_times_come_from_the_properties_the_tags_or_the_files(tmp_path):
    early, late = "2019:06:01 10:00:00", "2024:06:02 11:30:00"
    tagged = [dated(tmp_path / "a.tif", late), dated(tmp_path / "b.tif", early)]
    bare = dated(tmp_path / "c.tif", None)

    def times(inputs: list[Path], properties: dict[str, object]) -> list[object]:
        moments = both_taken(*inputs) or file_times(*inputs)
        said = item_of(tmp_path, moments=moments, properties=properties)["properties"]
        names = ("datetime", "start_datetime", "end_datetime", "adadino:datetime_source")
        return [said.get(name) for name in names]

    span = {"start_datetime": "2001-01-01T00:00:00Z", "end_datetime": "2002-01-01T00:00:00+02:00"}
    assert times(tagged, dict(TIME)) == [TIME["datetime"], None, None, None]
    assert times(tagged, dict(span)) == [None, *span.values(), None]
    assert times(tagged, {}) == [
        None, "2019-06-01T10:00:00Z", "2024-06-02T11:30:00Z", "TIFFTAG_DATETIME"
    ]  # fmt: skip
    file = "2017-07-14T02:40:00Z"
    # One date without a tag: the other's alone would be no span of both.
    assert times([tagged[0], bare], {}) == [None, file, file, "file modification time"]
    odd = dated(tmp_path / "d.tif", "0000:00:00 00:00:00")
    assert times([tagged[0], odd], {})[3] == "file modification time"


def test_what_cannot_be_an_item_is_refused_and_leaves_nothing(tmp_path):
    pixels = Grid(None, Affine.identity(), 10, 10)
    nowhere = Grid(CRS.from_epsg(4326), Affine(1, 0, 0, 0, 1, 85), 10, 10)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"grid": pixels}, "no coordinate system; georeference"),
        ({"grid": nowhere}, "leaves the Earth"),
        ({"properties": {}}, "needs a time"),
        ({"properties": {"start_datetime": "2020-01-01T00:00:00Z"}}, "needs a time"),
        ({"properties": {"datetime": "2020-01-01"}}, r"datetime is '2020-01-01'; give date, time"),
        ({"properties": {"datetime": "2020-13-01T00:00:00Z"}}, "give date, time"),
        ({"properties": TIME | {"share": float("nan")}}, "no JSON"),
        ({"properties": TIME | {"thing": object()}}, "no JSON"),
    ]
    for arguments, message in refusals:
        with pytest.raises(InputError, match=message):
            item_of(tmp_path, **arguments)
    with pytest.raises(InputError, match=r"needs a time, and nothing says.*--dates"):
        file_times("/vsimem/none.tif")
    assert list(tmp_path.iterdir()) == []

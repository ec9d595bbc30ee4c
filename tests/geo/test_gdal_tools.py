"""Outputs as GDAL's own tools read them: another build of GDAL than the one that wrote them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affine import Affine
from rasterio.crs import CRS

from adadino.errors import VectorWarning
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import polygons
from adadino.geo.write.cog import CHANGE_COLOUR, MASK, PROBABILITY, Layer, raster_writer
from adadino.geo.write.layers import write_layer

pytestmark = pytest.mark.skipif(
    shutil.which("gdalinfo") is None or shutil.which("ogrinfo") is None,
    reason="needs gdalinfo and ogrinfo (the package gdal-bin)",
)

H, W = 700, 900
UTM = Grid(CRS.from_epsg(32633), Affine(0.5, 0, 4e5, 0, -0.5, 5e6), W, H)
DEGREES = Grid(CRS.from_epsg(4326), Affine(1e-4, 0, 13, 0, -1e-4, 52), W, H)
TURNED = Grid(CRS.from_epsg(32633), Affine(0.4, -0.3, 4e5, -0.3, -0.4, 5e6), W, H)
PIXELS = Grid(None, Affine.identity(), W, H)


def a_mask() -> np.ndarray:
    mask = np.zeros((H, W), np.uint8)
    mask[100:300, 200:500] = 1
    mask[150:200, 250:300] = 0
    mask[400:410, 600:620] = 1
    mask[:50] = 255
    return mask


def a_probability() -> np.ndarray:
    probability = np.random.default_rng(0).random((H, W), np.float32)
    probability[:50] = np.nan
    return probability


def run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def gdalinfo(path: Path, grid: Grid, layer: Layer, values: np.ndarray) -> dict[str, Any]:
    with raster_writer(path, grid, layer, tags={"ADADINO_THRESHOLD": 0.5}) as writer:
        writer.write(0, values)
    info: dict[str, Any] = json.loads(run("gdalinfo", "-json", "-checksum", path))
    assert info["size"] == [W, H]
    assert len(info["bands"]) == 1
    return info


def code_of(wkt: str) -> int:
    """The EPSG code a system ends in, behind those of its parts."""
    return int(re.findall(r'ID\["EPSG",(\d+)\]', wkt)[-1])


@pytest.mark.parametrize("grid", [UTM, DEGREES, TURNED], ids=["utm", "degrees", "turned"])
def test_a_mask_lies_where_its_grid_lies(tmp_path, grid):
    info = gdalinfo(tmp_path / "m.tif", grid, MASK, a_mask())
    assert info["driverShortName"] == "GTiff"
    assert info["metadata"]["IMAGE_STRUCTURE"]["LAYOUT"] == "COG"
    assert info["metadata"][""]["ADADINO_THRESHOLD"] == "0.5"
    assert code_of(info["coordinateSystem"]["wkt"]) == grid.crs.to_epsg()
    assert info["geoTransform"] == pytest.approx(grid.transform.to_gdal(), rel=1e-12)
    (band,) = info["bands"]
    assert (band["type"], band["noDataValue"]) == ("Byte", 255)
    assert band["colorInterpretation"] == "Palette"
    table = band["colorTable"]["entries"]
    assert table[1] == [*CHANGE_COLOUR, 255]
    assert table[255][3] == 0
    assert [overview["size"] for overview in band["overviews"]] == [[450, 350]]
    assert band["block"] == [512, 512]


def test_a_probability_has_nan_as_nodata_and_keeps_its_range(tmp_path):
    values = a_probability()
    info = gdalinfo(tmp_path / "p.tif", UTM, PROBABILITY, values)
    (band,) = info["bands"]
    assert (band["type"], str(band["noDataValue"]).lower()) == ("Float32", "nan")
    assert band["overviews"]
    # -checksum reads every pixel; -stats would leave a file beside ours.
    assert band["checksum"] >= 0
    said = json.loads(run("gdalinfo", "-json", "-mm", tmp_path / "p.tif"))["bands"][0]
    assert said["computedMin"] == pytest.approx(np.nanmin(values), abs=1e-3)
    assert said["computedMax"] == pytest.approx(np.nanmax(values), abs=1e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["p.tif"]


def test_pixels_have_no_coordinates(tmp_path):
    for name in ("m.tif", "m.png"):
        info = gdalinfo(tmp_path / name, PIXELS, MASK, a_mask())
        assert "coordinateSystem" not in info or not info["coordinateSystem"].get("wkt")
        assert info["bands"][0]["noDataValue"] == 255


SUFFIXES = [".gpkg", ".geojson", ".fgb", ".shp"]
REAL = {"area_m2", "perimeter_m", "prob_mean", "prob_max"}


def ogrinfo(path: Path, grid: Grid, mask: np.ndarray) -> dict[str, Any]:
    """What ogrinfo says of a layer; as text, because only GDAL 3.7 and newer say it in JSON."""
    frame = polygons(mask, np.nan_to_num(a_probability()), grid)
    write_layer(frame, path)
    text = run("ogrinfo", "-ro", "-so", "-al", path)
    layer = re.search(r"^Layer name: (\S+)$", text, re.M)
    codes = re.findall(r'ID\["EPSG",(\d+)\]\]$', text, re.M)
    extent = re.search(r"^Extent: \((\S+), (\S+)\) - \((\S+), (\S+)\)$", text, re.M)
    return {
        "frame": frame,
        "driver": re.search(r"using driver `([^']+)'", text)[1],
        "layer": layer and layer[1],
        "geometry": re.search(r"^Geometry: (.+)$", text, re.M)[1],
        "count": int(re.search(r"^Feature Count: (\d+)$", text, re.M)[1]),
        "code": int(codes[-1]) if codes else None,
        "extent": extent and [float(value) for value in extent.groups()],
        "fields": dict(re.findall(r"^(\w+): (Integer|Real|String|Integer64) \(", text, re.M)),
    }


def fields_of(suffix: str) -> dict[str, str]:
    names = {"id": "Integer"} | dict.fromkeys(sorted(REAL), "Real")
    if suffix == ".shp":
        names["perim_m"] = names.pop("perimeter_m")
    return names


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("grid", [UTM, DEGREES], ids=["utm", "degrees"])
def test_a_layer_has_its_system_fields_and_features(tmp_path, suffix, grid):
    info = ogrinfo(tmp_path / f"change{suffix}", grid, a_mask())
    assert info["layer"] == "change"
    assert info["count"] == len(info["frame"]) == 2
    assert info["geometry"] == "Polygon"
    assert info["fields"] == fields_of(suffix)
    own = 4326 if suffix == ".geojson" else grid.crs.to_epsg()
    assert info["code"] == own
    expected = info["frame"].to_crs(own).total_bounds.tolist()
    # ogrinfo prints six decimals
    assert info["extent"] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_layer_has_its_system_and_fields_too(tmp_path, suffix):
    info = ogrinfo(tmp_path / f"change{suffix}", UTM, np.zeros((H, W), np.uint8))
    assert info["count"] == 0
    if suffix == ".geojson":  # without features it has no fields to show
        return
    assert info["code"] == 32633
    assert info["geometry"] == "Polygon"
    assert info["fields"] == fields_of(suffix)


@pytest.mark.filterwarnings(f"ignore::{VectorWarning.__module__}.VectorWarning")
@pytest.mark.parametrize("suffix", [".gpkg", ".fgb", ".shp"])
def test_a_layer_of_pixels_has_no_system(tmp_path, suffix):
    info = ogrinfo(tmp_path / f"change{suffix}", PIXELS, a_mask())
    assert info["code"] is None
    assert info["extent"] == [200, 100, 620, 410]


def test_areas_are_those_gdal_measures_in_the_geopackage(tmp_path):
    frame = ogrinfo(tmp_path / "change.gpkg", UTM, a_mask())["frame"]
    text = run(
        "ogrinfo", "-ro", "-q", "-dialect", "OGRSQL", tmp_path / "change.gpkg",
        "-sql", "SELECT id, area_m2, OGR_GEOM_AREA FROM change ORDER BY id",
    )  # fmt: skip
    stated = [float(v) for v in re.findall(r"area_m2 \(Real\) = (\S+)", text)]
    drawn = [float(v) for v in re.findall(r"OGR_GEOM_AREA \(Real\) = (\S+)", text)]
    assert stated == pytest.approx(frame["area_m2"].tolist())
    assert drawn == pytest.approx(stated)
    assert stated == [(200 * 300 - 2500) * 0.25, 200 * 0.25]

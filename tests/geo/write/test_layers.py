"""Layers on disk: every suffix, read back with geopandas and GDAL's own tool."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
from affine import Affine
from rasterio.crs import CRS
from shapely.geometry import shape

from adadino.errors import InputError, VectorWarning, WriteError
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import polygons
from adadino.geo.write import layers
from adadino.geo.write.layers import write_layer

FIELDS = ["id", "area_m2", "perimeter_m", "prob_mean", "prob_max"]
SUFFIXES = [".gpkg", ".geojson", ".json", ".fgb", ".shp"]


def frame_of(*, change: float = 0.55, crs: int | str | None = 32633) -> gpd.GeoDataFrame:
    rng = np.random.default_rng(5)
    mask = (rng.random((30, 40)) < change).astype(np.uint8)
    grid = Grid(
        None if crs is None else CRS.from_user_input(crs), Affine(2, 0, 5e5, 0, -2, 5.8e6), 40, 30
    )
    return polygons(mask, rng.random((30, 40), np.float32), grid)


def fields_of(suffix: str) -> list[str]:
    return ["perim_m" if name == "perimeter_m" and suffix == ".shp" else name for name in FIELDS]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    frame = frame_of()
    path = tmp_path / "new" / f"change{suffix}"
    write_layer(frame, path)
    back = gpd.read_file(path).sort_values("id", ignore_index=True)
    assert back.crs == ("EPSG:4326" if "json" in suffix else frame.crs)
    assert list(back.columns) == [*fields_of(suffix), "geometry"]
    assert back[fields_of(suffix)].to_numpy() == pytest.approx(frame[FIELDS].to_numpy())
    assert back["id"].dtype.kind == "i"
    assert back.is_valid.all()
    assert back.to_crs(frame.crs).area.to_numpy() == pytest.approx(frame.area.to_numpy(), rel=0.02)
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


LOCAL = 'LOCAL_CS["site",UNIT["metre",1],AXIS["x",EAST],AXIS["y",NORTH]]'


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_local_system_is_kept_and_never_called_longitude(tmp_path: Path, suffix: str) -> None:
    frame = frame_of(crs=LOCAL)
    path = tmp_path / f"change{suffix}"
    if "json" in suffix:
        with pytest.raises(WriteError, match=r"local system site; end the name in \.gpkg"):
            write_layer(frame, path)
        assert list(tmp_path.iterdir()) == []
        return
    write_layer(frame, path)
    back = gpd.read_file(path)
    assert back.crs is None or back.crs.name == "site"
    assert back.total_bounds.tolist() == frame.total_bounds.tolist()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_changed_still_writes_a_layer_with_its_fields(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"change{suffix}"
    write_layer(frame_of(change=0), path)
    back = gpd.read_file(path)
    assert len(back) == 0
    if "json" in suffix:  # GeoJSON has no schema
        assert json.loads(path.read_text())["features"] == []
        return
    assert back.crs == "EPSG:32633"
    assert list(back.columns) == [*fields_of(suffix), "geometry"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_frames_give_equal_bytes(tmp_path: Path, suffix: str) -> None:
    for folder in ("a", "b"):
        write_layer(frame_of(), tmp_path / folder / f"change{suffix}")
        time.sleep(0.002)  # a GeoPackage's time of writing has milliseconds
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / f).iterdir()} for f in "ab")
    assert first == second


def test_geojson_follows_rfc_7946(tmp_path: Path) -> None:
    frame = frame_of()
    write_layer(frame, tmp_path / "change.geojson")
    text = json.loads((tmp_path / "change.geojson").read_text())
    assert "crs" not in text
    for feature in text["features"]:
        polygon = shape(feature["geometry"])
        assert polygon.exterior.is_ccw
        assert not any(hole.is_ccw for hole in polygon.interiors)
        x, y = feature["geometry"]["coordinates"][0][0]
        assert (round(x, 7), round(y, 7)) == (x, y)
        assert 14 < x < 16
        assert 52 < y < 53


def test_shapefile_fields_have_ten_characters_and_the_layer_is_complete(tmp_path: Path) -> None:
    write_layer(frame_of(), tmp_path / "change.shp")
    suffixes = {path.suffix for path in tmp_path.iterdir()}
    assert suffixes == {".shp", ".shx", ".dbf", ".prj", ".cpg"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_replaced_only_on_request(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"change{suffix}"
    write_layer(frame_of(change=0), path)
    with pytest.raises(WriteError, match="already there"):
        write_layer(frame_of(), path)
    assert len(gpd.read_file(path)) == 0
    write_layer(frame_of(), path, overwrite=True)
    assert len(gpd.read_file(path)) == len(frame_of())


def test_an_old_index_does_not_stay_beside_a_new_shapefile(tmp_path: Path) -> None:
    path = tmp_path / "change.shp"
    write_layer(frame_of(), path)
    path.with_suffix(".qix").write_bytes(b"old")
    with pytest.warns(VectorWarning):
        write_layer(frame_of(crs=None), path, overwrite=True)
    assert not path.with_suffix(".qix").exists()
    assert not path.with_suffix(".prj").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_leaves_nothing(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(frame: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(layers.pyogrio, "write_dataframe", half)
    with pytest.raises(WriteError, match=f"change{suffix}: No space left"):
        write_layer(frame_of(), tmp_path / f"change{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.gpkg, \.geojson, \.json, \.fgb, \.shp"):
        write_layer(frame_of(), tmp_path / "change.kml")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_a_crs_coordinates_are_the_rasters_and_a_warning_says_so(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"change{suffix}"
    with pytest.warns(
        VectorWarning, match="no coordinate system; its areas are in pixels"
    ) as caught:
        write_layer(frame_of(crs=None), path)
    assert len(caught) == 1
    back = gpd.read_file(path)
    assert back.total_bounds.tolist() == [5e5, 5.8e6 - 60, 5e5 + 80, 5.8e6]
    if "json" not in suffix:  # readers take GeoJSON for EPSG:4326, whatever it says
        assert back.crs is None


@pytest.mark.skipif(shutil.which("ogrinfo") is None, reason="needs GDAL's ogrinfo")
@pytest.mark.parametrize("suffix", [".gpkg", ".geojson", ".fgb", ".shp"])
def test_ogrinfo_reads_the_layer(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"change{suffix}"
    write_layer(frame_of(), path)
    told = subprocess.run(
        ["ogrinfo", "-ro", "-so", str(path), "change"], capture_output=True, text=True, check=True
    ).stdout
    assert f"Feature Count: {len(frame_of())}" in told
    assert "Geometry: Polygon" in told

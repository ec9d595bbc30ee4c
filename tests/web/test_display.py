"""Where things lie: zoom levels, turned grids, the way to Web Mercator, decimated outlines."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pyproj
import pytest
import rasterio
import shapely
from affine import Affine
from rasterio.crs import CRS

from adadino.geo.grid import Grid
from adadino.geo.write.cog import PROBABILITY, raster_writer
from adadino.web.view import change
from adadino.web.view.cut import read_cut
from adadino.web.view.display import Display, lay_out
from adadino.web.view.mercator import evaluate
from adadino.web.view.webtiles import placed

UTM = CRS.from_epsg(32633)


def test_levels_cover_the_scene_and_the_last_shows_every_pixel():
    shown = lay_out(Grid(UTM, Affine(2, 0, 500_000, 0, -2, 5_800_000), 1025, 300))
    assert (shown.native, shown.resolution, shown.levels) == (True, 2, 4)
    assert shown.window(3, 4, 1) == (1024, 256, 256, 256)
    assert shown.window(0, 0, 0) == (0, 0, 2048, 2048)
    assert shown.window(0, 1, 0) is None
    assert shown.window(4, 0, 0) is None
    assert Display.from_dict(shown.as_dict()) == shown
    assert shown.pixel_area == pytest.approx(4, rel=0.01)


def test_oblong_pixels_are_shown_in_their_proportions():
    shown = lay_out(Grid(CRS.from_epsg(4326), Affine(2e-4, 0, 10, 0, -1e-4, 60), 400, 400))
    wide, high = shown.window(shown.levels - 1, 1, 1)[2:]
    assert (wide, high) == (pytest.approx(128), pytest.approx(256))
    # A degree of longitude at 60 degrees is half as long as at the equator.
    assert shown.metres == pytest.approx(55_800, rel=0.01)
    assert shown.pixel_area == pytest.approx(11.16 * 11.14, rel=0.02)


@pytest.mark.parametrize("transform", [Affine(1, 1, 0, 1, -1, 0), Affine(1, 0, 0, 0, 1, 0)])
def test_turned_grids_and_grids_without_a_place_are_shown_in_pixels(transform):
    for crs in (UTM, None):
        shown = lay_out(Grid(crs, transform, 100, 50))
        assert (shown.native, shown.extent) == (False, (0, -50, 100, 0))


@pytest.mark.parametrize(
    ("epsg", "transform"),
    [(32633, Affine(10, 0, 400_000, 0, -10, 6_900_000)), (4326, Affine(1e-4, 0, 9, 0, -1e-4, 47)),
     (3035, Affine(10, 0, 4_321_000, 0, -10, 3_210_000))],
)  # fmt: skip
def test_the_way_to_the_basemap_is_right_to_a_pixel(epsg, transform):
    grid = Grid(CRS.from_epsg(epsg), transform, 5000, 5000)
    shown = lay_out(grid)
    assert shown.mercator is not None
    points = np.array([grid.transform * (c, r) for c in (0, 1700, 5000) for r in (0, 3100, 5000)])
    way = pyproj.Transformer.from_crs(epsg, 3857, always_xy=True)
    wanted = np.stack(way.transform(*points.T), axis=1)
    assert np.abs(evaluate(shown.mercator["forward"], points) - wanted).max() < 10
    assert np.abs(evaluate(shown.mercator["inverse"], wanted) - points).max() < shown.resolution


def cut(folder, shown, min_area=0.0):
    change.write_cut(folder, shown, folder / "cut.json", threshold=0.5, min_area=min_area)
    return read_cut(folder / "cut.json")


@pytest.mark.parametrize("crs", [UTM, None])
def test_outlines_of_large_scenes_are_coarse_and_in_the_right_place(tmp_path, monkeypatch, crs):
    chance = np.zeros((300, 200), np.float32)
    chance[100:160, 50:90] = 0.9
    transform = Affine(2, 0, 1000, 0, -2, 9000) if crs else Affine.identity()
    shown = lay_out(Grid(crs, transform, 200, 300))
    with raster_writer(tmp_path / "probability.tif", shown.grid, PROBABILITY) as out:
        out.write(0, chance)
    exact = cut(tmp_path, shown)
    monkeypatch.setattr(change, "SCREEN_PIXELS", 200 * 300 // 4)
    coarse = cut(tmp_path, shown)
    assert (exact.step, coarse.step) == (1, 2)
    (one,), (other,) = exact.features, coarse.features
    assert shapely.geometry.shape(one["geometry"]).equals(shapely.geometry.shape(other["geometry"]))
    lengths = ("area_m2", "perimeter_m") if crs else ("area_px", "perimeter_px")
    for name in lengths:
        assert other["properties"][name] == pytest.approx(one["properties"][name])
    shares = [found.change_fraction for found in (exact, coarse)]
    assert shares == [pytest.approx(60 * 40 / (300 * 200))] * 2


@pytest.mark.parametrize("pixels", [10**6, 200 * 300 // 4])
@pytest.mark.parametrize("crs", [UTM, None])
def test_the_smallest_polygon_is_one_rule_for_all_that_is_shown(tmp_path, monkeypatch, crs, pixels):
    chance = np.zeros((300, 200), np.float32)
    chance[100:160, 40:100] = 0.9  # a large change,
    chance[120:126, 60:66] = 0.1  # with a small hole
    chance[140:160, 60:90] = 0.1  # and a large one
    chance[160:164, 40:100] = 0.9
    chance[10:16, 10:16] = 0.9  # a small change
    transform = Affine(2, 0, 1000, 0, -2, 9000) if crs else Affine.identity()
    shown = lay_out(Grid(crs, transform, 200, 300))
    with raster_writer(tmp_path / "probability.tif", shown.grid, PROBABILITY) as out:
        out.write(0, chance)
    monkeypatch.setattr(change, "SCREEN_PIXELS", pixels)
    unit = 4.0 if crs else 1.0
    asked = {"threshold": 0.5, "min_area": 100 * unit}
    found = cut(tmp_path, shown, 100 * unit)
    wanted = 64 * 60 - 20 * 30
    (one,) = found.features
    assert len(one["geometry"]["coordinates"]) == 2  # the outline and the large hole
    assert found.count == 1
    assert found.area == pytest.approx(wanted * unit)
    assert found.change_fraction == pytest.approx(wanted / (300 * 200))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scene in pixels has no place
        change.write_mask(tmp_path, shown, tmp_path / "mask.tif", **asked)
        change.write_polygons(tmp_path, shown, tmp_path / "found.geojson", **asked)
        with rasterio.open(tmp_path / "mask.tif") as mask:
            assert (mask.read(1) == 1).sum() == wanted
    (feature,) = json.loads((tmp_path / "found.geojson").read_text())["features"]
    assert feature["properties"]["area_m2" if crs else "area_px"] == pytest.approx(wanted * unit)
    assert cut(tmp_path, shown).count == 2


def test_outlines_on_a_turned_grid_are_pixels(tmp_path):
    chance = np.zeros((50, 100), np.float32)
    chance[10:20, 30:60] = 0.9
    shown = lay_out(Grid(UTM, Affine(1, 1, 500_000, 1, -1, 5_800_000), 100, 50))
    with raster_writer(tmp_path / "probability.tif", shown.grid, PROBABILITY) as out:
        out.write(0, chance)
    (found,) = cut(tmp_path, shown).features
    assert shapely.geometry.shape(found["geometry"]).bounds == pytest.approx((30, 10, 60, 20))
    assert found["properties"]["area_m2"] == pytest.approx(300 * 2)


def test_a_local_system_is_shown_and_has_no_basemap():
    local = CRS.from_wkt('LOCAL_CS["site",UNIT["metre",1]]')
    shown = lay_out(Grid(local, Affine(2, 0, 1000, 0, -2, 9000), 200, 300))
    assert shown.native
    assert shown.mercator is None
    assert shown.metres == pytest.approx(1.0)
    assert shown.pixel_area == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("extension", "there"),
    [
        ("", True),
        (',EXTENSION["PROJ4_GRIDS","/dev/stdin"]', False),
        (',EXTENSION["PROJ4","+proj=longlat +ellps=WGS84 +nadgrids=/dev/stdin"]', False),
        (',EXTENSION["PROJ4","+init=/dev/stdin:1"]', False),
    ],
)
def test_no_file_is_opened_that_a_coordinate_system_names(extension, there):
    system = (
        f'GEOGCS["x",DATUM["y",SPHEROID["z",6378137,298.257223563]{extension}],'
        'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]'
    )
    shown = lay_out(Grid(CRS.from_epsg(4326), Affine(1e-5, 0, 9, 0, -1e-5, 47), 8, 8))
    assert placed(dataclasses.replace(shown, wkt=system)) is there
    assert placed(dataclasses.replace(shown, wkt=CRS.from_epsg(3857).to_wkt()))

"""Areas of interest: any system and format; what is none is refused with the way out."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
import shapely
from rasterio.crs import CRS
from rasterio.windows import Window

from adadino.errors import InputError
from adadino.geo.grid import Grid
from adadino.geo.read.interest import box_interest, read_interest
from adadino.geo.read.raster import open_pair
from tests.geo.rasters import NORTH_UP, UTM, noise, write

GRID = Grid(CRS.from_string(UTM), NORTH_UP, 60, 40)  # 2 m, from 500000, 4000000 down
BOX = shapely.box(500_010, 3_999_950, 500_050, 3_999_990)


def layer(path, shape, crs=UTM, **options):
    gpd.GeoDataFrame(geometry=[] if shape is None else [shape], crs=crs).to_file(path, **options)
    return str(path)


@pytest.mark.parametrize("name", ["a.gpkg", "a.geojson", "a.shp", "a.fgb"])
@pytest.mark.parametrize("crs", [UTM, "EPSG:4326", "EPSG:3857"])
def test_any_format_and_system_gives_the_same_pixels(tmp_path, name, crs):
    shape = gpd.GeoSeries([BOX], crs=UTM).to_crs(crs)[0]
    found = read_interest(layer(tmp_path / name, shape, crs), GRID)
    window = found.window
    inside = np.zeros(GRID.shape, bool)
    part = Window(0, 0, window.width, window.height)
    rows, cols = (slice(int(a), int(a + n)) for a, n in (
        (window.row_off, window.height), (window.col_off, window.width)))  # fmt: skip
    inside[rows, cols] = found.inside(part)
    expected = np.zeros(GRID.shape, bool)
    expected[5:25, 5:25] = True
    assert (inside == expected).all()
    assert found.square_metres == pytest.approx(1600, rel=1e-4)


def test_a_box_is_in_the_scene_s_coordinates():
    found = box_interest(BOX.bounds, GRID)
    assert (found.window.col_off, found.window.row_off) == (5, 5)
    assert (found.window.width, found.window.height) == (20, 20)
    with pytest.raises(InputError, match="is empty"):
        box_interest((1, 1, 0, 2), GRID)


def test_only_the_area_is_read_and_the_rest_is_not_wanted(tmp_path):
    values = noise(3, 40, 60)
    names = [write(tmp_path / f"{n}.tif", values, photometric="RGB") for n in "ab"]
    values[0, 0, 0] += 1
    write(names[1], values, photometric="RGB")
    disc = shapely.Point(500_030, 3_999_970).buffer(15)
    path = layer(tmp_path / "a.gpkg", disc)
    with open_pair(*names, interest=lambda grid: read_interest(path, grid)) as reader:
        whole = Window(0, 0, reader.grid.width, reader.grid.height)
        before, _, valid = reader.read(whole)
        wanted = reader.wanted(whole, valid)
    assert reader.grid.shape == (16, 16)
    assert valid.all()  # the model sees what lies around
    centres = [(500_000 + 2 * (7 + c) + 1, 4_000_000 - 2 * (7 + r) - 1)
               for r in range(16) for c in range(16)]  # fmt: skip
    truth = [shapely.Point(xy).within(disc) for xy in centres]
    assert wanted.ravel().tolist() == truth
    np.testing.assert_array_equal(before, values[:, 7:23, 7:23].astype("f4") / 255)


@pytest.mark.parametrize(
    ("shape", "crs", "message"),
    [
        (shapely.box(0, 0, 1, 1), UTM, "lies outside the scene.*and the scene"),
        (None, UTM, "is empty: it has no polygon"),
        (BOX, None, "has no coordinate system.*-a_srs"),
        (shapely.Polygon([(0, 0), (9, 9), (9, 0), (0, 9)]), UTM, "not valid.*Fix geometries"),
        (shapely.Point(500_010, 3_999_950), UTM, "holds a Point"),
        (shapely.box(500_010.1, 3_999_950.1, 500_010.2, 3_999_950.2), UTM, "smaller than a pixel"),
    ],
)
def test_what_is_no_area_of_interest_is_refused(tmp_path, shape, crs, message):
    path = layer(
        tmp_path / "a.shp", shape, crs, **({"geometry_type": "Polygon"} if shape is None else {})
    )
    with pytest.raises(InputError, match=message):
        read_interest(path, GRID)


def test_a_file_that_is_no_layer_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("nothing")
    for name, message in (("none.gpkg", "there is no file"), ("a.txt", "as polygons")):
        with pytest.raises(InputError, match=message):
            read_interest(str(tmp_path / name), GRID)

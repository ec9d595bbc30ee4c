"""Where and when: areas of interest, masks, dates, resolution, and figures that agree."""

from __future__ import annotations

import json
import sqlite3
import warnings

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import shapely
from rasterio.features import rasterize

from adadino.domain import Domain
from adadino.errors import ConfigError, DatesWarning, DomainWarning, InputError, WriteError
from adadino.scene import SceneOptions, predict_scene
from adadino.scene.extent import Extent
from tests.scene.runs import a_model, read, rewrite

OPTIONS = {"tile": 64, "overlap": 16}


def predict(scene, model, output, *, extent=None, resume=False, more=None, **options):
    return predict_scene(
        *scene, model, output=output, options=SceneOptions(**OPTIONS | options), extent=extent,
        device="cpu", resume=resume, **(more or {}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def disc(scene):
    """A disc in the scene's middle, in the scene's coordinates."""
    with rasterio.open(scene[0]) as raster:
        return shapely.box(*raster.bounds).centroid.buffer(25)


@pytest.fixture(scope="module")
def aoi(scene, disc, tmp_path_factory):
    path = tmp_path_factory.mktemp("aoi") / "disc.geojson"
    with rasterio.open(scene[0]) as raster:
        gpd.GeoSeries([disc], crs=raster.crs).to_crs("EPSG:4326").to_file(path)
    return str(path)


def test_outputs_are_clipped_to_the_area_and_percentages_are_of_it(
    scene, model, disc, aoi, tmp_path
):
    extent = Extent(aoi=aoi, dates=("2009-06-01", "2018-07-15"))
    more = {"vector": tmp_path / "c.gpkg", "stac": tmp_path / "c.json"}
    result = predict(scene, model, tmp_path / "c.tif", extent=extent, threshold=0.3, more=more)
    mask, grid = result.mask, result.grid
    assert max(grid.shape) <= 102
    inside = rasterize([disc], grid.shape, transform=grid.transform) == 1
    assert (mask[~inside] == 255).all()
    assert ((mask != 255) == inside).mean() > 0.99  # reprojection may move a pixel's centre
    assert result.change_fraction == (mask == 1).sum() / (mask != 255).sum()
    assert result.used["aoi"] == "disc.geojson"
    assert result.used["aoi_m2"] == pytest.approx(disc.area, rel=0.01)
    with rasterio.open(tmp_path / "c.tif") as raster:
        assert raster.tags()["ADADINO_AOI"] == "disc.geojson"
        assert json.loads(raster.tags()["ADADINO_DATES"]) == ["2009-06-01", "2018-07-15"]
    assert "adadino:aoi" in json.loads((tmp_path / "c.json").read_text())["properties"]
    row = result.polygons.iloc[0]
    assert (row["date_before"], row["review"]) == ("2009-06-01", "open")


def test_a_run_goes_on_only_within_the_same_area(scene, model, aoi, tmp_path, monkeypatch):
    import adadino.scene.predict as story

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(story, "write_rasters", stop)
        with pytest.raises(KeyboardInterrupt):
            predict(scene, model, tmp_path / "c.tif", extent=Extent(aoi=aoi))
    box = Extent(bbox=shapely.box(*_bounds(scene[0])).centroid.buffer(25).bounds)
    with pytest.raises(WriteError, match="another aoi"):
        predict(scene, model, tmp_path / "c.tif", extent=box, resume=True)
    predict(scene, model, tmp_path / "c.tif", extent=Extent(aoi=aoi), resume=True)


def _bounds(path):
    with rasterio.open(path) as raster:
        return raster.bounds


def test_an_area_or_dates_that_cannot_be_leave_no_output(scene, model, tmp_path):
    with pytest.raises(InputError, match="outside the scene"):
        predict(scene, model, tmp_path / "c.tif", extent=Extent(bbox=(0, 0, 1, 1)))
    assert list(tmp_path.iterdir()) == []
    for dates, message in ((("2020-01-01", "2019-01-01"), "not after"), (("x", "y"), "two dates")):
        with pytest.raises(ConfigError, match=message):
            Extent(dates=dates)
    with pytest.raises(ConfigError, match="both --aoi and --bbox"):
        Extent(aoi="a", bbox=(0, 0, 1, 1))


def test_times_of_files_are_never_given_for_dates_without_a_word(scene, model, tmp_path):
    with pytest.warns(DatesWarning, match="give --dates"):
        result = predict(scene, model, tmp_path / "c.tif", more={"stac": tmp_path / "c.json"})
    assert any("--dates" in text for text in result.warnings)


@pytest.mark.parametrize("least", [20.0, 200.0])
def test_the_least_area_holds_for_mask_percentage_and_polygons_alike(scene, model, tmp_path, least):
    shown = {"threshold": 0.3}
    plain = predict(scene, model, tmp_path / "a.tif", **shown)
    result = predict(scene, model, tmp_path / "b.tif", min_area=least, **shown)
    mask = result.mask
    assert (plain.polygons["area_m2"] < least).any()
    assert (result.polygons["area_m2"] >= least).all()
    assert result.polygons["area_m2"].sum() == pytest.approx((mask == 1).sum() * 0.25)
    assert result.change_fraction == (mask == 1).sum() / (mask != 255).sum()
    holes = [
        shapely.Polygon(ring).area for shape in result.polygons.geometry for ring in shape.interiors
    ]
    assert all(area >= least for area in holes)
    assert (mask != plain.mask).any()


def test_a_polygon_says_how_the_place_changed(scene, model, tmp_path):
    lighter = rewrite(scene[0], tmp_path / "light.tif", lambda d: (d * 0.5 + 90).astype("u1"))
    more = {"probability": tmp_path / "p.tif"}
    result = predict((scene[0], lighter), model, tmp_path / "c.tif", threshold=0.3, more=more)
    frame, mask, probability = result.polygons, result.mask, result.probability
    one = frame.iloc[0]
    at = rasterize([one.geometry], mask.shape, transform=result.grid.transform) == 1
    before, after = (all_bands(path) / 255 for path in (scene[0], lighter))
    assert one["brightness"] == pytest.approx((after - before).mean(axis=0)[at].mean(), abs=1e-3)
    assert one["prob_min"] == pytest.approx(probability[at].min(), abs=1e-6)
    assert one["compactness"] == pytest.approx(4 * np.pi * one["area_m2"] / one["perimeter_m"] ** 2)
    left, bottom, right, top = one.geometry.bounds
    edges = _bounds(scene[0])
    gaps = left - edges.left, edges.right - right, bottom - edges.bottom, edges.top - top
    assert one["border_m"] == pytest.approx(min(gaps), abs=0.01)
    assert "vegetation" not in frame


def all_bands(path):
    with rasterio.open(path) as raster:
        return raster.read().astype(np.float64)


def test_vegetation_is_measured_where_both_files_name_the_near_infrared(scene, model, tmp_path):
    names = []
    for path, near in zip(scene, (200, 100), strict=True):
        data = all_bands(path)
        names.append(tmp_path / path.name)
        with rasterio.open(path) as raster:
            profile = raster.profile | {"count": 4, "photometric": "MINISBLACK"}
        with rasterio.open(names[-1], "w", **profile) as raster:
            raster.write(np.concatenate([data, np.full((1, *data.shape[1:]), near)]).astype("u1"))
            for band, name in enumerate(("B04", "B03", "B02", "B08"), 1):
                raster.set_band_description(band, name)
    result = predict(names, model, tmp_path / "c.tif", threshold=0.3)
    assert result.used["bands"] == ["1,2,3 (by name)"] * 2
    assert (result.polygons["vegetation"] < 0).all()


def test_a_sent_geopackage_keeps_its_look(scene, model, tmp_path):
    predict(scene, model, tmp_path / "c.tif", more={"vector": tmp_path / "v.gpkg"})
    with sqlite3.connect(tmp_path / "v.gpkg") as base:
        assert base.execute("pragma user_version").fetchone() == (10200,)
        ((table, style, default),) = base.execute(
            "select f_table_name, styleQML, useAsDefault from layer_styles"
        )
    assert (table, default) == ("change", 1)
    assert style == (tmp_path / "v.qml").read_text()


def test_an_old_style_holds_no_output_up(scene, model, tmp_path):
    (tmp_path / "c.qml").write_text("<qgis/>")
    predict(scene, model, tmp_path / "c.tif")
    assert "paletted" in (tmp_path / "c.qml").read_text()


class TestResolution:
    @pytest.fixture
    def known(self):
        model = a_model()
        model.domain = Domain((2.0, 4.0), {})
        return model

    def test_a_warning_up_to_four_times_outside(self, scene, known, tmp_path):
        with pytest.warns(DomainWarning, match="4.0 times outside the 2 to 4 m"):
            result = predict(scene, known, tmp_path / "c.tif")
        assert "not reliable" in result.headline
        assert result.fit.as_json()["times_outside"] == 4.0
        with rasterio.open(tmp_path / "c.tif") as raster:
            assert "4.0 times outside" in raster.tags()["ADADINO_DOMAIN"]

    def test_an_error_beyond_that_names_the_option(self, scene, tmp_path, known):
        known.domain = Domain((3.0, 4.0), {})
        with pytest.raises(InputError, match="--any-resolution"):
            predict(scene, known, tmp_path / "c.tif")
        assert list(tmp_path.iterdir()) == []
        with pytest.warns(DomainWarning):
            predict(scene, known, tmp_path / "c.tif", any_resolution=True)

    def test_resampling_brings_a_scene_inside(self, scene, known, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("error", DomainWarning)
            result = predict(scene, known, tmp_path / "c.tif", gsd=2.0)
        assert result.grid.resolution == pytest.approx((2.0, 2.0))
        assert result.grid.shape == (37, 52)
        assert read(tmp_path / "c.tif").shape == (37, 52)

    def test_a_constant_date_is_said(self, scene, model, tmp_path):
        flat = rewrite(scene[1], tmp_path / "flat.tif", lambda data: data * 0 + 37)
        with pytest.warns(DomainWarning, match=r"after .*flat.tif\) is constant"):
            predict((scene[0], flat), model, tmp_path / "c.tif")

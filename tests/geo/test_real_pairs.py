"""Real image pairs from end to end: two NAIP dates a little apart, two Landsat dates in degrees."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import torch
from pyproj import Geod
from rasterio.features import rasterize

from adadino.errors import BackboneWarning, GridWarning, RegistrationWarning
from adadino.model.adadino import AdaDINO
from adadino.scene import SceneOptions, predict_scene
from adadino.scene.result import SceneResult
from tests.conftest import SMALL, randomise

pytestmark = [
    pytest.mark.data,
    pytest.mark.filterwarnings(f"ignore::{RegistrationWarning.__module__}.RegistrationWarning"),
    pytest.mark.filterwarnings(f"ignore::{BackboneWarning.__module__}.BackboneWarning"),
]


@pytest.fixture(scope="module")
def scenes() -> Path:
    folder = Path(os.environ.get("ADADINO_DATA", "")) / "geotiff"
    if not folder.is_dir():
        pytest.skip("needs real image pairs; set ADADINO_DATA to their folder")
    return folder


@pytest.fixture(scope="module")
def model() -> AdaDINO:
    """A random model: what it finds means nothing, where it lies means everything."""
    torch.manual_seed(0)
    network = AdaDINO(SMALL)
    randomise(network, 0.35)
    return network.eval()


def run(scenes: Path, names: tuple[str, str], model: AdaDINO, folder: Path) -> SceneResult:
    """Predict with the threshold at the median, so that half of the scene is change."""
    pair = [scenes / name for name in names]
    options = {"tile": 128, "overlap": 32, "batch": 8, "bands": (1, 2, 3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)
        first = predict_scene(
            *pair, model, output=folder / "first.tif", probability=folder / "first_p.tif",
            options=SceneOptions(**options), device="cpu",
        )  # fmt: skip
    middle = float(np.nanmedian(first.probability))
    return predict_scene(
        *pair, model, output=folder / "change.tif", probability=folder / "p.tif",
        vector=folder / "polygons.gpkg", device="cpu",
        options=SceneOptions(**options, threshold=middle),
    )  # fmt: skip


@pytest.fixture(scope="module")
def naip(
    scenes: Path, model: AdaDINO, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SceneResult, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder = tmp_path_factory.mktemp("naip")
        result = run(scenes, ("naip_2009.tif", "naip_2018.tif"), model, folder)
    return result, [str(w.message) for w in caught if w.category is GridWarning]


@pytest.fixture(scope="module")
def landsat(
    scenes: Path, model: AdaDINO, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SceneResult, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder = tmp_path_factory.mktemp("landsat")
        result = run(scenes, ("landsat_1985.tif", "landsat_2020.tif"), model, folder)
    return result, [str(w.message) for w in caught if w.category is GridWarning]


def test_naip_grids_differ_by_two_metres_and_one_and_the_warning_says_so(naip):
    result, told = naip
    # 2 m and 1 m in pixels of 5 m.
    assert len(told) == 1
    assert "after starts +0.40 columns and -0.20 rows from before" in told[0]
    assert "the overlap 933 x 723" in told[0]
    assert told[0] in result.warnings


def test_naip_comes_out_on_the_first_dates_pixels(naip, scenes):
    result, _ = naip
    with rasterio.open(scenes / "naip_2009.tif") as before:
        transform, crs = before.transform, before.crs
    for path in (result.mask_path, result.probability_path):
        with rasterio.open(path) as output:
            assert (output.crs, output.shape) == (crs, (723, 933))
            column, row = ~transform * (output.transform.c, output.transform.f)
            assert (column, row) == (1, 0)  # whole pixels of before, not of after
            assert (output.transform.a, output.transform.e) == (transform.a, transform.e)


def test_naip_areas_are_pixel_counts(naip):
    result, _ = naip
    frame = result.polygons
    changed = int((result.mask == 1).sum())
    assert changed > 100_000
    assert result.area == pytest.approx(changed * 25.0, rel=1e-9)
    assert result.change_fraction == pytest.approx(changed / (result.mask != 255).sum())
    drawn = rasterize(
        zip(frame.geometry, frame["id"], strict=True), result.mask.shape,
        transform=result.grid.transform, dtype="int32",
    )  # fmt: skip
    np.testing.assert_array_equal(drawn > 0, result.mask == 1)
    counts = np.bincount(drawn.ravel(), minlength=len(frame) + 1)[frame["id"]]
    np.testing.assert_allclose(frame["area_m2"], counts * 25.0, rtol=1e-9)
    np.testing.assert_allclose(frame["area_m2"], frame.area, rtol=1e-9)
    read = gpd.read_file(result.mask_path.parent / "polygons.gpkg")
    assert read.crs == frame.crs
    np.testing.assert_allclose(read.area, frame["area_m2"], rtol=1e-9)


def test_landsat_grids_agree_and_nothing_is_said(landsat, scenes):
    result, told = landsat
    assert told == []
    assert not any("grid" in text for text in result.warnings)
    with (
        rasterio.open(scenes / "landsat_1985.tif") as before,
        rasterio.open(result.mask_path) as mask,
    ):
        assert (mask.crs, mask.transform, mask.shape) == (
            before.crs,
            before.transform,
            before.shape,
        )
        assert before.crs.to_epsg() == 4326
        # Both dates' nodata is the result's, pixel for pixel.
        gone = ~before.dataset_mask().astype(bool)
    with rasterio.open(scenes / "landsat_2020.tif") as after:
        gone |= ~after.dataset_mask().astype(bool)
    np.testing.assert_array_equal(result.mask == 255, gone)
    np.testing.assert_array_equal(np.isnan(result.probability), gone)


def test_landsat_areas_are_geodesic(landsat):
    result, _ = landsat
    frame = result.polygons
    assert len(frame) > 10
    assert frame.crs.to_epsg() == 4326
    geod = Geod(ellps="WGS84")
    for _, row in frame.iterrows():
        rings = [row.geometry.exterior, *row.geometry.interiors]
        measured = [geod.polygon_area_perimeter(*ring.xy) for ring in rings]
        shell, *holes = (abs(area) for area, _ in measured)
        assert row["area_m2"] == pytest.approx(shell - sum(holes), rel=1e-9)
        assert row["perimeter_m"] == pytest.approx(sum(length for _, length in measured), rel=1e-9)
    assert any(shape.interiors for shape in frame.geometry)
    # About 90 m at 8 degrees south: degrees taken for metres would be off by ten powers of ten.
    pixel = result.area / (result.mask == 1).sum()
    assert pixel == pytest.approx(89.0 * 89.4, rel=0.02)


@pytest.mark.parametrize("which", ["naip", "landsat"])
def test_results_are_saved_and_shown(which, request, tmp_path):
    result, _ = request.getfixturevalue(which)
    names = {path.name for path in result.save(tmp_path / "out")}
    assert {"mask.tif", "probability.tif", "polygons.gpkg", "overview.png"} <= names
    html = result._repr_html_()
    assert "data:image/png" in html
    before, after, change = result.small()
    assert before.shape[:2] == change.shape
    # Both dates show the same place: they agree best as they lie.
    agreement = {
        step: alike(before, np.roll(after, step, (0, 1)))
        for step in ((0, 0), (8, 0), (-8, 0), (0, 8), (0, -8))
    }
    assert max(agreement, key=agreement.__getitem__) == (0, 0), agreement


def alike(before: np.ndarray, after: np.ndarray) -> float:
    inner = [image[10:-10, 10:-10].mean(axis=2).ravel() for image in (before, after)]
    return float(np.corrcoef(*inner)[0, 1])

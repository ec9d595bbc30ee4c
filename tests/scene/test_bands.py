"""Scenes of many bands: found by name, scaled as in training, refused where one is missing."""

from __future__ import annotations

import dataclasses
import json
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
import torch
from rasterio.transform import from_origin
from rasterio.windows import Window
from typer.testing import CliRunner

from adadino.bands import BandsConfig
from adadino.build import new_model
from adadino.checkpoint import save
from adadino.cli.app import app
from adadino.data.bands import read_bands
from adadino.errors import BandWarning, InputError
from adadino.geo.read.raster import open_pair
from adadino.scene import SceneOptions, predict_scene
from adadino.web.view.display import lay_out
from adadino.web.view.views import shows_infrared, view_path, write_views
from tests.conftest import SMALL, randomise

NAMES = ("B02", "B03", "B04", "B08", "B11")
FIVE = BandsConfig(names=NAMES, low=(300.0,), high=(3000.0,), width=8)
OPTIONS = SceneOptions(tile=64, overlap=16)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, bands=FIVE, order_invariant=True)
    return randomise(new_model(config), 0.35).eval()


@pytest.fixture(scope="module")
def dates():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(5, 90, 110)).cumsum(1).cumsum(2)
    base = 1500 + 600 * base / np.abs(base).max()
    noise = rng.normal(size=(2, *base.shape)) * 40
    before, after = (base + noise[0]), (base + noise[1])
    after[:, 20:40, 30:60] += 900
    return [date.clip(1, 10_000).astype(np.uint16) for date in (before, after)]


def write(path, pixels, names=NAMES, **more):
    count, height, width = pixels.shape
    kind = {"driver": "GTiff", "dtype": pixels.dtype, "crs": "EPSG:32630"} | more
    place = from_origin(600_000, 5_300_000, 10, 10)
    with rasterio.open(
        path, "w", count=count, height=height, width=width, transform=place, **kind
    ) as file:
        file.write(pixels)
        file.descriptions = names
    return str(path)


def pair(folder, dates, order=(0, 1, 2, 3, 4), names=NAMES):
    return [
        write(folder / f"{role}{''.join(map(str, order))}.tif", date[list(order)],
              tuple(names[place] for place in order))
        for role, date in zip("ab", dates, strict=True)
    ]  # fmt: skip


def probability(result):
    with rasterio.open(result.probability_path) as file:
        return file.read(1)


def test_bands_are_found_by_name_whatever_their_order(model, dates, tmp_path):
    straight = predict_scene(*pair(tmp_path, dates), model, options=OPTIONS, device="cpu")
    turned = pair(tmp_path, dates, order=(4, 2, 0, 3, 1))
    other = predict_scene(*turned, model, options=OPTIONS, device="cpu")
    np.testing.assert_array_equal(probability(straight), probability(other))
    assert straight.used["bands"][0] == "B02=1, B03=2, B04=3, B08=4, B11=5 (by name)"
    assert other.used["bands"][0] == "B02=3, B03=5, B04=2, B08=4, B11=1 (by name)"
    numbers = dataclasses.replace(OPTIONS, bands=(3, 5, 2, 4, 1))
    named = predict_scene(*turned, model, options=numbers, device="cpu")
    np.testing.assert_array_equal(probability(straight), probability(named))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_values_are_scaled_as_in_training(dates, tmp_path, dtype):
    made = [(date / 16 if dtype == np.uint8 else date).astype(dtype) for date in dates]
    paths = pair(tmp_path, made, order=(3, 1, 4, 0, 2))
    with open_pair(*paths, wanted=FIVE) as reader:
        seen = reader.read(Window(0, 0, 110, 90))
    for image, path in zip((seen.before, seen.after), paths, strict=True):
        np.testing.assert_allclose(image, read_bands(path, FIVE), atol=1e-6)
        assert image.max() <= 1


def test_a_missing_band_is_named_and_nothing_is_written(model, dates, tmp_path):
    short = pair(tmp_path, dates, order=(0, 1, 2, 3))
    out = tmp_path / "out"
    with pytest.raises(InputError, match=r"before .*lacks B11, which the model needs"):
        predict_scene(*short, model, output=out / "c.tif", options=OPTIONS, device="cpu")
    assert not out.exists()
    # Said to be missing, it is zero on both dates, and the scene is predicted.
    without = dataclasses.replace(OPTIONS, bands=(1, 2, 3, 4, 0))
    result = predict_scene(*short, model, options=without, device="cpu")
    assert result.used["bands"][0] == "B02=1, B03=2, B04=3, B08=4, B11=absent (given)"
    empty = [np.concatenate([date[:4], np.ones_like(date[:1])]) for date in dates]
    filled = predict_scene(*pair(tmp_path, empty), model, options=OPTIONS, device="cpu")
    np.testing.assert_array_equal(probability(result), probability(filled))


def test_the_same_band_twice_is_refused(model, dates, tmp_path):
    twice = pair(tmp_path, dates, names=("B02", "B03", "B04", "nir", "near infrared"))
    with pytest.raises(InputError, match="B08 2 times"):
        predict_scene(*twice, model, options=OPTIONS, device="cpu")
    again = dataclasses.replace(OPTIONS, bands=(1, 2, 3, 4, 4))
    with pytest.raises(InputError, match="band 4 twice"):
        predict_scene(*twice, model, options=again, device="cpu")


def test_bands_without_names_are_taken_in_order_and_that_is_said(model, dates, tmp_path):
    bare = [write(tmp_path / f"{role}.tif", date, (None,) * 5)
            for role, date in zip("ab", dates, strict=True)]  # fmt: skip
    with pytest.warns(BandWarning, match="taken as B02, B03, B04, B08, B11"):
        found = predict_scene(*bare, model, options=OPTIONS, device="cpu")
    named = predict_scene(*pair(tmp_path, dates), model, options=OPTIONS, device="cpu")
    np.testing.assert_array_equal(probability(found), probability(named))


def test_dates_may_lack_no_band_of_each_other(dates, tmp_path):
    first, _ = pair(tmp_path, dates)
    _, second = pair(tmp_path, dates, order=(0, 1, 2))
    with pytest.raises(InputError, match=r"has 5 bands and .* 3, so they cannot be compared"):
        predict_scene(first, second, "cva", options=OPTIONS, device="cpu")


@pytest.mark.parametrize("name", ["cva", "irmad"])
def test_peers_without_training_judge_the_whole_scene(name, dates, tmp_path):
    result = predict_scene(*pair(tmp_path, dates), name, options=OPTIONS, device="cpu")
    import adadino

    whole = [torch.from_numpy(date.astype(np.float32))[None] for date in dates]
    expected = adadino.load(name).probability(*whole)[0].numpy()
    np.testing.assert_allclose(probability(result), expected, atol=2e-3)
    with rasterio.open(result.mask_path) as file:
        found = file.read(1)[20:40, 30:60] == 1
    assert found.mean() > 0.9
    assert result.used["bands"][0] == "1,2,3,4,5 (all)"


def test_pictures_and_polygons_show_true_colour(model, dates, tmp_path):
    found = dataclasses.replace(OPTIONS, threshold=0.05)
    result = predict_scene(
        *pair(tmp_path, dates), model, options=found, device="cpu",
        output=tmp_path / "c.tif", vector=tmp_path / "v.gpkg", overview=tmp_path / "o.png",
        report=tmp_path / "r.html",
    )  # fmt: skip
    assert {path.name for path in result.outputs} >= {"c.tif", "v.gpkg", "o.png", "r.html"}
    false = ElementTree.parse(tmp_path / "c-false-colour.qml").find(".//rasterrenderer")
    assert [false.get(f"{c}Band") for c in ("red", "green", "blue")] == ["4", "3", "2"]
    assert false.find("redContrastEnhancement/maxValue").text == "3000"
    true = ElementTree.parse(tmp_path / "c-true-colour.qml").find(".//rasterrenderer")
    assert [true.get(f"{c}Band") for c in ("red", "green", "blue")] == ["3", "2", "1"]
    # Numbers of the model's bands choose the picture's colours, too.
    numbers = dataclasses.replace(found, bands=(1, 2, 3, 0, 5))
    again = predict_scene(
        *pair(tmp_path, dates), model, options=numbers, device="cpu",
        output=tmp_path / "d.tif", overview=tmp_path / "d.png",
    )  # fmt: skip
    assert again.bands == (3, 2, 1)
    assert not (tmp_path / "d-false-colour.qml").exists()


def test_the_page_s_views_are_in_true_and_in_false_colour(dates, tmp_path):
    paths = pair(tmp_path, dates, order=(4, 2, 0, 3, 1))
    with open_pair(*paths, wanted=FIVE) as reader:
        assert shows_infrared(reader)
        display = lay_out(reader.grid)
        write_views(reader, display, tmp_path)
        write_views(reader, display, tmp_path, false_colour=True)
    scaled = np.rint(255 * np.clip((dates[1].astype(np.float64) - 300) / 2700, 0, 1))
    for name, places in (("after", (2, 1, 0)), ("after-false", (3, 2, 1))):
        with rasterio.open(view_path(tmp_path, name)) as file:  # JPEG: nearly
            assert np.abs(file.read().mean((1, 2)) - scaled[list(places)].mean((1, 2))).max() < 3
    with open_pair(*paths) as reader:
        assert not shows_infrared(reader)


def test_the_command_says_what_it_took(model, dates, tmp_path):
    save(model, tmp_path / "model", with_backbone=True)
    out = str(tmp_path / "c.tif")
    base = ["predict", *pair(tmp_path, dates), "-o", out, "--model", str(tmp_path / "model")]
    base += ["--tile", "64", "--overlap", "16", "--device", "cpu"]
    done = CliRunner().invoke(app, [*base, "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)["used"]["bands"][0]
    assert said == "B02=1, B03=2, B04=3, B08=4, B11=5 (by name)"


def test_the_bundled_model_sends_10_m_pixels_to_one_that_needs_no_training(dates, tmp_path):
    with pytest.raises(InputError, match=r"10 m pixels, 5\.0 times outside.*--model cva"):
        predict_scene(*pair(tmp_path, dates), "tiny", options=OPTIONS, device="cpu")

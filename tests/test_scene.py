"""Whole scenes end to end: in place, on one grid, nothing half-written, batches do not matter."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import torch
from PIL import Image
from typer.testing import CliRunner

from adadino.cli.app import app
from adadino.data.synthetic import make_pair, write_geotiff_pair
from adadino.errors import AdaDINOError
from adadino.model.adadino import AdaDINO
from adadino.model.checkpoint import save
from adadino.scene import SceneOptions, predict_scene
from tests.conftest import SMALL, randomise

OPTIONS = SceneOptions(tile=64, overlap=16)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    before, after, _ = write_geotiff_pair(folder, 7, (150, 210))
    return before, after


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return randomise(AdaDINO(SMALL), 0.35).eval()


def run(scene, model, folder, **options):
    names = {"output": "c.tif", "probability": "p.tif", "vector": "v.gpkg"}
    targets = {role: folder / name for role, name in names.items()}
    merged = {"tile": 64, "overlap": 16} | options
    return predict_scene(*scene, model, **targets, options=SceneOptions(**merged), device="cpu")


def test_outputs_lie_where_the_first_date_lies(scene, model, tmp_path):
    chance = run(scene, model, tmp_path / "first")
    with rasterio.open(tmp_path / "first" / "p.tif") as p:
        probability = p.read(1)
    middle = float(np.median(probability))
    result = run(scene, model, tmp_path / "second", threshold=middle)
    with rasterio.open(scene[0]) as source, rasterio.open(tmp_path / "second" / "c.tif") as mask:
        assert (mask.crs, mask.transform, mask.shape) == (source.crs, source.transform, (150, 210))
        flags = mask.read(1)
    assert np.array_equal(flags == 1, probability >= middle)
    assert result.change_fraction == pytest.approx((flags == 1).mean())
    assert result.polygons["area_m2"].sum() == pytest.approx((flags == 1).sum() * 0.25)
    read = gpd.read_file(tmp_path / "second" / "v.gpkg")
    assert len(read) == len(result.polygons) > 0
    assert read.crs == result.polygons.crs
    assert chance.outputs


def test_the_batch_size_does_not_matter_for_a_scene_but_does_for_batches(scene, model, tmp_path):
    maps = {}
    for selection in ("scene", "batch"):
        for batch in (1, 5):
            folder = tmp_path / f"{selection}{batch}"
            run(scene, model, folder, selection=selection, batch=batch)
            with rasterio.open(folder / "p.tif") as p:
                maps[selection, batch] = p.read(1)
    scene_moves = np.abs(maps["scene", 1] - maps["scene", 5]).max()
    batch_moves = np.abs(maps["batch", 1] - maps["batch", 5]).max()
    assert scene_moves < 1e-5  # the rounding of products of another size
    assert batch_moves > 100 * scene_moves, (batch_moves, scene_moves)


def test_nodata_stays_nodata(scene, model, tmp_path):
    with rasterio.open(scene[0]) as source:
        profile, data = source.profile, source.read()
    data[:, 40:90, 60:120] = 0
    holed = tmp_path / "before.tif"
    with rasterio.open(holed, "w", **(profile | {"nodata": 0})) as target:
        target.write(data)
    result = run((holed, scene[1]), model, tmp_path / "out")
    with rasterio.open(tmp_path / "out" / "c.tif") as mask:
        flags = mask.read(1)
    assert (flags[40:90, 60:120] == 255).all()
    assert (flags == 255).sum() < 1.1 * 50 * 60
    assert result.grid.height == 150


@pytest.mark.filterwarnings("ignore::adadino.errors.VectorWarning")
def test_png_in_png_out_from_the_command_line(model, tmp_path):
    pair = make_pair(3, (70, 90))
    for name in ("before", "after"):
        Image.fromarray(getattr(pair, name)).save(tmp_path / f"{name}.png")
    save(model, tmp_path / "model", with_backbone=True)
    arguments = ["predict", str(tmp_path / "before.png"), str(tmp_path / "after.png")]
    arguments += ["-o", str(tmp_path / "change.png"), "--model", str(tmp_path / "model")]
    arguments += ["--tile", "64", "--overlap", "16", "--json"]
    arguments += ["--probability", str(tmp_path / "p.png"), "--threshold", "0.001"]
    arguments += ["--vector", str(tmp_path / "v.gpkg")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert {"outputs", "change_fraction", "polygons", "warnings"} <= set(data)
    assert Image.open(tmp_path / "change.png").size == (90, 70)
    assert Image.open(tmp_path / "p.png").size == (90, 70)
    read = gpd.read_file(tmp_path / "v.gpkg")
    assert len(read) == data["polygons"] > 0
    assert read["prob_max"].max() <= 1
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1
    assert "exists" in str(again.exception)


@pytest.mark.parametrize("spoil", ["text", "other place", "same file", "output is input"])
def test_bad_input_is_one_sentence_and_leaves_nothing(scene, model, tmp_path, spoil):
    before, after = scene
    output = tmp_path / "out" / "c.tif"
    if spoil == "text":
        after = tmp_path / "after.tif"
        after.write_text("hello")
    elif spoil == "other place":
        (tmp_path / "far").mkdir()
        _, after, _ = write_geotiff_pair(tmp_path / "far", 7, (64, 64), origin=(900000, 5800000))
    elif spoil == "same file":
        after = before
    else:
        output = before
    with pytest.raises(AdaDINOError):
        predict_scene(before, after, model, output=output, options=OPTIONS, device="cpu")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())

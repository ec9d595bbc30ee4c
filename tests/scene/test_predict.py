"""Whole scenes end to end: in place, on one grid, nothing half-written, batches do not matter."""

from __future__ import annotations

import gc
import json
from functools import partial

import geopandas as gpd
import numpy as np
import pytest
import rasterio
import torch
import torch.nn.functional as F
from PIL import Image
from typer.testing import CliRunner

from adadino.checkpoint import save
from adadino.cli.app import app
from adadino.data.synthetic import make_pair, write_geotiff_pair
from adadino.errors import (
    AdaDINOError,
    ConfigError,
)
from adadino.geo.tile.tiles import TilePlan
from adadino.model.adadino import AdaDINO, Output
from adadino.scene import SceneOptions, predict_scene
from adadino.scene import stream as scene_stream
from adadino.scene import tiles as scene_tiles
from tests.conftest import SMALL, randomise, with_bscs
from tests.geo.rasters import MovedPlan
from tests.scene.runs import a_model, files, read, rewrite, run

OPTIONS = SceneOptions(tile=64, overlap=16)


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


@pytest.mark.parametrize("kind", ["bytes", "stretched"])
def test_a_scene_has_the_same_bytes_for_any_batch_and_number_of_readers(
    scene, model, tmp_path, kind, monkeypatch
):
    monkeypatch.setattr(scene_tiles, "COLUMNS", (64, 64))  # so that all readers have work
    if kind == "stretched":
        numbers = [data.astype(np.uint16) * 13 for data in map(_all_bands, scene)]
        scene = [
            rewrite(
                path, tmp_path / path.name, lambda _, d=data: d, dtype="uint16", photometric="RGB"
            )
            for path, data in zip(scene, numbers, strict=True)
        ]
    settings = [{}, {"batch": 1, "readers": 1}, {"batch": 5, "readers": 3}, {"batch": 16}]
    for i, options in enumerate(settings):
        run(scene, model, tmp_path / f"run{i}", **options)
    first = files(tmp_path / "run0")
    assert set(first) == {"c.tif", "p.tif", "v.gpkg", "c.qml", "p.qml", "v.qml"}
    for i in range(1, len(settings)):
        assert files(tmp_path / f"run{i}") == first


def _all_bands(path):
    with rasterio.open(path) as raster:
        return raster.read()


def test_batches_as_in_the_paper_depend_on_their_size(scene, model, tmp_path):
    maps = []
    for batch in (1, 5):
        run(scene, model, tmp_path / f"{batch}", selection="batch", batch=batch)
        maps.append(read(tmp_path / f"{batch}" / "p.tif"))
    assert np.abs(maps[0] - maps[1]).max() > 1e-3


def test_bytes_that_travel_as_bytes_are_what_floats_would_be(scene, model, tmp_path, monkeypatch):
    run(scene, model, tmp_path / "bytes")
    monkeypatch.setattr("adadino.geo.read.raster.PairReader.holds_bytes", False)
    run(scene, model, tmp_path / "floats")
    assert files(tmp_path / "bytes") == files(tmp_path / "floats")


def test_tiles_without_data_never_reach_the_model(scene, tmp_path):
    def blank(data):
        data[:, :, :105] = 0
        return data

    holed = rewrite(scene[0], tmp_path / "holed.tif", blank, nodata=0)
    model, seen = a_model(), []
    forward = model.forward

    def counted(before, after, **options):
        seen.append(len(before))
        return forward(before, after, **options)

    model.forward = counted
    told = []
    run((holed, scene[1]), model, tmp_path / "out", progress=lambda *said: told.append(said))
    sample, *tiles = seen
    assert sample == 8
    assert tiles == [1] * 9  # of 15: three rows of five, of which two lie in the blank half
    counted = [said for said in told if said[1]]
    assert counted[-1][:2] == (15, 15)
    assert counted[-1][2].endswith(", 6 empty")
    flags = read(tmp_path / "out" / "c.tif")
    assert (flags[:, :105] == 255).all()
    assert (flags[:, 105:] != 255).all()


def test_without_names_the_rasters_live_as_long_as_the_result(scene, model):
    result = predict_scene(*scene, model, options=OPTIONS, device="cpu")
    folder = result.mask_path.parent
    assert result.mask.shape == result.probability.shape == (150, 210)
    assert folder.exists()
    del result
    gc.collect()
    assert not folder.exists()
    with pytest.raises(ConfigError, match="resume needs an output"):
        predict_scene(*scene, model, options=OPTIONS, device="cpu", resume=True)


class Nearby(AdaDINO):
    """A model that looks two pixels far."""

    def forward(self, before, after, *, chunks=None):
        difference = (before - after).abs().mean(1, keepdim=True)
        near = F.avg_pool2d(difference, 5, stride=1, padding=2, count_include_pad=False)[:, 0]
        return Output(torch.stack((1 - 12 * near, 12 * near - 1), 1), [], None, None)


def shifted_by(scene, folder, monkeypatch, **options):
    """How far probabilities move at most when the grid of tiles moves."""
    maps = []
    for offset in ((0, 0), (11, 23), (30, 5)):
        monkeypatch.setattr(scene_stream, "TilePlan", partial(MovedPlan, offset=offset))
        run(scene, Nearby(with_bscs(SMALL, k=8)), folder / str(offset), **options)
        maps.append(read(folder / str(offset) / "p.tif"))
    assert np.ptp(maps[0]) > 0.8
    return max(np.abs(other - maps[0]).max() for other in maps[1:])


def test_moving_the_tiles_moves_no_probability(scene, tmp_path, monkeypatch):
    """Where a model sees less far than the overlap: by 0.05 at most, of a range of 0.8."""
    assert shifted_by(scene, tmp_path / "half", monkeypatch, overlap=32) < 0.05
    assert shifted_by(scene, tmp_path / "none", monkeypatch, overlap=0) > 0.25


def test_no_seams(scene, tmp_path):
    """Attention sees the whole tile, so neighbours disagree; the map must not show where."""
    model = randomise(AdaDINO(with_bscs(SMALL, k=8)), 0.35).eval()
    ratio = {}
    for overlap in (16, 0):
        run(scene, model, tmp_path / str(overlap), overlap=overlap)
        probability = read(tmp_path / str(overlap) / "p.tif")
        tiles = TilePlan(*probability.shape, tile=64, overlap=overlap)
        at_borders, elsewhere = [], []
        for axis in (0, 1):
            spans = [tile.window[axis] for tile in tiles]
            edges = {edge - 1 for span in spans for edge in (span.start, span.stop)}
            steps = np.abs(np.diff(probability, axis=axis)).mean(axis=1 - axis)
            for i, step in enumerate(steps):
                (at_borders if i in edges else elsewhere).append(step)
        ratio[overlap] = np.mean(at_borders) / np.mean(elsewhere)
    assert ratio[16] < 1.5  # about as smooth as anywhere
    assert ratio[0] > 5


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

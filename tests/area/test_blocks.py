"""Surveys of blocks: equal whatever the units, blended by the weights, without a seam."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import rasterio

from adadino.area import blocks, units
from adadino.area.blocks import cut_blocks
from adadino.area.ledger import Ledger
from adadino.area.store import Folder
from adadino.area.units import Dates, PlacedDates, cut
from adadino.errors import ConfigError, WriteError
from adadino.geo.grid import Grid
from tests.area.regions import OPTIONS, area, make_scene

BLOCK = 100
"""Two by three blocks of the scene's 200 x 300 pixels."""


@pytest.fixture(autouse=True, scope="module")
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "OVERLAP", 32)
        patch.setattr(units, "BLOCK", 64)
        yield


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A pair in 16 bits whose light grows fourfold from left to right, on both dates."""
    before, after = make_scene(tmp_path_factory.mktemp("uneven"))
    for path in (before, after):
        with rasterio.open(path) as raster:
            values = raster.read()
            profile = raster.profile | {"dtype": "uint16", "photometric": "RGB"}
        light = np.linspace(10, 40, values.shape[2])
        with rasterio.open(path, "w", **profile) as raster:
            raster.write((values * light).astype(np.uint16))
    return Dates("town", before, after)


@pytest.fixture(scope="module")
def whole(uneven, model, tmp_path_factory):
    """The pair with one survey."""
    return run(uneven, tmp_path_factory.mktemp("whole"), model)


@pytest.fixture(scope="module")
def blended(uneven, model, tmp_path_factory):
    """The pair with a survey for each block."""
    return run(uneven, tmp_path_factory.mktemp("blended"), model, survey_block=BLOCK)


def chance(folder):
    with rasterio.open(folder / "probability.vrt") as raster:
        return raster.read(1)


def run(dates, out, model, **settings):
    area([dates], out, model, probability=True, **settings)
    return out


def test_weights_sum_to_one_and_fall_slowly():
    for shape, side in (((200, 300), 100), ((64, 500), 70), ((90, 90), 1000)):
        whole = slice(0, shape[0]), slice(0, shape[1])
        weights = [block.weights(whole) for block in cut_blocks(shape, side)]
        assert (sum(weights) == 1).all()  # exact: no rounding shows where blocks meet
        for weight, block in zip(weights, cut_blocks(shape, side), strict=True):
            outside = np.ones(shape, bool)
            outside[block.reach] = False
            assert not weight[outside].any()
            for axis in (0, 1):
                assert abs(np.diff(weight, axis=axis)).max(initial=0) <= 1 / blocks.OVERLAP


def test_units_do_not_matter_and_each_block_has_its_own_stretch(uneven, blended, model, tmp_path):
    run(uneven, tmp_path, model, survey_block=BLOCK, unit=192)
    assert chance(blended).tobytes() == chance(tmp_path).tobytes()

    said = json.loads((blended / "manifest.json").read_text())
    assert said["survey_block"] == BLOCK
    stretches = {tuple(block["stretch"][1]) for block in said["pairs"][0]["blocks"]}
    assert len(stretches) == 6  # each its own, and the light grows to the right
    first, *_, last = said["pairs"][0]["blocks"]
    assert last["stretch"][1][0] > 1.5 * first["stretch"][1][0]


@pytest.mark.slow
def test_blocks_are_blended_by_their_weights(uneven, blended, model, tmp_path):
    """A whole pair is predicted with each block's survey in turn, then blended in plain numbers."""
    found = chance(blended)
    expected = np.zeros(found.shape)
    for top, left in ((0, 0), (0, 100), (0, 200), (100, 0), (100, 100), (100, 200)):
        out = tmp_path / f"{top}-{left}"
        survey = blended / "pairs" / "town" / "surveys" / f"{top:07d}-{left:07d}.json"
        facts = json.loads((blended / "area.json").read_text())
        del facts["survey_block"]
        ledger = Ledger(Folder(out))
        ledger.begin(facts | {"unit": 128}, overwrite=False)
        ledger.publish_survey(uneven, json.loads(survey.read_text()))
        run(uneven, out, model)
        expected += np.outer(rise(top, 200), rise(left, 300)) * chance(out)
    assert np.abs(found - expected).max() < 1e-6


def rise(first, size, side=100, overlap=32):
    """The weight of a block from `first` on, by interpolation."""
    at = np.arange(size) + 0.5
    half = overlap / 2
    up = np.interp(at, [first - half, first + half], [0, 1]) if first else np.ones(size)
    down = np.interp(at, [first + side - half, first + side + half], [1, 0])
    return up * (down if first + side < size else 1)


def test_one_block_is_one_survey(uneven, whole, model, tmp_path):
    run(uneven, tmp_path, model, survey_block=1000)
    assert chance(whole).tobytes() == chance(tmp_path).tobytes()
    assert not (whole / "pairs" / "town" / "surveys").exists()


def test_no_seam_where_blocks_meet(uneven, whole, blended, model, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "OVERLAP", 0)
    hard = run(uneven, tmp_path, model, survey_block=BLOCK)
    ratios = {}
    for name, folder in (("blended", blended), ("hard", hard)):
        # The model's own steps are the same for both: what blocks add to them is left.
        added = chance(folder) - chance(whole)
        step = np.abs(np.diff(added, axis=1)).mean(axis=0)
        ratios[name] = step[[99, 199]].mean() / np.delete(step, [99, 199]).mean()
    assert ratios["blended"] < 2
    assert ratios["hard"] > 3 * ratios["blended"]  # what is avoided, and would be seen here


def test_blocks_find_their_own_shift(model, tmp_path):
    before, after = make_scene(tmp_path / "scene", seed=4)
    with rasterio.open(after) as raster:
        values, profile = raster.read(), raster.profile
    half = values.shape[2] // 2
    values[:, :, :half] = np.roll(values[:, :, :half], 3, axis=1)
    with rasterio.open(after, "w", **profile) as raster:
        raster.write(values)
    options = dataclasses.replace(OPTIONS, register=True)
    dates = Dates("town", before, after)
    run(dates, tmp_path / "out", model, survey_block=150, options=options)
    said = json.loads((tmp_path / "out" / "manifest.json").read_text())["pairs"][0]
    for block in said["blocks"]:
        assert block["registered"]
        expected = -3 if block["col"] == 0 else 0
        assert abs(block["shift"]["dy"] - expected) < 0.5


def test_a_block_without_data_takes_the_pair_s_survey(model, tmp_path):
    before, after = make_scene(tmp_path / "scene")
    with rasterio.open(after, "r+") as raster:
        raster.nodata = 0
        values = raster.read()
        values[:, :, 180:] = 0
        raster.write(values)
    dates = Dates("town", before, after)
    result = area([dates], tmp_path / "out", model, probability=True, survey_block=BLOCK)
    assert not result.failed
    said = json.loads((tmp_path / "out" / "manifest.json").read_text())["pairs"][0]
    assert [block["own"] for block in said["blocks"]] == [True, True, False] * 2
    found = chance(tmp_path / "out")
    assert np.isnan(found[:, 180:]).all()
    assert not np.isnan(found[10:190, 10:180]).any()


def test_other_blocks_are_another_job(uneven, blended, model, tmp_path):
    with pytest.raises(WriteError, match=r"another survey_block \(100, now None\)"):
        run(uneven, blended, model)
    with pytest.raises(ConfigError, match="survey_block is 50, must be at least 64"):
        run(uneven, tmp_path / "other", model, survey_block=50)


def test_tiles_in_several_blocks_are_counted_for_each():
    scene = PlacedDates(Dates("a", "b", "c"), Grid(None, rasterio.Affine.identity(), 300, 200))
    pieces = list(cut(scene, 64))
    once = blocks.count_tiles(scene, pieces, OPTIONS)
    several = blocks.count_tiles(scene, pieces, OPTIONS, BLOCK)
    assert once < several < 3 * once
    assert blocks.count_tiles(scene, pieces, OPTIONS, 1000) == once

"""Units change nothing: not a pixel, not a polygon; and only what is missing is done again."""

from __future__ import annotations

import dataclasses
import json
import os

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from PIL import Image

from adadino.area.units import Dates
from adadino.area.worker import ATTEMPTS, Worker
from adadino.errors import ConfigError, InputError, WriteError
from adadino.scene import predict_scene
from tests.area.regions import OPTIONS, area, damage, make_scene, make_strip, tree


@pytest.fixture(scope="module")
def alone(dates, model, tmp_path_factory):
    """The scene predicted in one piece."""
    folder = tmp_path_factory.mktemp("alone")
    predict_scene(
        dates.before,
        dates.after,
        model,
        output=folder / "change.tif",
        probability=folder / "probability.tif",
        vector=folder / "change.gpkg",
        options=OPTIONS,
        device="cpu",
    )
    return folder


def read(path):
    with rasterio.open(path) as raster:
        return raster.read(1), raster.crs, raster.transform, raster.nodata


def expect_equal(folder, alone):
    for name in ("change", "probability"):
        (ours, *place), (theirs, *elsewhere) = (
            read(folder / f"{name}.vrt"), read(alone / f"{name}.tif"),
        )  # fmt: skip
        assert ours.tobytes() == theirs.tobytes()
        assert str(place) == str(elsewhere)
    # What a unit cannot know of a whole polygon, a scene's polygons have besides.
    ours, theirs = (gpd.read_file(at / "change.gpkg", layer="change") for at in (folder, alone))
    assert {"id", "area_m2", "perimeter_m", "prob_mean", "prob_max"} <= set(ours.columns)
    assert ours.equals(theirs[list(ours.columns)])
    assert ours.geometry.to_wkb().tolist() == theirs.geometry.to_wkb().tolist()


@pytest.mark.parametrize("side", [64, 128])
def test_units_give_the_bytes_of_one_piece(dates, model, alone, tmp_path, side):
    result = area([dates], tmp_path, model, probability=True, unit=side)
    assert result.units == {64: 20, 128: 6}[side]
    assert len(result.polygons) > 5
    assert not result.failed
    expect_equal(tmp_path, alone)


def test_chunks_chosen_per_batch_are_those_of_the_scene_s_batches(dates, model, tmp_path):
    options = dataclasses.replace(OPTIONS, selection="batch", batch=3)
    predict_scene(
        dates.before, dates.after, model, output=tmp_path / "c.tif", options=options, device="cpu"
    )
    area([dates], tmp_path / "area", model, options=options)
    assert np.array_equal(read(tmp_path / "area" / "change.vrt")[0], read(tmp_path / "c.tif")[0])


def test_registration_and_stretch_are_the_pair_s(model, tmp_path):
    before, after = make_scene(tmp_path / "scene", seed=4)
    for path in (before, after):  # 16 bits: stretched over the whole pair
        with rasterio.open(path) as raster:
            values = raster.read()
            profile = raster.profile | {"dtype": "uint16", "photometric": "RGB"}
        moved = np.roll(values, (2, 3), (1, 2)) if path == after else values
        with rasterio.open(path, "w", **profile) as raster:
            raster.write(moved.astype(np.uint16) * 37)
    options = dataclasses.replace(OPTIONS, register=True)
    whole = predict_scene(before, after, model, options=options, device="cpu")
    result = area([Dates("a", before, after)], tmp_path / "out", model, options=options)
    assert whole.registered
    assert np.array_equal(read(tmp_path / "out" / "change.vrt")[0], whole.mask)
    said = json.loads((tmp_path / "out" / "manifest.json").read_text())["pairs"][0]
    assert said["shift"]["dy"] == whole.shift.dy
    assert result.change_fraction == whole.change_fraction


def test_a_rerun_does_only_what_is_missing(dates, model, tmp_path):
    first = area([dates], tmp_path, model)
    assert first.predicted == first.units == 6
    before = tree(tmp_path)
    assert area([dates], tmp_path, model).predicted == 0
    assert tree(tmp_path) == before
    mask = tmp_path / "pairs" / "town" / "mask" / "0000000-0000128.tif"
    mask.write_bytes(mask.read_bytes()[:-1])
    assert area([dates], tmp_path, model).predicted == 1
    assert tree(tmp_path) == before
    mask.write_bytes(mask.read_bytes()[:-1] + b"?")  # its size says nothing
    assert area([dates], tmp_path, model).predicted == 0
    assert area([dates], tmp_path, model, verify=True).predicted == 1
    assert tree(tmp_path) == before
    # Other outlines move no unit.
    options = dataclasses.replace(OPTIONS, simplify=1.0)
    smooth = area([dates], tmp_path, model, options=options)
    assert smooth.predicted == 0
    assert len(smooth.polygons) == len(first.polygons)


@pytest.mark.slow
def test_another_job_is_refused_and_another_image_is_predicted_again(dates, model, tmp_path):
    copies = Dates("copy", *make_scene(tmp_path / "scene"))
    area([dates, copies], tmp_path / "out", model)
    options = dataclasses.replace(OPTIONS, threshold=0.3)
    with pytest.raises(WriteError, match=r"begun with another threshold \(0.32, now 0.3\)"):
        area([dates, copies], tmp_path / "out", model, options=options)
    make_scene(tmp_path / "scene", seed=8)
    assert area([dates, copies], tmp_path / "out", model).predicted == 6
    fresh = area([dates, copies], tmp_path / "out", model, options=options, overwrite=True)
    assert fresh.predicted == 12


@pytest.mark.slow
def test_a_poisoned_unit_is_named_and_the_rest_completes(dates, model, tmp_path):
    strip = Dates("strip", *make_strip(tmp_path / "strip"))
    whole = damage(strip.after)
    result = area([dates, strip], tmp_path / "out", model)
    ((what, problem),) = result.failed.items()
    assert what == "strip, rows 0 to 64, columns 1152 to 1280"
    assert problem.startswith(f"cannot read {strip.after} at row 0")
    assert result.predicted == result.units - 1
    assert set(result.polygons["pair"]) == {"town", "strip"}
    said = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert said["failed"] == [{"what": what, "problem": problem}]
    # Put right, the pair is another one, because its file is; the other pair is kept.
    (tmp_path / "strip" / "after.tif").write_bytes(whole)
    again = area([dates, strip], tmp_path / "out", model)
    assert (again.predicted, again.failed) == (10, {})
    assert 255 not in read(tmp_path / "out" / "pairs" / "strip" / "change.vrt")[0]


def test_a_pair_that_cannot_be_opened_is_named_and_the_rest_completes(dates, model, tmp_path):
    missing = Dates("gone", str(tmp_path / "a.tif"), dates.after)
    result = area([missing, dates], tmp_path / "out", model)
    assert list(result.failed) == ["gone"]
    assert "there is no file" in result.failed["gone"]
    assert result.predicted == 6
    with pytest.raises(
        InputError, match=r"none of the 1 pairs can be opened; of gone: there is no"
    ):
        area([missing], tmp_path / "none", model)


def test_pairs_on_the_ground_and_in_pixels_do_not_go_together(dates, model, tmp_path):
    for name, shade in (("a", 80), ("b", 90)):
        Image.new("RGB", (96, 96), (shade,) * 3).save(tmp_path / f"{name}.png")
    flat = Dates("flat", str(tmp_path / "a.png"), str(tmp_path / "b.png"))
    with pytest.raises(InputError, match=r"flat has no coordinate system \(1 of 2 pairs\)"):
        area([dates, flat], tmp_path / "out", model)
    assert not (tmp_path / "out").exists()


def test_a_unit_that_kills_its_workers_is_given_up(dates, model, tmp_path):
    area([dates], tmp_path, model)
    done = tmp_path / "pairs" / "town" / "done"
    (done / "0000000-0000000.json").unlink()
    job, unit = _job_and_unit(dates, model, tmp_path)
    tries = tmp_path / "pairs" / "town" / "tries" / "0000000-0000000"
    tries.mkdir(parents=True)
    for number in range(ATTEMPTS):
        (tries / str(number)).touch()
    worker = Worker(job)
    assert (
        worker(unit)["problem"]
        == f"{ATTEMPTS} workers died while they predicted it; out of memory?"
    )
    worker.close()
    assert area([dates], tmp_path, model).predicted == 1  # a new run, with a new count


def _job_and_unit(dates, model, out):
    from adadino.area.units import cut, open_scenes
    from adadino.area.worker import Job
    from adadino.scene.predict import open_model

    scenes, _ = open_scenes([dates], OPTIONS)
    with open_model(model, "cpu", OPTIONS) as forward:
        digest = forward.digest()
    job = Job(str(out), model, None, digest, OPTIONS, False, "cpu", 1)
    return job, next(cut(scenes[0], 128))


def test_wrong_settings_are_said_before_work_begins(dates, model, tmp_path):
    with pytest.raises(ConfigError, match=r"unit is 100, must be a multiple of 64 pixels"):
        area([dates], tmp_path / "out", model, unit=100)
    odd = dataclasses.replace(OPTIONS, tile=60)
    with pytest.raises(ConfigError, match=r"tile is 60, must be a multiple of"):
        area([dates], tmp_path / "out", model, options=odd)
    assert not (tmp_path / "out").exists()


def test_files_of_this_machine_leave_the_environment_alone(dates, model, tmp_path):
    before = dict(os.environ)
    area([dates], tmp_path, model)
    assert dict(os.environ) == before

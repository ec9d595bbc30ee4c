"""Full disks, closed folders, files that go away, clocks that jump, and two at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import time

import numpy as np
import pytest
import rasterio
import torch
from rasterio.transform import from_origin

from adadino.area.units import Dates
from adadino.checkpoint import save
from adadino.data.folder import PairFolder
from adadino.data.prepare.run import prepare
from adadino.data.synthetic import write_dataset, write_geotiff_pair
from adadino.errors import AdaDINOError
from adadino.evaluation import Protocol, evaluate
from adadino.export import ExportOptions, export
from adadino.export import write as export_story
from adadino.files import locked, sole_writer, sweep, work_folder, write_atomic
from adadino.training.run import train
from adadino.web.jobs.records import Job
from adadino.web.jobs.store import JobStore
from adadino.web.server import serve
from adadino.web.settings import Settings
from tests.area.regions import area, make_model, tree
from tests.disks import closed_folder, fill, full_after, small_disk
from tests.scene.runs import NAMES, a_model, run
from tests.training.runs import config


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    before, after, _ = write_geotiff_pair(tmp_path_factory.mktemp("scene"), 7, (150, 210))
    return before, after


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    write_dataset(folder, {"train": 1, "val": 1, "test": 1}, size=32)
    return folder


def scores(source):
    return evaluate(a_model(), PairFolder(source, "test"), Protocol(batch=2))


def visible(folder):
    """The files that somebody would look for."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in found if not any(part[0] == "." for part in path.parts)]


# --- a full disk ---


@pytest.mark.parametrize("size", [100, 3000, 40_000])  # the record, the rows, the rasters
def test_predict_on_a_full_disk_says_so_and_leaves_no_output(scene, tmp_path, size):
    with (
        full_after(size),
        pytest.raises(AdaDINOError, match=r"disk full|cannot write|Make room"),
    ):
        run(scene, a_model(), tmp_path / "out")
    assert visible(tmp_path) == []
    run(scene, a_model(), tmp_path / "out", resume=True)
    assert {*NAMES.values()} <= {*visible(tmp_path / "out")}


def test_predict_and_prepare_on_a_disk_that_is_really_full(scene, source, tmp_path):
    with small_disk(tmp_path / "disk", 4 * 2**20) as disk:
        for work in (
            lambda: run(scene, a_model(), disk / "out", resume=True),
            lambda: prepare("folder", source, disk / "set", tile=16),
            lambda: save(a_model(), disk / "model"),
        ):
            fill(disk, leave=20_000)
            with pytest.raises(AdaDINOError, match=r"disk full|cannot write|Make room|No space"):
                work()
        assert visible(disk) == ["ballast"]
        (disk / "ballast").unlink()
        run(scene, a_model(), disk / "out", resume=True)
        assert prepare("folder", source, disk / "set", tile=16).counts["train"] == 4


def test_prepare_on_a_full_disk_says_so_and_goes_on(source, tmp_path):
    with full_after(500), pytest.raises(AdaDINOError, match="File too large"):
        prepare("folder", source, tmp_path / "set", tile=16)
    assert visible(tmp_path) == []
    assert prepare("folder", source, tmp_path / "set", tile=16).counts["train"] == 4


def test_a_checkpoint_on_a_full_disk_is_not_written(tmp_path):
    with full_after(10_000), pytest.raises(AdaDINOError, match="File too large"):
        save(a_model(), tmp_path / "model")
    assert visible(tmp_path) == []


# --- a destination that is closed to us ---


def test_a_destination_that_is_a_file_is_named(scene, source, tmp_path):
    (tmp_path / "taken").write_text("mine")
    for work in (
        lambda: run(scene, a_model(), tmp_path / "taken"),
        lambda: prepare("folder", source, tmp_path / "taken", tile=16),
        lambda: save(a_model(), tmp_path / "taken"),
        lambda: export(a_model(), tmp_path / "taken" / "m.onnx"),
    ):
        with pytest.raises(AdaDINOError, match="taken"):
            work()
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_closed_folder_is_named(scene, source, tmp_path, monkeypatch):
    monkeypatch.setattr(export_story, "trace", lambda *_, **__: pytest.fail("it went on"))
    dates, model = Dates("town", *map(str, scene)), make_model(tmp_path / "model")
    with closed_folder(tmp_path / "closed") as closed:
        for work in (
            lambda: run(scene, a_model(), closed),
            lambda: prepare("folder", source, closed / "set", tile=16),
            lambda: save(a_model(), closed / "model"),
            lambda: export(a_model(), closed / "m.onnx", ExportOptions(size=32)),
            lambda: area([dates], closed / "area", model, unit=512),
            lambda: train(config(source, closed / "run"), quiet=True),
            lambda: scores(source).write_rows(closed / "tiles.csv"),
            lambda: serve(Settings(closed / "jobs"), lambda _: pytest.fail("it began")),
        ):
            with pytest.raises(AdaDINOError, match=r"closed.*(Permission denied|Read-only)"):
                work()


# --- a file that goes away while it is read ---


def test_an_image_cut_short_while_it_is_read_is_named(scene, tmp_path):
    before, after = (shutil.copy(path, tmp_path / path.name) for path in scene)
    model, calls = a_model(), []
    forward = model.forward

    def cut_short(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            os.truncate(after, 2000)
        return forward(*arguments, **options)

    model.forward = cut_short
    with contextlib.suppress(AdaDINOError):  # GDAL may have all of so small an image in memory
        run((before, after), model, tmp_path / "out")
        return
    assert visible(tmp_path / "out") == []


def test_a_dataset_removed_while_it_is_prepared_is_named(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")

    def remove(done, total, name):
        shutil.rmtree(tmp_path / "source", ignore_errors=True)

    # Every image is opened before the first tile is written, unless there are many.
    with contextlib.suppress(AdaDINOError):
        prepare("folder", tmp_path / "source", tmp_path / "set", tile=4, progress=remove)
        pytest.fail("nobody noticed")
    assert not (tmp_path / "set" / "manifest.json").exists()


# --- a clock that jumps back ---


def test_a_clock_that_jumps_back_changes_no_byte(scene, tmp_path, monkeypatch):
    run(scene, a_model(), tmp_path / "straight")
    real, start = time.time, time.time()
    monkeypatch.setattr(time, "time", lambda: 2 * start - real() - 86_400)
    run(scene, a_model(), tmp_path / "back")
    for name in NAMES.values():
        assert (tmp_path / "back" / name).read_bytes() == (
            tmp_path / "straight" / name
        ).read_bytes()


def test_a_clock_that_jumps_back_changes_no_score_tile_or_unit(
    scene, source, tmp_path, monkeypatch
):
    dates, model = Dates("town", *map(str, scene)), make_model(tmp_path / "model")
    for name in ("straight", "back"):
        folder = tmp_path / name
        prepare("folder", source, folder / "set", tile=16)
        area([dates], folder / "area", model, unit=512)
        scores(source).write_rows(folder / "tiles.csv")
        real, start = time.time, time.time()
        monkeypatch.setattr(time, "time", lambda: 2 * start - real() - 86_400)  # noqa: B023
    assert tree(tmp_path / "straight") == tree(tmp_path / "back")


# --- two at once ---


def test_of_two_predictions_of_one_output_the_second_is_told(scene, tmp_path):
    with (
        locked(work_folder(tmp_path / "c.tif"), "prediction"),
        pytest.raises(AdaDINOError, match="another process holds the prediction"),
    ):
        run(scene, a_model(), tmp_path)


def test_of_two_preparations_of_one_set_the_second_is_told(source, tmp_path):
    with (
        sole_writer(tmp_path / "manifest.json", "preparation"),
        pytest.raises(AdaDINOError, match="another process holds the preparation"),
    ):
        prepare("folder", source, tmp_path, tile=16)
    assert prepare("folder", source, tmp_path, tile=16).counts["val"] == 4


def test_of_two_exports_to_one_file_the_second_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(export_story, "trace", lambda *_, **__: pytest.fail("it went on"))
    with (
        sole_writer(tmp_path / "m.onnx", "export"),
        pytest.raises(AdaDINOError, match="another process holds the export"),
    ):
        export(a_model(), tmp_path / "m.onnx", ExportOptions(size=32))


def test_of_two_jobs_in_one_region_the_second_is_told(scene, tmp_path):
    dates, model = Dates("town", *map(str, scene)), make_model(tmp_path / "model")
    with (
        locked(tmp_path / "out", "region"),
        pytest.raises(AdaDINOError, match="another process holds the region"),
    ):
        area([dates], tmp_path / "out", model, unit=512)


# --- what the campaign of kills has found ---


def test_a_lock_whose_folder_was_removed_is_no_lock(tmp_path, monkeypatch):
    import fcntl

    def late(handle, how, flock=fcntl.flock):
        shutil.rmtree(tmp_path / "work")  # its owner ends between our opening and our locking it
        return flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with (
        pytest.raises(AdaDINOError, match="has just ended the export"),
        locked(tmp_path / "work", "export"),
    ):
        pass


def test_half_written_files_of_killed_processes_are_swept(tmp_path):
    kept = [".other.0123abcd.part.tif", ".c.d.0123abcd.part.tif", "c.tif", ".c.notes"]
    for name in (".c.0123abcd.part.tif", *kept):
        (tmp_path / name).write_text("x")
    (tmp_path / ".c.abc_1234.part").mkdir()
    write_atomic(tmp_path / ".c.abc_1234.part" / "rows.tif", "x")
    sweep(tmp_path / "c.tif")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_server_killed_while_it_wrote_a_record_leaves_no_draft(tmp_path):
    store = JobStore(tmp_path)
    job = Job("x" * 22, "n", "c", "m", "a", "b", "a", "b", "data")
    store.add(job, store.draft()[1])
    draft = store.path(job.id) / ".job.de320f84.part.json"
    draft.write_text("{")
    assert JobStore(tmp_path).get(job.id) == job
    assert not draft.exists()


def test_prepare_killed_before_it_wrote_its_settings_starts_again(source, tmp_path):
    (tmp_path / ".partial").mkdir()
    assert prepare("folder", source, tmp_path, tile=16).counts["test"] == 4


def test_prepare_killed_while_it_cleared_up_is_finished(source, tmp_path):
    first = prepare("folder", source, tmp_path, tile=16)
    (tmp_path / ".partial").mkdir()
    assert prepare("folder", source, tmp_path, tile=16) == first
    assert not (tmp_path / ".partial").exists()


@pytest.mark.parametrize("gone", [("run.json",), ("run.json", "rows.txt"), ("rows.f32",)])
def test_predict_killed_while_it_cleared_up_neither_starts_again_nor_fails(scene, tmp_path, gone):
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(scene, interrupted(a_model()), folder)
    work = folder / ".c.tif.work"
    for name in gone:
        (work / name).unlink()
    if "run.json" not in gone:  # no rows are left: it starts again
        run(scene, a_model(), folder, resume=True)
        assert not work.exists()
        return
    (folder / "c.tif").write_text("whole")
    with pytest.raises(AdaDINOError, match=r"c\.tif exists"):
        run(scene, a_model(), folder, resume=True)
    assert not work.exists()
    assert (folder / "c.tif").read_text() == "whole"


def interrupted(model):
    calls, forward = [], model.forward

    def stop(*arguments, **options):
        calls.append(1)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return forward(*arguments, **options)

    model.forward = stop
    return model


# --- numbers ---


def flat(dtype, **more):
    """The profile of a scene of 64 x 64 pixels."""
    return {
        "driver": "GTiff", "dtype": dtype, "count": 3, "width": 64, "height": 64,
        "photometric": "RGB",
        "crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 0.5, 0.5), **more,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*is constant:adadino.errors.DomainWarning")
@pytest.mark.parametrize("value", [0.0, 1.0, np.inf, -np.inf, 3e38, np.nan])
def test_a_scene_of_one_value_has_an_answer(tmp_path, value):
    for number, name in enumerate(("before", "after")):
        with rasterio.open(tmp_path / f"{name}.tif", "w", **flat("float32")) as raster:
            raster.write(np.full((3, 64, 64), value, np.float32))
            raster.update_tags(which=number)
    pair = (tmp_path / "before.tif", tmp_path / "after.tif")
    try:
        result = run(pair, a_model(), tmp_path / "out")
    except AdaDINOError:
        assert not np.isfinite(value)  # then no pixel is valid, and that is what it says
        assert visible(tmp_path / "out") == []
        return
    assert 0 <= result.change_fraction <= 1
    with rasterio.open(tmp_path / "out" / "p.tif") as raster:
        assert np.isfinite(raster.read(1)).all()


@pytest.mark.filterwarnings("ignore:.*is constant:adadino.errors.DomainWarning")
def test_a_scene_with_one_valid_pixel_has_an_answer_there_alone(tmp_path):
    pixels = np.zeros((3, 64, 64), np.uint8)
    pixels[:, 10, 20] = (9, 90, 200)
    for name in ("before", "after"):
        with rasterio.open(tmp_path / f"{name}.tif", "w", **flat("uint8", nodata=0)) as raster:
            raster.write(pixels if name == "before" else pixels + (pixels > 0))
    run((tmp_path / "before.tif", tmp_path / "after.tif"), a_model(), tmp_path / "out")
    with rasterio.open(tmp_path / "out" / "c.tif") as raster:
        valid = raster.read(1) != 255
    assert np.argwhere(valid).tolist() == [[10, 20]]


@pytest.mark.parametrize("engine", ["off", "bf16"])
@pytest.mark.parametrize("size", [1e30, float("nan")])
def test_numbers_that_overflow_are_told_and_not_written(scene, tmp_path, engine, size):
    model = a_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    with pytest.raises(AdaDINOError, match=r"no number for the tile at row 0, column 0"):
        run(scene, model, tmp_path / "out", engine=engine)
    assert visible(tmp_path / "out") == []


@pytest.mark.parametrize("value", [3.3e38, -3.3e38, 1e-40])
def test_values_at_the_edge_of_bfloat16_have_an_answer(tmp_path, value):
    pair = []
    for number, name in enumerate(("before", "after")):
        pixels = np.random.default_rng(number).normal(size=(3, 64, 64)).astype(np.float32)
        pixels[:, :, :20] = value
        pair.append(tmp_path / f"{name}.tif")
        with rasterio.open(pair[-1], "w", **flat("float32")) as raster:
            raster.write(pixels)
    run(pair, a_model(), tmp_path / "out", engine="bf16")
    with rasterio.open(tmp_path / "out" / "p.tif") as raster:
        assert np.isfinite(raster.read(1)).all()


def test_a_score_is_not_made_of_answers_that_are_no_numbers(source):
    model = a_model()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(AdaDINOError, match="no number for one of the pairs"):
        evaluate(model, PairFolder(source, "test"))


def test_the_same_prediction_twice_gives_the_same_bytes(scene, tmp_path):
    for name in ("one", "two"):
        run(scene, a_model(), tmp_path / name)
    for name in visible(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

"""Workers by themselves, without a server: one process a task, confined to its files."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest

from adadino.data.synthetic import write_geotiff_pair
from adadino.engine import Engine
from adadino.errors import AdaDINOError, ConfigError, InputError
from adadino.export import ExportOptions, export
from adadino.model.adadino import AdaDINO
from adadino.peers import build_peer
from adadino.web.jobs.predict import OPTIONS, Pace, _ready, load_models, measure
from adadino.web.jobs.process import Workers, environment
from adadino.web.jobs.sandbox import Reach, can_fork
from adadino.web.jobs.worker import OverLimitError, WorkerEndedError
from tests.web.models import small_checkpoint


def setup(source, **more):
    return {
        "kind": "model", "models": [["m", str(source)]], "backbone": None, "device": "cpu",
        "engine": "off",
    } | more  # fmt: skip


@pytest.mark.parametrize(("engine", "kind"), [("auto", AdaDINO), ("bf16", Engine)])
def test_it_holds_the_engine_that_was_asked_for(tmp_path, engine, kind):
    held = load_models(setup(small_checkpoint(tmp_path / "model"), engine=engine))
    assert measure("m", held)["mp_per_s"] > 0
    assert isinstance(_ready("m", held)[1], kind)


@pytest.mark.slow
def test_it_takes_an_exported_model_of_its_tiles(tmp_path):
    pytest.importorskip("onnxruntime", reason="exported models need onnxruntime")
    pytest.importorskip("onnxscript", reason="exporting needs onnxscript")
    model = build_peer("fc-ef").eval()  # exported in seconds, and nothing here depends on the model
    for size, name in ((None, "any.onnx"), (64, "small.onnx")):
        export(model, tmp_path / name, ExportOptions(size=size))
    path = tmp_path / "any.onnx"
    held = load_models(setup(path))
    assert measure("m", held)["mp_per_s"] > 0
    with pytest.raises(ConfigError, match=r"takes tiles of 64 pixels only, the page has 256"):
        load_models(setup(tmp_path / "small.onnx"))
    with pytest.raises(ConfigError, match="holds its backbone; leave --backbone out"):
        load_models(setup(path, backbone="b.pth"))


def task(folder, before, after, **more):
    return {
        "kind": "predict", "folder": str(folder), "model": "m", "before": str(before),
        "after": str(after), "before_name": "2019.tif", "after_name": "2024.tif",
        "register": False, "bands": None, "scale": None,
        "names": {str(before): "2019.tif", str(after): "2024.tif", f"{folder}/": ""},
    } | more  # fmt: skip


@pytest.fixture(scope="module", params=["forked", pytest.param("spawned", marks=pytest.mark.slow)])
def workers(request, model):
    if request.param == "forked" and not can_fork():
        pytest.skip("workers are forked on Linux alone")
    opened = Workers(setup(model), fork=request.param == "forked")
    yield opened
    opened.close()


def test_a_job_is_computed_with_its_phases_and_the_users_names(workers, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path / "in", 3, 128)
    folder = tmp_path / "job"
    folder.mkdir()
    worker = workers.start(
        task(folder, before, after), Reach(read=(before, after), write=(folder,))
    )
    events = list(worker.events(seconds=100))
    assert events[-1] == {"event": "done"}, events
    phases = [event["phase"] for event in events if event["event"] == "progress"]
    assert list(dict.fromkeys(phases)) == ["opening", "preparing", "predicting", "writing"]
    assert any(event["event"] == "view" for event in events)
    facts = json.loads((folder / "result.json").read_text())
    assert facts["seconds"] > 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "probability.tif", "result.json", "view-after.tif", "view-before.tif",
    ]  # fmt: skip
    import rasterio

    with rasterio.open(folder / "probability.tif") as dataset:
        tags = dataset.tags()
    assert "2019.tif" in tags["ADADINO_BEFORE"]
    assert str(tmp_path) not in json.dumps(tags)


def test_a_task_that_fails_says_why_in_the_users_names(workers, tmp_path):
    before, _, _ = write_geotiff_pair(tmp_path / "in", 3, 96)
    folder = tmp_path / "job"
    folder.mkdir()
    worker = workers.start(task(folder, before, before), Reach(read=(before,), write=(folder,)))
    with pytest.raises(InputError, match="same image") as caught:
        worker.result(seconds=100)
    assert str(tmp_path) not in str(caught.value)


def test_a_killed_worker_is_told_from_one_that_answers(workers, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path / "in", 3, 640)
    folder = tmp_path / "job"
    folder.mkdir()
    worker = workers.start(
        task(folder, before, after), Reach(read=(before, after), write=(folder,))
    )
    with pytest.raises(WorkerEndedError):  # noqa: PT012, the events are what is looked at
        for event in worker.events(seconds=100):
            if event.get("phase") == "predicting":
                worker.kill()


def test_time_and_memory_have_an_end(workers, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path / "in", 3, 640)
    folder = tmp_path / "job"
    folder.mkdir()
    reach = Reach(read=(before, after), write=(folder,))
    for limit, says in (({"seconds": 0.0}, "max-job-time"), ({"memory": 2**20}, "max-job-memory")):
        worker = workers.start(task(folder, before, after), reach)
        with pytest.raises(OverLimitError, match=says):
            worker.result(**{"seconds": 100} | limit)


@pytest.mark.slow
@pytest.mark.skipif(not can_fork(), reason="workers are forked on Linux alone")
def test_a_parent_that_died_is_replaced(model, tmp_path):
    opened = Workers(setup(model))
    try:
        opened.wait()
        opened._parent.kill()
        opened._parent.wait()
        answer = opened.start({"kind": "measure", "model": "m"}, Reach()).result(seconds=100)
        assert answer["mp_per_s"] > 0
    finally:
        opened.close()
    with suppress(AdaDINOError):
        opened.close()  # again: nothing happens


def test_a_model_that_cannot_be_loaded_is_said(tmp_path):
    opened = Workers(setup(tmp_path / "nothing"))
    try:
        with pytest.raises(AdaDINOError, match="there is no checkpoint"):
            opened.wait()
    finally:
        opened.close()


def test_no_secret_of_the_server_reaches_a_worker(monkeypatch):
    monkeypatch.setenv("ADADINO_TOKEN", "secret-of-mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-mine")
    monkeypatch.setenv("DATABASE_URL", "secret-of-mine")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = environment()
    assert "secret-of-mine" not in found.values()
    assert found["OMP_NUM_THREADS"] == "3"
    assert "PATH" in found
    assert "VRT" in found["GDAL_SKIP"].split(",")


def test_speed_and_time_left_come_from_the_tiles_alone(monkeypatch):
    told, now = [], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = Pace(lambda **event: told.append(event))
    pace(0, 0, "opening")
    now[0] = 100.0  # a long set-up
    for done in (0, 1, 2):
        pace(done, 10, "")
        now[0] += 1.0
    assert [event["eta_s"] for event in told] == [None, None, 9.0, 8.0]
    assert OPTIONS.tile == 256

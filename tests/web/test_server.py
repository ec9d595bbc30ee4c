"""The server as a process: it starts at once, fails with a sentence, and survives its death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import rasterio

from adadino.data.synthetic import write_geotiff_pair
from adadino.scene import SceneOptions, predict_scene
from tests.web.conftest import start

ASKED = {"before": "before.tif", "after": "after.tif"}


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def descendants(pid):
    below = children(pid)
    return below + [one for child in below for one in descendants(child)]


def alive(pid):
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A scene that takes a while."""
    folder = tmp_path_factory.mktemp("scene")
    write_geotiff_pair(folder, 3, 640)
    return folder


def progressing(server, identity):
    """Wait until some rows of a job are on disk."""
    rows = server.jobs / identity / ".change.tif.work" / "rows.txt"
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if rows.exists() and rows.read_text().strip() not in ("", "0"):
            return
        time.sleep(0.01)
    raise AssertionError("the job makes no progress")


@pytest.mark.slow
def test_a_killed_server_leaves_a_job_that_is_resumed_to_the_same_result(model, scene, tmp_path):
    server = start(model, tmp_path / "jobs", "--data", str(scene), "--no-demo")
    with server.client() as client:
        job = client.post("/api/jobs", json=ASKED).json()["id"]
    progressing(server, job)
    below = descendants(server.process.pid)
    assert len(below) >= 3  # two parents and a worker
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    until = time.monotonic() + 20
    while any(map(alive, below)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, below))
    record = json.loads((tmp_path / "jobs" / job / "job.json").read_text())
    assert record["state"] == "running"

    again = start(model, tmp_path / "jobs", "--data", str(scene), "--no-demo")
    try:
        done = again.wait(job, "done", "failed")
        assert done["state"] == "done", done["error"]
        record = json.loads((tmp_path / "jobs" / job / "job.json").read_text())
        assert record["attempts"] == 2
        with rasterio.open(tmp_path / "jobs" / job / "probability.tif") as dataset:
            found = dataset.read(1)
    finally:
        again.stop()
    whole = predict_scene(
        scene / "before.tif", scene / "after.tif", model, options=SceneOptions(), device="cpu"
    )
    np.testing.assert_allclose(found, whole.probability, atol=1e-6)


@pytest.mark.slow
def test_a_killed_worker_costs_one_job_and_no_more(model, scene, tmp_path):
    server = start(model, tmp_path / "jobs", "--data", str(scene), "--no-demo")
    try:
        with server.client() as client:
            job = client.post("/api/jobs", json=ASKED).json()["id"]
            progressing(server, job)
            (worker,) = (w for p in children(server.process.pid) for w in children(p))
            os.kill(worker, signal.SIGKILL)
            failed = server.wait(job, "failed")
            assert "signal 9" in failed["error"]
            assert client.get("/healthz").status_code == 200
            assert "adadino_worker_crashes_total 1" in client.get("/metrics").text
            job = client.post("/api/jobs", json=ASKED).json()["id"]
            server.wait(job, "running", "done")  # by a new worker
            assert client.get("/api/info").json()["ready"]
    finally:
        server.stop()


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_sentence(tmp_path):
    command = [sys.executable, "-m", "adadino", "serve", "--port", "0", "--model"]
    command += [str(tmp_path / "nothing"), "--jobs", str(tmp_path / "jobs")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert f"adadino: there is no checkpoint {tmp_path / 'nothing'}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nope", "there is no checkpoint nope"),
        ("mine=vitl16", "vitl16 is a preset without trained weights"),
        ("nope.onnx", "there is no model file nope.onnx"),
        ("empty", "there is no checkpoint empty"),
    ],
)
def test_a_model_that_is_not_there_is_refused_before_an_address_is_said(
    adadino, monkeypatch, tmp_path, name, why
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    ended = adadino("serve", "--model", name, "--jobs", tmp_path / "jobs")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"adadino: {why}")
    assert not (tmp_path / "jobs").exists()


def test_another_address_without_a_token_is_refused(adadino, tmp_path):
    ended = adadino("serve", "--host", "0.0.0.0", "--jobs", tmp_path)
    assert (ended.code, "give --token" in ended.err) == (1, True)


def test_one_server_for_a_folder(adadino, server, model):
    ended = adadino("serve", "--port", "0", "--model", model, "--jobs", server.jobs)
    assert (ended.code, "another process holds" in ended.err) == (1, True)


def test_the_page_and_the_demo_pair_are_there_before_the_models(model, tmp_path):
    server = start(model, tmp_path / "jobs")
    try:
        with server.client() as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/info").json()["ready"] is False
            while not (jobs := client.get("/api/jobs").json()["jobs"]):
                time.sleep(0.02)
            assert jobs[0]["view"]["crs"] == "EPSG:32633"
            tile = client.get(f"/api/jobs/{jobs[0]['id']}/tiles/after/0/0/0.png")
            assert tile.status_code == 200
    finally:
        server.stop()

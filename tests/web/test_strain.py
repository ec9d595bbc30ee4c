"""Full disks and slow clients: a clear answer, nothing left behind, and the server goes on."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import time
from collections import namedtuple
from contextlib import suppress

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from adadino.data.synthetic import write_geotiff_pair
from adadino.errors import WriteError
from adadino.web.app import create_app
from adadino.web.http import body, connection, guard
from adadino.web.jobs import store, tasks
from adadino.web.jobs.demo import demo_job, unpack_demo
from adadino.web.jobs.predict import load_models, predict_job
from adadino.web.settings import Limits, Settings
from tests.disks import full_after
from tests.web.conftest import listening


def application(tmp_path, **limits):
    """The application without its queue."""
    return create_app(Settings(jobs=tmp_path / "jobs", demo=False, limits=Limits(**limits)))


def client(app):
    return TestClient(app, base_url="http://127.0.0.1:8000")


def left(tmp_path):
    """What is in the folder of jobs, beside the key that signs cookies."""
    return [entry.name for entry in (tmp_path / "jobs").iterdir() if entry.name != ".key"]


def noise(seed):
    """A PNG of 120 kB."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (200, 200, 3), np.uint8)
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def pair():
    return {"before": ("a.png", noise(1)), "after": ("b.png", noise(2))}


@pytest.mark.parametrize("size", [50_000, 200])  # in the first file; in the job's record
def test_an_upload_that_fills_the_disk_is_refused_and_leaves_nothing(tmp_path, size):
    files = pair() if size > 1000 else {k: (n, tiny(k)) for k, (n, _) in pair().items()}
    opened = client(application(tmp_path))
    with full_after(size):
        answer = opened.post("/api/jobs", files=files)
    assert answer.status_code == 507
    assert "cannot store it (File too large); remove jobs" in answer.json()["error"]
    assert str(tmp_path) not in answer.text
    assert left(tmp_path) == []
    assert opened.post("/api/jobs", files=files).status_code == 201


def tiny(which):
    """A PNG of 100 bytes."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red" if which == "before" else "blue").save(file, format="PNG")
    return file.getvalue()


def test_an_upload_that_would_fill_the_disk_is_refused_before_it_comes(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**12, 10**12, 10**8)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    answer = client(application(tmp_path)).post("/api/jobs", files=pair())
    assert (answer.status_code, "disk is too full" in answer.json()["error"]) == (507, True)
    assert left(tmp_path) == []


def test_a_download_that_does_not_fit_the_disk_is_refused_and_leaves_nothing(tmp_path):
    app = application(tmp_path)
    jobs = app.state.service.store
    identity, draft = jobs.draft()
    jobs.add(demo_job(identity, "tiny", "", *unpack_demo(draft)), draft)
    opened = client(app)
    names = ("mask.tif", "result.gpkg", "result.geojson", "overview.png")
    with full_after(300):  # the workers' limit too, as they are started here
        answers = [opened.get(f"/api/jobs/{identity}/{name}") for name in names]
    app.state.service.asking.workers.close()
    for answer in answers:
        assert answer.status_code == 507, answer.text
        assert "the server cannot store it" in answer.json()["error"]
    assert left(tmp_path) == [identity]
    for name in names:
        assert opened.get(f"/api/jobs/{identity}/{name}").status_code == 200


def test_the_queue_goes_on_when_records_cannot_be_written(tmp_path, monkeypatch):
    jobs = store.JobStore(tmp_path)
    identity, draft = jobs.draft()
    jobs.add(demo_job(identity, "tiny", "", *unpack_demo(draft)), draft)

    def full(*_):
        raise WriteError("cannot write: No space left on device.")

    monkeypatch.setattr(store, "write_record", full)
    assert jobs.change(identity, state="failed").state == "failed"
    assert jobs.get(identity).state == "failed"
    assert store.JobStore(tmp_path).get(identity).state == "done"  # whole, as it was


def test_a_job_that_fills_the_disk_fails_with_a_sentence(tmp_path, model):
    before, after, _ = write_geotiff_pair(tmp_path / "in", 3, 128)
    said, folder = io.StringIO(), tmp_path / "job"
    folder.mkdir()
    setup = {"models": [["m", str(model)]], "backbone": None, "device": "cpu", "engine": "off"}
    held = load_models(setup)
    task = {
        "folder": str(folder), "model": "m", "before": str(before), "after": str(after),
        "before_name": "2019.tif", "after_name": "2024.tif", "register": False, "bands": None,
        "scale": None,
    }  # fmt: skip
    names = {str(before): "2019.tif", f"{folder}/": ""}
    with full_after(2000), pytest.raises(WriteError) as caught:
        predict_job(dict(task), held, lambda **event: said.write(json.dumps(event)))
    sentence = tasks.named(tasks.sentence(caught.value), names)
    assert "cannot write" in sentence
    assert str(tmp_path) not in sentence
    # When there is room again.
    predict_job(dict(task), held, lambda **event: said.write(json.dumps(event)))
    assert (folder / "result.json").exists()


def answers(address):
    with socket.create_connection(address, timeout=10) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return wire.recv(1000).startswith(b"HTTP/1.1 200")


def whole(wire):
    """An answer, up to the end of its sentence."""
    got = b""
    while not got.endswith(b'"}') and (part := wire.recv(4000)):
        got += part
    return got.decode()


HEAD = (
    b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500000\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    b'Content-Disposition: form-data; name="before"; filename="a.png"\r\n\r\n'
)


def test_a_client_that_sends_no_headers_is_dropped(monkeypatch, tmp_path):
    monkeypatch.setattr(connection, "HEADERS_S", 0.3)
    with listening(application(tmp_path)) as address:
        with socket.create_connection(address, timeout=10) as wire:
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            with suppress(ConnectionResetError):  # and not the time limit
                assert wire.recv(100) == b""
        assert answers(address)


@pytest.mark.parametrize(("pause", "says"), [(None, "nothing came for 0.5 s"), (0.05, "minutes")])
def test_an_upload_that_stops_or_drips_is_refused_and_leaves_nothing(
    monkeypatch, tmp_path, pause, says
):
    monkeypatch.setattr(body, "DRAIN_S", 0.2)
    with listening(application(tmp_path, idle_s=0.5, upload_s=1.0)) as address:
        with socket.create_connection(address, timeout=20) as wire:
            wire.sendall(HEAD + noise(0)[:5000])
            until = time.monotonic() + (0 if pause is None else 1.3)
            while time.monotonic() < until:
                wire.sendall(b"x")
                time.sleep(pause)
            answer = whole(wire)
        assert answer.startswith("HTTP/1.1 408")
        assert says in answer
        assert left(tmp_path) == []
        assert answers(address)


def test_a_login_that_drips_is_not_waited_for_as_an_upload_is(monkeypatch, tmp_path):
    monkeypatch.setattr(body, "DRAIN_S", 0.2)
    monkeypatch.setattr(guard, "_LOGIN", Limits(idle_s=0.3, upload_s=0.5))
    app = create_app(
        Settings(jobs=tmp_path / "jobs", demo=False, tokens=("correct horse battery",))
    )
    with listening(app) as address, socket.create_connection(address, timeout=20) as wire:
        wire.sendall(
            b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
        )
        assert whole(wire).startswith("HTTP/1.1 408")


def test_a_client_that_does_not_read_is_dropped(monkeypatch, tmp_path):
    monkeypatch.setattr(connection, "WRITING_S", 0.3)
    with listening(application(tmp_path)) as address:
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.settimeout(10)
            wire.connect(address)
            wire.sendall(b"GET /static/ol.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            time.sleep(1.0)
            got = 0
            with suppress(ConnectionResetError):
                while part := wire.recv(65536):
                    got += len(part)
        assert got < 500_000  # of a million
        assert answers(address)


def test_a_wrong_file_is_refused_before_the_rest_has_come(monkeypatch, tmp_path):
    monkeypatch.setattr(body, "DRAIN_S", 0.2)
    with (
        listening(application(tmp_path)) as address,
        socket.create_connection(address, timeout=20) as wire,
    ):
        wire.sendall(HEAD + b"this is no image at all, " * 10)  # of half a megabyte
        answer = whole(wire)
    assert answer.startswith("HTTP/1.1 422")
    assert "a.png is no GeoTIFF, PNG or JPEG" in answer
    assert left(tmp_path) == []


def test_files_of_jobs_are_the_users_alone(tmp_path):
    app = application(tmp_path)
    identity = client(app).post("/api/jobs", files=pair()).json()["id"]
    for folder in (tmp_path / "jobs", tmp_path / "jobs" / identity):
        assert os.stat(folder).st_mode & 0o077 == 0  # noqa: PTH116

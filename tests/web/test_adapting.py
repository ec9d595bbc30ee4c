"""A judged job makes a model: the whole way through the API, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import httpx2
import pytest
import rasterio

import adadino
from adadino.client import ServerError
from adadino.data.synthetic import World, write_geotiff_pair
from tests.web.adapting import serving

ANA, BEN = "correct horse battery", "another secret word"
SIDE = 512
"""Four tiles, of which one after the other is held out."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    world = World(plan="organic", empty=0.0)
    return write_geotiff_pair(tmp_path_factory.mktemp("pair"), 41, SIDE, world)[:2]


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    jobs = tmp_path_factory.mktemp("jobs")
    running = serving(model, jobs, tokens=f"ana={ANA},ben={BEN}", anyway=True)
    yield running
    running.stop()


class Person:
    """Who comes with a token."""

    def __init__(self, server, secret):
        self.api = adadino.Client(server.address, token=secret)
        headers = {"authorization": f"Bearer {secret}"}
        self.http = httpx2.Client(base_url=server.address, headers=headers, timeout=60)

    def judged(self, pair, polygons=12, **options):
        """A job whose first polygons are judged."""
        job = self.api.wait(self.api.submit(*pair, **options), every=0.2)
        at = f"/api/jobs/{job['id']}/review"
        review = self.http.post(at, params={"threshold": 0.3}).json()
        for number, proposal in enumerate(review["proposals"][:polygons]):
            verdict = "right" if number % 2 else "wrong"
            said = {"do": "judge", "shape": proposal["id"], "verdict": verdict}
            assert self.http.post(f"{at}/actions", json=said).status_code == 200
        return job

    @property
    def models(self):
        return {one["name"]: one["own"] for one in self.http.get("/api/info").json()["models"]}


@pytest.fixture(scope="module")
def ana(server):
    return Person(server, ANA)


@pytest.fixture(scope="module")
def ben(server):
    return Person(server, BEN)


@pytest.fixture(scope="module")
def judged(ana, pair):
    return ana.judged(pair)


@pytest.fixture(scope="module")
def adapted(ana, judged):
    heard = []
    made = ana.api.adapt(judged, "Köln roofs")
    done = ana.api.wait(made, every=0.05, progress=heard.append)
    return done, heard


def probability(server, job):
    with rasterio.open(server.jobs / job["id"] / "probability.tif") as file:
        return file.read(1)


@pytest.mark.slow
def test_a_judged_job_makes_a_model_and_a_new_map(server, ana, judged, adapted):
    done, heard = adapted
    assert (done["adapts"], done["makes"], done["model"]) == (judged["id"], "Köln roofs", "base")
    told = [job["progress"] for job in heard if job["progress"]]
    assert told[0]["phase"] == "adapting"
    assert any(one["eta_s"] for one in told if one["phase"] == "adapting")
    figures = done["result"]["adapted"]
    assert figures["kept"] == "new"
    assert figures["difference"] == pytest.approx(figures["new_f1"] - figures["old_f1"])
    assert figures["low"] <= figures["difference"] <= figures["high"]
    assert (probability(server, done) != probability(server, judged)).any()
    said = json.dumps(done)
    assert str(server.jobs) not in said
    folder = server.jobs / done["id"]
    left = {path.name for path in folder.iterdir()}
    assert {"model", "judged"} <= left
    assert not [name for name in left if name.startswith(".")], "the work is still there"


@pytest.mark.slow
def test_the_new_model_is_in_its_owners_list_alone(ana, ben, adapted, judged, pair):
    assert ana.models == {"base": False, "Köln roofs": True}
    assert ben.models == {"base": False}
    with pytest.raises(ServerError, match="there is no model 'Köln roofs' here; choose base"):
        ben.api.submit(*pair, model="Köln roofs")
    again = ana.api.wait(ana.api.submit(*pair, model="Köln roofs"), every=0.2)
    assert again["result"]["change_fraction"] == adapted[0]["result"]["change_fraction"]
    with pytest.raises(ServerError, match="there is a model 'KÖLN roofs' already") as caught:
        ana.api.adapt(judged, " KÖLN  roofs ")
    assert caught.value.status == 409
    mine = ben.api.adapt(judged, "Köln roofs")  # a name of his own: nothing is replaced
    ben.api.wait(mine, every=0.2)
    assert ben.models == {"base": False, "Köln roofs": True}
    folders = [ben.http.get(f"/api/jobs/{job['id']}").json()["own"] for job in (mine, adapted[0])]
    assert folders == [True, False]


@pytest.mark.slow
def test_a_model_goes_with_its_job_and_who_waits_for_it_is_told(ana, judged, pair):
    made = ana.api.wait(ana.api.adapt(judged, "short"), every=0.2)
    ana.api.remove(made)
    assert "short" not in ana.models
    with pytest.raises(ServerError, match="there is no model 'short'"):
        ana.api.submit(*pair, model="short")


@pytest.mark.slow
def test_what_cannot_be_adapted_is_a_sentence(ana, judged, pair, tmp_path):
    def refused(job, name, *words):
        with pytest.raises(ServerError) as caught:
            ana.api.adapt(job, name)
        assert all(word in str(caught.value) for word in words), caught.value
        return caught.value.status

    other = ana.api.wait(ana.api.submit(*pair), every=0.2)
    assert refused(other, "x", "nobody has begun to review") == 404
    ana.http.post(f"/api/jobs/{other['id']}/review")
    assert refused(other, "x", "nothing is judged yet") == 409
    assert refused(judged, "base", "there is a model 'base' already") == 409
    assert refused(judged, "x" * 41, "name") == 422
    assert refused(judged, "   ", "name") == 422
    assert refused(judged, "a\x07b", "control characters") == 400
    one = ana.judged(pair, polygons=1)
    with pytest.raises(ServerError, match="the review has 1 tiles; at least 4"):
        ana.api.wait(ana.api.adapt(one, "few"), every=0.2)
    assert "few" not in ana.models


@pytest.mark.slow
def test_it_ends_when_it_is_cancelled_and_survives_a_killed_server(model, pair, tmp_path):
    server = serving(model, tmp_path / "jobs", tokens=f"ana={ANA}", steps=200, anyway=True)
    ana = Person(server, ANA)
    judged = ana.judged(pair)

    def under_way(job, done):
        until = time.monotonic() + 120
        while time.monotonic() < until:
            progress = ana.api.job(job)["progress"]
            if progress and progress["phase"] == "adapting" and progress["done"] >= done:
                return
            time.sleep(0.05)
        raise AssertionError("it does not begin")

    stopped = ana.api.adapt(judged, "stopped")
    under_way(stopped, 3)
    assert ana.http.post(f"/api/jobs/{stopped['id']}/cancel").json()["state"] == "cancelled"
    assert {path.name for path in (server.jobs / stopped["id"]).iterdir()} == {"job.json"}
    kept = ana.api.adapt(judged, "kept")
    under_way(kept, 12)  # the features are there
    work = server.jobs / kept["id"] / ".model.work" / "features"
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in work.iterdir()}
    assert finished
    again = serving(model, tmp_path / "jobs", tokens=f"ana={ANA}", steps=200, anyway=True)
    try:
        ana = Person(again, ANA)
        under_way(kept, 13)
        now = {path.name: path.stat().st_mtime_ns for path in work.iterdir()}
        assert {name: now[name] for name in finished} == finished, "the features were made again"
        assert ana.api.job(kept)["state"] == "running"
    finally:
        again.stop()


@pytest.mark.slow
def test_a_model_that_is_not_better_is_not_kept(model, pair, tmp_path):
    server = serving(model, tmp_path / "jobs", tokens=f"ana={ANA}", lr=1e-9)
    try:
        ana = Person(server, ANA)
        judged = ana.judged(pair)
        done = ana.api.wait(ana.api.adapt(judged, "vain"), every=0.2)
        figures = done["result"]["adapted"]
        assert figures["kept"] == "old"
        assert figures["sentence"] == "The new model is not better: the old one is kept."
        assert (probability(server, done) == probability(server, judged)).all()
        assert ana.models == {"base": False}
        assert not Path(server.jobs, done["id"], "model", "model.safetensors").exists()
    finally:
        server.stop()

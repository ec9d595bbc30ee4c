"""What version 0.1.0 wrote still works: models, runs, jobs, regions, journals, and what it prints.

Each test works on a copy of files that 0.1.0 left (`make_v0_1_0.py` says how), with the very
commands that made them. A test that fails here is a promise broken, not a test to be changed.
"""

from __future__ import annotations

import csv
import io
import json
import time

import geopandas
import numpy as np
import pytest
import rasterio
from fastapi.testclient import TestClient
from PIL import Image

import adadino as package
from adadino.web.app import create_app
from adadino.web.settings import Limits, ModelChoice, Settings
from tests.compat.fixtures import V0_1_0, lay_out, lost, shape

COMMANDS = json.loads((V0_1_0 / "commands.json").read_text())
PRINTED = json.loads((V0_1_0 / "printed.json").read_text())
CLOSE = 1e-5
"""How far probabilities may move: other processors add in another order."""
FLIPS = 4
"""Pixels so near the threshold that this changes the mask."""

# What 0.1.0 warned of, it warns of again: these models are random.
pytestmark = pytest.mark.filterwarnings("ignore::adadino.errors.AdaDINOWarning")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of everything, and the working directory."""
    made = lay_out(V0_1_0, tmp_path / "root")
    monkeypatch.chdir(made)
    return made


def read(path):
    with rasterio.open(path) as raster:
        return raster.read(1)


def rows_of(path):
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize("name", ["adadino", "peer"])
def test_a_checkpoint_gives_the_same_answer(root, name):
    known = np.load(f"checkpoints/{name}.npz")
    model = package.load(f"checkpoints/{name}")
    answer = package.predict(known["before"], known["after"], model=model)
    assert np.ptp(known["probability"]) > 0.9
    np.testing.assert_allclose(answer, known["probability"], atol=CLOSE)


def test_one_file_of_a_checkpoint_is_enough(root):
    (root / "checkpoints/adadino/config.json").unlink()
    known = np.load("checkpoints/adadino.npz")
    answer = package.predict(
        known["before"], known["after"], model="checkpoints/adadino/model.safetensors"
    )
    np.testing.assert_allclose(answer, known["probability"], atol=CLOSE)


def test_an_interrupted_training_run_goes_on_to_where_it_would_have_ended(adadino, root):
    folder = root / "training/interrupted"
    assert len(rows_of(folder / "history.csv")) == 1
    said = adadino(*COMMANDS["train-adadino"], "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert (told["epochs"], told["resumed"]) == (2, True)
    expected, found = (
        rows_of(path) for path in (root / "training/whole-history.csv", folder / "history.csv")
    )
    assert [row["epoch"] for row in found] == [1, 2]
    for then, now in zip(expected, found, strict=True):
        for key, value in then.items():
            assert now[key] == pytest.approx(value, rel=1e-3, abs=1e-6), key
    for name in ("best", "final"):
        package.load(folder / name)


def test_a_finished_training_run_is_finished_and_can_be_scored(adadino, root):
    (last,) = rows_of(root / "training/finished/history.csv")
    score = ("evaluate", "training/finished/best", "--data", "data", "--device", "cpu", "--json")
    said = adadino(*score, "--split", "val", "--batch", 2)
    assert said.code == 0, said.err
    told = json.loads(said.out)
    for name in ("f1", "iou", "precision", "recall", "oa"):
        assert told[name] == pytest.approx(last[name], abs=2e-3), name
    card = json.loads(adadino("info", "training/finished/best", "--json").out)["card"]
    assert card == "training/finished/card.md"
    again = adadino(*COMMANDS["train-peer"], "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["epochs"] == 1
    assert rows_of(root / "training/finished/history.csv") == [last]


def test_other_settings_than_a_run_s_are_still_refused(adadino, root):
    said = adadino(*COMMANDS["train-adadino"], "--train.lr=1e-3")
    assert said.code == 1
    assert "train.lr" in said.err


@pytest.mark.parametrize("marked", [False, True])
def test_an_interrupted_prediction_goes_on_from_its_rows(adadino, root, marked):
    work = root / "predicted/.change.tif.work"
    done = int((work / "rows.txt").read_text().split()[-1])
    expected = read("area/finished/probability.vrt")
    assert 0 < done < len(expected)
    if marked:  # rows that no model gives: where they come out, nothing was predicted again
        np.full((done, expected.shape[1]), 0.25, np.float32).tofile(work / "rows.f32")
        expected[:done] = 0.25
    refused = adadino(*COMMANDS["predict"])
    assert refused.code == 1
    assert "--resume" in refused.err
    said = adadino(*COMMANDS["predict"], "--resume", "--json")
    assert said.code == 0, said.err
    np.testing.assert_allclose(read("predicted/probability.tif"), expected, atol=CLOSE)
    assert (read("predicted/change.tif") != (expected >= 0.5)).sum() <= FLIPS
    assert not work.exists()


def test_an_exported_model_still_predicts(adadino, root):
    pytest.importorskip("onnxruntime")
    said = adadino(
        *("predict", "scene/before.tif", "scene/after.tif", "-o", "made/change.tif"),
        *("--model", "exported/adadino.onnx", "--tile", 32, "--overlap", 8, "--device", "cpu"),
        *("--probability", "made/probability.tif"),
    )
    assert said.code == 0, said.err
    expected = np.load("exported/expected.npz")["probability"]
    # Both are in half precision.
    np.testing.assert_allclose(read("made/probability.tif"), expected, atol=5e-3)


def test_an_interrupted_region_does_only_what_is_missing(adadino, root):
    folder = root / "area/interrupted"
    kept = {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("0000000-0000000.*")
    }
    assert len(kept) == 4
    said = adadino(*COMMANDS["predict-area-interrupted"], "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert (told["units"], told["predicted"], told["failed"]) == (2, 1, {})
    for path, before in kept.items():
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    whole = root / "area/finished"
    ours, theirs = (read(path / "probability.vrt") for path in (folder, whole))
    np.testing.assert_allclose(ours, theirs, atol=CLOSE)
    masks = [read(path / "change.vrt") for path in (folder, whole)]
    assert (masks[0] != masks[1]).sum() <= FLIPS
    found, known = (geopandas.read_file(path / "change.gpkg") for path in (folder, whole))
    assert list(known.columns) == [name for name in found.columns if name in known.columns]
    assert found.crs == known.crs
    assert found.area.sum() == pytest.approx(known.area.sum(), abs=FLIPS * 0.25)


def test_a_finished_region_is_not_predicted_again(adadino, root):
    said = adadino(*COMMANDS["predict-area-finished"], "--verify", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert (told["units"], told["predicted"], told["failed"]) == (2, 0, {})
    then = json.loads((V0_1_0 / "area/finished/manifest.json").read_text())
    now = json.loads((root / "area/finished/manifest.json").read_text())
    assert lost(shape(then), shape(now)) == []
    assert now["units"] == then["units"]


def serving(root):
    """The application over the jobs; none of them is too old, whenever this runs."""
    settings = Settings(
        jobs=root / "jobs",
        models=(ModelChoice("adadino", str(root / "checkpoints/adadino")),),
        device="cpu",
        demo=False,
        limits=Limits(keep_days=1e6),
    )
    # The cookie of the browser that asked for them.
    return TestClient(
        create_app(settings),
        base_url="http://127.0.0.1:8000",
        cookies={"adadino_client": "compat"},
    )


def test_a_server_s_jobs_are_listed_and_the_finished_one_is_served(root):
    client = serving(root)  # without its queue: nothing is predicted
    jobs = {job["name"]: job for job in client.get("/api/jobs").json()["jobs"]}
    # What ran when the server was killed waits for the next one.
    states = {"finished": "done", "queued": "queued", "running": "queued"}
    assert {name: job["state"] for name, job in jobs.items()} == states
    assert all(job["own"] for job in jobs.values())
    job = jobs["finished"]
    then = json.loads((V0_1_0 / "jobs" / job["id"] / "job.json").read_text())
    assert job["view"] == then["view"] | {"infrared": False}  # a field that was added since
    assert job["result"] == then["result"]

    at = f"/api/jobs/{job['id']}"
    for layer in ("before", "after", "probability"):
        tile = client.get(f"{at}/tiles/{layer}/0/0/0.png")
        assert tile.status_code == 200
        picture = Image.open(io.BytesIO(tile.content))
        assert picture.size == (256, 256)
        colours = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
        assert len(colours) > 10
    stored = (root / "jobs" / job["id"] / "probability.tif").read_bytes()
    assert client.get(f"{at}/probability.tif").content == stored
    probability = read(io.BytesIO(stored))
    threshold = round(float(np.median(probability)), 3)
    asked = {"threshold": threshold}
    found = client.get(f"{at}/polygons", params=asked).json()
    assert found["count"] == len(found["features"]) > 0
    assert found["change_fraction"] == pytest.approx((probability >= threshold).mean())
    mask = read(io.BytesIO(client.get(f"{at}/mask.tif", params=asked).content))
    assert np.array_equal(mask == 1, probability >= threshold)
    for name in ("result.gpkg", "result.geojson"):
        frame = geopandas.read_file(io.BytesIO(client.get(f"{at}/{name}", params=asked).content))
        assert len(frame) == found["count"]
    assert client.get(f"{at}/overview.png").status_code == 200
    assert client.delete(at).status_code == 204
    assert not (root / "jobs" / job["id"]).exists()


@pytest.mark.slow
def test_a_server_takes_up_the_jobs_that_were_waiting_or_running(root):
    with serving(root) as client:
        until = time.monotonic() + 90
        while time.monotonic() < until:
            jobs = client.get("/api/jobs").json()["jobs"]
            if not {job["state"] for job in jobs} & {"queued", "running"}:
                break
            time.sleep(0.2)
        assert [(job["state"], job["error"]) for job in jobs] == [("done", None)] * 3
        for job in jobs:
            tile = client.get(f"/api/jobs/{job['id']}/tiles/probability/0/0/0.png")
            assert tile.status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if said["slow"] else [])
        for name, said in PRINTED.items()
    ],
)
def test_what_a_verb_prints_as_json_has_every_key_it_had(adadino, root, name):
    said = adadino(*PRINTED[name]["arguments"], "--json")
    assert said.code == 0, said.err
    assert lost(PRINTED[name]["shape"], shape(json.loads(said.out))) == []


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ({"a": 1}, {"a": 2, "b": None}, []),
        ({"a": None}, {"a": 2}, []),
        ({"a": 1}, {"a": None}, []),
        ({"a": 1, "b": 1}, {"a": "1"}, [".b is gone", ".a is str, was int"]),
        ({"a": [{"b": 1.5}, {"b": None}]}, {"a": [{"b": 1}]}, [".a[].b is int, was float|null"]),
        ({"a": [{"b": 1}, {"c": 1}]}, {"a": [{}]}, []),
        ({"a": [{"b": {"c": 1}}]}, {"a": [{"b": {}}]}, [".a[].b.c is gone"]),
        ({"a": {"b": 1}}, {"a": [1]}, [".a is list, was {'b': 'int'}"]),
    ],
)
def test_shapes_are_compared_as_promised(then, now, expected):
    assert lost(shape(then), shape(now)) == expected

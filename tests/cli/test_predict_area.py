"""`adadino predict-area` as its user meets it."""

from __future__ import annotations

import json

import pytest

from adadino.area import units, watch
from adadino.scene import SceneOptions
from tests.area.regions import OPTIONS, SIDE, make_model, make_scene


@pytest.fixture(autouse=True)
def _small_units(monkeypatch):
    monkeypatch.setattr(units, "BLOCK", 64)


@pytest.fixture
def arguments(tmp_path):
    before, after = make_scene(tmp_path / "scene")
    (tmp_path / "pairs.csv").write_text(f"before,after,name\n{before},{after},town\n")
    names = ("tile", "overlap", "threshold")
    options = [text for n in names for text in (f"--{n}", str(getattr(OPTIONS, n)))]
    given = ["--pairs", str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "out")]
    return ["predict-area", *given, "--unit", str(SIDE), *options]


def test_a_region_from_a_table(adadino, arguments, tmp_path):
    model = ["--model", make_model(tmp_path / "model"), "--workers", "0", "--device", "cpu"]
    said = json.loads(adadino(*arguments, *model, "--json").out)
    assert (said["units"], said["predicted"], said["failed"]) == (6, 6, {})
    assert said["polygons"] > 0
    names = [path.rpartition("/")[2] for path in said["outputs"]]
    vectors = ["change.gpkg", "change.parquet"]
    assert names == ["manifest.json", "change.vrt", *vectors, "change.qml", "collection.json"]

    with (tmp_path / "pairs.csv").open("a") as table:
        table.write(f"{tmp_path / 'gone.tif'},{tmp_path / 'scene' / 'after.tif'},gone\n")
    again = adadino(*arguments, *model, "--watch")
    assert again.code == 1
    assert "0 of 6 units predicted now" in again.out
    assert "adadino: gone: there is no file" in again.err
    assert "1 failed, the rest is complete; the same command tries them again" in again.err


def test_a_watched_run_tells_how_it_goes(adadino, arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "EVERY", 0.0)
    model = ["--model", make_model(tmp_path / "model"), "--workers", "0", "--device", "cpu"]
    lines = [
        json.loads(line)
        for line in adadino(*arguments, *model, "--watch").err.splitlines()
        if line.startswith("{")
    ]
    assert [line["done"] for line in lines] == [1, 2, 3, 4, 5, 6, 6]
    assert lines[-1]["units"] == 6
    assert lines[-1]["left_s"] == lines[-1]["failed"] == 0
    assert lines[0]["units_per_s"] > 0


def test_a_dry_run_counts_and_writes_nothing(adadino, arguments, tmp_path):
    said = json.loads(adadino(*arguments, "--dry-run", "--json", "--rate", "2").out)
    # Of 4 rows of tiles the two rows of units meet 3 and 2, of 6 columns of tiles the three
    # columns of units 3, 4 and 1.
    assert (said["units"], said["tiles"]) == (6, 40)
    assert said["gpu_hours"] == (40 + SceneOptions.sample) / 2 / 3600
    assert said["written"] == 200 * 300
    text = adadino(*arguments, "--dry-run").out
    assert "6 units" in text
    assert "GPU-hours at 338 tiles/s, what ViT-L/16 predicts at k=6 on one H200" in text
    assert not (tmp_path / "out").exists()


def test_a_plan_like_a_finished_region_is_what_the_run_takes(adadino, arguments, tmp_path):
    """Units exactly, bytes within a fifth; polygons are as alike as the regions are."""
    model = ["--model", make_model(tmp_path / "model"), "--workers", "0", "--device", "cpu"]
    adadino(*arguments, *model, "--probability", "--json")
    before, after = make_scene(tmp_path / "other", seed=11)
    (tmp_path / "pairs.csv").write_text(f"before,after\n{before},{after}\n")
    arguments[arguments.index("--out") + 1] = str(tmp_path / "second")
    like = ["--like", str(tmp_path / "out"), "--gpu-price", "3", "--gb-price", "0.1", "--rate", "2"]
    plan = json.loads(adadino(*arguments, "--dry-run", "--probability", *like, "--json").out)
    said = json.loads(adadino(*arguments, *model, "--probability", "--json").out)
    assert plan["units"] == said["units"]
    assert plan["polygons"] > 0
    folder = tmp_path / "second"
    names = ("mask/*", "probability/*", "polygons/*", "cells/*")
    written = [p for name in names for p in (folder / "pairs").glob(f"*/{name}")]
    written += (folder / "change.parquet").iterdir()
    assert plan["stored"] == pytest.approx(sum(p.stat().st_size for p in written), rel=0.2)
    gigabytes = (plan["decoded"] + plan["stored"]) / 1e9
    assert plan["price"] == pytest.approx(plan["gpu_hours"] * 3 + gigabytes * 0.1)
    assert adadino(*arguments, "--dry-run", "--like", str(tmp_path)).code == 1


def test_a_plan_says_what_will_break(adadino, arguments):
    text = adadino(*arguments, "--dry-run", "--json").out
    assert json.loads(text)["limits"] == []
    from adadino.area.cost import Cost, find_limits

    cost = Cost(200_000, 1, 1, 0, 1, 1, 1, 1, 10**18, 3_000_000, 1, 5 * 10**9, 0)
    said = " ".join(find_limits([], cost, "here/out"))
    for what in ("without a GeoPackage", "GB do not fit", "slow to list"):
        assert what in said
    assert "the driver needs 5.0 GB" in said

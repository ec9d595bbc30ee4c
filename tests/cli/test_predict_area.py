"""`adadino predict-area` as its user meets it."""

from __future__ import annotations

import json

import pytest

from adadino.area import units
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
    again = adadino(*arguments, *model)
    assert again.code == 1
    assert "0 of 6 units predicted now" in again.out
    assert "adadino: gone: there is no file" in again.err
    assert "1 failed, the rest is complete; the same command tries them again" in again.err


def test_a_dry_run_counts_and_writes_nothing(adadino, arguments, tmp_path):
    said = json.loads(adadino(*arguments, "--dry-run", "--json", "--rate", "2").out)
    # Of 4 rows of tiles the two rows of units meet 3 and 2, of 6 columns of tiles the three
    # columns of units 3, 4 and 1.
    assert (said["units"], said["tiles"]) == (6, 40)
    assert said["gpu_hours"] == 40 / 2 / 3600
    assert said["written"] == 200 * 300
    text = adadino(*arguments, "--dry-run").out
    assert "6 units" in text
    assert "GPU-hours at 338 tiles/s, what ViT-L/16 predicts at k=6 on one H200" in text
    assert not (tmp_path / "out").exists()

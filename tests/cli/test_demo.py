"""The demo and the synthetic data: from nothing to a map, as a user runs them."""

from __future__ import annotations

import json

import geopandas
import pytest
import rasterio
from PIL import Image
from typer.testing import CliRunner

from adadino.cli.app import app
from adadino.data.folder import PairFolder


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, ["demo", "-o", str(folder), "--size", "256", "-q"])
    assert result.exit_code == 0, result.output
    return folder, result.stdout


def test_it_finds_the_change_of_a_place_it_has_never_seen(demo):
    _, text = demo
    f1 = float(text.split("F1 ")[1].split(",")[0])
    assert f1 > 90
    assert "demo.png" in text
    assert "adadino predict" in text  # what to run next


def test_what_it_writes_is_a_map(demo):
    folder, _ = demo
    with rasterio.open(folder / "change.tif") as mask, rasterio.open(folder / "before.tif") as date:
        assert mask.crs == date.crs == "EPSG:32633"
        assert mask.transform == date.transform
        changed = (mask.read(1) == 1).sum() * 0.25  # pixels of half a metre
    polygons = geopandas.read_file(folder / "change.gpkg")
    assert polygons["area_m2"].sum() == pytest.approx(changed)
    assert (folder / "probability.tif").is_file()
    width, height = Image.open(folder / "demo.png").size
    assert width > 5 * 256 > 5 * height / 2  # five panels side by side


@pytest.mark.filterwarnings("ignore:.*no coordinate system")
def test_ones_own_pair_has_no_score(tmp_path):
    for name, shade in (("a", 80), ("b", 90)):
        Image.new("RGB", (64, 64), (shade, shade, shade)).save(tmp_path / f"{name}.png")
    pair = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["demo", "-o", str(out), "--pair", *pair, "--json"])
    data = json.loads(result.stdout)
    assert data["f1"] is None
    assert str(out / "demo.png") in data["outputs"]
    assert not (out / "truth.tif").exists()


def test_a_folder_of_ones_own_is_left_alone(tmp_path):
    (tmp_path / "before.tif").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code != 0
    assert "holds files that are not the demo's" in str(result.exception)
    assert (tmp_path / "before.tif").read_text() == "mine"


def test_synthesize_makes_a_dataset_that_training_reads(tmp_path):
    runner = CliRunner()
    arguments = ["synthesize", str(tmp_path / "d"), "--train", "3", "--val", "2", "--test", "0"]
    result = runner.invoke(app, [*arguments, "--size", "32", "-q"])
    assert result.exit_code == 0, result.stderr
    assert len(PairFolder(tmp_path / "d", "train")) == 3
    assert not (tmp_path / "d" / "test").exists()
    other = runner.invoke(app, [*arguments, "--size", "48", "-q"])
    assert other.exit_code == 1
    assert "not empty" in str(other.exception)

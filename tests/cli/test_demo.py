"""The demo and the synthetic data: written, openable, honest about what is missing."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from adadino.cli.app import app
from adadino.data.folder import PairFolder


def test_demo_writes_pictures_and_says_what_there_is(tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo"), "--size", "128"])
    assert result.exit_code == 0
    assert "No trained model is bundled yet" in result.stdout
    truth = np.array(Image.open(tmp_path / "demo" / "truth.png"))
    assert set(np.unique(truth)) == {0, 255}
    assert Image.open(tmp_path / "demo" / "demo.png").size[0] > 3 * 128


def test_demo_json(tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path), "--size", "64", "--json"])
    data = json.loads(result.stdout)
    assert data["f1"] is None
    assert len(data["outputs"]) == 4


def test_synthesize_makes_a_dataset_that_training_reads(tmp_path):
    runner = CliRunner()
    arguments = ["synthesize", str(tmp_path / "d"), "--train", "3", "--val", "2", "--test", "0"]
    result = runner.invoke(app, [*arguments, "--size", "32", "-q"])
    assert result.exit_code == 0, result.stderr
    assert len(PairFolder(tmp_path / "d", "train")) == 3
    assert not (tmp_path / "d" / "test").exists()
    again = runner.invoke(app, [*arguments, "--size", "32", "-q"])
    assert again.exit_code == 1
    assert "not empty" in str(again.exception)

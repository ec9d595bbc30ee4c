"""`adadino assess`: a sample out, figures in."""

from __future__ import annotations

import json

import pytest

from tests.accuracy.test_sample import judge, world
from tests.geo.rasters import write


@pytest.fixture
def sample(tmp_path, adadino):
    mask = write(tmp_path / "map.tif", world()[0][None], nodata=255)
    said = adadino("assess", "sample", mask, "-o", tmp_path / "s.gpkg", "--buffer", 3, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert [s["name"] for s in found["strata"]] == ["change", "buffer", "no change"]
    return tmp_path / "s.gpkg"


def test_a_judged_sample_gives_figures_with_intervals(sample, adadino):
    judge(sample, world()[1])
    found = json.loads(adadino("assess", "estimate", sample, "--json").out)
    area = found["change_area_m2"]
    assert area["low"] < world()[1][:-5].sum() * 4 < area["high"]
    assert found["users"]["change"]["value"] > found["producers"]["change"]["low"]
    said = adadino("assess", "estimate", sample)
    assert "The area of change is" in said.out
    assert "Olofsson et al. 2014" in said.out


@pytest.mark.parametrize("suffix", [".html", ".pdf"])
def test_the_report_is_one_file(sample, tmp_path, adadino, suffix):
    judge(sample, world()[1])
    path = tmp_path / f"report{suffix}"
    said = adadino("assess", "estimate", sample, "--report", path, "--map", tmp_path / "map.tif")
    assert said.code == 0, said.err
    if suffix == ".html":
        text = path.read_text()
        assert "The area of change is" in text
        assert "Error matrix" in text
        assert "data:image" in text
    else:
        assert path.read_bytes().startswith(b"%PDF")
    assert "exists" in adadino("assess", "estimate", sample, "--report", path).err


def test_a_sample_that_nobody_judged_is_a_sentence(sample, adadino):
    said = adadino("assess", "estimate", sample)
    assert said.code == 1
    assert "are not judged" in said.err

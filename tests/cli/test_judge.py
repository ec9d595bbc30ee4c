"""`adadino judge`: an analyst with QGIS and no page can do all of it."""

from __future__ import annotations

import json

import geopandas as gpd
import pytest
import rasterio

from tests.geo.rasters import noise, write
from tests.review.conftest import H, W, chances, change_map


@pytest.fixture
def folder(tmp_path, adadino):
    write(tmp_path / "change.tif", change_map()[None], nodata=255)
    write(tmp_path / "p.tif", chances()[None], nodata=float("nan"))
    said = adadino(
        "judge", "start", tmp_path / "change.tif", "--probability", tmp_path / "p.tif",
        "-o", tmp_path / "review", "--sample", 2,
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "5 polygons to judge" in said.out
    return tmp_path / "review"


def as_json(said):
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_a_review_from_start_to_exports(folder, tmp_path, adadino):
    rows = as_json(adadino("judge", "next", folder, "-n", 9, "--json"))["rows"]
    assert [row["list"] for row in rows] == ["random"] * 2 + ["uncertain"] * 3
    for row in rows[:2]:
        adadino("judge", "verdict", folder, row["id"], "right", "--by", "ana")
    adadino("judge", "verdict", folder, rows[2]["id"], "wrong", "--by", "ana")
    adadino("judge", "undo", folder, "--by", "ana")
    assert as_json(adadino("judge", "status", folder, "--json"))["wrong"] == 0
    adadino("judge", "redo", folder, "--by", "ana")
    found = as_json(adadino("judge", "status", folder, "--json"))
    assert (found["judged"], found["right"], found["wrong"]) == (3, 2, 1)
    assert found["precision"]["value"] == 1.0
    for name in ("before", "after"):
        write(tmp_path / f"{name}.tif", noise(3, H, W) // (1 + (name == "after")))
    made = as_json(
        adadino(
            "judge",
            "export",
            folder,
            "--vector",
            tmp_path / "v.gpkg",
            "--mask",
            tmp_path / "corrected.tif",
            "--tiles",
            tmp_path / "tiles",
            "--tile",
            32,
            "--before",
            tmp_path / "before.tif",
            "--after",
            tmp_path / "after.tif",
            "--json",
        )
    )
    assert len(made["outputs"]) == 3
    assert (gpd.read_file(tmp_path / "v.gpkg").verdict == "wrong").sum() == 1
    with rasterio.open(tmp_path / "corrected.tif") as mask:
        gone = (change_map() == 1).sum() - (mask.read(1) == 1).sum()
    assert gone * 4 == rows[2]["area_m2"]


def test_a_layer_that_was_edited_comes_in(folder, tmp_path, adadino):
    adadino("judge", "export", folder, "--vector", tmp_path / "v.gpkg")
    frame = gpd.read_file(tmp_path / "v.gpkg")
    frame.assign(verdict="right").to_file(tmp_path / "edited.gpkg")
    said = adadino("judge", "import", folder, tmp_path / "edited.gpkg", "--by", "ana")
    assert said.code == 0, said.err
    assert "5 actions" in said.out
    assert "precision 100 %" in said.out


def test_mistakes_are_sentences(folder, tmp_path, adadino):
    said = adadino("judge", "verdict", folder, 77, "right")
    assert said.code == 1
    assert "there is no polygon 77" in said.err
    said = adadino("judge", "status", tmp_path / "nowhere")
    assert said.code == 1
    assert "adadino judge start" in said.err
    assert adadino("judge", "export", folder).code == 2
    assert adadino("judge", "export", folder, "--tiles", tmp_path / "t").code == 2

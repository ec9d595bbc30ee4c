"""`adadino synthesize`: what it leaves behind, finished, interrupted and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adadino.data.folder import PairFolder
from adadino.data.synthetic import write as synthetic
from tests.data.miniatures import tree

THREE = ("--train", 2, "--val", 1, "--test", 1, "--size", 32, "-q")


@pytest.fixture
def stopped(monkeypatch):
    """Press Ctrl-C when the given number of files has been written."""
    from adadino.files import atomic

    def after(files: int) -> None:
        written = iter(range(files))

        def write(path: Any) -> Any:
            if next(written, None) is None:
                raise KeyboardInterrupt
            return atomic(path)

        monkeypatch.setattr(synthetic, "atomic", write)

    return after


def test_overwrite_leaves_nothing_of_the_older_set(adadino, tmp_path):
    dest = tmp_path / "set"
    assert adadino("synthesize", dest, "--train", 3, *THREE[2:], "--seed", 5).code == 0
    (dest / "manifest.json").write_text("{}")
    (dest / "notes.txt").write_text("mine")
    said = adadino("synthesize", dest, "--train", 2, "--val", 1, "--test", 0, *THREE[6:])
    assert said.code == 1
    assert "not empty" in said.err
    said = adadino("synthesize", dest, *THREE[:4], "--test", 0, *THREE[6:], "--overwrite")
    assert said.code == 0
    assert sorted(path.name for path in dest.iterdir()) == [
        "manifest.json",
        "notes.txt",
        "train",
        "val",
    ]
    names = sorted(path.name for path in (dest / "train" / "label").iterdir())
    assert names == ["00000000.png", "00000001.png"]


def test_a_finished_set_is_already_there(adadino, tmp_path):
    dest = tmp_path / "set"
    first = adadino("synthesize", dest, *THREE)
    made = {path: path.stat().st_mtime_ns for path in dest.rglob("*")}
    again = adadino("synthesize", dest, *THREE)
    assert (first.code, again.code) == (0, 0)
    assert "already there" not in first.out
    assert f"4 pairs of 32 x 32 pixels in {dest}, already there" in again.out
    assert {path: path.stat().st_mtime_ns for path in dest.rglob("*")} == made
    said = json.loads(adadino("synthesize", dest, *THREE, "--json").out)
    assert said["pairs"] == 4

    other = adadino("synthesize", dest, *THREE, "--seed", 1)
    assert other.code == 1
    assert "not empty" in other.err
    (dest / "val" / "B" / "01000000.png").unlink()
    lost = adadino("synthesize", dest, *THREE)
    assert lost.code == 1
    assert f"{dest / 'val' / 'B'} holds 0 files of a finished set, not 1" in lost.err
    assert adadino("synthesize", dest, *THREE, "--overwrite").code == 0
    assert (dest / "val" / "B" / "01000000.png").exists()


@pytest.mark.parametrize("files", [0, 1, 5, 11])
def test_after_an_interruption_the_same_command_goes_on(
    adadino, tmp_path, stopped, monkeypatch, files
):
    dest = tmp_path / "set"
    assert adadino("synthesize", tmp_path / "whole", *THREE).code == 0
    stopped(files)
    assert adadino("synthesize", dest, *THREE).code == 130
    assert [path.name for path in dest.iterdir()] == [".partial"]  # nothing looks like a set
    monkeypatch.undo()

    other = adadino("synthesize", dest, *THREE, "--seed", 1)
    assert other.code == 1
    assert ".partial was left by a run with other settings" in other.err
    kept = {path: path.stat().st_mtime_ns for path in dest.rglob("label/*.png")}
    assert len(kept) == files // 3
    made: list[int] = []
    make = synthetic.make_pair
    monkeypatch.setattr(synthetic, "make_pair", lambda s, *a: made.append(s) or make(s, *a))
    assert adadino("synthesize", dest, *THREE).code == 0
    assert len(made) == 4 - len(kept)
    assert tree(dest) == tree(tmp_path / "whole")


def test_a_set_stopped_while_its_splits_are_moved_goes_on(adadino, tmp_path, monkeypatch):
    assert adadino("synthesize", tmp_path / "whole", *THREE).code == 0
    rename = Path.rename

    def stop(self: Path, target: Path) -> Path:
        if self.name == "val":
            raise KeyboardInterrupt
        return rename(self, target)

    dest = tmp_path / "set"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        assert adadino("synthesize", dest, *THREE).code == 130
    assert sorted(path.name for path in dest.iterdir()) == [".partial", "train"]
    assert adadino("synthesize", dest, *THREE).code == 0
    assert tree(dest) == tree(tmp_path / "whole")


def test_an_interrupted_overwrite_goes_on_or_gives_way(adadino, tmp_path, stopped, monkeypatch):
    dest = tmp_path / "set"
    assert adadino("synthesize", dest, *THREE, "--seed", 5).code == 0
    stopped(4)
    assert adadino("synthesize", dest, *THREE, "--overwrite").code == 130
    assert [path.name for path in dest.iterdir()] == [".partial"]
    monkeypatch.undo()
    assert adadino("synthesize", dest, *THREE, "--seed", 7, "--overwrite").code == 0
    assert sorted(path.name for path in dest.iterdir()) == ["manifest.json", "test", "train", "val"]
    assert (dest / "train" / "label" / "700000000.png").exists()


def test_a_file_in_the_place_of_the_folder_is_one_line(adadino, tmp_path):
    (tmp_path / "file").touch()
    for dest in (tmp_path / "file", tmp_path / "file" / "below"):
        said = adadino("synthesize", dest, *THREE)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("adadino: ")
        assert str(dest) in said.err
        assert said.err.count("\n") == 1


def test_no_pairs_are_refused(adadino, tmp_path):
    said = adadino("synthesize", tmp_path / "set", "--train", 0, "--val", 0, "--test", 0)
    assert (said.code, said.out) == (1, "")
    assert "at least one of them" in said.err
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(("val", "says"), [(1, "next: adadino train "), (0, "adadino train needs")])
def test_the_next_command_can_work(adadino, tmp_path, val, says):
    said = adadino(
        "synthesize", tmp_path / "set", "--train", 1, "--val", val, "--test", 0, "--size", 16
    )
    assert said.code == 0
    assert said.out.splitlines()[-1].startswith(says)


def test_geotiffs_have_a_place_and_the_pixels_of_the_pngs(adadino, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    assert adadino("synthesize", tmp_path / "png", *THREE).code == 0
    assert adadino("synthesize", tmp_path / "tif", *THREE, "--geotiff").code == 0
    tifs, pngs = (PairFolder(tmp_path / kind, "train") for kind in ("tif", "png"))
    assert tifs.names == pngs.names
    for tif, png in zip(tifs, pngs, strict=True):
        for one, other in zip(tif, png, strict=True):
            np.testing.assert_array_equal(one, other)
    for path in tifs.pairs[0][1:4]:
        with rasterio.open(path) as raster:
            assert path.suffix == ".tif"
            assert raster.crs.to_epsg() == 32633
            assert raster.transform.to_gdal() == (500_000.0, 0.5, 0.0, 5_800_000.0, 0.0, -0.5)


@pytest.mark.usefixtures("without_rasterio")
def test_without_rasterio_nothing_is_begun(adadino, tmp_path):
    said = adadino("synthesize", tmp_path / "set", *THREE, "--geotiff")
    assert said.code == 1
    assert "pip install adadino[geo]" in said.err
    assert not (tmp_path / "set").exists()

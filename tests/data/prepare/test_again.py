"""Preparation again: after a kill, into a finished set, into a folder of someone else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from adadino.data.prepare.manifest import Manifest
from adadino.data.prepare.run import prepare
from adadino.errors import DataError
from tests.data.miniatures import (
    LEVIR,
    TILE,
    tree,
    write_scene,
    zip_folder,
)


def stop_at(files: int) -> Callable[[int, int, str], None]:
    def progress(done: int, total: int, message: str) -> None:
        if done == files:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("files", [1, 17, 48])
def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(
    levir: Path, tmp_path: Path, files: int
) -> None:
    prepare("levir-cd", levir, tmp_path / "whole", tile=TILE)

    dest = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        prepare("levir-cd", levir, dest, tile=TILE, progress=stop_at(files))
    assert [path.name for path in dest.iterdir()] == [".partial"]
    with pytest.raises(DataError, match=r"has no manifest\.json"):
        Manifest.load(dest)
    written = {path: path.stat().st_mtime_ns for path in dest.rglob("*.png")}
    assert len(written) == files
    (next(iter(written)).parent / ".x.part.png").write_bytes(b"half a file")

    calls: list[tuple[int, int]] = []
    prepare("levir-cd", levir, dest, tile=TILE, progress=lambda d, t, _: calls.append((d, t)))
    assert len(calls) == 48 - files  # nothing is done twice
    assert all(total == 48 for _, total in calls)
    assert not calls or calls[-1][0] == 48
    assert tree(dest) == tree(tmp_path / "whole")


def test_a_run_killed_while_it_moves_the_splits_goes_on(
    levir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare("levir-cd", levir, tmp_path / "whole", tile=TILE)
    dest = tmp_path / "killed"
    original = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == "val":
            raise KeyboardInterrupt
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            prepare("levir-cd", levir, dest, tile=TILE)
    assert sorted(path.name for path in dest.iterdir()) == [".partial", "train"]
    prepare("levir-cd", levir, dest, tile=TILE)
    assert tree(dest) == tree(tmp_path / "whole")


def test_staging_of_other_settings_needs_overwrite(levir: Path, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        prepare("levir-cd", levir, dest, tile=TILE, progress=stop_at(5))
    with pytest.raises(DataError, match=r'\.partial was left by .*"tile": 8.*overwrite=True'):
        prepare("levir-cd", levir, dest, tile=4)
    write_scene(levir / "train", "train_9")
    with pytest.raises(DataError, match=r"other settings"):  # the source is another one, too
        prepare("levir-cd", levir, dest, tile=4, strict=False)
    manifest = prepare("levir-cd", levir, dest, tile=16, overwrite=True)
    assert manifest.counts == {"train": 3, "val": 1, "test": 1}


def test_finished_set_is_returned_or_protected(levir: Path, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    first = prepare("levir-cd", levir, dest, tile=TILE)
    before = tree(dest)
    assert prepare("levir-cd", levir, dest, tile=TILE, progress=stop_at(1)) == first
    with pytest.raises(DataError, match=r"already holds a set made with .*tile=8.*overwrite"):
        prepare("levir-cd", levir, dest, tile=4)
    assert tree(dest) == before

    shutil.rmtree(levir / "val")
    replaced = prepare("folder", levir, dest, tile=TILE, overwrite=True)
    assert sorted(path.name for path in dest.iterdir()) == ["manifest.json", "test", "train"]
    assert replaced == Manifest.verify(dest)


def test_a_finished_set_that_lost_a_tile_is_refused_by_its_name(
    levir: Path, tmp_path: Path
) -> None:
    dest = tmp_path / "out"
    prepare("levir-cd", levir, dest, tile=TILE)
    for role in LEVIR:
        (dest / "train" / role / "train_1_0_1.png").unlink()
    with pytest.raises(
        DataError, match=r"train/A/train_1_0_1\.png is missing .*: 3\).*--overwrite"
    ):
        prepare("levir-cd", levir, dest, tile=TILE)

    prepare("levir-cd", levir, dest, tile=TILE, overwrite=True)
    Image.new("RGB", (TILE, TILE)).save(dest / "val" / "B" / "val_0_0_0.png")
    with pytest.raises(DataError, match=r"out/val is not what was prepared.*--overwrite"):
        prepare("levir-cd", levir, dest, tile=TILE)


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_masks_replaced_by_others_of_equal_size_are_another_source(
    levir: Path, tmp_path: Path, kind: str
) -> None:
    mask = levir / "train" / "label" / "train_0.png"
    Image.new("L", (16, 16), 0).save(mask, compress_level=0)
    size = mask.stat().st_size
    dest = tmp_path / "out"

    def source() -> Path:
        return levir if kind == "folder" else zip_folder(levir, tmp_path / "levir.zip")

    prepare("levir-cd", source(), dest, tile=TILE)
    Image.new("L", (16, 16), 255).save(mask, compress_level=0)
    os.utime(mask, (10**9, 10**9))
    assert mask.stat().st_size == size
    with pytest.raises(DataError, match=r"already holds a set made with .*overwrite"):
        prepare("levir-cd", source(), dest, tile=TILE)


def test_foreign_folders_in_the_destination_are_protected(levir: Path, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    (dest / "train").mkdir(parents=True)
    (dest / "train" / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match=r"out/train exists, but was not made by"):
        prepare("levir-cd", levir, dest, tile=TILE)
    assert (dest / "train" / "mine.txt").exists()


@pytest.mark.parametrize("dest", [".", "inside", ".."])
def test_source_and_destination_must_not_overlap(levir: Path, dest: str) -> None:
    with pytest.raises(DataError, match="inside one another"):
        prepare("levir-cd", levir, levir / dest, tile=TILE)

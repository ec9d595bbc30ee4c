"""Preparation: sources, settings and archives that must be refused by name."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from adadino.data.prepare.run import prepare
from adadino.errors import ConfigError, DataError
from tests.data.miniatures import TILE, write_scene, write_splits, zip_folder


def remove_one(source: Path) -> None:
    (source / "train" / "B" / "train_0.png").unlink()


def add_second(source: Path) -> None:
    image = Image.open(source / "train" / "A" / "train_0.png")
    image.save(source / "train" / "A" / "train_0.tif")


def add_unsplit(source: Path) -> None:
    write_scene(source, "outside")


def add_copy(source: Path) -> None:
    shutil.copytree(source / "train", source / "copy" / "train")


def shrink(source: Path) -> None:
    Image.new("RGB", (8, 16)).save(source / "train" / "B" / "train_0.png")


def make_small(source: Path) -> None:
    write_scene(source / "train", "tiny", (7, 16))


def clash(source: Path) -> None:
    write_scene(source / "train", "train_0_1_1", (8, 8))


def break_mask(source: Path) -> None:
    Image.new("L", (16, 16), 77).save(source / "train" / "label" / "train_0.png")


def truncate(source: Path) -> None:
    path = source / "train" / "A" / "train_0.png"
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove_one, r"A/train_0\.png has no partner: .* no B image called train_0 under train"),
        (add_second, r"train_0\.png and .*train_0\.tif are both the A image of train_0"),
        (add_unsplit, r"inside split folders and outside, such as .*outside\.png"),
        (add_copy, r"train_0\.png and .*train_0\.png have the same name in the same split"),
        (shrink, r"B/train_0\.png is 8 x 16, but .*A/train_0\.png is 16 x 16"),
        (make_small, r"tiny\.png is 16 x 7, smaller than a tile of 8"),
        (clash, r"scenes train_0 and train_0_1_1 both give a tile called train_0_1_1"),
        (break_mask, r"label/train_0\.png is not binary: it holds the values 77"),
        (truncate, r"cannot read .*A/train_0\.png"),
    ],
)
def test_damaged_source_is_refused_by_name(
    levir: Path, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(levir)
    with pytest.raises(DataError, match=message):
        prepare("levir-cd", levir, tmp_path / "out", tile=TILE)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_damaged_member_of_a_zip_is_refused_by_name(levir: Path, tmp_path: Path) -> None:
    content = bytearray(zip_folder(levir, tmp_path / "x.zip").read_bytes())
    original = (levir / "train" / "B" / "train_0.png").read_bytes()
    at = content.index(original) + len(original) // 2
    content[at] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read x\.zip:train/B/train_0\.png"):
        prepare("levir-cd", tmp_path / "x.zip", tmp_path / "out", tile=TILE)


def test_sources_without_what_is_needed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty holds no pair folders\. Expected A, B, label"):
        prepare("levir-cd", tmp_path / "empty", tmp_path / "out")
    for index in range(2):
        write_scene(tmp_path / "flat", f"s{index}")
    with pytest.raises(DataError, match="official split"):
        prepare("levir-cd", tmp_path / "flat", tmp_path / "out", tile=TILE, strict=False)
    with pytest.raises(DataError, match="2 scenes without split folders"):
        prepare("folder", tmp_path / "flat", tmp_path / "out2", tile=TILE)
    with pytest.raises(DataError, match="does not exist"):
        prepare("folder", tmp_path / "nowhere", tmp_path / "out3")


@pytest.mark.parametrize("splits", [(), ("train",), ("train", "val", "test")])
def test_an_official_division_that_the_source_does_not_show_is_not_drawn(
    tmp_path: Path, splits: tuple[str, ...]
) -> None:
    source = tmp_path / "WHU"
    if splits:
        write_splits(source, dict.fromkeys(splits, 2), (16, 16))
    else:
        write_scene(source, "whu", (32, 32))
    shown = ", ".join(sorted(splits)) or "no splits at all"
    with pytest.raises(
        DataError, match=rf"shows {shown}\. .*whole_image/{{train,test}}.*padded, floored"
    ):
        prepare("whu-cd", source, tmp_path / "out", tile=TILE, variant="official")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["val", "Valid/A", "A/val", "deep/validation"])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_split_folder_without_images_is_refused_by_name(
    tmp_path: Path, place: str, zipped: bool
) -> None:
    source = write_splits(tmp_path / "mine", {"train": 2, "test": 1}, (8, 8))
    (source / place).mkdir(parents=True)
    (source / place / "README.md").write_text("to come")
    if zipped:
        shutil.make_archive(str(tmp_path / "mine"), "zip", source)  # with entries for folders
        source = tmp_path / "mine.zip"
    split = place.removesuffix("/A")
    with pytest.raises(DataError, match=rf"mine.* a split folder without an image: {split}\."):
        prepare("folder", source, tmp_path / "out", tile=TILE)


def test_an_empty_list_is_refused_by_name(tmp_path: Path) -> None:
    for index in range(2):
        write_scene(tmp_path / "mine", f"s{index}", (8, 8))
    (tmp_path / "mine" / "list").mkdir()
    (tmp_path / "mine" / "list" / "train.txt").write_text("s0.png\ns1.png\n")
    (tmp_path / "mine" / "list" / "val.txt").write_text("\n")
    with pytest.raises(DataError, match=r"list/val\.txt names no image"):
        prepare("folder", tmp_path / "mine", tmp_path / "out", tile=TILE)


def test_settings_that_do_not_exist_are_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no benchmark 'levir'.*levir-cd-plus, whu-cd"):
        prepare("levir", tmp_path, tmp_path)
    with pytest.raises(ConfigError, match=r"no variant 'big'.*padded, floored, official"):
        prepare("whu-cd", tmp_path, tmp_path, variant="big")
    with pytest.raises(ConfigError, match="tile = 0"):
        prepare("whu-cd", tmp_path, tmp_path, tile=0)


def test_counts_are_compared_at_the_papers_tile_size_only(levir: Path, tmp_path: Path) -> None:
    assert prepare("levir-cd", levir, tmp_path / "out", tile=16).as_expected is None


def test_hostile_archive_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../train/A/evil.png", b"evil")
    (tmp_path / "x.zip").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="leaves the archive"):
        prepare("levir-cd", tmp_path / "x.zip", tmp_path / "out")
    assert not list(tmp_path.rglob("evil.png"))

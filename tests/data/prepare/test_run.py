"""Preparation: a miniature of every original layout, and what is counted and verified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adadino.data.folder import PairFolder
from adadino.data.prepare.benchmarks import BENCHMARKS
from adadino.data.prepare.manifest import Manifest
from adadino.data.prepare.run import prepare
from adadino.errors import DataError, LeakageWarning
from tests.data.miniatures import (
    EXPECTED,
    LEVIR,
    SYSU,
    TILE,
    expect,
    scene,
    write_scene,
    write_splits,
    zip_folder,
)


def test_expected_counts_are_the_papers() -> None:
    scenes = {"levir-cd": (445, 64, 128), "clcd": (360, 120, 120), "sysu-cd": (12000, 4000, 4000)}
    tiles_per_scene = {"levir-cd": 16, "clcd": 4, "sysu-cd": 1}
    for name, (train, val, test) in scenes.items():
        by = tiles_per_scene[name]
        (variant,) = BENCHMARKS[name].variants.values()
        assert variant.expected == {"train": train * by, "val": val * by, "test": test * by}

    plus = BENCHMARKS["levir-cd-plus"].variants
    assert next(iter(plus)) == "holdout"
    holdout, whole = plus["holdout"].expected, plus["whole"].expected
    assert holdout is not None
    assert whole == {"train": 637 * 16, "test": 348 * 16} == {"train": 10_192, "test": 5_568}
    assert holdout["train"] + holdout["val"] == 10_192
    assert holdout["val"] == round(0.05 * 637) * 16

    whu = BENCHMARKS["whu-cd"].variants
    assert next(iter(whu)) == "padded"
    assert whu["padded"].expected == {"train": 6_096, "val": 762, "test": 762}
    assert whu["floored"].expected == {"train": 5_947, "val": 743, "test": 744}
    for name, tiles in (("padded", 127 * 60), ("floored", 126 * 59)):
        assert sum((whu[name].expected or {}).values()) == tiles


def test_levir(levir: Path, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    manifest = prepare("levir-cd", levir, dest, tile=TILE)
    assert manifest.counts == EXPECTED
    assert manifest.as_expected is True
    assert manifest.scene_sizes == {"16x16": 4}
    assert manifest.splits["train"].changed == pytest.approx(1 / 8)
    assert manifest.notes == ()
    assert manifest == Manifest.load(dest) == Manifest.verify(dest)
    assert sorted(path.name for path in dest.iterdir()) == ["manifest.json", "test", "train", "val"]

    before, after, mask = scene("train_1", 16, 16)
    for role, whole in zip(LEVIR, (before, after, mask), strict=True):
        image = Image.open(dest / "train" / role / "train_1_0_1.png")
        assert image.mode == ("L" if role == "label" else "RGB")
        np.testing.assert_array_equal(np.asarray(image), whole[:8, 8:])
    assert len(PairFolder(dest, "train")) == 8


def test_every_kind_of_archive_gives_the_same_set(levir: Path, tmp_path: Path) -> None:
    reference = prepare("levir-cd", levir, tmp_path / "reference", tile=TILE)

    plain = zip_folder(levir, tmp_path / "LEVIR.zip")
    zips = tmp_path / "zips"
    zips.mkdir()
    for split in ("train", "val", "test"):
        zip_folder(levir / split, zips / f"{split}.zip")
    nested = zip_folder(zips, tmp_path / "nested.zip")
    deep = tmp_path / "deep" / "download"
    shutil.copytree(levir, deep / "LEVIR CD")

    for source in (plain, zips, nested, deep):
        dest = tmp_path / f"from-{source.stem}"
        manifest = prepare("levir-cd", source, dest, tile=TILE)
        assert manifest.splits == reference.splits
        assert manifest.settings.variant == "standard"


def test_levir_plus_holds_scenes_out_of_the_training_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_splits(tmp_path / "LEVIR-CD+", {"train": 20, "test": 2}, (8, 16))
    expect(monkeypatch, "levir-cd-plus", "holdout", {"train": 38, "val": 2, "test": 4})
    manifest = prepare("levir-cd-plus", source, tmp_path / "out", tile=TILE)
    held_out = {path.stem[:-4] for path in (tmp_path / "out/val/A").iterdir()}
    trained = {path.stem[:-4] for path in (tmp_path / "out/train/A").iterdir()}
    assert len(held_out) == 1
    assert not held_out & trained
    assert manifest.notes == (
        "the source has no validation split: 1 of 20 training scenes held out with seed 0",
    )

    prepare("levir-cd-plus", source, tmp_path / "other", tile=TILE, seed=1)
    assert held_out != {path.stem[:-4] for path in (tmp_path / "other/val/A").iterdir()}

    whole = prepare(
        "levir-cd-plus", source, tmp_path / "whole", tile=TILE, variant="whole", strict=False
    )
    assert whole.counts == {"train": 40, "test": 4}
    assert "there is no validation split" in whole.notes


def write_whu(folder: Path, width: int = 36, height: int = 20) -> Path:
    before, after, mask = scene("whu", height, width)
    data = folder / "1. The two-period image data"
    for name, array in (("before", before), ("after", after), ("change label", mask // 255)):
        (data / name).mkdir(parents=True)
        Image.fromarray(array).save(data / name / f"{name.replace(' ', '_')}.tif")
    return folder


@pytest.mark.parametrize(
    ("variant", "tiles", "counts", "note"),
    [
        ("padded", 5 * 3, {"train": 12, "val": 1, "test": 2}, "edges were padded"),
        ("floored", 4 * 2, {"train": 6, "val": 1, "test": 1}, "edges that do not fill a tile"),
    ],
)
def test_whu_whole_scene(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
    tiles: int,
    counts: dict[str, int],
    note: str,
) -> None:
    expect(monkeypatch, "whu-cd", variant, counts)
    source = zip_folder(write_whu(tmp_path / "WHU"), tmp_path / "whu.zip")
    dest = tmp_path / "out"
    manifest = prepare("whu-cd", source, dest, tile=TILE, variant=variant)
    assert sum(manifest.counts.values()) == tiles
    assert manifest.settings.variant == variant
    assert manifest.notes[0].startswith(note)
    assert "of its tiles drawn with seed 0" in manifest.notes[1]

    before, _, mask = scene("whu", 20, 36)
    rows, columns = -(-20 // TILE), -(-36 // TILE)
    padded = np.zeros((rows * TILE, columns * TILE, 3), np.uint8)
    padded[:20, :36] = before
    for path in dest.glob("*/A/*.png"):
        _, row, column = path.stem.split("_")
        top, left = int(row) * TILE, int(column) * TILE
        expected = padded[top : top + TILE, left : left + TILE]
        np.testing.assert_array_equal(np.asarray(Image.open(path)), expected)
    changed = sum((np.asarray(Image.open(path)) == 255).sum() for path in dest.glob("*/label/*"))
    kept = mask if variant == "padded" else mask[:16, :32]
    assert changed == (kept > 0).sum()


def write_whu_as_shipped(source: Path) -> Path:
    data = source / "1. The two-period image data"
    for split, width in (("train", 40), ("test", 16)):
        before, after, mask = scene(split, 16, width)
        for year, image in (("2012", before), ("2016", after)):
            for kind, array in (("image", image), ("label", mask)):
                folder = data / year / "whole_image" / split / kind
                folder.mkdir(parents=True)
                Image.fromarray(array).save(folder / f"{year}_{split}.tif")
            write_scene(data / year / "splited_images" / split, "0", roles=("image", "x", "label"))
        (data / "change_label" / split).mkdir(parents=True)
        Image.fromarray(mask).save(data / "change_label" / split / "change_label.tif")
    return source


def test_whu_as_shipped_in_two_mosaics(tmp_path: Path) -> None:
    source = write_whu_as_shipped(tmp_path / "WHU")
    manifest = prepare("whu-cd", source, tmp_path / "out", tile=TILE, variant="official")
    assert manifest.counts == {"train": 9, "val": 1, "test": 4}
    assert manifest.as_expected is None


@pytest.mark.parametrize("variant", ["padded", "floored"])
@pytest.mark.parametrize("strict", [True, False])
def test_whu_in_two_mosaics_is_not_the_whole_image(
    tmp_path: Path, variant: str, strict: bool
) -> None:
    source = write_whu_as_shipped(tmp_path / "WHU")
    with pytest.raises(DataError, match=rf"variant {variant} is cut from .*--variant official"):
        prepare("whu-cd", source, tmp_path / "out", variant=variant, tile=TILE, strict=strict)
    assert not (tmp_path / "out").exists()


def test_tiled_copy_with_lists(tmp_path: Path) -> None:
    source = tmp_path / "WHU-CD-256"
    for index in range(6):
        write_scene(source, f"whucd_{index}", (8, 8))
    (source / "list").mkdir()
    for split, names in (("train", "012"), ("val", "3"), ("test", "4")):
        lines = "".join(f"whucd_{name}.png\r\n" for name in names)
        (source / "list" / f"{split}.txt").write_text(lines)
    manifest = prepare("whu-cd", source, tmp_path / "out", tile=TILE)
    assert manifest.counts == {"train": 3, "val": 1, "test": 1}
    assert manifest.notes == ("1 images that no list names were left out",)
    assert (tmp_path / "out/test/A/whucd_4.png").exists()  # one tile keeps its name

    (source / "list" / "test.txt").write_text("whucd_0.png")
    with pytest.raises(DataError, match=r"whucd_0 is in list/.*and in list/"):
        prepare("whu-cd", source, tmp_path / "leak", tile=TILE)
    (source / "list" / "test.txt").write_text("whucd_9.png")
    with pytest.raises(DataError, match=r"list/test\.txt names whucd_9"):
        prepare("whu-cd", source, tmp_path / "absent", tile=TILE)


@pytest.mark.parametrize(("name", "side", "each"), [("sysu-cd", 8, 1), ("clcd", 16, 4)])
def test_sysu_and_clcd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, side: int, each: int
) -> None:
    counts = {"train": 3, "val": 1, "test": 1}
    source = write_splits(tmp_path / name, counts, (side, side), SYSU)
    expect(monkeypatch, name, "standard", {split: n * each for split, n in counts.items()})
    assert prepare(name, source, tmp_path / "out", tile=TILE).as_expected is True


@pytest.mark.parametrize(
    "roles",
    [("A", "B", "Label"), ("T1", "T2", "GT"), ("im1", "im2", "label"), ("Before", "After", "mask")],
)
def test_any_folder_is_split_by_scene(tmp_path: Path, roles: tuple[str, ...]) -> None:
    source = tmp_path / "mine"
    for index in range(10):
        write_scene(source / "deep" / "er", f"s{index}", (8, 19), roles)
    dest = tmp_path / "out"
    manifest = prepare("folder", source, dest, tile=TILE)
    assert manifest.counts == {"train": 14, "val": 2, "test": 4}
    assert manifest.as_expected is None
    assert len(manifest.notes) == 2  # dropped edges, drawn splits
    scenes = [
        {path.stem.split("_")[0] for path in (dest / split / "A").iterdir()}
        for split in ("train", "val", "test")
    ]
    assert [len(names) for names in scenes] == [7, 1, 2]
    assert len(set.union(*scenes)) == 10


def test_split_folders_may_lie_below_the_pair_folders(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        for role, array in zip(LEVIR, scene("x", 8, 8), strict=True):
            (tmp_path / "in" / role / split).mkdir(parents=True)
            Image.fromarray(array).save(tmp_path / "in" / role / split / "x.png")
    with pytest.warns(LeakageWarning, match="train and val hold the same 1 pairs"):
        manifest = prepare("folder", tmp_path / "in", tmp_path / "out", tile=TILE)
    assert manifest.counts == {"train": 1, "val": 1}


def test_other_counts_are_an_error_with_a_table_until_accepted(levir: Path, tmp_path: Path) -> None:
    for role in LEVIR:
        (levir / "train" / role / "train_0.png").unlink()
    dest = tmp_path / "out"
    with pytest.raises(DataError, match=r"strict=False") as caught:
        prepare("levir-cd", levir, dest, tile=TILE)
    assert ["train", "4", "8"] in [line.split() for line in str(caught.value).splitlines()]
    assert not dest.exists()  # hours of cutting would have been for nothing

    manifest = prepare("levir-cd", levir, dest, tile=TILE, strict=False)
    assert manifest.as_expected is False
    assert "counts differ from the expected" in manifest.notes[-1]
    with pytest.raises(DataError, match="not the expected ones"):
        prepare("levir-cd", levir, dest, tile=TILE)


def test_verify_notices_every_change(levir: Path, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    prepare("levir-cd", levir, dest, tile=TILE)
    shutil.copytree(dest, tmp_path / "copy")
    (tmp_path / "copy" / "val").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"no folder .*val"):
        Manifest.verify(tmp_path / "copy")

    content = json.loads((dest / "manifest.json").read_text())
    del content["splits"]["val"]
    (dest / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"a val folder that its manifest\.json does not name"):
        Manifest.verify(dest)

    Image.new("L", (TILE, TILE)).save(dest / "train" / "label" / "train_0_0_0.png")
    with pytest.raises(DataError, match=r"out/train is not what was prepared"):
        Manifest.verify(dest)
    (dest / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match=r"manifest\.json cannot be understood.*overwrite"):
        Manifest.load(dest)

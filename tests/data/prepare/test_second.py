"""Semantic change: SECOND's layout and from-to codes, each as a miniature."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from adadino.data.classes import SECOND, as_image, read_classes, read_table
from adadino.data.folder import PairFolder
from adadino.data.prepare.benchmarks import BENCHMARKS
from adadino.data.prepare.manifest import Manifest
from adadino.data.prepare.run import prepare
from adadino.errors import ConfigError, DataError
from tests.data.miniatures import TILE, expect, scene, tree, write_splits, zip_folder

CODES = {"names": ["field", "wood", "house"], "codes": {"12": ["field", "house"]}}


def classes_of(name: str, side: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Classes of both dates, 0 where nothing changed, as SECOND has them."""
    _, _, mask = scene(name, side, side)
    draw = np.random.default_rng(sum(name.encode()))
    before = draw.integers(1, 7, mask.shape)
    after = before % 6 + 1
    return tuple((values * (mask > 0)).astype(np.uint8) for values in (before, after))


@pytest.fixture(params=["colours", "values"])
def second(request, tmp_path, monkeypatch):
    expect(monkeypatch, "second", "holdout", {"train": 16, "val": 4, "test": 4})
    root = tmp_path / "SECOND"
    for split, count in {"train": 5, "test": 1}.items():
        for index in range(count):
            name = f"{split}{index:05d}"
            images = scene(name, 16, 16)[:2]
            labels = [as_image(values, SECOND) for values in classes_of(name)]
            if request.param == "colours":
                labels = [_white(label) for label in labels]
            else:
                labels = [Image.fromarray(np.asarray(label)) for label in labels]
            whole = [*map(Image.fromarray, images), *labels]
            for role, image in zip(("im1", "im2", "label1", "label2"), whole, strict=True):
                (root / split / role).mkdir(parents=True, exist_ok=True)
                image.save(root / split / role / f"{name}.png")
    return root


def _white(label: Image.Image) -> Image.Image:
    """As SECOND is published: unchanged is white."""
    return Image.fromarray(np.where(np.asarray(label)[..., None] == 0, 255, label.convert("RGB")))


def test_the_counts_are_those_of_its_scenes():
    variants = BENCHMARKS["second"].variants
    assert variants["whole"].expected == {"train": 4 * 2968, "test": 4 * 1694}
    holdout = variants["holdout"].expected
    assert holdout["train"] + holdout["val"] == 4 * 2968
    assert holdout["val"] == 4 * round(0.05 * 2968)


def test_second_becomes_a_set_with_classes(second, tmp_path):
    dest = tmp_path / "out"
    manifest = prepare("second", second, dest, tile=TILE)
    assert manifest.counts == {"train": 16, "val": 4, "test": 4}
    assert manifest.as_expected is True
    assert manifest == Manifest.load(dest) == Manifest.verify(dest)
    assert read_table(dest / "classes.json").classes == SECOND
    before, after = classes_of("test00000")
    for role, values in (("label1", before), ("label2", after)):
        path = dest / "test" / role / "test00000_0_0.png"
        assert np.array_equal(read_classes(path, SECOND), values[:8, :8])
    label = np.asarray(Image.open(dest / "test" / "label" / "test00000_0_0.png"))
    assert np.array_equal(label, (before[:8, :8] > 0) * 255)
    mask = PairFolder(dest, "test", classes=SECOND)[0][2]
    assert np.array_equal(mask[1:], [before[:8, :8], after[:8, :8]])


def test_a_zip_gives_the_same_set_and_a_second_run_makes_nothing(second, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    prepare("second", second, one, tile=TILE)
    prepare("second", zip_folder(second, tmp_path / "SECOND.zip"), other, tile=TILE)
    found = [{k: v for k, v in tree(f).items() if k != "manifest.json"} for f in (one, other)]
    assert found[0] == found[1]
    stamps = {p: p.stat().st_mtime_ns for p in one.rglob("*") if p.is_file()}
    prepare("second", second, one, tile=TILE)
    assert stamps == {p: p.stat().st_mtime_ns for p in one.rglob("*") if p.is_file()}


def test_a_missing_second_label_is_named(second, tmp_path):
    (second / "train" / "label2" / "train00002.png").unlink()
    with pytest.raises(DataError, match="holds no label2 image called train00002"):
        prepare("second", second, tmp_path / "out", tile=TILE)
    assert not (tmp_path / "out").exists()


def test_a_set_of_change_alone_is_not_second(levir, tmp_path):
    with pytest.raises(DataError, match="holds no label1 image called"):
        prepare("second", levir, tmp_path / "out", tile=TILE)


def test_a_binary_set_in_the_place_of_a_semantic_one_has_no_classes(second, levir, tmp_path):
    dest = tmp_path / "out"
    prepare("second", second, dest, tile=TILE)
    prepare("levir-cd", levir, dest, tile=TILE, overwrite=True)
    assert not (dest / "classes.json").exists()
    assert PairFolder(dest, "train")[0][2].ndim == 2


# From-to codes


@pytest.fixture
def codes(tmp_path):
    root = write_splits(tmp_path / "codes", {"train": 3, "val": 1, "test": 1}, (16, 16))
    for path in root.rglob("label/*.png"):
        Image.fromarray((np.asarray(Image.open(path)) > 0).astype(np.uint8) * 12).save(path)
    table = tmp_path / "classes.json"
    table.write_text(json.dumps(CODES))
    return root, table


def test_codes_become_the_classes_of_both_dates(codes, tmp_path):
    root, table = codes
    dest = tmp_path / "out"
    manifest = prepare("from-to", root, dest, tile=TILE, classes=table)
    assert manifest.counts == {"train": 12, "val": 4, "test": 4}
    classes = read_table(dest / "classes.json").classes
    assert classes.names == ("field", "wood", "house")
    mask = PairFolder(dest, "test", classes=classes)[0][2].numpy()
    change = mask[0] > 0
    assert change.any()
    assert (mask[1][change] == 1).all()
    assert (mask[2][change] == 3).all()
    assert (mask[1:, ~change] == 0).all()


def test_codes_need_their_table_and_others_have_none(codes, levir, tmp_path):
    root, table = codes
    with pytest.raises(ConfigError, match="from-to needs --classes FILE"):
        prepare("from-to", root, tmp_path / "out")
    with pytest.raises(ConfigError, match="--classes is for from-to, not for levir-cd"):
        prepare("levir-cd", levir, tmp_path / "out", classes=table)
    assert not (tmp_path / "out").exists()


def test_a_code_that_means_nothing_is_named(codes, tmp_path):
    root, table = codes
    table.write_text(json.dumps(CODES | {"codes": {"21": ["wood", "field"]}}))
    with pytest.raises(DataError, match=r"holds the code 12, which classes.json does not explain"):
        prepare("from-to", root, tmp_path / "out", tile=TILE, classes=table)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_another_table_is_another_set(codes, tmp_path):
    root, table = codes
    prepare("from-to", root, tmp_path / "out", tile=TILE, classes=table)
    table.write_text(json.dumps(CODES | {"codes": {"12": ["field", "wood"]}}))
    with pytest.raises(DataError, match="already holds a set made with"):
        prepare("from-to", root, tmp_path / "out", tile=TILE, classes=table)

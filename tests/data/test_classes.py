"""Labels of classes: tables, images of every kind, from-to codes, and sets that have them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adadino.config import ClassesConfig
from adadino.data.classes import (
    SECOND,
    Codes,
    as_image,
    read_classes,
    read_table,
    table_text,
    translation,
)
from adadino.data.folder import PairFolder, find_pairs, fingerprint
from adadino.data.synthetic import CLASSES, make_classes, write_dataset
from adadino.errors import DataError

VALUES = np.random.default_rng(0).integers(0, 7, (12, 10), np.uint8)


def saved(image: Image.Image, path: Path) -> Path:
    image.save(path)
    return path


def coloured(values: np.ndarray) -> Image.Image:
    table = np.array([(255, 255, 255), *SECOND.rgb], np.uint8)
    return Image.fromarray(table[values])


@pytest.mark.parametrize(
    "image",
    [Image.fromarray(VALUES), as_image(VALUES, SECOND), coloured(VALUES)],
    ids=["grey", "palette", "colours"],
)
def test_every_way_of_writing_classes_is_read_alike(image, tmp_path):
    assert np.array_equal(read_classes(saved(image, tmp_path / "x.png"), SECOND), VALUES)


def test_a_palette_shows_the_classes_in_their_colours():
    assert np.array_equal(np.asarray(as_image(VALUES, SECOND).convert("RGB"))[VALUES > 0],
                          np.asarray(coloured(VALUES))[VALUES > 0])  # fmt: skip


def test_a_class_that_nobody_named_is_refused(tmp_path):
    path = saved(Image.fromarray(VALUES + 3), tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x.png holds the class 9, but only 1 to 6 are named"):
        read_classes(path, SECOND)


def test_a_colour_that_is_no_classs_is_refused(tmp_path):
    pixels = np.asarray(coloured(VALUES)).copy()
    pixels[3, 3] = 1, 2, 3
    path = saved(Image.fromarray(pixels), tmp_path / "x.png")
    with pytest.raises(DataError, match=r"holds the colour #010203, which is no class's"):
        read_classes(path, SECOND)


def test_a_table_is_read_as_it_was_written(tmp_path):
    (tmp_path / "classes.json").write_text(table_text(SECOND))
    assert read_table(tmp_path / "classes.json").classes == SECOND


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be understood"),
        ("[]", 'must hold "names"'),
        ('{"names": ["a"]}', "at least two classes"),
        ('{"names": ["a", "b"], "nmes": 1}', "unknown setting classes.nmes"),
        ('{"names": ["a", "b"], "codes": {"0": ["a", "b"]}}', "a number from 1 to 255"),
        ('{"names": ["a", "b"], "codes": {"3": ["a"]}}', "must have two classes"),
        ('{"names": ["a", "b"], "codes": {"3": ["a", "c"]}}', "names 'c'"),
        ('{"names": ["a", "b"], "codes": []}', "must map codes"),
    ],
)
def test_a_table_that_cannot_be_is_refused(text, message, tmp_path):
    path = tmp_path / "classes.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(path)


def test_a_missing_table_says_what_it_would_hold(tmp_path):
    with pytest.raises(DataError, match="It names a set's classes, as in"):
        read_table(tmp_path / "classes.json")


def test_codes_of_two_digits_are_from_and_to(tmp_path):
    path = tmp_path / "classes.json"
    path.write_text(json.dumps({"names": ["field", "wood", "house"]}))
    before, after = read_table(path).split(np.array([[0, 12, 31]], np.uint8), "x")
    assert (before.tolist(), after.tolist()) == ([[0, 1, 3]], [[0, 2, 1]])


def test_codes_are_what_the_table_says(tmp_path):
    path = tmp_path / "classes.json"
    path.write_text(json.dumps({"names": ["a", "b"], "codes": {"200": ["b", "a"]}}))
    codes = read_table(path)
    assert codes.pairs == {200: (2, 1)}
    with pytest.raises(
        DataError, match=r"x holds the code 12, which classes.json does not explain"
    ):
        codes.split(np.array([[12]], np.uint8), "x")


def test_classes_are_matched_by_name():
    own = ClassesConfig(("tree", "water"))
    wanted = ClassesConfig(("water", "ground", "tree"))
    assert translation(own, wanted, "x")[:3].tolist() == [0, 3, 1]
    with pytest.raises(DataError, match="classes that the model does not know: ground"):
        translation(wanted, own, "x")


# Sets


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    write_dataset(folder, {"train": 2, "val": 1}, size=64, classes=True)
    return folder


@pytest.mark.parametrize("cache", [False, True])
def test_an_item_has_the_change_and_both_dates_classes(root, cache):
    folder = PairFolder(root, "train", tile=32, cache=cache, classes=CLASSES)
    pair, covers = make_classes(0, 64)
    before, _, mask, index = folder[1]
    assert folder.names[index] == "00000000_0_1"
    assert mask.shape == (3, 32, 32)
    for found, wanted in zip(mask, (pair.mask, *covers), strict=True):
        assert np.array_equal(found, wanted[:32, 32:])
    assert np.array_equal(before.permute(1, 2, 0), pair.before[:32, 32:])


def test_without_classes_a_set_is_what_it_was(root):
    assert PairFolder(root, "train")[0][2].shape == (64, 64)


def test_a_models_classes_may_have_another_order(root):
    other = ClassesConfig(tuple(reversed(CLASSES.names)))
    mine = PairFolder(root, "train", classes=CLASSES)[0][2]
    theirs = PairFolder(root, "train", classes=other)[0][2]
    assert torch.equal(theirs[1:], 6 - mine[1:])


def test_a_split_on_its_own_finds_the_sets_table(root):
    assert PairFolder(root / "train", classes=CLASSES)[0][2].ndim == 3


def test_the_fingerprint_covers_the_classes(root, tmp_path):
    shutil.copytree(root, tmp_path / "copy")
    before = fingerprint(find_pairs(tmp_path / "copy", "train"))
    assert before == fingerprint(find_pairs(root, "train"))
    path = tmp_path / "copy" / "train" / "label2" / "00000000.png"
    as_image(np.ones((64, 64), np.uint8), CLASSES).save(path)
    assert fingerprint(find_pairs(tmp_path / "copy", "train")) != before


def test_a_pair_without_its_classes_is_named(root, tmp_path):
    shutil.copytree(root, tmp_path / "copy")
    (tmp_path / "copy" / "train" / "label1" / "00000001.png").unlink()
    with pytest.raises(DataError, match="label1 holds no image called 00000001"):
        find_pairs(tmp_path / "copy", "train")


def test_a_file_of_that_name_makes_no_set_with_classes(tmp_path):
    write_dataset(tmp_path, {"train": 1}, size=32)
    (tmp_path / "classes.json").write_text("[]")
    assert find_pairs(tmp_path, "train")[0].classes is None


def test_a_set_of_change_alone_cannot_teach_classes(tmp_path):
    write_dataset(tmp_path, {"train": 1}, size=32)
    with pytest.raises(DataError, match="a mask of change alone, and the model also learns"):
        PairFolder(tmp_path, "train", classes=CLASSES)


def test_classes_that_the_model_does_not_know_are_named(root):
    with pytest.raises(DataError, match="does not know: low vegetation, building; it knows"):
        PairFolder(root, "train", classes=ClassesConfig(("water", "ground", "tree")))


def test_codes_hold_no_code_by_themselves():
    with pytest.raises(DataError, match="does not explain"):
        Codes(SECOND).split(np.array([[7]], np.uint8), "x")

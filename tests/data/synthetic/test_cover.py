"""The classes of both dates: exact, and of one piece with the mask of change."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adadino.data.synthetic import CLASSES, World, make_classes, make_pair, synthesize
from adadino.data.synthetic.cover import BUILDING, GROUND, LOW, TREE, WATER
from adadino.errors import DataError

SIZE = 192
CHANGED = World(empty=0.0, change_rate=0.5)


@pytest.mark.parametrize("seed", range(6))
def test_classes_differ_only_where_the_mask_says_change(seed):
    pair, (before, after) = make_classes(seed, SIZE, CHANGED)
    assert not (before != after)[~pair.mask].any()
    assert pair.mask.any()
    # Where a felled tree stood in front of another one, a tree is still seen.
    same = pair.mask & (before == after)
    assert same.sum() < 0.1 * pair.mask.sum()
    assert np.isin(before[same], (TREE, BUILDING)).all()


def test_the_images_are_those_of_the_pair_without_classes():
    pair, _ = make_classes(3, SIZE)
    assert all(np.array_equal(*both) for both in zip(pair, make_pair(3, SIZE), strict=True))


@pytest.mark.parametrize(
    ("kind", "from_", "to"),
    [
        ("built", {GROUND, LOW, TREE}, {BUILDING}),
        ("demolished", {BUILDING}, {GROUND, LOW, TREE}),
        ("cleared", {TREE}, {GROUND, LOW}),
        ("flooded", {GROUND, LOW, TREE}, {WATER}),
    ],
)
def test_each_change_goes_from_what_it_was_to_what_it_is(kind, from_, to):
    world = World(changes=(kind,), empty=0.0, plan="organic", change_rate=0.5)
    seen = 0
    for seed in range(4):
        _, (before, after) = make_classes(seed, SIZE, world)
        differs = before != after
        seen += int(differs.sum())
        assert np.isin(before[differs], list(from_)).mean() > 0.98
        assert np.isin(after[differs], list(to)).mean() > 0.98
    assert seen > 200


def test_every_class_occurs_and_has_a_name():
    seen = {int(v) for seed in range(8) for part in make_classes(seed, 128)[1] for v in part.flat}
    assert seen == set(range(1, len(CLASSES.names) + 1))


def test_what_is_the_same_at_both_dates_is_seen_in_the_images():
    """Water is bluer than buildings' roofs, and vegetation greener than ground, on the average."""
    colours = {value: [] for value in range(1, 6)}
    for seed in range(8):
        pair, (before, _) = make_classes(seed, 128, World(nuisance=0.0))
        for value in colours:
            colours[value].append(pair.before[before == value].reshape(-1, 3))
    mean = {value: np.concatenate(parts).mean(axis=0) for value, parts in colours.items()}
    assert mean[WATER][2] > mean[WATER][0]
    assert mean[TREE][1] > mean[TREE][2]
    assert mean[TREE].sum() < mean[GROUND].sum()


def test_a_set_with_classes_is_whole_or_not_there(tmp_path):
    settings = {"train": 1, "val": 1}
    assert synthesize(tmp_path / "set", settings, size=32, classes=True)
    assert not synthesize(tmp_path / "set", settings, size=32, classes=True)
    assert json.loads((tmp_path / "set" / "classes.json").read_text())["names"] == [*CLASSES.names]
    with pytest.raises(DataError, match="is not empty"):
        synthesize(tmp_path / "set", settings, size=32)
    (tmp_path / "set" / "val" / "label2" / "01000000.png").unlink()
    with pytest.raises(DataError, match="label2 holds 0 files of a finished set, not 1"):
        synthesize(tmp_path / "set", settings, size=32, classes=True)
    synthesize(tmp_path / "set", settings, size=32, overwrite=True)
    assert not (tmp_path / "set" / "classes.json").exists()

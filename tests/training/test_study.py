"""Folds and label curves: which tiles a run sees, and what a study says of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from adadino.data.folder import PairFolder
from adadino.errors import ConfigError
from adadino.metrics import Confusion
from adadino.training.data import open_splits
from adadino.training.study import cross_validate, label_curve
from tests.training.runs import config

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tiles of each of four scenes in train/ and of one in val/."""
    root = tmp_path_factory.mktemp("scenes")
    for split, names in (("train", "abcd"), ("val", "e")):
        for scene in names:
            for tile in range(4):
                for index, role in enumerate(("A", "B", "label")):
                    path = root / split / role / f"{scene}_{tile // 2}_{tile % 2}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    grey = 255 * (tile % 2) if role == "label" else 40 * index + 10 * tile
                    Image.new("L", (32, 32), grey).save(path)
    return root


def scenes_of(pairs: PairFolder) -> set[str]:
    return {name.split("/")[-1][0] for name in pairs.names}


def test_every_scene_is_validated_on_once_and_never_trained_on_there(scenes, tmp_path):
    held = []
    for part in range(1, 6):
        sets = open_splits(config(scenes, tmp_path, f"data.fold={part}/5"))
        train, val = scenes_of(sets["train"]), scenes_of(sets["val"])
        assert not train & val
        assert train | val == set("abcde")
        assert len(sets["val"]) == 4 * len(val)
        held += sorted(val)
    assert sorted(held) == list("abcde")


def test_more_tiles_include_the_fewer_and_a_seed_draws_them(scenes, tmp_path):
    def names(count: int, seed: int = 0) -> set[str]:
        overrides = (f"data.take={count}", f"train.seed={seed}")
        return set(open_splits(config(scenes, tmp_path, *overrides))["train"].names)

    assert len(names(4)) == 4
    assert names(4) < names(9) < names(16)
    assert names(4) != names(4, seed=1)


def test_kept_items_are_the_same_pixels(scenes):
    for cache in (False, True):
        whole = PairFolder(scenes, "train", cache=cache)
        some = whole.keep([9, 2])
        assert some.names == [whole.names[9], whole.names[2]]
        assert len(some.pairs) == 2
        for new, old in ((0, 9), (1, 2)):
            assert all((a == b).all() for a, b in zip(some[new][:3], whole[old][:3], strict=True))


@pytest.mark.parametrize("setting", ["data.fold=6/5", "data.fold=one", "data.take=0"])
def test_impossible_parts_are_refused(scenes, tmp_path, setting):
    with pytest.raises(ConfigError, match="must be"):
        config(scenes, tmp_path, setting)


def test_too_few_scenes_or_tiles_are_said(scenes, tmp_path):
    with pytest.raises(ConfigError, match="has 5 scenes, too few for 7 folds"):
        open_splits(config(scenes, tmp_path, "data.fold=1/7"))
    with pytest.raises(ConfigError, match=r"data.take is 99, but there are 16"):
        open_splits(config(scenes, tmp_path, "data.take=99"))


def test_a_cross_validation_pools_the_pixels_of_all_folds(scenes, tmp_path):
    run = config(scenes, tmp_path / "cv", "train.epochs=1")
    said = cross_validate(run, 2)
    assert [row["fold"] for row in said["rows"]] == [1, 2]
    counts = [sum(row[name] for row in said["rows"]) for name in ("tp", "fp", "fn", "tn")]
    assert sum(counts) == 20 * 32 * 32  # every tile of train/ and val/ once
    assert said["pooled"]["f1"] == Confusion(*counts).f1
    assert json.loads((tmp_path / "cv" / "study.json").read_text()) == said
    again = cross_validate(run, 2)  # finished runs are not trained again
    assert again == said


def test_a_label_curve_has_a_run_for_each_number_and_seed(scenes, tmp_path):
    said = label_curve(config(scenes, tmp_path / "curve", "train.epochs=1"), (2, 6), (0, 1))
    assert [(row["tiles"], row["seed"]) for row in said["rows"]] == [(2, 0), (2, 1), (6, 0), (6, 1)]
    f1 = [row["f1"] for row in said["rows"]]
    assert [row["f1"] for row in said["curve"]] == pytest.approx(
        [(f1[0] + f1[1]) / 2, (f1[2] + f1[3]) / 2]
    )
    assert (tmp_path / "curve" / "study.png").stat().st_size > 1000

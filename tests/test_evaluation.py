"""Scores of a split: equal to torchmetrics and to hand-made cases, with their protocol."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from adadino.data.disturb import DISTURBANCES
from adadino.data.folder import PairFolder, fingerprint
from adadino.data.synthetic import write_dataset
from adadino.errors import ConfigError
from adadino.evaluation import PROTOCOLS, Protocol, evaluate, pr_picture
from adadino.metrics import Confusion
from adadino.model.adadino import AdaDINO
from adadino.runtime.devices import choose_device
from tests.conftest import SMALL, randomise


class Difference(nn.Module):
    """Change is where the second date's first channel is brighter; remembers what it was asked."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, before, after, *, k=None):
        self.calls.append((len(before), k))
        odds = 8 * (after - before)[:, :1]
        return SimpleNamespace(logits=torch.cat([-odds, odds], dim=1))


def write_pair(folder, name, before, after, mask):
    for role, array in (("A", before), ("B", after), ("label", mask)):
        (folder / role).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / role / f"{name}.png")


def grey(values):
    return np.repeat(np.array(values, np.uint8)[..., None], 3, axis=2)


@pytest.fixture
def hand(tmp_path):
    """Two pairs of 2 x 2 and 2 x 4 pixels: in all 3 TP, 2 FP, 1 FN, 6 TN."""
    dark, bright = 0, 255
    write_pair(
        tmp_path, "a", grey([[dark, dark], [bright, bright]]),
        grey([[bright, bright], [dark, dark]]), np.array([[255, 0], [255, 0]], np.uint8),
    )  # fmt: skip
    write_pair(
        tmp_path, "b", grey([[bright] * 4, [dark] * 4]),
        grey([[dark] * 4, [bright, bright, bright, dark]]),
        np.array([[0] * 4, [255, 255, 0, 0]], np.uint8),
    )  # fmt: skip
    return PairFolder(tmp_path)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    write_dataset(folder, {"val": 5}, size=32)
    return PairFolder(folder, "val")


@pytest.fixture(scope="module")
def model():
    return randomise(AdaDINO(SMALL), 0.5).eval()


def test_a_case_computed_by_hand_over_images_of_two_sizes(hand):
    # In b the last pixel is equally dark on both dates: p = 0.5 exactly, and 0.5 counts as change.
    result = evaluate(Difference(), hand, Protocol(threshold=0.6))
    assert result.confusion == Confusion(tp=3, fp=2, fn=1, tn=6)
    scores = result.as_dict()
    assert scores["precision"] == 3 / 5
    assert scores["recall"] == 3 / 4
    assert scores["f1"] == 6 / 9
    assert scores["iou"] == 3 / 6
    assert scores["oa"] == 9 / 12
    assert scores["kappa"] == pytest.approx((9 / 12 - 76 / 144) / (1 - 76 / 144))
    assert result.tile == "2 x 2, 2 x 4"
    assert {row.name: row.confusion for row in result.rows} == {
        "a": Confusion(tp=1, fp=1, fn=1, tn=1),
        "b": Confusion(tp=2, fp=1, fn=0, tn=5),
    }


def test_the_threshold_itself_counts_as_change(hand):
    assert evaluate(Difference(), hand, Protocol(threshold=0.5)).confusion.tn == 5


def test_scores_equal_torchmetrics_over_the_whole_split(split, model):
    from torchmetrics.functional import classification as reference

    result = evaluate(model, split, Protocol(batch=2, k=8))
    items = [split[index] for index in range(len(split))]
    with torch.no_grad():
        pairs = [[image[None].float() / 255 for image in item[:2]] for item in items]
        probability = torch.cat([model(*pair, k=8).logits.softmax(1)[:, 1] for pair in pairs])
    truth = torch.stack([item[2] for item in items]).long()
    names = {"precision": "precision", "recall": "recall", "f1_score": "f1"}
    names |= {"jaccard_index": "iou", "accuracy": "oa", "cohen_kappa": "kappa"}
    assert 0 < result.confusion.f1 < 1
    for theirs, ours in names.items():
        expected = getattr(reference, f"binary_{theirs}")(probability, truth)
        assert getattr(result.confusion, ours) == pytest.approx(float(expected), abs=1e-6)


def test_the_json_says_what_was_scored_and_how(split, model):
    said = evaluate(model, split, Protocol(batch=4, k=3, threshold=0.4)).as_dict()
    assert {"precision", "recall", "f1", "iou", "oa", "kappa", "pairs", "fingerprint"} <= set(said)
    assert (said["pairs"], said["tile"]) == (5, "32 x 32")
    assert said["fingerprint"] == fingerprint(split.pairs)
    expected = {"batch": 4, "k": 3, "threshold": 0.4, "swap": False, "order": "by name"}
    assert expected.items() <= said["protocol"].items()


def test_the_rows_of_the_csv_sum_to_the_total(split, model, tmp_path):
    result = evaluate(model, split, Protocol(shuffle=3))
    result.write_rows(tmp_path / "deep" / "tiles.csv")
    with (tmp_path / "deep" / "tiles.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == split.names  # by name, whatever the order of scoring
    total = Confusion(*(sum(int(row[n]) for row in rows) for n in ("tp", "fp", "fn", "tn")))
    assert total == result.confusion


def test_batches_and_budget_are_the_protocol_s(split):
    spy = Difference()
    evaluate(spy, split, Protocol(batch=2, k=5))
    assert spy.calls == [(2, 5), (2, 5), (1, 5)]


def test_the_budget_changes_the_scores_and_its_limits_are_checked(split, model):
    dense, pruned = (evaluate(model, split, Protocol(k=k)).confusion for k in (8, 1))
    assert dense != pruned
    with pytest.raises(ConfigError, match="k is 9, must be between 1 and 8"):
        evaluate(model, split, Protocol(k=9))


def test_dense_scores_depend_neither_on_batch_size_nor_order(split, model):
    cases = [*PROTOCOLS["batch-size"], *PROTOCOLS["ordering"]]
    assert [case.batch for _, case in PROTOCOLS["batch-size"]] == [1, 4, 8, 16]
    assert len({case.shuffle for _, case in PROTOCOLS["ordering"]}) == 6
    results = {
        evaluate(model, split, Protocol(batch=case.batch, shuffle=case.shuffle, k=8)).confusion
        for _, case in cases
    }
    assert len(results) == 1


def test_shuffling_gives_every_order_its_own_batches(split):
    """App. B: the order decides which pairs share a batch, and so an FFN mask."""

    class Seen(Difference):
        def forward(self, before, after, *, k=None):
            known = [item[0].float() / 255 for item in items]
            for image in before:
                (place,) = (i for i, one in enumerate(known) if torch.equal(one, image))
                order.append(place)
            return super().forward(before, after, k=k)

    items = [split[index] for index in range(len(split))]
    by_name = evaluate(Difference(), split)
    orders = []
    for _, case in (*PROTOCOLS["ordering"], PROTOCOLS["ordering"][1]):
        order: list[int] = []
        result = evaluate(Seen(), split, Protocol(batch=2, shuffle=case.shuffle))
        assert sorted(order) == list(range(5))  # every pair once
        assert sorted(result.rows) == sorted(by_name.rows)  # each against its own label
        orders.append(tuple(order))
    assert orders[0] == (0, 1, 2, 3, 4)
    assert len(set(orders[:6])) == 6
    assert orders[6] == orders[1]  # a seed stands for its order


def test_swapping_exchanges_the_dates(hand):
    _, (_, swapped) = PROTOCOLS["swap"]
    ahead = evaluate(Difference(), hand, Protocol(threshold=0.6)).confusion
    back = evaluate(Difference(), hand, Protocol(threshold=0.6, swap=swapped.swap)).confusion
    assert (ahead.tp, back.tp) == (3, 1)


def test_a_disturbed_pair_is_what_the_model_sees(hand):
    model = Difference()
    _, *cases = PROTOCOLS["robustness"]
    scores = {name: evaluate(model, hand, case) for name, case in cases}
    assert list(scores) == list(DISTURBANCES)
    # The later date is hazy: its dark pixels are brighter than the earlier date's dark ones.
    assert scores["haze"].confusion.fp == 3
    assert scores["grey"].confusion == evaluate(model, hand).confusion  # they are grey already
    assert scores["pixels half as large"].confusion.tp == 4 * scores["grey"].confusion.tp
    assert scores["haze"].as_dict()["protocol"]["disturbance"] == "haze"


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"threshold": -0.1}, {"threshold": 1.5}, {"disturbance": "rain"}]
)
def test_an_impossible_protocol_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Protocol(**wrong)


def test_the_curve_is_drawn_and_its_best_threshold_is_the_best(split, model, tmp_path):
    result = evaluate(model, split)
    best = pr_picture(result, tmp_path / "pr.png", suggest=True)
    assert best is not None
    assert pr_picture(result, tmp_path / "test.png", suggest=False) is None
    assert (tmp_path / "test.png").read_bytes() != (tmp_path / "pr.png").read_bytes()
    with Image.open(tmp_path / "pr.png") as picture:
        assert min(picture.size) > 300
    at_best = evaluate(model, split, Protocol(threshold=best)).confusion.f1
    for threshold in (0.25, 0.5, 0.75):
        assert at_best >= evaluate(model, split, Protocol(threshold=threshold)).confusion.f1


def test_progress_counts_tiles(split):
    seen = []
    evaluate(Difference(), split, Protocol(batch=2), progress=lambda *step: seen.append(step[:2]))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_a_device_that_is_not_there_is_named():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    for name in ("cuda:99", "toaster"):
        with pytest.raises(ConfigError, match=f"no device '{name}' here; use --device auto"):
            choose_device(name)

"""Scores against torchmetrics and by hand; the histogram against the confusion matrix."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryCohenKappa,
    BinaryF1Score,
    BinaryJaccardIndex,
    BinaryPrecision,
    BinaryRecall,
)

from adadino.errors import ConfigError, InputError
from adadino.metrics import Confusion, Histogram, confusion_counts

ORACLES = {
    "f1": BinaryF1Score,
    "iou": BinaryJaccardIndex,
    "precision": BinaryPrecision,
    "recall": BinaryRecall,
    "oa": BinaryAccuracy,
    "kappa": BinaryCohenKappa,
}

counts = st.integers(0, 30)


def masks(tp: int, fp: int, fn: int, tn: int) -> tuple[Tensor, Tensor]:
    prediction = torch.tensor([1] * (tp + fp) + [0] * (fn + tn), dtype=torch.int64)
    target = torch.tensor([1] * tp + [0] * fp + [1] * fn + [0] * tn, dtype=torch.int64)
    return prediction, target


@settings(max_examples=60)
@given(tp=counts, fp=counts, fn=counts, tn=counts)
def test_scores_equal_torchmetrics(tp: int, fp: int, fn: int, tn: int) -> None:
    if tp + fp + fn + tn == 0:
        return
    prediction, target = masks(tp, fp, fn, tn)
    ours = Confusion.from_tensors(prediction, target)
    assert ours == Confusion(tp, fp, fn, tn)
    for name, oracle in ORACLES.items():
        expected = oracle()(prediction, target).item()
        if math.isnan(expected):  # kappa of one class only: ours is 0, by decision
            expected = 0.0
        assert getattr(ours, name) == pytest.approx(expected, abs=1e-6), name


def test_scores_by_hand() -> None:
    scores = Confusion(tp=6, fp=2, fn=4, tn=88)
    assert scores.precision == 6 / 8
    assert scores.recall == 6 / 10
    assert scores.f1 == pytest.approx(2 / 3)
    assert scores.iou == 6 / 12
    assert scores.oa == 94 / 100
    # expected agreement: 0.08 * 0.10 + 0.92 * 0.90 = 0.836
    assert scores.kappa == pytest.approx((0.94 - 0.836) / (1 - 0.836))


@pytest.mark.parametrize(
    "matrix",
    [Confusion(), Confusion(tn=9), Confusion(tp=9), Confusion(fp=9), Confusion(fn=9)],
)
def test_degenerate_scores_are_numbers(matrix: Confusion) -> None:
    assert all(0 <= value <= 9 for value in matrix.as_dict().values())


def test_nothing_changed_and_nothing_found_scores_zero() -> None:
    scores = Confusion(tn=9)
    assert (scores.precision, scores.recall, scores.f1, scores.iou) == (0, 0, 0, 0)
    assert scores.oa == 1


def test_matrices_add_up_to_the_matrix_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    prediction, target = torch.rand(2, 5, 16, 16, generator=generator) < 0.4
    each = [Confusion.from_tensors(p, t) for p, t in zip(prediction, target, strict=True)]
    whole = Confusion.from_tensors(prediction, target)
    assert sum(each, Confusion()) == whole
    # ... whose F1 is not the mean of theirs.
    assert whole.f1 != pytest.approx(np.mean([one.f1 for one in each]), abs=1e-9)


def test_country_scale_is_exact() -> None:
    tp, fp, fn, tn = 10**11 + 1, 3 * 10**10 + 7, 2 * 10**10 + 3, 10**13 + 9
    running = torch.tensor([tp - 1, fp, fn, tn], dtype=torch.int64)
    running += confusion_counts(torch.tensor([True]), torch.tensor([True]))
    scores = Confusion.from_counts(running)
    assert scores == Confusion(tp, fp, fn, tn)
    assert (scores + scores).tn == 2 * tn
    assert scores.f1 == float(Fraction(2 * tp, 2 * tp + fp + fn))
    assert scores.oa == float(Fraction(tp + tn, tp + fp + fn + tn))
    chance = (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn)
    assert scores.kappa == float(Fraction(2 * (tp * tn - fp * fn), chance))


def test_counts_beyond_what_floats_hold_are_exact() -> None:
    # 2**53 + 1 is the first whole number that a float64 cannot hold.
    many = 2**53
    running = torch.tensor([many, many + 1, many + 3, 2**60 + 1], dtype=torch.int64)
    running += confusion_counts(torch.tensor([True, False]), torch.tensor([True, False]))
    assert running.dtype == torch.int64
    scores = Confusion.from_counts(running)
    assert scores == Confusion(many + 1, many + 1, many + 3, 2**60 + 2)
    assert (scores + scores).tp == 2 * many + 2
    assert scores.as_dict()["fn"] == many + 3


def test_as_dict_holds_scores_and_counts() -> None:
    named = Confusion(1, 2, 3, 4).as_dict()
    assert list(named) == [
        "f1", "iou", "precision", "recall", "oa", "kappa", "tp", "fp", "fn", "tn",
    ]  # fmt: skip
    assert [named[name] for name in ("tp", "fp", "fn", "tn")] == [1, 2, 3, 4]
    assert named["recall"] == 0.25


def test_counting_never_waits_for_the_device() -> None:
    # Tensors without data: reading any value back on the host raises.
    mask = torch.empty(2, 8, 8, dtype=torch.bool, device="meta")
    assert confusion_counts(mask, mask).shape == (4,)
    assert confusion_counts(mask, mask).dtype == torch.int64
    histogram = Histogram(device="meta")
    histogram.update(torch.empty(2, 8, 8, device="meta"), mask)


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(InputError, match="one shape"):
        confusion_counts(torch.ones(2, 1, 4, 4), torch.ones(2, 4, 4))
    with pytest.raises(InputError, match="one shape"):
        Histogram().update(torch.ones(2, 1, 4, 4), torch.ones(2, 4, 4))


def probabilities(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(3, 40, 40, generator=generator) < 0.2
    logits = torch.randn(3, 40, 40, generator=generator) + 2 * target - 1.5
    probability = logits.sigmoid()
    # Values on the edges themselves, and both ends: where an inexact bin would show.
    probability[0, 0, :33] = torch.arange(33) / 32
    return probability.to(dtype), target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bins", [32, 1024])
def test_histogram_is_exact_at_every_bin_edge(dtype: torch.dtype, bins: int) -> None:
    probability, target = probabilities(dtype)
    histogram = Histogram(bins=bins)
    for p, t in zip(probability, target, strict=True):  # streamed
        histogram.update(p, t)
    curve = histogram.pr_curve()
    assert len(curve.thresholds) == bins
    for k in range(0, bins, bins // 32):
        threshold = float(curve.thresholds[k])
        expected = Confusion.from_tensors(probability >= threshold, target)
        assert histogram.confusion(threshold) == expected
        assert curve.precision[k] == pytest.approx(expected.precision)
        assert curve.recall[k] == pytest.approx(expected.recall)
        assert curve.f1[k] == pytest.approx(expected.f1)


def test_best_threshold_is_the_best_of_all_edges() -> None:
    probability, target = probabilities()
    histogram = Histogram(bins=64)
    histogram.update(probability, target)
    scores = {k / 64: Confusion.from_tensors(probability >= k / 64, target).f1 for k in range(64)}
    assert scores[histogram.best_threshold()] == max(scores.values())
    assert histogram.best_threshold() != 0.5  # the logits are biased, so this is not the default


def test_best_threshold_keeps_the_middle_when_many_are_as_good() -> None:
    histogram = Histogram()
    assert histogram.best_threshold() == 0.5  # nothing seen
    histogram.update(torch.tensor([0.01, 0.99]), torch.tensor([0, 1]))
    assert histogram.best_threshold() == 0.5  # perfectly separated


def test_histogram_counts_beyond_32_bits() -> None:
    histogram = Histogram(bins=4)
    histogram.counts += torch.tensor([[10**13, 0, 0, 5], [7, 0, 0, 10**12]])
    histogram.update(torch.tensor([1.0]), torch.tensor([1]))
    assert histogram.confusion(0.5) == Confusion(tp=10**12 + 1, fp=5, fn=7, tn=10**13)


def test_histogram_refuses_what_it_cannot_do_exactly() -> None:
    with pytest.raises(ConfigError, match="1000"):
        Histogram(bins=1000)
    with pytest.raises(ConfigError, match=r"0\.3"):
        Histogram(bins=1024).confusion(0.3)
    with pytest.raises(ConfigError, match="edge"):
        Histogram(bins=1024).confusion(1.0)

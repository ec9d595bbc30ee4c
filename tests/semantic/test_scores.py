"""mIoU, SeK and F_scd against their definitions in float64, pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from adadino.semantic.scores import Matrix, SemanticScores, semantic_counts

CLASSES = 6


def scene(seed: int, *, batch: int = 3, size: int = 24, right: float = 0.6):
    """Labels and a prediction that is right in a share of the pixels."""
    draw = np.random.default_rng(seed)
    true = draw.integers(1, CLASSES + 1, (batch, 2, size, size))
    change = draw.random((batch, size, size)) < 0.3
    hit = draw.random(true.shape) < right
    predicted = np.where(hit, true, draw.integers(1, CLASSES + 1, true.shape))
    found = np.where(draw.random(change.shape) < 0.85, change, ~change)
    labels = np.concatenate((change[:, None], true * change[:, None]), axis=1)
    return found, predicted, labels.astype(np.uint8)


def counted(found, predicted, labels) -> Matrix:
    given = (torch.from_numpy(np.asarray(part)) for part in (found, predicted, labels))
    return Matrix.from_counts(semantic_counts(*given, CLASSES))


def restated(found, predicted, labels) -> dict[str, float]:
    """The definitions, over the list of all pixels of both dates, in float64."""
    one = np.where(found[:, None], predicted, 0).ravel()
    two = np.where(labels[:, :1], labels[:, 1:], 0).ravel()
    n = float(len(one))
    changed_both = np.sum((one > 0) & (two > 0)) / n
    changed_any = np.sum((one > 0) | (two > 0)) / n
    same_both = np.sum((one == 0) & (two == 0)) / n
    same_any = np.sum((one == 0) | (two == 0)) / n
    iou = changed_both / changed_any
    kept = (one > 0) | (two > 0)
    p, t = one[kept], two[kept]
    observed = float(np.mean(p == t))
    expected = math.fsum(np.mean(p == c) * np.mean(t == c) for c in range(CLASSES + 1))
    right = np.sum((one == two) & (one > 0))
    precision, recall = right / np.sum(one > 0), right / np.sum(two > 0)
    return {
        "miou": (iou + same_both / same_any) / 2,
        "sek": (observed - expected) / (1 - expected) * math.exp(iou) / math.e,
        "fscd": 2 * precision * recall / (precision + recall),
    }


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_definitions(seed):
    given = scene(seed)
    found = SemanticScores.of(counted(*given)).as_dict()
    wanted = restated(*given)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)
    assert found["score"] == pytest.approx(0.3 * wanted["miou"] + 0.7 * wanted["sek"], rel=1e-12)


def test_what_is_all_right_scores_one():
    _, predicted, labels = scene(9, right=1.0)
    scores = SemanticScores.of(counted(labels[:, 0] != 0, predicted, labels))
    assert (scores.miou, scores.fscd) == (1, 1)
    assert scores.sek == pytest.approx(1)


def test_classes_by_chance_have_no_separated_kappa():
    _, _, labels = scene(3, batch=8, size=64)
    guess = np.random.default_rng(1).integers(1, CLASSES + 1, (8, 2, 64, 64))
    scores = SemanticScores.of(counted(labels[:, 0] != 0, guess, labels))
    assert abs(scores.sek) < 0.01


def test_swapped_dates_score_the_same():
    found, predicted, labels = scene(4)
    swapped = found, predicted[:, ::-1].copy(), labels[:, [0, 2, 1]]
    assert counted(*swapped) == counted(found, predicted, labels)


def test_a_changed_pixel_without_a_class_counts_in_the_other_date_only():
    labels = np.zeros((1, 3, 1, 1), np.uint8)
    labels[0, :, 0, 0] = 1, 0, 2
    matrix = counted(np.ones((1, 1, 1)), np.full((1, 2, 1, 1), 2), labels)
    assert sum(map(sum, matrix.counts)) == matrix.counts[2][2] == 1


def test_nothing_changed_and_nothing_found_is_no_error():
    labels = np.zeros((1, 3, 4, 4), np.uint8)
    scores = SemanticScores.of(counted(np.zeros((1, 4, 4)), np.ones((1, 2, 4, 4), int), labels))
    assert (scores.miou, scores.sek, scores.fscd) == (0.5, 0, 0)

"""The estimators: the paper's worked example to its digits, and a naive restatement."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adadino.accuracy.design import allocate, sample_size
from adadino.accuracy.estimate import assess
from adadino.errors import InputError

# Olofsson et al. (2014), Remote Sensing of Environment 148, Section 5: Table 8 (counts, pixels of
# 30 m), Table 9 (area proportions), Sections 5.2.1 and 5.2.2 (accuracies and areas).
COUNTS = [[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]]
PIXELS = [200_000, 150_000, 3_200_000, 6_450_000]
HECTARES = 0.09


@pytest.fixture(scope="module")
def example():
    return assess(COUNTS, PIXELS, [0, 1, 2, 3])


def test_the_error_matrix_of_table_9(example):
    table = [
        [0.0176, 0, 0.0013, 0.0011],
        [0, 0.0110, 0.0016, 0.0024],
        [0.0019, 0, 0.2967, 0.0213],
        [0.0040, 0.0020, 0.0179, 0.6212],
    ]
    assert np.allclose(example.matrix, table, atol=5.1e-5)


def test_the_accuracies_of_the_paper(example):
    assert round(example.overall.value, 2) == 0.95
    assert round(example.overall.margin, 2) == 0.02
    assert [round(u.value, 2) for u in example.users] == [0.88, 0.73, 0.93, 0.96]
    assert [round(u.margin, 2) for u in example.users] == [0.07, 0.10, 0.04, 0.02]
    assert [round(p.value, 2) for p in example.producers] == [0.75, 0.85, 0.93, 0.96]
    # The paper prints 0.21, 0.23, 0.03 and 0.01. Its own Eq. 7 gives 0.25 and 0.02 for the second
    # and the last (0.2543 and 0.0179): see the restatement below.
    margins = [round(p.margin, 2) for p in example.producers]
    assert margins == [0.21, 0.25, 0.03, 0.02]


def test_the_areas_of_the_paper(example):
    pixels = example.shares[0].scaled(sum(PIXELS))
    assert round(pixels.value) == 235_086
    assert round(pixels.margin) == 68_418
    areas = [share.scaled(sum(PIXELS) * HECTARES) for share in example.shares]
    assert [round(area.value) for area in areas] == [21_158, 11_686, 285_770, 581_386]
    assert [round(area.margin) for area in areas] == [6_158, 3_756, 15_510, 16_282]


def naive(counts, pixels):
    """Eqs. 1 to 11 of the paper, one by one."""
    q, total = len(counts), float(sum(pixels))
    n = [float(sum(row)) for row in counts]
    w = [size / total for size in pixels]
    users = [counts[i][i] / n[i] for i in range(q)]
    v_users = [users[i] * (1 - users[i]) / (n[i] - 1) for i in range(q)]
    overall = sum(w[i] * users[i] for i in range(q))
    v_overall = sum(w[i] ** 2 * v_users[i] for i in range(q))
    share = [sum(w[i] * counts[i][j] / n[i] for i in range(q)) for j in range(q)]
    v_share = [
        sum(w[i] ** 2 * (counts[i][j] / n[i]) * (1 - counts[i][j] / n[i]) / (n[i] - 1)
            for i in range(q))
        for j in range(q)
    ]  # fmt: skip
    producers, v_producers = [], []
    for j in range(q):
        hat = sum(pixels[i] / n[i] * counts[i][j] for i in range(q))
        p = w[j] * users[j] / share[j]
        others = sum(
            pixels[i] ** 2 * counts[i][j] / n[i] * (1 - counts[i][j] / n[i]) / (n[i] - 1)
            for i in range(q)
            if i != j
        )
        own = pixels[j] ** 2 * (1 - p) ** 2 * users[j] * (1 - users[j]) / (n[j] - 1)
        producers.append(p)
        v_producers.append((own + p**2 * others) / hat**2)
    return (overall, v_overall), (users, v_users), (producers, v_producers), (share, v_share)


@pytest.mark.parametrize("seed", range(5))
def test_the_equations_restated(seed):
    rng = np.random.default_rng(seed)
    q = int(rng.integers(2, 5))
    counts = (rng.integers(0, 12, (q, q)) + 40 * np.eye(q, dtype=int)).tolist()
    pixels = rng.integers(1_000, 1_000_000, q).tolist()
    found = assess(counts, pixels, list(range(q)))
    overall, users, producers, shares = naive(counts, pixels)
    assert found.overall == pytest.approx((overall[0], 1.96 * math.sqrt(overall[1])), rel=1e-12)
    for ours, theirs in (
        (found.users, users),
        (found.producers, producers),
        (found.shares, shares),
    ):
        assert [one.value for one in ours] == pytest.approx(theirs[0], rel=1e-12)
        margins = [1.96 * math.sqrt(v) for v in theirs[1]]
        assert [one.margin for one in ours] == pytest.approx(margins, rel=1e-9)


def test_strata_that_are_not_classes_are_estimated_as_stehman_does():
    """Both strata of `no change` judged alike: the class as a whole, weighted by their areas."""
    counts, sizes = [[5, 45], [60, 20], [98, 2]], [100.0, 300.0, 1600.0]
    found = assess(counts, sizes, [1, 0, 0])
    change = (100 * 45 / 50 + 300 * 20 / 80 + 1600 * 2 / 100) / 2000
    assert found.shares[1].value == pytest.approx(change)
    right = (300 * 60 / 80 + 1600 * 98 / 100) / 1900
    assert found.users[0].value == pytest.approx(right)
    variance = (300**2 * 0.75 * 0.25 / 79 + 1600**2 * 0.98 * 0.02 / 99) / 1900**2
    assert found.users[0].margin == pytest.approx(1.96 * math.sqrt(variance))
    assert found.producers[1].value == pytest.approx(100 * 0.9 / (2000 * change))


def test_the_interval_holds_as_often_as_it_says():
    """A world whose truth is known: 95 % of the samples' intervals hold it."""
    rng = np.random.default_rng(0)
    sizes, truth = [2_000, 6_000, 92_000], [0.8, 0.2, 0.01]
    area = sum(s * t for s, t in zip(sizes, truth, strict=True)) / sum(sizes)
    hits, runs = 0, 600
    for _ in range(runs):
        counts = [[100 - k, k] for k in (rng.binomial(100, t) for t in truth[:2])]
        k = rng.binomial(400, truth[2])
        found = assess([*counts, [400 - k, k]], sizes, [1, 0, 0]).shares[1]
        hits += found.low <= area <= found.high
    assert 0.91 <= hits / runs <= 0.98


def test_a_stratum_without_two_pixels_is_refused():
    with pytest.raises(InputError, match="stratum 2 has 1 judged"):
        assess([[5, 5], [1, 0]], [10, 10], [1, 0])


def test_the_papers_sample_size():
    """Section 5.1.1: S(O) = 0.01 and user's accuracies 0.70, 0.60, 0.90, 0.95 give 641."""
    weights = [pixels / sum(PIXELS) for pixels in PIXELS]
    assert sample_size(weights, [0.7, 0.6, 0.9, 0.95], 1.96 * 0.01) == 641


def test_rare_strata_get_enough_and_the_rest_goes_by_area():
    assert allocate([2_000, 998_000], 500) == [75, 425]
    assert allocate([30, 998_000], 500) == [30, 470]
    assert allocate([500_000, 500_000], 400) == [200, 200]
    assert sum(allocate([200, 5_000, 90_000], 641)) == 641


@pytest.mark.parametrize("error", [0, -1, 0.7, float("nan")])
def test_an_error_that_is_none_is_refused(error):
    with pytest.raises(InputError, match="error is"):
        sample_size([1.0], [0.9], error)

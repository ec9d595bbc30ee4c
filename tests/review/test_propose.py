"""What to judge next, and the precision that may be said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from adadino.errors import InputError
from adadino.review.propose import order, wilson


def judge(review, shape, verdict="right", **more):
    review.act({"do": "judge", "shape": shape, "verdict": verdict, **more}, by="ana")


def test_the_random_sample_comes_first_then_the_least_certain():
    uncertainty = {shape: shape / 1000 for shape in range(1, 101)}
    found = order(uncertainty, seed=0, sample=20)
    random = [p.id for p in found if p.list == "random"]
    rest = [p.id for p in found if p.list == "uncertain"]
    assert len(random) == 20
    assert found[:20] == [p for p in found if p.list == "random"]
    assert rest == sorted(set(uncertainty) - set(random))
    assert random == [p.id for p in order(uncertainty, seed=0, sample=20)[:20]]
    assert random != [p.id for p in order(uncertainty, seed=1, sample=20)[:20]]


def test_the_sample_is_fair():
    hits = np.zeros(11)
    for seed in range(2000):
        for proposal in order(dict.fromkeys(range(1, 11), 0.1), seed=seed, sample=3)[:3]:
            hits[proposal.id] += 1
    assert np.all(np.abs(hits[1:] - 600) < 5 * np.sqrt(2000 * 0.3 * 0.7))


def test_without_probabilities_everything_is_random():
    found = order(dict.fromkeys(range(9), None), seed=0, sample=3)
    assert {p.list for p in found} == {"random"}


@pytest.mark.parametrize(("hits", "total"), [(0, 5), (5, 5), (7, 10), (130, 200)])
def test_the_interval_is_wilsons(hits, total):
    theirs = binomtest(hits, total).proportion_ci(0.95, method="wilson")
    assert wilson(hits, total) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_precision_comes_from_the_random_sample_alone(review):
    random = [p.id for p in review.proposals if p.list == "random"]
    rest = [p.id for p in review.proposals if p.list == "uncertain"]
    for shape in rest:
        judge(review, shape, "wrong", list="uncertain")
    assert review.summary()["precision"] is None
    judge(review, random[0], list="random")
    found = review.summary()
    assert found["precision"]["value"] == 1.0
    assert found["precision"]["judged"] == 1
    assert (found["judged"], found["wrong"]) == (3, 2)


def test_whoever_skips_a_polygon_of_the_sample_does_not_choose_his_own(review):
    random = [p.id for p in review.proposals if p.list == "random"]
    judge(review, random[0], "wrong")
    judge(review, random[2], "right")  # the second one looked difficult
    found = review.summary()
    assert found["precision"]["value"] == 0.0
    assert found["sample"] == {"size": 3, "in_order": 1, "skipped": 1, "unsure": 0}
    judge(review, random[1], "unsure")
    found = review.summary()
    assert found["precision"]["judged"] == 2
    assert found["sample"]["unsure"] == 1


def test_what_is_judged_is_not_proposed_again_but_what_is_disputed_is(review):
    first = review.next(1)[0]
    judge(review, first.id)
    assert first not in review.next(99)
    review.act({"do": "judge", "shape": first.id, "verdict": "wrong"}, by="ben")
    assert review.next(1) == [first]
    assert review.summary()["disputed"] == 1
    assert review.summary()["precision"] is None


def test_a_list_that_a_polygon_is_not_in_is_refused(review):
    uncertain = next(p.id for p in review.proposals if p.list == "uncertain")
    with pytest.raises(InputError, match="not in the random list"):
        judge(review, uncertain, list="random")

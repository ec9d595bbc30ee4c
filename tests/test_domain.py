"""The one rule of what a model knows: inside, up to four times outside, beyond."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adadino import domain as rule
from adadino.domain import Domain, bundled_domains, judge, look_of, strange_looks
from adadino.errors import InputError, WeightsError

KNOWN = Domain((0.5, 2.0), {"brightness": (0.2, 0.7), "colour": (0.03, 0.3)})


@pytest.mark.parametrize("metres", [0.48, 0.5, 1.0, 2.0, 2.09, None])
def test_inside_nothing_is_said(metres):
    fit = judge(KNOWN, metres, any_too=False)
    assert (fit.sentences, fit.remark, fit.inside) == ((), None, True)


@pytest.mark.parametrize(("metres", "times"), [(5.0, 2.5), (8.0, 4.0), (0.125, 4.0), (0.3, 1.7)])
def test_up_to_four_times_outside_is_a_warning_with_a_number_and_a_way_out(metres, times):
    fit = judge(KNOWN, metres, any_too=False)
    (sentence,) = fit.sentences
    assert f"{times:.1f} times outside the 0.5 to 2 m" in sentence
    assert f"--gsd {0.5 if metres < 1 else 2}" in sentence
    assert not fit.inside
    assert f"{times:.1f} times" in fit.remark
    assert fit.as_json()["times_outside"] == pytest.approx(times, abs=0.05)


@pytest.mark.parametrize("metres", [8.1, 10, 30, 0.12])
def test_beyond_it_is_an_error_unless_any_resolution_is_wanted(metres):
    with pytest.raises(InputError, match="--any-resolution"):
        judge(KNOWN, metres, any_too=False)
    assert len(judge(KNOWN, metres, any_too=True).sentences) == 1


def test_enlarging_adds_no_detail():
    with pytest.raises(InputError, match=r"10 m pixels \(enlarged to 0.5 m\), 5.0 times"):
        judge(KNOWN, 0.5, own=10.0, any_too=False)
    assert judge(KNOWN, 0.5, own=0.1, any_too=False).inside  # made coarser: what it knows


def test_a_model_without_a_range_refuses_nothing():
    assert judge(None, 1000.0, any_too=False).inside
    assert Domain.of_card({}, "m") is None


def test_another_bundled_model_is_proposed(monkeypatch):
    monkeypatch.setattr(rule, "bundled_domains", lambda: {"sentinel": Domain((10, 10), {})})
    with pytest.raises(InputError, match="--model sentinel"):
        judge(KNOWN, 10.0, any_too=False)


def test_the_bundled_model_s_card_holds_its_domain():
    said = bundled_domains()["tiny"]
    assert said.resolution == (0.5, 2.0)
    assert set(said.look) == set(rule.LOOKS)
    assert Domain.of_card({"domain": json.loads(json.dumps(said.as_card()))}, "m") == said


@pytest.mark.parametrize("wrong", ["0.5", {}, {"resolution_m": [2, 0.5]}, {"resolution_m": [0, 1]}])
def test_a_card_that_holds_no_range_is_refused(wrong):
    with pytest.raises(WeightsError, match="says that it"):
        Domain.of_card({"domain": wrong}, "m")


def test_looks_are_those_of_a_restatement():
    tile = np.random.default_rng(0).random((3, 20, 30)).astype(np.float32)
    said, grey = look_of(tile), tile.astype(np.float64).mean(axis=0)
    steps = [abs(grey[i, j] - grey[i, j + 1]) for i in range(20) for j in range(29)]
    steps += [abs(grey[i, j] - grey[i + 1, j]) for i in range(19) for j in range(30)]
    assert said["brightness"] == pytest.approx(grey.mean())
    assert said["contrast"] == pytest.approx(grey.std())
    assert said["texture"] == pytest.approx(np.mean(steps))
    assert said["colour"] == pytest.approx((tile.max(axis=0) - tile.min(axis=0)).mean())
    assert said["warmth"] == pytest.approx(tile[0].mean() - tile[2].mean(), abs=1e-6)
    half = np.zeros((20, 30), bool)
    half[:, :15] = True
    assert look_of(tile, half) == pytest.approx(look_of(tile[:, :, :15]))


def test_the_middle_tile_speaks_for_a_date():
    usual, dark = {"brightness": 0.4, "colour": 0.1}, {"brightness": 0.01, "colour": 0.1}
    assert strange_looks(KNOWN, "before", [usual, usual, dark]) == []
    (sentence,) = strange_looks(KNOWN, "before", [usual, dark, dark])
    assert "brightness 0.01 (training 0.20 to 0.70)" in sentence
    assert "colour" not in sentence

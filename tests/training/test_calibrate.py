"""Calibrated probabilities: the right temperature, the same map, kept with the model."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from adadino.checkpoint import load, save
from adadino.errors import WeightsError, WriteError
from adadino.training.calibrate import calibrate, error, fit_temperature, reliability
from tests.training.adapt.test_adapt import base, data  # noqa: F401  (fixtures)


def world(temperature: float, tiles: int = 8, pixels: int = 20_000):
    """Log-odds that are `temperature` times too large for how often things change."""
    rng = np.random.default_rng(0)
    true = [rng.normal(-1, 2, pixels) for _ in range(tiles)]
    labels = [rng.random(pixels) < 1 / (1 + np.exp(-x)) for x in true]
    return [x * temperature for x in true], labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_known_temperature_is_found(temperature):
    odds, labels = world(temperature)
    found = fit_temperature(odds, labels, [[0, 1], [2, 3], [4, 5], [6, 7]])
    assert found.temperature == pytest.approx(temperature, rel=0.03)
    assert found.error_after < 0.01
    if temperature == 3.0:
        assert found.error_before > 5 * found.error_after


def test_the_likelihood_is_highest_there():
    odds, labels = world(2.0, tiles=2, pixels=3000)
    x, y = np.concatenate(odds), np.concatenate(labels)

    def loss(t):
        p = 1 / (1 + np.exp(-x / t))
        return -np.mean(np.where(y, np.log(p), np.log(1 - p)))

    best = fit_temperature(odds, labels, [[0], [1]]).temperature
    assert loss(best) <= min(loss(best * 0.98), loss(best * 1.02))


def test_the_error_restated():
    p, y = np.array([0.05, 0.05, 0.95, 0.95]), np.array([False, True, True, True])
    curve = reliability(p, y)
    assert curve == [(pytest.approx(0.05), 0.5, 2), (pytest.approx(0.95), 1.0, 2)]
    assert error(curve) == pytest.approx(0.5 * 0.45 + 0.5 * 0.05)


def test_a_model_keeps_its_temperature_and_its_map(base, data, tmp_path):  # noqa: F811
    found = calibrate(str(base), data, tmp_path / "mine")
    model, old = load(tmp_path / "mine"), load(base)
    assert model.temperature == found.temperature != 1.0
    assert (tmp_path / "mine" / "reliability.png").is_file()
    pair = torch.rand(2, 1, 3, 64, 64)
    with torch.no_grad():
        before, after = old.probability(*pair), model.probability(*pair)
    assert torch.equal(before >= 0.5, after >= 0.5)
    odds = torch.logit(before.double()) / found.temperature
    assert torch.allclose(torch.logit(after.double()), odds, atol=1e-4)
    again = load(save(model, tmp_path / "copy"))
    assert again.temperature == found.temperature
    with pytest.raises(WriteError, match="holds a model"):
        calibrate(str(base), data, tmp_path / "mine")


def test_a_temperature_that_is_none_is_refused(base, tmp_path):  # noqa: F811
    model = load(base)
    for value in (0.0, -1.0, float("inf")):
        model.temperature = value
        save(model, tmp_path / "bad")
        with pytest.raises(WeightsError, match="temperature is a number"):
            load(tmp_path / "bad")
    assert json.loads((tmp_path / "bad" / "config.json").read_text())["calibration"]

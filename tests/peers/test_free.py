"""CVA and IR-MAD against float64 restatements and scikit-image."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from skimage.filters import threshold_otsu

import adadino
from adadino.errors import ConfigError, InputError, WeightsError
from adadino.peers.free import IRMAD, ChangeVector, otsu
from adadino.training.config import load_run


def scene(bands: int = 4, side: int = 60):
    """Two dates that differ by a gain, an offset and noise, and truly in one corner."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(bands, side, side)).cumsum(1) / 4
    base = base + base.mean(0, keepdims=True)
    before = 100 + 20 * base + rng.normal(size=base.shape)
    gains = np.linspace(0.8, 1.3, bands)[:, None, None]
    after = 30 + gains * before + rng.normal(size=base.shape)
    after[:, :12, :12] += 120 * np.linspace(1, -1, bands)[:, None, None]
    return torch.from_numpy(before), torch.from_numpy(after)


def cva(before, after):
    x, y = (date.reshape(len(date), -1) for date in (before.numpy(), after.numpy()))
    x, y = ((d - d.mean(1, keepdims=True)) / d.std(1, keepdims=True) for d in (x, y))
    return np.sqrt(((x - y) ** 2).sum(0))


def irmad(before, after):
    """Nielsen's way: a generalised eigenproblem instead of a singular value decomposition."""
    x, y = (date.reshape(len(date), -1) for date in (before.numpy(), after.numpy()))
    weights, last = np.ones(x.shape[1]), 0
    for _ in range(50):
        first, second = (d - (d * weights).sum(1, keepdims=True) / weights.sum() for d in (x, y))
        xx, yy, xy = (
            (p * weights) @ q.T / weights.sum()
            for p, q in ((first, first), (second, second), (first, second))
        )
        squares, a = scipy.linalg.eigh(xy @ np.linalg.solve(yy, xy.T), xx)
        rho = np.sqrt(squares)
        b = np.linalg.solve(yy, xy.T) @ a
        b /= np.sqrt(np.diag(b.T @ yy @ b))
        z = ((a.T @ first - b.T @ second) ** 2 / (2 * (1 - rho))[:, None]).sum(0)
        weights = scipy.stats.chi2.sf(z, len(x))
        if np.abs(rho - last).max() < 1e-6:
            break
        last = rho
    return np.sqrt(z)


@pytest.mark.parametrize(("kind", "naive"), [(ChangeVector, cva), (IRMAD, irmad)])
def test_magnitudes_are_those_of_the_restatement(kind, naive) -> None:
    before, after = scene()
    model, pixels = kind(), [date.flatten(1) for date in (before, after)]
    model.fit(*pixels)
    np.testing.assert_allclose(model.fitted.magnitude(*pixels), naive(before, after), rtol=1e-4)


@pytest.mark.parametrize("kind", [ChangeVector, IRMAD])
def test_half_is_otsu_s_threshold_and_the_corner_is_found(kind) -> None:
    before, after = scene()
    model = kind()
    found = model.probability(before[None], after[None])[0].numpy() >= 0.5
    magnitude = model.statistics(before.flatten(1), after.flatten(1)).magnitude(
        before.flatten(1), after.flatten(1)
    )
    np.testing.assert_array_equal(found.ravel(), magnitude.numpy() >= otsu(magnitude))
    truth = np.zeros((60, 60), bool)
    truth[:12, :12] = True
    assert (found & truth).sum() > 0.8 * truth.sum()
    assert (found & ~truth).mean() < 0.02


@pytest.mark.parametrize("kind", [ChangeVector, IRMAD])
def test_a_gain_and_an_offset_of_a_date_change_nothing(kind) -> None:
    before, after = scene()
    one = kind().probability(before[None], after[None])
    other = kind().probability(before[None], 7 + 3 * after[None])
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_fitted_scene_is_judged_tile_by_tile() -> None:
    before, after = scene()
    model = ChangeVector()
    whole = model.probability(before[None], after[None])
    model.fit(before.flatten(1), after.flatten(1))
    part = model.probability(before[None, :, 20:40, 5:30], after[None, :, 20:40, 5:30])
    torch.testing.assert_close(part, whole[:, 20:40, 5:30])


def test_otsu_is_scikit_image_s() -> None:
    values = np.random.default_rng(1).gamma(2, 1, 5000)
    assert otsu(torch.from_numpy(values)) == pytest.approx(threshold_otsu(values), rel=1e-6)
    assert otsu(torch.ones(5)) == 1.0


def test_they_are_loaded_by_name_and_never_trained() -> None:
    assert isinstance(adadino.load("cva"), ChangeVector)
    assert isinstance(adadino.load("irmad"), IRMAD)
    with pytest.raises(WeightsError, match="no backbone"):
        adadino.load("cva", backbone="tiny")
    with pytest.raises(ConfigError, match="nothing to train"):
        load_run(None, ["model.peer=cva"])
    with pytest.raises(InputError, match="too few"):
        ChangeVector()(torch.rand(1, 5, 1, 1), torch.rand(1, 5, 1, 1))

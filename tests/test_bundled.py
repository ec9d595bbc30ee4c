"""The bundled model: the bytes that were released, and the map they gave."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

import adadino
from adadino.bundled import bundled
from adadino.data.synthetic import make_pair
from adadino.source import read_settings

DIGEST = "6e46b7da8adf60e8f5ce5570924fab5acb9223e89de851f44ef7a2a0b57e8e4e"
TILE = 31_415_926
"""A seed of no split."""
# Mean probability of every 32 x 32 pixels, when it was released.
STORED = [
    [0.00, 0.03, 0.00, 0.18],
    [0.50, 0.83, 0.59, 0.33],
    [0.83, 0.45, 0.33, 0.21],
    [0.94, 0.73, 0.64, 0.01],
]


@pytest.fixture(scope="module")
def model():
    return adadino.load("tiny")


@pytest.fixture(scope="module")
def pair():
    return make_pair(TILE, 128)


def test_it_is_the_released_file():
    folder = bundled("tiny")
    assert folder is not None
    content = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == DIGEST
    assert len(content) <= 20_000_000
    card = (folder / "README.md").read_text()
    assert all(name.split(",")[0] in card for name in read_settings("tiny")["trained_on"])


def test_it_reproduces_a_stored_prediction(model, pair):
    probability = model.predict(pair.before, pair.after)
    means = probability.reshape(4, 32, 4, 32).mean((1, 3))
    assert np.allclose(means, STORED, atol=0.006), means.round(2).tolist()
    found = probability >= 0.5
    f1 = 2 * (found & pair.mask).sum() / (found.sum() + pair.mask.sum())
    assert f1 > 0.95


def test_swapped_dates_give_the_same_map(model, pair):
    there, back = (model.predict(*dates) for dates in (pair[:2], pair[1::-1]))
    assert np.array_equal(there, back)


def test_pruned_and_dense_agree(model, pair):
    dates = [torch.from_numpy(x).movedim(2, 0)[None] / 255 for x in pair[:2]]
    with torch.inference_mode():
        pruned, dense = (model(*dates, k=k).logits.argmax(1) for k in (6, 16))
    assert (pruned == dense).float().mean() > 0.98


def test_it_is_the_default(pair):
    assert adadino.predict(pair.before, pair.after).shape == (128, 128)

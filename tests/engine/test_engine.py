"""The fast model is the model: every variant, any size, whatever happens to the model later."""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref

import pytest
import torch

from adadino.build import new_model
from adadino.config import Config, StreamConfig
from adadino.engine import Engine, optimize
from adadino.engine.cuda import Graphs
from adadino.engine.ops import block as ops
from adadino.errors import ConfigError, InputError
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Output
from tests.conftest import randomise, with_backbone, with_bscs, with_cgla, with_cpgr

RANKING = tuple(tuple(range(8)) for _ in range(4))

VARIANTS = {
    "paper": lambda c: c,
    "order-invariant": lambda c: dataclasses.replace(c, order_invariant=True),
    "frozen baseline": lambda c: with_cgla(c, mode="off"),
    "pair-blind": lambda c: with_cgla(c, mode="blind"),
    "both": lambda c: with_cgla(c, mode="both"),
    "gamma_self": lambda c: with_cgla(c, gamma_self=0.05),
    "without delta": lambda c: with_cgla(c, delta="none"),
    "symmetric delta": lambda c: with_cgla(c, delta="symmetric"),
    "prior local": lambda c: with_cpgr(c, prior=("local",)),
    "no refiner": lambda c: with_cpgr(c, refiner=False),
    "static": lambda c: with_bscs(c, selection="static", ranking=RANKING),
    "off": lambda c: with_bscs(c, selection="off"),
    "gated": lambda c: with_backbone(c, gated=True),
    "no bias, no registers": lambda c: with_backbone(c, qkv_bias=False, registers=0),
    "stream": lambda c: dataclasses.replace(c, stream=StreamConfig("lite0")),
    "scale 1": lambda c: dataclasses.replace(c, scale=1),
}


def pair(batch: int = 2, height: int = 40, width: int = 56) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width)


def lively(config: Config) -> AdaDINO:
    """A model whose every part moves the logits: nothing zero, nothing saturated."""
    model = randomise(AdaDINO(config), 0.15)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("ls1", "ls2", "gamma_self", "gamma_delta", "eta")) or "norm" in name:
                parameter.add_(0.7)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
            if name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model.eval()


def apart(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Distance relative to what varies, so that a constant in the logits hides nothing."""
    assert got.shape == expected.shape
    assert got.isfinite().all()
    return float((got - expected).norm() / (expected - expected.mean()).norm())


def compare(got: Output, expected: Output, within: float) -> None:
    assert got.logits.dtype == torch.float32
    assert apart(got.logits, expected.logits) < within
    for one, other in zip(got.pyramid, expected.pyramid, strict=True):
        assert apart(one.float(), other) < within
    assert (got.responses is None) == (expected.responses is None)
    for one, other in zip(got.responses or (), expected.responses or (), strict=True):
        assert apart(one, other) < within
    assert (got.scores is None) == (expected.scores is None)
    if expected.scores is not None:
        assert apart(got.scores, expected.scores) < within


@torch.no_grad()
@pytest.mark.parametrize("k", [3, 8], ids=["pruned", "dense"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equal_to_the_model_in_fp32(small, variant, k):
    model = lively(VARIANTS[variant](small))
    k = 8 if variant == "off" else k
    before, after = pair()
    engine = optimize(model, precision="fp32")
    compare(engine(before, after, k=k), model(before, after, k=k), 2e-5)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (17, 31), (64, 8)], ids=str)
def test_any_size(small, batch, size):
    model = lively(small)
    before, after = pair(batch, *size)
    compare(optimize(model, precision="fp32")(before, after), model(before, after), 1e-4)


@torch.no_grad()
def test_given_chunks(small):
    model = lively(small)
    engine = optimize(model, precision="fp32")
    before, after = pair()
    chunks = torch.stack([torch.randperm(8)[:5] for _ in range(4)])
    expected = model(before, after, chunks=chunks)
    compare(engine(before, after, chunks=chunks), expected, 2e-5)
    assert apart(engine(before, after).logits, expected.logits) > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("variant", ["paper", "gated", "order-invariant", "static"])
def test_the_same_through_the_blocks_kernels(small, variant, monkeypatch):
    """Triton's, interpreted."""
    pytest.importorskip("triton", reason="the kernels are Triton's")
    engine = optimize(lively(VARIANTS[variant](small)), precision="fp32")
    before, after = pair(2, 16, 24)
    expected = engine(before, after, k=3)
    for place in ("adadino.engine.ops", "adadino.engine.ops.block"):
        monkeypatch.setattr(f"{place}.on_gpu", lambda _: True)
    monkeypatch.setattr(ops, "fits", lambda dtype, head_dim: head_dim == 16)
    compare(engine(before, after, k=3), expected, 2e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("precision", "within"), [("bf16", 0.02), ("fp8", 0.03), ("int8", 0.03)], ids=str
)
@pytest.mark.parametrize("variant", ["paper", "gated", "order-invariant", "stream"])
def test_lower_precision_stays_near(small, variant, precision, within):
    """With the chunks given: near a tie another choice is as good, and another map."""
    within *= 4 if variant == "stream" else 1  # a random stream differs little between the dates
    model = lively(VARIANTS[variant](small))
    before, after = pair()
    chunks = torch.arange(6).expand(4, -1)
    expected = model(before, after, chunks=chunks)
    got = optimize(model, precision=precision)(before, after, chunks=chunks)
    pairs = zip((got.logits, *got.responses), (expected.logits, *expected.responses), strict=True)
    for one, other in pairs:
        assert apart(one, other) < within
    probability = [output.logits.softmax(1)[:, 1] for output in (got, expected)]
    assert (probability[0] - probability[1]).abs().max() < 0.02


@torch.no_grad()
def test_the_model_is_neither_changed_nor_followed(small):
    model = lively(small)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    before, after = pair()
    engine = optimize(model, precision="fp32")
    expected = engine(before, after)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    randomise(model, 0.5)
    for buffer in model.buffers():
        buffer.fill_(1)
    assert torch.equal(engine(before, after).logits, expected.logits)


def test_stands_in_for_the_model(small):
    model = lively(small)
    engine = optimize(model, precision="fp32")
    assert isinstance(engine, Engine)
    assert engine.config is model.config
    assert torch.equal(engine.normalize.mean, model.normalize.mean)
    image = torch.rand(3, 20, 30)
    assert torch.allclose(
        torch.from_numpy(engine.predict(image, image.flip(1))),
        torch.from_numpy(model.predict(image, image.flip(1))),
        atol=1e-5,
    )
    with torch.inference_mode():
        inside = engine(*pair()).logits
    assert not inside.is_inference()
    assert not any(p.requires_grad for p in engine.parameters())
    assert not engine.train().training
    with pytest.raises(ConfigError, match="k is 9"):
        engine(*pair(), k=9)
    with pytest.raises(InputError, match="before has shape"):
        engine(torch.rand(3, 8, 8), torch.rand(3, 8, 8))
    with pytest.raises(ConfigError, match="precision is 'fp4'"):
        optimize(model, precision="fp4")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("convert", ["float", "half", "bfloat16", "double"])
def test_its_types_are_its_own(small, precision, convert):
    """Converted, it would fail at the first product, or round what decides."""
    engine = optimize(lively(small), precision=precision)
    if (precision, convert) == ("fp32", "float"):
        engine.float()
    else:
        with pytest.raises(ConfigError, match=f"an engine in {precision} keeps its types"):
            getattr(engine, convert)()
    engine(*pair())


@torch.no_grad()
def test_autocast_does_not_reach_it(small):
    engine = optimize(lively(small), precision="fp32")
    before, after = pair()
    expected = engine(before, after).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(engine(before, after).logits, expected)


@torch.no_grad()
def test_a_copy_is_an_engine(small):
    engine = optimize(lively(small), precision="fp32")
    engine.graphs = Graphs()  # as on a GPU
    before, after = pair()
    again = copy.deepcopy(engine)
    assert again.graphs is not engine.graphs
    assert torch.equal(again(before, after).logits, engine(before, after).logits)


def test_what_it_cannot_be_made_of_is_named(small):
    engine = optimize(lively(small), precision="int8")
    with pytest.raises(ConfigError, match="is an engine already"):
        optimize(engine)
    with pytest.raises(ConfigError, match="is a peer"):
        optimize(new_model(Config(peer="fc-ef")))
    with pytest.raises(ConfigError, match="cuda_graph needs an NVIDIA GPU"):
        optimize(lively(small), cuda_graph=True)
    with pytest.raises(ConfigError, match="int8 is for CPUs"):
        engine.to("meta")


def test_nothing_holds_it_but_its_user(small):
    """On a GPU that would be its weights and graphs, until Python happens to look for cycles."""
    engine = optimize(lively(small), precision="bf16")
    with torch.no_grad():
        engine(*pair())
    gone = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert gone() is None
    finally:
        gc.enable()


@torch.no_grad()
def test_staying_where_it_is_replaces_nothing(small):
    """A recorded graph reads the tensors that were there; `.to()` with the same device is a no."""
    engine = optimize(lively(small), precision="bf16")
    held = {name: tensor.data_ptr() for name, tensor in engine.named_buffers()}
    held["made"] = id(engine.encoder.made)
    engine.to("cpu").eval()
    now = {name: tensor.data_ptr() for name, tensor in engine.named_buffers()}
    assert now | {"made": id(engine.encoder.made)} == held
    before, after = pair()
    expected = engine(before, after).logits
    assert torch.equal(engine.unrecorded(before, after).logits, expected)
    moved = engine.to("meta")
    assert moved.encoder.made == {}


@torch.no_grad()
def test_auto_takes_what_the_device_computes_in(small, monkeypatch):
    model = lively(small)
    for there in (True, False):
        monkeypatch.setattr("adadino.engine.model.computes_bf16", lambda device, there=there: there)
        assert optimize(model).precision == ("bf16" if there else "fp32")

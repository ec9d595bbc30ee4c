"""Every comparator: any input, gradients, frozen parts, one signature. See the paper of each."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from adadino.config import Config
from adadino.errors import ConfigError, InputError
from adadino.model.adadino import Output
from adadino.model.backbone import Backbone
from adadino.peers import PEERS, build_peer
from tests.conftest import SMALL, randomise
from tests.peers import NAMES

FROZEN = [name for name, spec in PEERS.items() if spec.backbone]
SWAPPABLE = ["lite-unet", "changedino", "peftcd", "tome", "sam-distance"]
"""Whatever is done to a date is done to both, and only their absolute difference goes on."""


def build(name: str, config: Config = SMALL) -> nn.Module:
    """A peer that runs quickly, with nothing hidden behind an initial zero."""
    torch.manual_seed(0)
    model = build_peer(name, config if PEERS[name].backbone else None)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.05)
    # Features of an encoder as it is initialised differ by less than float32 can tell.
    return model if PEERS[name].trained else randomise(model, 1.0)


class Built(dict[str, nn.Module]):
    """Peers that are built when they are asked for."""

    def __missing__(self, name: str) -> nn.Module:
        return self.setdefault(name, build(name).eval())


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    return Built()


def pair(batch: int = 1, height: int = 64, width: int = 64) -> tuple[Tensor, Tensor]:
    return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (33, 50), (7, 90)], ids=str)
@torch.inference_mode()
def test_any_size_goes_in_and_comes_out(models, name, size):
    output = models[name](*pair(2, *size))
    assert isinstance(output, Output)
    assert output.logits.shape == (2, 2, *size)
    assert output.logits.dtype == torch.float32
    assert output.logits.isfinite().all()
    assert output.responses is None
    assert output.scores is None


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_the_answer_depends_on_both_dates_and_on_nothing_else(models, name):
    """A prediction repeats to the bit, moves with either date, and leaves the images alone."""
    before, after = pair()
    kept = before.clone(), after.clone()
    logits = models[name](before, after).logits
    assert torch.equal(models[name](before, after).logits, logits)
    other = torch.rand_like(before)
    assert not torch.allclose(models[name](other, after).logits, logits)
    assert not torch.allclose(models[name](before, other).logits, logits)
    assert torch.equal(before, kept[0])
    assert torch.equal(after, kept[1])


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_a_pair_is_judged_alone(models, name):
    """What else is in the batch changes nothing: what scenes and their tiles rely on."""
    before, after = pair(3, 48, 40)
    together = models[name](before, after).logits
    alone = models[name](before[1:2], after[1:2]).logits
    assert torch.allclose(together[1:2], alone, atol=1e-4 * float(alone.abs().max()))


@pytest.mark.parametrize("name", NAMES)
def test_every_trainable_parameter_learns_and_frozen_ones_do_not(name):
    model = build(name).train()
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    assert all(n.startswith(("backbone.", "encoder.")) for n in frozen)
    assert bool(frozen) == (name in FROZEN or PEERS[name].trunk == "mobile-sam")
    assert PEERS[name].trained == any(p.requires_grad for p in model.parameters())
    if not PEERS[name].trained:
        return
    # A memory learns from the second chunk that it reads, 128 x 128 pixels each.
    output = model(*pair(2, 128, 256)) if name == "changetitans" else model(*pair(2))
    # Both logits by different amounts: their sum alone would not reach what only tells them apart.
    loss = sum((maps.float() * torch.randn_like(maps)).sum() for maps in (output[0], *output[1]))
    loss.backward()
    # The slope of a PReLU learns from negative inputs, of which a small map may have none.
    slopes = {id(module.weight) for module in model.modules() if isinstance(module, nn.PReLU)}
    for parameter_name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
            assert parameter.grad.any() or id(parameter) in slopes, parameter_name
        else:
            assert parameter.grad is None, parameter_name


@pytest.mark.parametrize("name", FROZEN)
def test_the_frozen_backbone_stays_in_eval_mode_and_is_the_one_given(name):
    backbone = Backbone(SMALL.backbone)
    model = build_peer(name, SMALL, backbone).train()
    assert model.backbone is backbone
    assert model.training
    assert not backbone.training


@pytest.mark.parametrize("name", SWAPPABLE)
@torch.inference_mode()
def test_swapping_the_dates_changes_nothing_where_that_is_by_construction(models, name):
    before, after = pair()
    one, two = models[name](before, after).logits, models[name](after, before).logits
    assert float((one - two).abs().max()) < 1e-3 * float(one.std())


@pytest.mark.parametrize("name", NAMES)
def test_bf16_autocast(models, name):
    before, after = pair()
    with torch.inference_mode():
        exact = models[name](before, after).logits
        with torch.autocast("cpu", torch.bfloat16):
            rough = models[name](before, after).logits
    assert rough.dtype == torch.float32
    assert rough.isfinite().all()
    # ToMe may merge other tokens when keys are rounded, so only the scale must agree.
    assert float((rough - exact).abs().mean()) < 0.5 * float(exact.abs().mean()) + 0.05


@pytest.mark.parametrize("name", NAMES)
def test_what_a_peer_cannot_honour_is_refused(models, name):
    with pytest.raises(ConfigError, match="leave k out"):
        models[name](*pair(), k=4)
    with pytest.raises(ConfigError, match="leave chunks out"):
        models[name](*pair(), chunks=torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(InputError, match="same size"):
        models[name](torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 9))


def test_unknown_names_say_what_there_is():
    with pytest.raises(ConfigError, match="unknown peer 'fcef'; there are fc-ef, fc-siam-diff"):
        build_peer("fcef")
    with pytest.raises(ConfigError, match="unet has no frozen backbone"):
        build_peer("unet", backbone=Backbone(SMALL.backbone))


def test_every_peer_is_described():
    for name, spec in PEERS.items():
        assert spec.name == name
        assert spec.title
        assert spec.description.endswith(".")
        assert spec.citation
        if spec.recipe is not None:
            assert spec.recipe.optimizer in ("adam", "adamw", "sgd")
            assert 0 < spec.recipe.learning_rate < 0.1
    ours = [name for name, spec in PEERS.items() if spec.recipe is None]
    assert ours == ["st-mamba", "sam-distance", "lite-unet", "tome"]
    quoted = [name for name, spec in PEERS.items() if spec.f1]
    assert len(quoted) == 15  # every system of the paper's Table 1
    for name in quoted:
        assert {"sysu-cd", "whu-cd", "levir-cd", "levir-cd+"} >= set(PEERS[name].f1)


def test_the_registry_imports_nothing_heavy():
    code = "import sys, adadino.peers as p; p.PEERS['bit'].title; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"

"""The head of classes: beside the binary answer, which keeps every bit."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from adadino.checkpoint import load, save
from adadino.config import ClassesConfig, Config, StreamConfig
from adadino.engine.model import optimize
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from tests.conftest import randomise

CLASSES = ClassesConfig(("water", "ground", "tree"))


def pair(batch: int = 2, height: int = 64, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(batch, 3, height, width), torch.rand(batch, 3, height, width)


def semantic(config: Config, stream: str = "lite0", **changes: object) -> Config:
    stream_config = StreamConfig(name=stream)
    return dataclasses.replace(config, classes=CLASSES, stream=stream_config, **changes)


@pytest.mark.parametrize("stream", ["none", "lite0"])
def test_the_binary_answer_keeps_every_bit(small, stream):
    model = randomise(AdaDINO(semantic(small, stream)), 0.1).eval()
    plain = AdaDINO(dataclasses.replace(model.config, classes=ClassesConfig())).eval()
    tensors = {n: t for n, t in model.state_dict().items() if not n.startswith("classes.")}
    plain.load_state_dict(tensors)
    images = pair(2, 61, 83)
    told, alone = model(*images), plain(*images)
    assert told.logits.equal(alone.logits)
    assert alone.classes is None
    assert told.classes.shape == (2, 2, 3, 61, 83)
    assert told.classes.dtype == torch.float32


def test_swapped_dates_have_swapped_classes(small):
    model = randomise(AdaDINO(semantic(small, order_invariant=True)), 0.4).eval()
    before, after = pair()
    one, other = model(before, after).classes, model(after, before).classes
    assert torch.allclose(one, other.flip(1), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(one, other, rtol=1e-1, atol=1e-2)


def test_equal_dates_have_equal_classes(small):
    model = randomise(AdaDINO(semantic(small)), 0.1).eval()
    image = torch.rand(1, 3, 64, 64)
    first, second = model(image, image).classes.unbind(1)
    assert torch.allclose(first, second, atol=1e-5)


def test_classes_learn_and_the_frozen_backbone_does_not(small):
    model = AdaDINO(semantic(small)).train()
    model(*pair()).classes.square().mean().backward()
    assert all(p.grad is not None for p in model.classes.parameters())
    assert all(p.grad is None for p in model.encoder.backbone.parameters())


def test_the_engine_tells_the_same_classes(small):
    model = randomise(AdaDINO(semantic(small)), 0.1).eval()
    images = pair()
    told = optimize(model, precision="fp32", compile=False)(*images)
    assert torch.allclose(told.classes, model(*images).classes, atol=1e-3, rtol=1e-3)


def test_a_checkpoint_remembers_names_and_colours(small, tmp_path):
    classes = ClassesConfig(("water", "tree"), ("#102030", "#405060"))
    model = AdaDINO(dataclasses.replace(semantic(small), classes=classes)).eval()
    save(model, tmp_path / "model", with_backbone=True)
    again = load(tmp_path / "model")
    assert again.config.classes == classes
    assert again.config.classes.rgb == [(16, 32, 48), (64, 80, 96)]
    images = pair(1)
    assert again(*images).classes.equal(model(*images).classes)


def test_a_model_without_classes_has_the_identity_it_had(small):
    from adadino import schema

    assert "classes" not in schema.identity(small)
    assert "classes" not in schema.identity_repr(small)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"names": ("one",)}, "must be at least two classes"),
        ({"names": ("a", "a")}, "repeats a name"),
        ({"names": ("a", "")}, "a name that can be printed"),
        ({"names": ("a", "b"), "colours": ("#000000",)}, "1 colours for 2 classes"),
        ({"names": ("a", "b"), "colours": ("#000000", "red")}, "must be like #ff8800"),
        ({"names": tuple(map(str, range(300)))}, "must be at most 250"),
    ],
)
def test_classes_that_cannot_be_are_refused(classes, message):
    with pytest.raises(ConfigError, match=message):
        ClassesConfig(**classes)


def test_a_peer_tells_no_classes(small):
    with pytest.raises(ConfigError, match="fc-siam-diff tells change alone"):
        dataclasses.replace(small, peer="fc-siam-diff", classes=CLASSES)

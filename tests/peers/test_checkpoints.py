"""Checkpoints of peers: whole round trips, and the strictness that AdaDINO's have."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import adadino
from adadino.build import build
from adadino.checkpoint import load, save
from adadino.config import Config, StreamConfig
from adadino.errors import ConfigError, WeightsError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.model.lite0 import Lite0, _their_name
from adadino.peers import PEERS, build_peer
from adadino.peers.tome import ToMe
from adadino.source import read_settings
from tests.conftest import SMALL, randomise

FROZEN = [name for name, spec in PEERS.items() if spec.backbone]
CHEAP = [
    name
    for name in PEERS
    if name
    not in (
        *("snunet", "changeformer", "changemamba", "rs-mamba", "cdmamba"),
        *("st-mamba", "changetitans", "faewnet"),
    )
]


def named(name: str, config: Config = SMALL) -> Config:
    return dataclasses.replace(config, peer=name)


def images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return tuple(generator.integers(0, 256, (2, 40, 56, 3), dtype=np.uint8))


@pytest.fixture
def backbone(tmp_path):
    path = tmp_path / "small-lvd1689m.safetensors"
    save_file(randomise(Backbone(SMALL.backbone), 0.3).state_dict(), path)
    return path


def relabel(folder, peer):
    """Make a checkpoint say that it is another model's."""
    path = folder / "model.safetensors"
    said = read_settings(folder)
    said["model"]["peer"] = peer
    save_file(load_file(path), path, metadata={"adadino": json.dumps(said)})
    (folder / "config.json").unlink()


@pytest.mark.parametrize("name", CHEAP)
def test_a_round_trip_changes_no_bit(name, tmp_path):
    model = build(named(name)).eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():  # away from every initial value
                tensor.copy_(tensor + 0.005 * torch.randn_like(tensor))
    folder = save(model, tmp_path / "c", with_backbone=True)
    found = adadino.load(folder)
    assert type(found) is type(model)
    assert found.config == model.config
    assert not found.training
    theirs = found.state_dict()
    assert all(torch.equal(tensor, theirs[key]) for key, tensor in model.state_dict().items())
    expected = model.predict(*images())
    assert np.array_equal(found.predict(*images()), expected)
    assert np.array_equal(adadino.predict(*images(), model=folder), expected)
    same_twice = [images()[0]] * 2
    assert not np.array_equal(found.predict(*same_twice), expected)  # not a constant


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_backbone_is_named_and_not_copied(name, backbone, tmp_path):
    model = build(named(name), backbone).eval()
    folder = save(model, tmp_path / "c")
    assert not any(key.startswith("backbone.") for key in load_file(folder / "model.safetensors"))
    found = load(folder)
    assert np.array_equal(found.predict(*images()), model.predict(*images()))
    assert found.config.backbone.fingerprint is not None
    other = tmp_path / "other-lvd1689m.safetensors"
    save_file(randomise(Backbone(SMALL.backbone), 0.2).state_dict(), other)
    with pytest.raises(WeightsError, match="give the same weights"):
        load(folder, backbone=other)


def test_without_a_backbone_none_is_taken(backbone, tmp_path):
    with pytest.raises(ConfigError, match="unet has no frozen backbone"):
        build(Config(peer="unet"), backbone)
    folder = save(build(Config(peer="fc-ef")), tmp_path / "c")
    with pytest.raises(WeightsError, match="is fc-ef, without backbone; leave backbone= out"):
        load(folder, backbone=backbone)


def test_a_checkpoint_under_another_name_is_refused(tmp_path):
    peer = save(build_peer("fc-siam-diff"), tmp_path / "peer")
    ours = save(AdaDINO(SMALL), tmp_path / "ours", with_backbone=True)
    frozen = save(build_peer("tome", SMALL), tmp_path / "tome", with_backbone=True)
    relabel(peer, "fc-ef")  # the same names, another first layer
    with pytest.raises(WeightsError, match=r"is \(16, 3, 3, 3\), the configuration needs"):
        load(peer)
    for name in ("nonesuch", "../evil"):
        relabel(save(build_peer("fc-ef"), peer), name)
        with pytest.raises(WeightsError, match=f"unknown peer '{name}'"):
            load(peer)
    relabel(ours, "unet")
    with pytest.raises(WeightsError, match="lacks down"):
        load(ours)
    relabel(frozen, None)
    with pytest.raises(WeightsError, match=r"does not carry its backbone"):
        load(frozen)


def test_spoiled_tensors_are_named(tmp_path):
    folder = save(build_peer("fc-ef"), tmp_path / "c")
    path = folder / "model.safetensors"
    metadata = {"adadino": json.dumps(read_settings(folder))}
    good = load_file(path)
    for change, message in (
        ({"decoder.head.bias": torch.zeros(3)}, r"decoder\.head\.bias is \(3,\)"),
        ({"decoder.head.bias": torch.full((2,), float("nan"))}, "holds NaN or infinity"),
        ({"backbone.norm.weight": torch.zeros(2)}, "holds backbone.norm.weight, which its own"),
    ):
        save_file(good | change, path, metadata=metadata)
        with pytest.raises(WeightsError, match=message):
            load(folder)
    del good["decoder.head.bias"]
    save_file(good, path, metadata=metadata)
    with pytest.raises(WeightsError, match=r"lacks decoder\.head\.bias"):
        load(folder)


def test_a_peer_that_would_come_back_as_another_is_not_saved(tmp_path):
    with pytest.raises(WeightsError, match="a ToMe that does not come from build_peer"):
        save(ToMe(SMALL), tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["lite-unet", "changedino"])
def test_the_trunk_starts_from_the_weights_named(name, tmp_path):
    source = randomise(Lite0(), 0.1)
    file = tmp_path / "lite0.pth"
    torch.save({_their_name(key): value for key, value in source.state_dict().items()}, file)
    config = dataclasses.replace(named(name), stream=StreamConfig(weights=str(file)))
    trunk = build(config).trunk
    for key, value in source.state_dict().items():
        assert torch.equal(trunk.state_dict()[key], value)
    folder = save(build(config), tmp_path / "c", with_backbone=True)
    assert read_settings(folder)["model"]["stream"]["weights"] == str(file)
    file.unlink()  # where training began is remembered, not needed
    load(folder)

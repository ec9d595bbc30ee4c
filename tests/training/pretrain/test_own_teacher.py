"""A pretrained backbone goes on by itself: a slow copy of the student is its teacher."""

from __future__ import annotations

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from adadino.config import preset
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.model.weights import read_backbone
from adadino.schema import identity
from adadino.training.pretrain.config import PretrainConfig
from adadino.training.pretrain.distill import Student
from adadino.training.pretrain.run import pretrain
from tests.conftest import with_backbone


def settings(output, **changes) -> PretrainConfig:
    base = {
        "output": str(output), "init": "tiny", "synthetic": 2, "size": 32, "batch": 2, "lr": 1e-3,
        "steps": 2, "every": 1, "warmup": 1, "device": "cpu", "precision": "32",
    }  # fmt: skip
    return PretrainConfig(**{**base, **changes})


def test_the_teacher_follows_slowly_and_is_never_trained(small):
    student = Student(AdaDINO(with_backbone(small, trainable=True)), own_teacher=True)
    slow, fast = student.slow, student.backbone
    assert slow is not None
    assert not any(p.requires_grad for p in slow.parameters())
    before = {name: p.clone() for name, p in slow.named_parameters()}
    with torch.no_grad():
        for p in fast.parameters():
            p.add_(1.0)
    student.follow(0.75)
    for name, p in slow.named_parameters():
        assert torch.allclose(p, before[name] + 0.25, atol=1e-6), name


@torch.no_grad()
def test_the_targets_are_the_copy_s_taps_of_the_whole_image(small):
    student = Student(AdaDINO(with_backbone(small, trainable=True)), own_teacher=True)
    images = torch.randn(2, 3, 32, 48)
    wanted = student.targets(images)
    for got, same in zip(wanted, student.features(images), strict=True):
        assert torch.equal(got, same)  # at the start the two are one
    hidden = torch.ones(2, 6, dtype=torch.bool)
    masked = student.features(images, hidden)
    assert not torch.allclose(masked[0], wanted[0])


def test_it_starts_from_the_weights_resumes_and_moves(tmp_path):
    whole = pretrain(settings(tmp_path / "whole"))

    def stop(done: int, total: int, message: str) -> None:
        raise KeyboardInterrupt

    part = settings(tmp_path / "part")
    with pytest.raises(KeyboardInterrupt):
        pretrain(part, report=stop)
    again = pretrain(part)
    ours, theirs = load_file(whole.weights), load_file(again.weights)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    start = read_backbone("tiny").tensors
    apart = [float((ours[n] - t).abs().max()) for n, t in start.items() if t.numel()]
    assert 1e-4 < max(apart) < 0.1


@pytest.mark.slow
def test_dinov2_goes_on_at_patch_16(tmp_path):
    backbone = Backbone(preset("dinov2-vits14").backbone)
    save_file(backbone.state_dict(), tmp_path / "b.safetensors")
    config = settings(
        tmp_path / "run",
        preset="dinov2-vits14",
        patch=16,
        init=str(tmp_path / "b.safetensors"),
        steps=1,
        every=1,
    )
    result = pretrain(config)
    found = read_backbone(result.weights, config.model.backbone)
    assert found.tensors["patch_embed.weight"].shape[-1] == 16
    assert found.config.grid_offset == 0.1


def test_settings_that_contradict_are_refused():
    with pytest.raises(ConfigError, match="the student is its own teacher"):
        settings("x", teacher="lite0.pth")
    with pytest.raises(ConfigError, match="only DINOv2's can be resized"):
        settings("x", patch=8)
    with pytest.raises(ConfigError, match="must be a multiple of 7"):
        settings("x", preset="dinov2-vits14")


def test_a_run_of_0_1_0_still_goes_on(tmp_path):
    config = settings(tmp_path / "run", steps=2)
    pretrain(config)
    saved = tmp_path / "run" / "config.yaml"
    then = identity(config)
    saved.write_text(yaml.safe_dump({**then, "init": "tiny"}))  # without what was added since
    (tmp_path / "run" / "backbone.safetensors").unlink()
    assert [row["step"] for row in pretrain(config).history] == [1, 2]

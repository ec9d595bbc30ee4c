"""Distillation: targets on the token grid, hidden patches, dropped chunks, the loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adadino.model.adadino import AdaDINO
from adadino.model.lite0 import Lite0
from adadino.training.pretrain.distill import (
    Student,
    distillation_loss,
    drop_chunks,
    hide,
    levels_of,
    target_channels,
    targets,
)
from tests.conftest import with_backbone


@pytest.fixture
def student(small) -> Student:
    return Student(AdaDINO(with_backbone(small, trainable=True)))


def test_targets_lie_on_the_token_grid():
    teacher = Lite0().eval()
    images = torch.rand(2, 3, 64, 96)
    levels = targets(teacher, images, 16)
    assert [tuple(level.shape) for level in levels] == [(2, 24, c) for c in target_channels(16)]
    assert target_channels(16) == [24 * 16, 40 * 4, 112, 320]
    # A fold of stride 4 into a token of 16 keeps the place: token (1, 2) holds rows 4..7, 8..11.
    fine = teacher(images)[1]
    token = levels[0][:, 1 * 6 + 2].view(2, 24, 4, 4)
    torch.testing.assert_close(token, fine[:, :, 4:8, 8:12])


def test_shallow_taps_answer_for_fine_levels():
    assert [levels_of(tap) for tap in range(4)] == [(0, 1), (1, 2), (2, 3), (3,)]


def test_a_hidden_patch_is_not_seen(student):
    images = torch.rand(1, 3, 64, 64)
    hidden = torch.zeros(1, 16, dtype=torch.bool)
    hidden[0, 5] = True
    other = images.clone()
    other[..., 16:32, 16:32] = 0  # patch (1, 1) is number 5
    student.eval()
    for a, b in zip(student.features(images, hidden), student.features(other, hidden), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(student.features(images)[0], student.features(other)[0])


def test_the_taps_are_what_the_encoder_hands_on(small):
    model = AdaDINO(small).eval()
    images = torch.rand(2, 3, 64, 64)
    taps = Student(model).eval().features(images)
    frozen = model.encoder.backbone(images)  # every block's output, the last one normalised
    torch.testing.assert_close(taps[-1], frozen[-1][:, small.backbone.prefix :])


def test_the_same_number_is_hidden_everywhere():
    generator = torch.Generator().manual_seed(0)
    hidden = hide(8, 64, 0.3, generator)
    assert hidden.sum(1).tolist() == [19] * 8
    assert not torch.equal(hidden[0], hidden[1])


def test_dropped_chunks_are_a_random_part_of_at_least_the_least():
    generator = torch.Generator().manual_seed(0)
    draws = [drop_chunks(3, 16, least=4, share=1.0, generator=generator) for _ in range(200)]
    counts = torch.stack(draws).sum(2)
    assert set(counts[:, 0].tolist()) == set(range(4, 17))
    assert bool((counts == counts[:, :1]).all())  # one budget a step, another choice in each block
    assert not torch.equal(draws[0][0], draws[0][1])
    dense = [drop_chunks(3, 16, least=4, share=0.0, generator=generator) for _ in range(5)]
    assert bool((torch.stack(dense) == 1).all())


def test_gates_skip_chunks_as_pruning_does(student):
    images = torch.rand(1, 3, 32, 32)
    gates = torch.ones(4, 8)
    gates[:, 3] = 0
    pruned = student.features(images, gates=gates)
    size = 64 // 8
    with torch.no_grad():
        for block in student.backbone.blocks:
            block.ffn.down.weight[:, 3 * size : 4 * size] = 0
    for a, b in zip(pruned, student.features(images), strict=True):
        torch.testing.assert_close(a, b)


def test_the_loss_is_zero_for_the_right_answer_and_falls_by_learning(student):
    wanted = [torch.randn(1, 4, c) * 3 + 1 for c in target_channels(16)]
    statistics = [(level.mean((0, 1)), level.std((0, 1))) for level in wanted]
    goals = [(w - mean) / std for w, (mean, std) in zip(wanted, statistics, strict=True)]
    right = [[goals[level] for level in levels_of(tap)] for tap in range(4)]
    assert float(distillation_loss(right, wanted, statistics)) == 0
    images = torch.rand(1, 3, 32, 32)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = distillation_loss(student(images), wanted, statistics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert all(p.grad is not None for n, p in student.named_parameters() if n != "mask_token")
    assert isinstance(student.mask_token, nn.Parameter)

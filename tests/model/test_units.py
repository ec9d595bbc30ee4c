"""Sorting an FFN's hidden units: free, and worth something once chunks are dropped."""

from __future__ import annotations

import pytest
import torch

from adadino.model.backbone import Backbone, Selection
from adadino.model.units import sort_units, unit_contributions
from tests.conftest import randomise, with_backbone


@pytest.fixture(params=[False, True], ids=["plain", "gated"])
def backbone(small, request) -> Backbone:
    made = randomise(Backbone(with_backbone(small, gated=request.param).backbone))
    with torch.no_grad():
        for block in made.blocks:  # units of very different worth, in no order
            block.ffn.down.weight.mul_(torch.logspace(-2, 0, 64)[torch.randperm(64)])
    return made


IMAGES = [torch.randn(2, 3, 32, 48), torch.randn(1, 3, 16, 16)]


@torch.no_grad()
def test_the_dense_model_computes_the_same(backbone):
    expected = backbone(IMAGES[0])
    sort_units(backbone, unit_contributions(backbone, IMAGES))
    for got, other in zip(backbone(IMAGES[0]), expected, strict=True):
        assert torch.allclose(got, other, atol=1e-4)
    found = unit_contributions(backbone, IMAGES)
    assert (found.diff(dim=1) <= 1e-6 * found[:, :1]).all()


@torch.no_grad()
def test_contributions_are_what_a_unit_adds(backbone):
    """Of block 0, from the definition: drop all other units, measure what is left."""
    contributions = unit_contributions(backbone, [IMAGES[1]])
    x, block = backbone.embed(IMAGES[1]), backbone.blocks[0]
    rope = backbone.rope(*backbone.grid(IMAGES[1]))
    x = x + block.attn(block.norm1(x), rope) * block.ls1
    for unit in (0, 17, 63):
        alone = torch.zeros(64).scatter(0, torch.tensor([unit]), 1.0)
        added = block.ffn(block.norm2(x), Selection(1, gate=alone)) - block.ffn.down.bias
        length = (added * block.ls2).square().sum(-1).mean()
        assert contributions[0, unit].item() == pytest.approx(length.item(), rel=1e-3)


@torch.no_grad()
def test_few_chunks_of_sorted_units_keep_more(backbone):
    def lost() -> float:
        x, total = backbone.embed(IMAGES[0]), 0.0
        for block in backbone.blocks:
            y, keep = block.norm2(x), Selection(8, keep=torch.arange(3))
            total += float((block.ffn(y) - block.ffn(y, keep)).norm() / block.ffn(y).norm())
        return total

    before = lost()
    sort_units(backbone, unit_contributions(backbone, IMAGES))
    assert lost() < 0.7 * before

"""The neck: sizes for any grid, and the cheap order of projection and resize."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from adadino.model.pyramid import SCALES, Neck, Pyramid
from adadino.model.sizes import level_size


def test_parameters():
    with torch.device("meta"):
        neck = Pyramid(dim=1024, width=256)
    assert sum(p.numel() for p in neck.parameters()) == 166_528


@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        ((32, 32), [(64, 64), (32, 32), (16, 16), (8, 8)]),
        ((1, 1), [(2, 2), (1, 1), (1, 1), (1, 1)]),
        ((5, 38), [(10, 76), (5, 38), (3, 19), (2, 10)]),
    ],
)
def test_level_sizes(grid, sizes):
    assert [level_size(grid, scale) for scale in SCALES] == sizes


@pytest.mark.parametrize("scale", SCALES)
def test_projecting_before_resizing_changes_nothing_but_the_cost(scale):
    neck = Neck(dim=12, width=8, scale=scale).eval()
    x = torch.randn(2, 12, 8, 8)
    size = level_size((8, 8), scale)
    resized = F.interpolate(x, size, mode="bilinear", antialias=True) if scale != 1 else x
    y = F.silu(neck.norm1(neck.reduce(resized)))
    y = neck.widen(F.silu(neck.norm2(neck.local(y))))
    assert torch.allclose(neck(x), y, atol=1e-5)


def test_equal_dates_have_no_difference():
    neck = Pyramid(dim=12, width=8).eval()
    maps = [torch.randn(1, 12, 4, 4).repeat(2, 1, 1, 1) for _ in range(4)]
    assert all(d.abs().max() == 0 for d in neck(maps))

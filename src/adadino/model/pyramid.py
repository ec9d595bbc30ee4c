"""Encoder maps to the difference pyramid D_r = |F1 - F2|, r = 2..5. Sec. 3.4.

The paper's neck is not described beyond "four bi-temporal scales, 256 channels per stream and
scale". Ours, per scale: 1x1 to 32 channels, resize, BN, SiLU; depthwise 3x3, BN, SiLU; 1x1 to the
width (166,528 parameters for D = 1024). The first projection comes before the resize. Both
are linear, one over channels and the other over space, so their order changes only the cost: a 32nd
of the resizing, and no 1024-channel map at four times the tokens.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.model.sizes import Sizes

SCALES = (2.0, 1.0, 0.5, 0.25)
"""Sides of P2..P5 as multiples of the token grid: 64, 32, 16, 8 for 32 x 32 tokens."""

REDUCED = 32
"""Channels between the two projections of a neck."""


class Neck(nn.Module):
    """One scale: reduce, resize, mix locally, widen."""

    sizes = Sizes()

    def __init__(self, *, dim: int, width: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.reduce = nn.Conv2d(dim, REDUCED, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(REDUCED)
        self.local = nn.Conv2d(REDUCED, REDUCED, 3, padding=1, groups=REDUCED, bias=False)
        self.norm2 = nn.BatchNorm2d(REDUCED)
        self.widen = nn.Conv2d(REDUCED, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map (2B, D, h, w) to (2B, width, s h, s w)."""
        x = self.sizes.resize(self.reduce(features), self.scale)
        x = F.silu(self.norm1(x))
        x = F.silu(self.norm2(self.local(x)))
        return self.widen(x)


class Pyramid(nn.Module):
    """Four necks and the difference."""

    def __init__(self, *, dim: int, width: int) -> None:
        super().__init__()
        self.necks = nn.ModuleList(Neck(dim=dim, width=width, scale=scale) for scale in SCALES)

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Turn four maps (2B, D, h, w) of both dates into D_2..D_5, each (B, width, h_r, w_r)."""
        return [difference(maps) for maps in self.levels(features)]

    def levels(self, features: list[Tensor]) -> list[Tensor]:
        """F_2..F_5 of both dates, each (2B, width, h_r, w_r)."""
        return [neck(maps) for neck, maps in zip(self.necks, features, strict=True)]


def difference(maps: Tensor) -> Tensor:
    """|F1 - F2|: (2B, C, h, w) -> (B, C, h, w)."""
    before, after = split_dates(maps)
    return (before - after).abs()

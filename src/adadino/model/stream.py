"""A convolutional stream beside the frozen transformer: fine detail that 8-pixel tokens blur.

Not in the paper; ChangeDINO, where its losses come from, has one. Ours is EfficientNet-lite0 up to
stride 16 (0.70M parameters), trained with the rest. The pyramid only says how far the dates
lie apart. The stream also says what is there: at each stride it gives the absolute difference and
the mean of the dates, which are the same for swapped dates. They join the pyramid at P2, P3 and P4,
and a last step at half the image's size sharpens the finest prediction. A model without the stream
(`stream.name=none`) is the paper's, and is reported beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.lite0 import CHANNELS, Lite0
from adadino.model.pair import split_dates
from adadino.model.sizes import Sizes

LEVELS = 4
"""Maps of EfficientNet-lite0 that are used: strides 2, 4, 8, 16."""
FINE = 32
"""Channels of the last step."""


class Evidence(NamedTuple):
    """What the stream found in a pair."""

    fine: Tensor
    """(B, FINE, H / 2, W / 2), for the last step."""
    levels: list[Tensor]
    """(B, width, h_r, w_r) for D_2, D_3, D_4."""
    maps: Sequence[Tensor] = ()
    """What the levels compare: the trunk's maps (2B, C_r, h_r, w_r), of strides 4, 8, 16."""


class Compare(nn.Module):
    """Both dates of one map -> what changed and what is there."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.fuse = nn.Conv2d(2 * channels, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, maps: Tensor) -> Tensor:
        """(2B, C, h, w) -> (B, width, h, w)."""
        before, after = split_dates(maps)
        pair = torch.cat(((before - after).abs(), (before + after) / 2), dim=1)
        return F.silu(self.norm(self.fuse(pair)))


class Stream(nn.Module):
    """EfficientNet-lite0, compared at four strides, and the step that sharpens."""

    sizes = Sizes()

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = Lite0(LEVELS)
        finest, *rest = CHANNELS[:LEVELS]
        self.fine = Compare(finest, FINE)
        self.levels = nn.ModuleList(Compare(channels, width) for channels in rest)
        self.sharpen = nn.Sequential(
            nn.Conv2d(FINE + 2, FINE, 3, padding=1, bias=False),
            nn.BatchNorm2d(FINE),
            nn.SiLU(),
            nn.Conv2d(FINE, 2, 1),
        )

    def forward(self, images: Tensor) -> Evidence:
        """RGB in [0, 1] (2B, 3, H, W), padded to whole tokens -> the evidence."""
        fine, *rest = self.trunk(images)
        levels = [compare(maps) for compare, maps in zip(self.levels, rest, strict=True)]
        return Evidence(self.fine(fine), levels, rest)

    def join(self, evidence: Evidence, differences: list[Tensor]) -> list[Tensor]:
        """Add the evidence to the differences D_2..D_5, each level to the one of its size."""
        levels = evidence.levels
        finer, coarsest = differences[: len(levels)], differences[len(levels) :]
        pairs = zip(finer, levels, strict=True)
        return [d + self.sizes.match(level, d) for d, level in pairs] + coarsest

    def refine(self, logits: Tensor, evidence: Evidence) -> Tensor:
        """Logits (B, 2, h, w) at a quarter of the image's size -> at half of it."""
        fine = evidence.fine
        larger = F.interpolate(logits, fine.shape[-2:], mode="bilinear", align_corners=False)
        found: Tensor = self.sharpen(torch.cat((larger.to(fine.dtype), fine), dim=1))
        return larger + found.float()

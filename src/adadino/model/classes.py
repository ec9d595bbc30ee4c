"""What stands at a place at each date: a head beside the binary one, on the same decoder.

Not in the paper, which tells where something changed and not what into. The field's networks for
semantic change have three branches: one for each date, with shared weights, and one for change
(Bi-SRNet, SCanNet). Ours is the same on what is there already, and computes no feature anew:

- The date's branch reads the maps F_r of one date, of which the pyramid takes the difference, and
  the trunk's maps where there is a stream. From coarse to fine it adds them up.
- At P2 it also reads the binary decoder's last features, the same for both dates: they say where
  the outline of a change runs.
- Both dates go through the branch as one batch (2B), so that its weights are shared and swapped
  dates give swapped classes.
- The binary answer is computed as without the branch, to the bit (tests/model/test_classes.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import Config
from adadino.model.lite0 import CHANNELS
from adadino.model.sizes import Sizes

DETAIL: tuple[int, ...] = CHANNELS[1:4]
"""Channels of the trunk's maps that are read: strides 4, 8 and 16, as P2, P3 and P4 have."""


class Mix(nn.Module):
    """A depthwise and a pointwise convolution, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.local = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.point = nn.Sequential(
            nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(2B, C, h, w) -> the same."""
        return x + self.point(self.local(x))


class ClassHead(nn.Module):
    """Maps of both dates to the logits of their classes."""

    sizes = Sizes()

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.cpgr.width
        streamed = DETAIL if config.stream.name == "lite0" else ()
        self.details = nn.ModuleList(nn.Conv2d(c, width, 1, bias=False) for c in streamed)
        self.levels = nn.ModuleList(Mix(width) for _ in range(4))
        self.join = nn.Sequential(
            nn.Conv2d(2 * width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.SiLU()
        )
        self.head = nn.Conv2d(width, len(config.classes.names), 1)

    def forward(self, maps: list[Tensor], details: Sequence[Tensor], features: Tensor) -> Tensor:
        """The logits of every class at every place of both dates.

        Args:
            maps: F_2..F_5 (2B, width, h_r, w_r), first dates first.
            details: The trunk's maps (2B, C_r, h_r, w_r); empty without a stream.
            features: The binary decoder's, at P2 (B, width, h_2, w_2).

        Returns:
            (2B, classes, h_2, w_2).
        """
        levels = list(maps)
        for index, (project, detail) in enumerate(zip(self.details, details, strict=True)):
            levels[index] = levels[index] + self.sizes.match(project(detail), levels[index])
        x = self.levels[3](levels[3])
        for index in (2, 1, 0):
            finer = levels[index]
            x = F.interpolate(x, finer.shape[-2:], mode="bilinear", align_corners=False)
            x = self.levels[index](x + finer)
        both = features.repeat(2, 1, 1, 1)  # (B, C, h, w) -> (2B, C, h, w)
        return self.head(self.join(torch.cat((x, both), dim=1)))

"""A Siamese U-Net on EfficientNet-lite0: small, pretrained, and the peer to beat.

No paper of its own: the plain recipe (a pretrained trunk for both dates, comparison at every scale,
a U-Net decoder) that "A Change Detection Reality Check" (Corley et al. 2024) shows is hard to beat,
on a trunk whose ImageNet weights anyone may have. At each of five scales the decoder sees the
absolute difference and the mean of the dates, so their order does not matter.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from adadino.model.lite0 import Lite0
from adadino.model.pair import split_dates
from adadino.peers.base import Peer, conv_unit, resize

WIDTHS = (32, 64, 96, 128, 192)
"""Decoder channels at strides 2, 4, 8, 16, 32."""


class LiteUNet(Peer):
    """Trunk, comparison at five scales, decoder."""

    stride = 32

    def __init__(self) -> None:
        # The trunk takes [0, 1] and scales it itself.
        super().__init__(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        self.trunk = Lite0()  # `build` fills in the weights that the configuration names
        self.fuse = nn.ModuleList(
            conv_unit(2 * channels, width, 1)
            for channels, width in zip(Lite0.CHANNELS, WIDTHS, strict=True)
        )
        self.levels = nn.ModuleList(
            nn.Sequential(conv_unit(width + deeper, width), conv_unit(width, width))
            for width, deeper in pairwise(WIDTHS)
        )
        self.head = nn.Conv2d(WIDTHS[0], 2, 1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        maps = self.trunk(self.prepare_pair(before, after))
        skips = []
        for fuse, pair in zip(self.fuse, maps, strict=True):
            first, second = split_dates(pair)
            skips.append(fuse(torch.cat(((first - second).abs(), (first + second) / 2), dim=1)))
        x = skips.pop()
        for level, skip in zip(reversed(self.levels), reversed(skips), strict=True):
            x = level(torch.cat((resize(x, skip.shape[-2:]), skip), dim=1))
        return self.head(x), []

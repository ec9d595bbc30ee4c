"""A plain U-Net over the six channels of both dates.

O. Ronneberger, P. Fischer, T. Brox, "U-Net", MICCAI 2015, fused early. I. Corley, C. Robinson, A.
Ortiz, "A Change Detection Reality Check", ICLR ML4RS workshop 2024, show that such a network, with
an ImageNet ResNet-50 for its encoder, is still among the best. Ours is the plain one: five levels
of 32 to 512 channels, two convolutions each, trained from scratch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.peers.base import Peer, conv_unit

WIDTHS = (32, 64, 128, 256, 512)


def _level(inside: int, width: int) -> nn.Sequential:
    return nn.Sequential(conv_unit(inside, width), conv_unit(width, width))


class UNet(Peer):
    """Encoder, decoder and skip connections, nothing else."""

    stride = 16

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(_level, (6, *WIDTHS[:-1]), WIDTHS))
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in WIDTHS[:-1]
        )
        self.up_levels = nn.ModuleList(_level(2 * width, width) for width in WIDTHS[:-1])
        self.head = nn.Conv2d(WIDTHS[0], 2, 1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        x = self.down[0](torch.cat((self.prepare(before), self.prepare(after)), dim=1))
        skips = [x]
        for level in list(self.down)[1:]:
            x = level(F.max_pool2d(x, 2))
            skips.append(x)
        for i in reversed(range(len(WIDTHS) - 1)):
            x = self.up_levels[i](torch.cat((self.ups[i](x), skips[i]), dim=1))
        return self.head(x), []

"""ChangeMamba (MambaBCD-Tiny): VMamba for each date, and scans through both dates at once.

H. Chen, J. Song, C. Han, J. Xia, N. Yokoya, "ChangeMamba: Remote Sensing Change Detection with
Spatiotemporal State Space Model", TGRS 2024. At each of four scales three blocks relate the dates:
one scans both stacked as channels, one with their columns in turn, one with the maps side by side.
What they say is fused, the coarser scale is added, and a residual block smooths the sum.

As released (0229flex, depths 2, 2, 4, 2, one state for each channel): the selective scan here is
that of `scan.py`, in the place of a compiled CUDA extension. The encoder is random here; theirs
begins with VMamba's ImageNet weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import LVD_MEAN, LVD_STD
from adadino.model.pair import split_dates
from adadino.peers.base import Peer, resize
from adadino.peers.vmamba import VMamba, VSSBlock

WIDTH = 128


class Relate(nn.Module):
    """Three spatiotemporal scans of one scale, fused."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.stacked, self.in_turn, self.beside = (
            nn.Sequential(nn.Conv2d(channels, WIDTH, 1), VSSBlock(WIDTH, drop_path=0.1))
            for channels in (2 * inside, inside, inside)
        )
        self.fuse = nn.Sequential(
            nn.Conv2d(5 * WIDTH, WIDTH, 1), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)
        )

    def forward(self, before: Tensor, after: Tensor) -> Tensor:
        """Two maps (B, C, h, w) -> (B, WIDTH, h, w)."""
        columns = torch.stack((before, after), dim=-1).flatten(-2)  # (B, C, h, 2w)
        turns = self.in_turn(columns).unflatten(-1, (-1, 2)).unbind(-1)
        sides = self.beside(torch.cat((before, after), dim=-1)).chunk(2, dim=-1)
        stacked = self.stacked(torch.cat((before, after), dim=1))
        return self.fuse(torch.cat((stacked, *turns, *sides), dim=1))


class Smooth(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(WIDTH)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class ChangeMamba(Peer):
    """Encoder, four relations from the coarsest scale to the finest, head."""

    stride = 32

    def __init__(self) -> None:
        super().__init__(mean=LVD_MEAN, std=LVD_STD)
        self.encoder = VMamba(width=96, depths=(2, 2, 4, 2), drop_path=0.2)
        self.relate = nn.ModuleList(Relate(width) for width in reversed(self.encoder.widths))
        self.smooth = nn.ModuleList(Smooth() for _ in self.encoder.widths[1:])
        self.head = nn.Conv2d(WIDTH, 2, 1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        maps = self.encoder(self.prepare_pair(before, after))
        related = [
            relate(*split_dates(pair))
            for relate, pair in zip(self.relate, reversed(maps), strict=True)
        ]
        x = related[0]
        for smooth, finer in zip(self.smooth, related[1:], strict=True):
            x = smooth(resize(x, finer.shape[-2:]) + finer)
        return self.head(x), []

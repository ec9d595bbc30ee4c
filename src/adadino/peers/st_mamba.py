"""ST-Mamba-style: a Mamba encoder, dates whose common background is unified, scales fused.

J. Zhao et al., "ST-Mamba: Spatio-Temporal Synergistic Model for Remote Sensing Change Detection",
TGRS 2025. Its authors have released no code that can be read, and of the paper only this was at
hand: features come from Mamba blocks; a spatio-temporal module unifies the background of the dates,
so that other light or another season is no change; scales and channels are fused. What stands below
is therefore ours, and its count of parameters has none to be compared with:

- the encoder is ChangeMamba's smallest VMamba (widths 96 to 768), random; whether theirs was
  pretrained is not known to us;
- at each of four scales both dates are reduced to 128 channels and scanned as one map, their
  columns in turn, so that every place meets the other date next to itself;
- a gate reads both and says for every place and channel how far each date moves to the mean of
  both, which shrinks their absolute difference by as much;
- the differences of all scales, at the finest one's size, are weighed by channel attention and
  fused.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adadino.config import LVD_MEAN, LVD_STD
from adadino.model.pair import split_dates
from adadino.peers.base import Peer, conv_unit, resize
from adadino.peers.vmamba import VMamba, VSSBlock

WIDTH = 128
SQUEEZE = 16


class Unify(nn.Module):
    """Scan both dates as one map, and draw them together where they show the same background."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(inside, WIDTH, 1)
        self.scan = VSSBlock(WIDTH, drop_path=0.1)
        self.gate = nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1)

    def forward(self, pair: Tensor) -> Tensor:
        """Maps of both dates (2B, C, h, w) -> their difference (B, WIDTH, h, w)."""
        dates = torch.stack(split_dates(self.reduce(pair)), dim=-1)  # (B, C, h, w, 2)
        turns = self.scan(dates.flatten(-2)).unflatten(-1, (-1, 2))
        first, second = turns.unbind(-1)
        common = torch.sigmoid(self.gate(torch.cat((first, second), dim=1)))
        return (first - second).abs() * (1 - common)


class STMamba(Peer):
    """Encoder, unification at four scales, fusion, head."""

    stride = 32

    def __init__(self) -> None:
        super().__init__(mean=LVD_MEAN, std=LVD_STD)
        self.encoder = VMamba(width=96, depths=(2, 2, 4, 2), drop_path=0.2)
        widths = self.encoder.widths
        self.unify = nn.ModuleList(Unify(width) for width in widths)
        both = len(widths) * WIDTH
        self.weigh = nn.Sequential(
            nn.Conv2d(both, both // SQUEEZE, 1), nn.ReLU(), nn.Conv2d(both // SQUEEZE, both, 1)
        )
        self.fuse = nn.Sequential(conv_unit(both, WIDTH), conv_unit(WIDTH, WIDTH))
        self.head = nn.Conv2d(WIDTH, 2, 1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        maps = self.encoder(self.prepare_pair(before, after))
        differences = [unify(pair) for unify, pair in zip(self.unify, maps, strict=True)]
        size = differences[0].shape[-2], differences[0].shape[-1]
        x = torch.cat([resize(each, size) for each in differences], dim=1)
        x = x * torch.sigmoid(self.weigh(x.mean((2, 3), keepdim=True)))
        return self.head(self.fuse(x)), []

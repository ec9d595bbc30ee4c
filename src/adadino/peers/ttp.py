"""TTP-style: gates through which the dates travel, between the blocks of an adapted backbone.

K. Chen et al., "Time Travelling Pixels: Bitemporal Features Integration with Foundation Model for
Remote Sensing Image Change Detection", IGARSS 2024. A time-travelling activation gate weighs every
place by both dates' features, and adds what the other date has there, through a small FFN.

The original's: low-rank updates of rank 16 of the fused attention projection; one gate channel,
which starts as the mean of all channels; one FFN for both directions. Ours: DINOv3 in the place of
SAM; gates behind the blocks where AdaDINO adapts, in the place of SAM's windowed blocks; both dates
receive at once (theirs gives the second date the already changed first one); the FFN ends in zeros,
so that training starts from the frozen features; and the decoder, in the place of a feature pyramid
over the concatenated dates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from adadino.config import Config
from adadino.model.backbone import Backbone
from adadino.model.pair import split_dates
from adadino.peers.frozen import Rope
from adadino.peers.peftcd import LoRAPeer


class TimeGate(nn.Module):
    """Give each date what the other one has, where the gate is open."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * dim, 1, bias=False)
        nn.init.constant_(self.gate.weight, 1 / (2 * dim))
        self.ffn = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        nn.init.zeros_(self.ffn[2].weight)  # type: ignore[arg-type]  # Sequential hides the Linear
        nn.init.zeros_(self.ffn[2].bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Patch tokens of both dates (2B, hw, D) -> the same."""
        before, after = split_dates(x)
        gate = torch.sigmoid(self.gate(torch.cat((before, after), dim=-1)))  # (B, hw, 1)
        return x + self.ffn(torch.cat((after * gate, before * gate)))


class TTP(LoRAPeer):
    """LoRA of rank 16, and gates behind some blocks."""

    def __init__(self, config: Config | None = None, *, backbone: Backbone | None = None) -> None:
        super().__init__(config, backbone=backbone, rank=16, alpha=8)
        self.gates = nn.ModuleDict(
            {str(depth): TimeGate(self.config.backbone.dim) for depth in self.config.depths}
        )

    def step(self, index: int, x: Tensor, rope: Rope) -> Tensor:
        """Run one adapted block, and its gate if it has one."""
        x = super().step(index, x, rope)
        if str(index) in self.gates:
            prefix = self.config.backbone.prefix
            patches = self.gates[str(index)](x[:, prefix:])
            x = torch.cat((x[:, :prefix], patches.to(x.dtype)), dim=1)
        return x

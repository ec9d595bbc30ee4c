"""PeftCD-style: low-rank adaptation (LoRA) of the frozen backbone's attention.

S. Dong et al., "PeftCD: Leveraging Vision Foundation Models with Parameter-Efficient Fine-Tuning
for Remote Sensing Change Detection", JSTARS 2026; E. J. Hu et al., "LoRA", ICLR 2022. Each date is
encoded on its own by one adapted backbone.

The original's: rank 8 and alpha 32 on the fused projection to queries, keys and values of every
block. Ours: the decoder (theirs exchanges layers between the dates and has a pyramid of its own),
and no dropout on the low-rank path.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from adadino.config import Config
from adadino.model.backbone import Backbone
from adadino.peers.frozen import FrozenPeer, Rope


class LowRank(nn.Module):
    """A trainable update of low rank for a frozen weight, which it leaves where it is.

    The update starts at zero. It is added to the weight rather than run beside it, which is the
    same map and keeps the backbone's attention as it is. In bf16 the sum is rounded to the weight's
    last bit, which hides the update's first steps.
    """

    def __init__(self, *, inside: int, outside: int, rank: int, alpha: float) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.randn(rank, inside) / inside**0.5)
        self.up = nn.Parameter(torch.zeros(outside, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """(outside, inside) -> the adapted weight, of the same type."""
        return (weight + self.scale * (self.up @ self.down)).to(weight.dtype)


class LoRAPeer(FrozenPeer):
    """The frozen baseline with a low-rank update of every block's attention."""

    def __init__(
        self, config: Config | None = None, *, backbone: Backbone | None, rank: int, alpha: float
    ) -> None:
        super().__init__(config, backbone=backbone)
        dim, depth = self.config.backbone.dim, self.config.backbone.depth
        self.lora = nn.ModuleList(
            LowRank(inside=dim, outside=3 * dim, rank=rank, alpha=alpha) for _ in range(depth)
        )

    def step(self, index: int, x: Tensor, rope: Rope) -> Tensor:
        """Run one block with its adapted projection."""
        block = self.backbone.blocks[index]
        adapted = {"attn.qkv.weight": self.lora[index](block.get_parameter("attn.qkv.weight"))}
        return functional_call(block, adapted, (x, rope))


class PeftCD(LoRAPeer):
    """LoRA of rank 8."""

    def __init__(self, config: Config | None = None, *, backbone: Backbone | None = None) -> None:
        super().__init__(config, backbone=backbone, rank=8, alpha=32)

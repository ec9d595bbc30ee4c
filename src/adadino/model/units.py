"""Sort the hidden units of every FFN by what they contribute, so that chunks differ in worth.

Not in the paper, whose chunks are runs of units in the order of pretraining. The order of an FFN's
hidden units is free: a permutation of the input projection's rows and the output projection's
columns computes the same. In the given order every chunk holds useful units and useless ones.
Sorted, the first chunks hold what matters, and k of C chunks keep more of the FFN's output.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.model.backbone import Backbone, Block, FeedForward


@torch.no_grad()
def unit_contributions(backbone: Backbone, images: Iterable[Tensor]) -> Tensor:
    """The mean squared length of what every hidden unit adds to a token: (blocks, units).

    Args:
        backbone: The backbone.
        images: Batches of normalised images (B, 3, H, W), sides multiples of the patch.
    """
    depth, units = backbone.config.depth, backbone.config.ffn
    energy, tokens = torch.zeros(depth, units, dtype=torch.float64), 0
    for batch in images:
        x, rope = backbone.embed(batch), backbone.rope(*backbone.grid(batch))
        for index, block in enumerate(backbone.blocks):
            assert isinstance(block, Block)
            x = x + block.attn(block.norm1(x), rope) * block.ls1
            y = block.norm2(x)
            energy[index] += _hidden(block.ffn, y).double().square().sum((0, 1)).cpu()
            x = x + block.ffn(y) * block.ls2
        tokens += x.shape[0] * x.shape[1]
    lengths = [
        (block.ffn.down.weight * block.ls2[:, None]).double().square().sum(0).cpu()
        for block in backbone.blocks
        if isinstance(block, Block)
    ]
    return energy / max(tokens, 1) * torch.stack(lengths)


@torch.no_grad()
def sort_units(backbone: Backbone, contributions: Tensor) -> None:
    """Permute the hidden units of every FFN, in place, the largest contribution first."""
    for block, values in zip(backbone.blocks, contributions, strict=True):
        assert isinstance(block, Block)
        order = values.argsort(descending=True, stable=True).to(block.ls2.device)
        for linear in (block.ffn.up, block.ffn.gate):
            if linear is not None:
                linear.weight.copy_(linear.weight[order])
                linear.bias.copy_(linear.bias[order])
        block.ffn.down.weight.copy_(block.ffn.down.weight[:, order])


def _hidden(ffn: FeedForward, x: Tensor) -> Tensor:
    """What the output projection reads."""
    hidden = ffn.up(x)
    return F.gelu(hidden) if ffn.gate is None else F.silu(ffn.gate(x)) * hidden

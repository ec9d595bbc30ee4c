"""BSCS at inference: which chunks a batch executes, chosen beside the attention.

The policy reads what enters the block, but its answer is needed only by the FFN. On a GPU it runs
on a stream of its own, with the gather behind it, while the attention computes.
"""

from __future__ import annotations

from torch import Tensor, nn

from adadino.engine.ops.select import select
from adadino.model.bscs import Policy


class FastPolicy(nn.Module):
    """One block's policy, in float32 whatever the model's type: it decides, and it is small."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        weight = policy.fc1.weight.detach().float().clone()
        if policy.order_invariant:  # the midpoint in both slots = half of each date in each
            both = weight.unflatten(1, (4, -1))
            both[:, :2] = both[:, :2].mean(1, keepdim=True)
        self.weight1: Tensor
        self.bias1: Tensor
        self.weight2: Tensor
        self.bias2: Tensor
        self.register_buffer("weight1", weight)
        self.register_buffer("bias1", policy.fc1.bias.detach().float().clone())
        self.register_buffer("weight2", policy.fc2.weight.detach().float().clone())
        self.register_buffer("bias2", policy.fc2.bias.detach().float().clone())

    def forward(self, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores (B, C) and the k best chunks from the parts (B, parts, 4D) of PoolPair."""
        return select(
            parts,
            weight1=self.weight1,
            bias1=self.bias1,
            weight2=self.weight2,
            bias2=self.bias2,
            k=k,
        )

"""The policy, from pooled parts to chunks: scores, their mean over the batch, the k best.

On a GPU two kernels instead of a sum, two products, GELU, mean, top-k and sort: little in a large
batch, where the attention hides them, and 0.7 of 6.0 ms for a single pair.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from adadino.engine.ops import on_gpu
from adadino.model.bscs import top_chunks


def select(
    parts: Tensor, *, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Choose a batch's chunks; everything in float32.

    Args:
        parts: (B, parts, 4D), which add up to PoolPair.
        weight1: (hidden, 4D) of the policy's first layer.
        bias1: (hidden,)
        weight2: (C, hidden) of its second.
        bias2: (C,)
        k: How many chunks.

    Returns:
        The scores (B, C), and the best chunks (k,) of their mean, ascending. Of equal means the
        kernel takes the lower chunk; `topk` does not say which it takes.
    """
    if on_gpu(parts):
        from adadino.engine.kernels.select import select as kernel

        return kernel(parts, weight1=weight1, bias1=bias1, weight2=weight2, bias2=bias2, k=k)
    hidden = F.gelu(F.linear(parts.sum(1), weight1, bias1))
    scores = F.linear(hidden, weight2, bias2)
    return scores, top_chunks(scores, k)

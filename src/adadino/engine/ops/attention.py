"""Attention with the queries' rotation inside, for token counts that are no multiple of a tile."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from adadino.engine.ops import on_gpu
from adadino.engine.ops.rope import rope_

MOST = 2048
"""Tokens up to which our kernel replaces cuDNN's and a rotation of the queries in memory. It wins
by not filling a tile of 128 for five tokens (410 us against 435 at 1029 tokens; at 1024 cuDNN needs
312), which long sequences do not mind."""
BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""In the order of preference on a GPU: PyTorch's own order begins with an older kernel."""


def attention(qkv: Tensor, cos: Tensor, sin: Tensor, *, heads: int, prefix: int) -> Tensor:
    """Attend over all tokens.

    Args:
        qkv: Queries, keys and values (B, N, 3D), not rotated yet; overwritten.
        cos: (N, head_dim), float32.
        sin: (N, head_dim), float32.
        heads: Number of heads.
        prefix: Tokens in front of the patches: what keeps N from being a multiple of a tile.

    Returns:
        (B, N, D), contiguous.
    """
    B, N, D = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    if N <= MOST and on_gpu(qkv) and fits(qkv.dtype, D // heads):
        from adadino.engine.kernels.attention import attention as kernel

        return kernel(qkv, cos, sin, heads=heads, prefix=prefix)
    q, k, v = rope_(qkv, cos, sin, heads=heads).view(B, N, 3, heads, -1).permute(2, 0, 3, 1, 4)
    if qkv.is_cuda:
        with sdpa_kernel(BACKENDS, set_priority=True):
            y = F.scaled_dot_product_attention(q, k, v)
    else:
        y = F.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).reshape(B, N, D)


def fits(dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernel takes it: 16 bits, and heads that tensor cores and shared memory hold."""
    return dtype == torch.bfloat16 and head_dim in (16, 32, 64)

"""Rotary positions, in place on the fused projection of queries, keys and values."""

from __future__ import annotations

from torch import Tensor

from adadino.engine.kernels import on_gpu
from adadino.model.backbone import rotate


def rope_(qkv: Tensor, cos: Tensor, sin: Tensor, *, heads: int) -> Tensor:
    """Turn the queries and keys of tokens (B, N, 3D) by tables (N, head_dim), in place.

    Both halves of a head turn by the same angles, so the tables' first halves are all that is read.
    """
    if on_gpu(qkv):
        from adadino.engine.gpu.rope import rope_ as kernel

        return kernel(qkv, cos, sin, heads=heads)
    both = qkv[..., : 2 * qkv.shape[-1] // 3].unflatten(-1, (2 * heads, -1))  # (B, N, 2h, head_dim)
    both.copy_(rotate(both, cos[:, None].to(qkv.dtype), sin[:, None].to(qkv.dtype)))
    return qkv

"""Rotary positions, in place on the fused projection of queries, keys and values."""

from __future__ import annotations

from torch import Tensor

from adadino.engine.ops import on_gpu
from adadino.model.backbone import rotate


def rope_(qkv: Tensor, cos: Tensor, sin: Tensor, *, heads: int, queries: bool = True) -> Tensor:
    """Turn the keys, and the queries, of tokens (B, N, 3D) by tables (N, head_dim), in place.

    Both halves of a head turn by the same angles, so the tables' first halves are all that is read.
    """
    if on_gpu(qkv):
        from adadino.engine.kernels.rope import rope_ as kernel

        return kernel(qkv, cos, sin, heads=heads, queries=queries)
    D = qkv.shape[-1] // 3
    turned = qkv[..., 0 if queries else D : 2 * D].unflatten(-1, (-1, D // heads))
    turned.copy_(rotate(turned, cos[:, None].to(qkv.dtype), sin[:, None].to(qkv.dtype)))
    return qkv

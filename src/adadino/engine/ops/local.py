"""What CGLA does between its matrix products, on maps that lie as tokens (B, h, w, C).

GroupNorm is split in two: `group_affine` turns the statistics into one scale and one shift per
channel, and `affine_silu` or `context` applies them.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.engine.ops import on_gpu

Affine = tuple[Tensor, Tensor]
"""Scale and shift, each (B, C) float32."""


def group_affine(x: Tensor, norm: nn.GroupNorm) -> Affine:
    """GroupNorm of a map (B, hw, C) as y = x * scale + shift, statistics in float32."""
    if on_gpu(x):
        from adadino.engine.kernels.local import group_affine as kernel

        return kernel(x, norm)
    groups = x.float().unflatten(-1, (norm.num_groups, -1))  # (B, hw, G, C / G)
    variance, mean = torch.var_mean(groups, dim=(1, 3), correction=0)
    factor = torch.rsqrt(variance + norm.eps)[..., None]
    weight, bias = (p.float().view(norm.num_groups, -1) for p in (norm.weight, norm.bias))
    scale = factor * weight
    shift = bias - mean[..., None] * scale
    return scale.flatten(1), shift.flatten(1)


def affine_silu(x: Tensor, affine: Affine) -> Tensor:
    """SiLU(x * scale + shift) of a map (B, hw, C)."""
    if on_gpu(x):
        from adadino.engine.kernels.local import affine_silu as kernel

        return kernel(x, affine)
    scale, shift = (t[:, None] for t in affine)
    return F.silu(x.float() * scale + shift).to(x.dtype)


def depthwise(x: Tensor, weight: Tensor, *, after: Literal["none", "gelu"] = "none") -> Tensor:
    """Depthwise 3x3 with zero padding of a map (B, h, w, C), channels last in and out.

    Args:
        x: The map.
        weight: (9, C), row by row of the window.
        after: Non-linearity on the result.
    """
    if on_gpu(x):
        from adadino.engine.kernels.local import depthwise as kernel

        return kernel(x, weight, after=after)
    kernel4 = weight.t().reshape(-1, 1, 3, 3)
    y = F.conv2d(x.permute(0, 3, 1, 2), kernel4, padding=1, groups=x.shape[-1])
    return (F.gelu(y) if after == "gelu" else y).permute(0, 2, 3, 1)


def context(
    x: Tensor, affine: Affine, w_spatial: Tensor, b_spatial: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """CGLA's context and what is read off it at once.

    Args:
        x: The depthwise convolution's output (B, hw, H).
        affine: Its GroupNorm.
        w_spatial: (H,) of the spatial gate.
        b_spatial: (1,) of the spatial gate.

    Returns:
        The context (B, hw, H); the spatial gate (B, hw) in float32; and float32 parts (B, parts, H)
        whose sum is the context's mean over the places.
    """
    if on_gpu(x):
        from adadino.engine.kernels.local import context as kernel

        return kernel(x, affine, w_spatial, b_spatial)
    y = affine_silu(x, affine)
    gate = torch.sigmoid(y.float() @ w_spatial.float() + b_spatial.float())
    return y, gate, y.float().mean(1, keepdim=True)

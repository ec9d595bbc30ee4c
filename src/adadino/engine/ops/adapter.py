"""CGLA's operations that are not matrix products, on maps that lie as tokens (B, h, w, C).

GroupNorm is split in two: `group_affine` turns the statistics into one scale and one shift per
channel, and `affine_silu` or `context` applies them.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.engine.ops import kernel_in
from adadino.model.pair import split_dates

Affine = tuple[Tensor, Tensor]
"""Scale and shift, each (B, C) float32."""


@kernel_in("norm")
def pair_norm(x: Tensor, *, prefix: int, shift: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """CGLA's view of a pair, from tokens (2B, N, D) in one reading.

    Returns:
        The normalised patch tokens of both dates [F1, F2], and their relation [|F1 - F2|, F1 * F2],
        each (B, hw, 2, D). They are never concatenated into the 4D of Eq. 2.
    """
    tokens = F.layer_norm((x[:, prefix:].float() + shift).to(x.dtype), x.shape[-1:], eps=eps)
    first, second = split_dates(tokens)
    relation = torch.stack(((first - second).abs(), first * second), dim=2)
    return torch.stack((first, second), dim=2), relation


@kernel_in("local")
def group_affine(x: Tensor, norm: nn.GroupNorm) -> Affine:
    """GroupNorm of a map (B, hw, C) as y = x * scale + shift, statistics in float32."""
    groups = x.float().unflatten(-1, (norm.num_groups, -1))  # (B, hw, G, C / G)
    variance, mean = torch.var_mean(groups, dim=(1, 3), correction=0)
    factor = torch.rsqrt(variance + norm.eps)[..., None]
    weight, bias = (p.float().view(norm.num_groups, -1) for p in (norm.weight, norm.bias))
    scale = factor * weight
    shift = bias - mean[..., None] * scale
    return scale.flatten(1), shift.flatten(1)


@kernel_in("local")
def affine_silu(x: Tensor, affine: Affine) -> Tensor:
    """SiLU(x * scale + shift) of a map (B, hw, C)."""
    scale, shift = (t[:, None] for t in affine)
    return F.silu(x.float() * scale + shift).to(x.dtype)


@kernel_in("local")
def depthwise(x: Tensor, weight: Tensor, *, after: Literal["none", "gelu"] = "none") -> Tensor:
    """Depthwise 3x3 with zero padding of a map (B, h, w, C), channels last in and out.

    Args:
        x: The map.
        weight: (9, C), row by row of the window.
        after: Non-linearity on the result.
    """
    kernel4 = weight.t().reshape(-1, 1, 3, 3)
    y = F.conv2d(x.permute(0, 3, 1, 2), kernel4, padding=1, groups=x.shape[-1])
    return (F.gelu(y) if after == "gelu" else y).permute(0, 2, 3, 1)


@kernel_in("local")
def context(
    x: Tensor, affine: Affine, w_spatial: Tensor, b_spatial: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """CGLA's context, its spatial gate (Eq. 3) and its mean, in one pass.

    Args:
        x: The depthwise convolution's output (B, hw, H).
        affine: Its GroupNorm.
        w_spatial: (H,) of the spatial gate.
        b_spatial: (1,) of the spatial gate.

    Returns:
        The context (B, hw, H); the spatial gate (B, hw) in float32; and float32 parts (B, parts, H)
        whose sum is the context's mean over the places.
    """
    y = affine_silu(x, affine)
    gate = torch.sigmoid(y.float() @ w_spatial.float() + b_spatial.float())
    return y, gate, y.float().mean(1, keepdim=True)


@kernel_in("residual")
def gated_residual_(
    x: Tensor,
    local: Tensor,
    delta: Tensor,
    *,
    gate_spatial: Tensor,
    gate_channel: Tensor,
    gamma_self: Tensor,
    gamma_delta: Tensor,
    sign: int,
    features: Tensor | None = None,
) -> Tensor:
    """Eq. 6: add CGLA's residual to the patch tokens of both dates, in place.

    Args:
        x: Tokens (2B, N, D), prefix included.
        local: f_loc of both dates (B, hw, 2, D).
        delta: f_delta of the pair (B, hw, D).
        gate_spatial: (B, hw), float32.
        gate_channel: (B, D), float32.
        gamma_self: (D,), eta included, float32.
        gamma_delta: (D,), eta included, float32; zeros for no injection.
        sign: The delta's sign in the second date: -1 antisymmetric, +1 symmetric.
        features: F1 and F2 (B, hw, 2, D) if the delta takes its sign from tanh(F1 - F2).

    Returns:
        q_delta of Eq. 7 (B, hw): the channel mean of the gated delta's magnitude, float32.
    """
    gate = gate_channel[:, None] * gate_spatial[..., None]  # (B, hw, D)
    d = gate * delta.float()
    if features is not None:
        d = d * torch.tanh((features[:, :, 0] - features[:, :, 1]).float())
    prefix = x.shape[1] - local.shape[1]
    temporal = d * gamma_delta
    for date, tokens in enumerate(split_dates(x[:, prefix:])):
        update = gate * gamma_self * local[:, :, date].float()
        tokens.add_((update + (temporal if date == 0 else sign * temporal)).to(x.dtype))
    return d.abs().mean(-1)

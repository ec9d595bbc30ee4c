"""Eq. 6 and 7: gate the two residuals, add them to the tokens in place, and say how much."""

from __future__ import annotations

import torch
from torch import Tensor

from adadino.engine.ops import on_gpu
from adadino.model.pair import split_dates


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
    """Add CGLA's residual to the patch tokens of both dates, in place.

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
        q_delta (B, hw): the channel mean of the gated delta's magnitude, float32.
    """
    if on_gpu(x):
        from adadino.engine.kernels.residual import gated_residual_ as kernel

        return kernel(
            x,
            local,
            delta,
            gate_spatial=gate_spatial,
            gate_channel=gate_channel,
            gamma_self=gamma_self,
            gamma_delta=gamma_delta,
            sign=sign,
            features=features,
        )
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

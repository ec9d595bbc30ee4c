"""LayerNorms that read the tokens once.

The tokens x of the engine lack the biases of the projections that were added into them: those are
constants, so their running sum `shift` is added where tokens are read, and the projection can add
its product into x in place (`addmm_`, which has no room for a bias as well).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.engine.ops import on_gpu
from adadino.engine.rows import Kind, Rows, quantize
from adadino.model.bscs import pool_pair
from adadino.model.pair import split_dates


def layer_norm(
    x: Tensor, *, shift: Tensor, weight: Tensor, bias: Tensor, eps: float, kind: Kind | None = None
) -> Rows:
    """Normalise tokens (..., D) into rows (R, D), in eight bits if a kind is given."""
    if on_gpu(x):
        from adadino.engine.kernels.norm import layer_norm as kernel

        return kernel(x, shift=shift, weight=weight, bias=bias, eps=eps, kind=kind)
    rows = (x.flatten(0, -2).float() + shift).to(x.dtype)
    rows = F.layer_norm(rows, rows.shape[-1:], weight.to(x.dtype), bias.to(x.dtype), eps)
    return quantize(rows, kind)


def layer_norm_pooled(
    x: Tensor,
    *,
    prefix: int,
    shift: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    kind: Kind | None = None,
) -> tuple[Rows, Tensor]:
    """`layer_norm` of both dates' tokens (2B, N, D), and Eq. 8 from the same reading.

    Returns:
        The rows, and float32 parts (B, parts, 4D) whose sum is PoolPair: means of the patch tokens
        of each date, of their absolute difference, of their product.
    """
    if on_gpu(x):
        from adadino.engine.kernels.norm import layer_norm_pooled as kernel

        return kernel(x, prefix=prefix, shift=shift, weight=weight, bias=bias, eps=eps, kind=kind)
    rows = layer_norm(x, shift=shift, weight=weight, bias=bias, eps=eps, kind=kind)
    before, after = split_dates(x[:, prefix:].float() + shift)
    return rows, pool_pair(before, after)[:, None]


def pair_norm(x: Tensor, *, prefix: int, shift: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """CGLA's view of a pair, from tokens (2B, N, D) in one reading.

    Returns:
        The normalised patch tokens of both dates [F1, F2], and their relation [|F1 - F2|, F1 * F2],
        each (B, hw, 2, D). They are never put together into the 4D of Eq. 2.
    """
    if on_gpu(x):
        from adadino.engine.kernels.norm import pair_norm as kernel

        return kernel(x, prefix=prefix, shift=shift, eps=eps)
    tokens = F.layer_norm((x[:, prefix:].float() + shift).to(x.dtype), x.shape[-1:], eps=eps)
    first, second = split_dates(tokens)
    relation = torch.stack(((first - second).abs(), first * second), dim=2)
    return torch.stack((first, second), dim=2), relation

# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""CGLA's last step: seven maps of tokens are read or written, each once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 2
"""Places that a program holds at once, in both dates."""


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit(do_not_specialize=["pairs", "tokens", "prefix"])
def _gated_residual(
    x,
    local,
    delta,
    gate_spatial,
    gate_channel,
    gamma_self,
    gamma_delta,
    features,
    q_delta,
    pairs,
    tokens,
    prefix,
    sign,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    SIGNED: tl.constexpr,
):
    pair = tl.program_id(1)
    patch = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    places = tokens - prefix
    there = patch < places
    column = tl.arange(0, BLOCK)
    inside = column < D
    mask = there[:, None] & inside[None]
    place = (pair * places + patch).to(tl.int64)
    both = place[:, None] * 2 * D + column[None]
    spatial = tl.load(gate_spatial + place, mask=there, other=0.0)
    channel = tl.load(gate_channel + pair * D + column, mask=inside, other=0.0)
    gate = spatial[:, None] * channel[None]
    d = gate * tl.load(delta + place[:, None] * D + column[None], mask=mask, other=0.0).to(
        tl.float32
    )
    if SIGNED:
        f1 = tl.load(features + both, mask=mask, other=0.0).to(tl.float32)
        f2 = tl.load(features + both + D, mask=mask, other=0.0).to(tl.float32)
        d *= _tanh(f1 - f2)
    tl.store(q_delta + place, tl.sum(tl.abs(d), 1) / D, mask=there)
    own = gate * tl.load(gamma_self + column, mask=inside, other=0.0)[None]
    temporal = d * tl.load(gamma_delta + column, mask=inside, other=0.0)[None]
    at1 = x + (pair * tokens + prefix + patch).to(tl.int64)[:, None] * D + column[None]
    at2 = x + ((pairs + pair) * tokens + prefix + patch).to(tl.int64)[:, None] * D + column[None]
    l1 = tl.load(local + both, mask=mask, other=0.0).to(tl.float32)
    l2 = tl.load(local + both + D, mask=mask, other=0.0).to(tl.float32)
    x1 = tl.load(at1, mask=mask, other=0.0).to(tl.float32) + own * l1 + temporal
    x2 = tl.load(at2, mask=mask, other=0.0).to(tl.float32) + own * l2 + sign * temporal
    tl.store(at1, x1.to(x.dtype.element_ty), mask=mask)
    tl.store(at2, x2.to(x.dtype.element_ty), mask=mask)


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
    """See `ops.adapter.gated_residual_`."""
    assert all(t.is_contiguous() for t in (x, local, delta))
    pairs, tokens, D = x.shape[0] // 2, x.shape[1], x.shape[2]
    places = local.shape[1]
    q_delta = torch.empty(pairs, places, device=x.device, dtype=torch.float32)
    _gated_residual[(triton.cdiv(places, ROWS), pairs)](
        x,
        local,
        delta,
        gate_spatial,
        gate_channel,
        gamma_self,
        gamma_delta,
        delta if features is None else features,
        q_delta,
        pairs,
        tokens,
        tokens - places,
        float(sign),
        D=D,
        BLOCK=triton.next_power_of_2(D),
        ROWS=ROWS,
        SIGNED=features is not None,
        num_warps=4,
    )
    return q_delta

# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""GELU or SwiGLU of whole rows, quantised before they leave the registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from adadino.engine.rows import DTYPE, LIMIT, Kind, Rows


@triton.jit
def _activate(
    hidden,
    out,
    scales,
    limit,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    GATED: tl.constexpr,
    EIGHT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < K
    if GATED > 0:  # chunks of [gate, value], GATED channels each
        at = hidden + row * 2 * K + column // GATED * 2 * GATED + column % GATED
        gate = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        y = gate * tl.sigmoid(gate) * tl.load(at + GATED, mask=mask, other=0.0).to(tl.float32)
    else:
        x = tl.load(hidden + row * K + column, mask=mask, other=0.0).to(tl.float32)
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if EIGHT:
        scale = tl.maximum(tl.max(tl.abs(y), 0), 1e-12) / limit
        y = y / scale
        tl.store(scales + row, scale)
    tl.store(out + row * K + column, y.to(out.dtype.element_ty), mask=mask)


def activate(hidden: Tensor, *, gated: int = 0, kind: Kind | None = None) -> Rows:
    """See `ops.block.activate`."""
    assert hidden.is_contiguous()
    rows, K = hidden.shape[0], hidden.shape[1] // (2 if gated else 1)
    dtype = hidden.dtype if kind is None else DTYPE[kind]
    out = torch.empty(rows, K, device=hidden.device, dtype=dtype)
    scales = torch.empty(rows, device=hidden.device, dtype=torch.float32)
    block = triton.next_power_of_2(K)
    _activate[(rows,)](
        hidden,
        out,
        scales,
        1.0 if kind is None else LIMIT[kind],
        K=K,
        BLOCK=block,
        GATED=gated,
        EIGHT=kind is not None,
        num_warps=max(1, min(8, block // 512)),
    )
    return Rows(out, None if kind is None else scales)

# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""Rotary positions in place: what turns is read and written once, the rest not at all."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["tokens"])
def _rope(
    qkv,
    cos,
    sin,
    tokens,
    width,
    half,
    FIRST: tl.constexpr,
    COUNT: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    channel = tl.arange(0, HALF)[None]
    mask = (head < COUNT) & (channel < half)
    table = (row % tokens) * 2 * half + channel
    c = tl.load(cos + table, mask=channel < half, other=0.0)
    s = tl.load(sin + table, mask=channel < half, other=0.0)
    at = qkv + row * width + (FIRST + head) * 2 * half + channel
    first = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(at + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(at, (first * c - second * s).to(qkv.dtype.element_ty), mask=mask)
    tl.store(at + half, (second * c + first * s).to(qkv.dtype.element_ty), mask=mask)


def rope_(qkv: Tensor, cos: Tensor, sin: Tensor, *, heads: int, queries: bool = True) -> Tensor:
    """See `kernels.rope.rope_`."""
    assert all(t.is_contiguous() for t in (qkv, cos, sin))
    half = cos.shape[-1] // 2
    count = 2 * heads if queries else heads
    _rope[(qkv.shape[0] * qkv.shape[1],)](
        qkv,
        cos,
        sin,
        qkv.shape[1],
        qkv.shape[-1],
        half,
        FIRST=0 if queries else heads,
        COUNT=count,
        HEADS=triton.next_power_of_2(count),
        HALF=triton.next_power_of_2(half),
        num_warps=4,
    )
    return qkv

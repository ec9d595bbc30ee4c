# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""Attention over a few prefix tokens and a grid of patches, the queries turned as they are read.

The patches of a grid often fill whole tiles, and five more tokens would cost another tile of 64 or
128. Here the prefix has a narrow tile of its own at the start, and the loop behind it needs no
mask. Keys, which many programs read, are turned in memory beforehand (`rope_`). Where positions are
learned (DINOv2), nothing is turned.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from adadino.model.positions import Rope

QUERIES, KEYS = 64, 64
"""The tile of scores."""
WARPS, STAGES = 4, 3
LOG2E = 1.4426950408889634


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
    """See `ops.block.rope_`."""
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


@triton.jit
def _queries(
    base, cos, sin, row, channel, there, D: tl.constexpr, DIM: tl.constexpr, TURN: tl.constexpr
):
    HALF: tl.constexpr = DIM // 2
    q = tl.load(base + row * 3 * D + channel, mask=there, other=0.0)
    if TURN:
        # A query beside itself with its halves exchanged: what the rotation mixes in.
        partner = (channel + HALF) % DIM
        mixed = tl.load(base + row * 3 * D + partner, mask=there, other=0.0).to(tl.float32)
        table = row * DIM + channel % HALF
        c = tl.load(cos + table, mask=there, other=0.0)
        s = tl.load(sin + table, mask=there, other=0.0)
        mixed = tl.where(channel < HALF, -mixed, mixed)
        q = (q.to(tl.float32) * c + mixed * s).to(base.dtype.element_ty)
    return q


@triton.jit
def _attention(
    qkv,
    cos,
    sin,
    out,
    factor,
    TOKENS: tl.constexpr,
    PREFIX: tl.constexpr,
    HEAD: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    TURN: tl.constexpr,
):
    image, head = tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    D: tl.constexpr = HEADS * DIM
    base = qkv + image.to(tl.int64) * TOKENS * 3 * D + head * DIM
    channel = tl.arange(0, DIM)[None]
    row = (tl.program_id(0) * QUERIES + tl.arange(0, QUERIES))[:, None]
    q = _queries(base, cos, sin, row, channel, row < TOKENS, D, DIM, TURN)

    top = tl.full([QUERIES], -1e30, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    y = tl.zeros([QUERIES, DIM], tl.float32)
    if PREFIX > 0:
        few = tl.arange(0, HEAD)
        inside = few < PREFIX
        at_few = base + D + few[None] * 3 * D + tl.arange(0, DIM)[:, None]
        k_few = tl.load(at_few, mask=inside[None], other=0.0)
        at_few = base + 2 * D + few[:, None] * 3 * D + channel
        v_few = tl.load(at_few, mask=inside[:, None], other=0.0)
        near = tl.where(inside[None], tl.dot(q, k_few, input_precision="ieee"), -1e30)
        top = tl.max(near, 1)
        near = tl.exp2(near * factor - (top * factor)[:, None])
        total = tl.sum(near, 1)
        y = tl.dot(near.to(v_few.dtype), v_few, input_precision="ieee")
    for start in range(PREFIX, TOKENS, KEYS):
        key = start + tl.arange(0, KEYS)
        at_k = base + D + key[None] * 3 * D + tl.arange(0, DIM)[:, None]
        at_v = base + 2 * D + key[:, None] * 3 * D + channel
        if (TOKENS - PREFIX) % KEYS == 0:
            k, v = tl.load(at_k), tl.load(at_v)
            score = tl.dot(q, k, input_precision="ieee")
        else:
            k = tl.load(at_k, mask=(key < TOKENS)[None], other=0.0)
            v = tl.load(at_v, mask=(key < TOKENS)[:, None], other=0.0)
            score = tl.where((key < TOKENS)[None], tl.dot(q, k, input_precision="ieee"), -1e30)
        higher = tl.maximum(top, tl.max(score, 1))
        p = tl.exp2(score * factor - (higher * factor)[:, None])
        fade = tl.exp2((top - higher) * factor)
        total = total * fade + tl.sum(p, 1)
        y = tl.dot(p.to(v.dtype), v, y * fade[:, None], input_precision="ieee")
        top = higher
    at = out + (image.to(tl.int64) * TOKENS + row) * D + head * DIM + channel
    tl.store(at, (y / total[:, None]).to(out.dtype.element_ty), mask=row < TOKENS)


def attention(qkv: Tensor, rope: Rope | None, *, heads: int, prefix: int) -> Tensor:
    """See `ops.block.attention`."""
    cos, sin = (qkv, qkv) if rope is None else rope  # what is not turned reads no table
    if rope is not None:
        qkv = rope_(qkv, cos, sin, heads=heads, queries=False)
    B, N, D = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    dim = D // heads
    out = torch.empty(B, N, D, device=qkv.device, dtype=qkv.dtype)
    _attention[(triton.cdiv(N, QUERIES), B * heads)](
        qkv,
        cos,
        sin,
        out,
        dim**-0.5 * LOG2E,
        TOKENS=N,
        PREFIX=prefix,
        HEAD=max(16, triton.next_power_of_2(prefix)),
        HEADS=heads,
        DIM=dim,
        QUERIES=QUERIES,
        KEYS=KEYS,
        TURN=rope is not None,
        num_warps=WARPS,
        num_stages=STAGES,
    )
    return out

# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""CGLA between its matrix products: GroupNorm statistics, depthwise 3x3, the context's gates."""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from adadino.engine.ops.adapter import Affine

STATS_TOKENS = 64
"""Tokens that a GroupNorm program reads at once."""
DEPTHWISE_COLUMNS, DEPTHWISE_CHANNELS = 16, 128
"""The tile of one row of the map that a depthwise program computes."""
CONTEXT_TOKENS = 8
APPLY_ELEMENTS = 2048


@triton.jit
def _group_affine(
    x,
    weight,
    bias,
    scale,
    shift,
    C,
    eps,
    PLACES: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
):
    group, pair = tl.program_id(0), tl.program_id(1)
    channel = tl.arange(0, BLOCK)
    inside = channel < WIDTH
    base = x + pair.to(tl.int64) * PLACES * C + group * WIDTH
    count = PLACES * WIDTH
    total = tl.zeros([TOKENS, BLOCK], tl.float32)
    for start in range(0, PLACES, TOKENS):
        token = start + tl.arange(0, TOKENS)
        mask = (token < PLACES)[:, None] & inside[None]
        at = base + token[:, None] * C + channel[None]
        total += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(tl.sum(total, 1), 0) / count
    # A second reading, from the cache: squares about the mean lose nothing to cancellation.
    total = tl.zeros([TOKENS, BLOCK], tl.float32)
    for start in range(0, PLACES, TOKENS):
        token = start + tl.arange(0, TOKENS)
        mask = (token < PLACES)[:, None] & inside[None]
        at = base + token[:, None] * C + channel[None]
        value = tl.where(mask, tl.load(at, mask=mask, other=0.0).to(tl.float32) - mean, 0.0)
        total += value * value
    factor = tl.rsqrt(tl.sum(tl.sum(total, 1), 0) / count + eps)
    column = group * WIDTH + channel
    a = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) * factor
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32) - mean * a
    tl.store(scale + pair * C + column, a, mask=inside)
    tl.store(shift + pair * C + column, b, mask=inside)


def group_affine(x: Tensor, norm: nn.GroupNorm) -> Affine:
    """See `ops.adapter.group_affine`."""
    assert x.is_contiguous()
    B, places, C = x.shape
    scale, shift = (torch.empty(B, C, device=x.device, dtype=torch.float32) for _ in "ab")
    width = C // norm.num_groups
    _group_affine[(norm.num_groups, B)](
        x,
        norm.weight,
        norm.bias,
        scale,
        shift,
        C,
        norm.eps,
        PLACES=places,
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width),
        TOKENS=STATS_TOKENS,
        num_warps=8,
    )
    return scale, shift


@triton.jit(do_not_specialize=["places"])
def _affine_silu(x, scale, shift, out, size, places, C, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    affine = at // (places * C) * C + at % C
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    value = value * tl.load(scale + affine, mask=mask, other=0.0)
    value += tl.load(shift + affine, mask=mask, other=0.0)
    tl.store(out + at, (value * tl.sigmoid(value)).to(out.dtype.element_ty), mask=mask)


def affine_silu(x: Tensor, affine: Affine) -> Tensor:
    """See `ops.adapter.affine_silu`."""
    assert x.is_contiguous()
    out = torch.empty_like(x)
    _affine_silu[(triton.cdiv(x.numel(), APPLY_ELEMENTS),)](
        x, *affine, out, x.numel(), x.shape[1], x.shape[2], BLOCK=APPLY_ELEMENTS
    )
    return out


@triton.jit(do_not_specialize=["h", "w"])
def _depthwise(
    x,
    weight,
    out,
    h,
    w,
    C,
    GELU: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    line, tile = tl.program_id(0), tl.program_id(1)
    pair, y = line // h, line % h
    tiles = tl.cdiv(C, CHANNELS)
    column = tile // tiles * COLUMNS + tl.arange(0, COLUMNS)
    channel = tile % tiles * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < C
    base = x + pair.to(tl.int64) * h * w * C
    total = tl.zeros([COLUMNS, CHANNELS], tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            row, place = y + dy - 1, column + dx - 1
            there = (row >= 0) & (row < h) & (place >= 0) & (place < w)
            mask = there[:, None] & inside[None]
            at = base + (row * w + place)[:, None] * C + channel[None]
            value = tl.load(at, mask=mask, other=0.0).to(tl.float32)
            tap = tl.load(weight + (dy * 3 + dx) * C + channel, mask=inside, other=0.0)
            total += value * tap.to(tl.float32)[None]
    if GELU:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    mask = (column < w)[:, None] & inside[None]
    at = out + pair.to(tl.int64) * h * w * C + (y * w + column)[:, None] * C + channel[None]
    tl.store(at, total.to(out.dtype.element_ty), mask=mask)


def depthwise(x: Tensor, weight: Tensor, *, after: Literal["none", "gelu"] = "none") -> Tensor:
    """See `ops.adapter.depthwise`."""
    assert all(t.is_contiguous() for t in (x, weight))
    B, h, w, C = x.shape
    out = torch.empty_like(x)
    tiles = triton.cdiv(w, DEPTHWISE_COLUMNS) * triton.cdiv(C, DEPTHWISE_CHANNELS)
    _depthwise[(B * h, tiles)](
        x,
        weight,
        out,
        h,
        w,
        C,
        GELU=after == "gelu",
        COLUMNS=DEPTHWISE_COLUMNS,
        CHANNELS=DEPTHWISE_CHANNELS,
        num_warps=4,
    )
    return out


@triton.jit(do_not_specialize=["places"])
def _context(
    x,
    scale,
    shift,
    w_spatial,
    b_spatial,
    out,
    gate,
    parts,
    places,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
):
    tile, pair = tl.program_id(0), tl.program_id(1)
    token = tile * TOKENS + tl.arange(0, TOKENS)
    channel = tl.arange(0, BLOCK)
    inside = channel < C
    mask = (token < places)[:, None] & inside[None]
    at = (pair * places + token).to(tl.int64)[:, None] * C + channel[None]
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    value = value * tl.load(scale + pair * C + channel, mask=inside, other=0.0)[None]
    value += tl.load(shift + pair * C + channel, mask=inside, other=0.0)[None]
    value = tl.where(mask, value * tl.sigmoid(value), 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=mask)
    w = tl.load(w_spatial + channel, mask=inside, other=0.0).to(tl.float32)
    score = tl.sum(value * w[None], 1) + tl.load(b_spatial).to(tl.float32)
    tl.store(gate + pair * places + token, tl.sigmoid(score), mask=token < places)
    part = parts + (pair * tl.num_programs(0) + tile) * C + channel
    tl.store(part, tl.sum(value, 0) / places, mask=inside)


def context(
    x: Tensor, affine: Affine, w_spatial: Tensor, b_spatial: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `ops.adapter.context`."""
    assert x.is_contiguous()
    B, places, C = x.shape
    tiles = triton.cdiv(places, CONTEXT_TOKENS)
    out = torch.empty_like(x)
    gate = torch.empty(B, places, device=x.device, dtype=torch.float32)
    parts = torch.empty(B, tiles, C, device=x.device, dtype=torch.float32)
    _context[(tiles, B)](
        x,
        *affine,
        w_spatial,
        b_spatial,
        out,
        gate,
        parts,
        places,
        C=C,
        BLOCK=triton.next_power_of_2(C),
        TOKENS=CONTEXT_TOKENS,
        num_warps=4,
    )
    return out, gate, parts

# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""LayerNorm over rows, with pooling, and for CGLA's pairs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from adadino.engine.rows import DTYPE, LIMIT, Kind, Rows

NORM_ROWS, POOL_ROWS, PAIR_ROWS = 4, 1, 2
"""Tokens that a program holds at once."""
POOL_TOKENS, FEW_PAIRS, POOL_TOKENS_OF_FEW = 16, 2, 4
"""Tokens of each date that a program pools: more means fewer parts to add up, but fewer programs.
A program reads its tokens one after the other, so few pairs want many short programs: 7 us instead
of 17 for a single pair of ViT-L."""


@triton.jit
def _normalized(x, D: tl.constexpr, inside, eps):
    """Rows (R, BLOCK) without mean and deviation; columns outside D stay zero."""
    mean = tl.sum(x, 1) / D
    x = tl.where(inside, x - mean[:, None], 0.0)
    return x * tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]


@triton.jit
def _store_rows(y, out, scales, row, column, mask, D: tl.constexpr, EIGHT: tl.constexpr, LIMIT):
    """Write rows, in eight bits with their scales if EIGHT."""
    if EIGHT:
        scale = tl.maximum(tl.max(tl.abs(y), 1), 1e-12) / LIMIT
        y = y / scale[:, None]
        tl.store(scales + row, scale, mask=tl.max(mask.to(tl.int32), 1) > 0)
    at = row.to(tl.int64)[:, None] * D + column[None]
    tl.store(out + at, y.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _layer_norm(
    x,
    shift,
    weight,
    bias,
    out,
    scales,
    rows,
    eps,
    limit,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    EIGHT: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (column < D)[None]
    mask = (row < rows)[:, None] & inside
    value = tl.load(x + row.to(tl.int64)[:, None] * D + column[None], mask=mask, other=0.0)
    value = value.to(tl.float32) + tl.load(shift + column, mask=column < D, other=0.0)[None]
    w = tl.load(weight + column, mask=column < D, other=0.0)
    b = tl.load(bias + column, mask=column < D, other=0.0)
    y = _normalized(value, D, inside, eps) * w[None] + b[None]
    _store_rows(y, out, scales, row, column, mask, D, EIGHT, limit)


def layer_norm(
    x: Tensor, *, shift: Tensor, weight: Tensor, bias: Tensor, eps: float, kind: Kind | None = None
) -> Rows:
    """See `ops.block.layer_norm`."""
    D = x.shape[-1]
    rows = x.numel() // D
    out, scales = _rows_like(x, kind)
    block = triton.next_power_of_2(D)
    _layer_norm[(triton.cdiv(rows, NORM_ROWS),)](
        x,
        shift,
        weight,
        bias,
        out,
        scales,
        rows,
        eps,
        1.0 if kind is None else LIMIT[kind],
        D=D,
        BLOCK=block,
        ROWS=NORM_ROWS,
        EIGHT=kind is not None,
        num_warps=4,
    )
    return Rows(out, None if kind is None else scales)


@triton.jit(do_not_specialize=["pairs", "tokens", "prefix"])
def _layer_norm_pooled(
    x,
    shift,
    weight,
    bias,
    out,
    scales,
    parts,
    pairs,
    tokens,
    prefix,
    eps,
    limit,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    EIGHT: tl.constexpr,
):
    tile, pair = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = (column < D)[None]
    offset = tl.load(shift + column, mask=column < D, other=0.0)[None]
    w = tl.load(weight + column, mask=column < D, other=0.0)[None]
    b = tl.load(bias + column, mask=column < D, other=0.0)[None]
    first_sum = tl.zeros([BLOCK], tl.float32)
    second_sum = tl.zeros([BLOCK], tl.float32)
    difference_sum = tl.zeros([BLOCK], tl.float32)
    product_sum = tl.zeros([BLOCK], tl.float32)
    for step in range(TOKENS // ROWS):
        token = tile * TOKENS + step * ROWS + tl.arange(0, ROWS)
        mask = (token < tokens)[:, None] & inside
        row1 = pair * tokens + token
        row2 = (pairs + pair) * tokens + token
        x1 = tl.load(x + row1.to(tl.int64)[:, None] * D + column, mask=mask, other=0.0)
        x2 = tl.load(x + row2.to(tl.int64)[:, None] * D + column, mask=mask, other=0.0)
        x1, x2 = x1.to(tl.float32) + offset, x2.to(tl.float32) + offset
        y1 = _normalized(x1, D, inside, eps) * w + b
        y2 = _normalized(x2, D, inside, eps) * w + b
        _store_rows(y1, out, scales, row1, column, mask, D, EIGHT, limit)
        _store_rows(y2, out, scales, row2, column, mask, D, EIGHT, limit)
        patch = mask & (token >= prefix)[:, None]
        x1, x2 = tl.where(patch, x1, 0.0), tl.where(patch, x2, 0.0)
        first_sum += tl.sum(x1, 0)
        second_sum += tl.sum(x2, 0)
        difference_sum += tl.sum(tl.abs(x1 - x2), 0)
        product_sum += tl.sum(x1 * x2, 0)
    share = 1.0 / (tokens - prefix)
    at = parts + (pair * tl.num_programs(0) + tile) * 4 * D + column
    tl.store(at, first_sum * share, mask=column < D)
    tl.store(at + D, second_sum * share, mask=column < D)
    tl.store(at + 2 * D, difference_sum * share, mask=column < D)
    tl.store(at + 3 * D, product_sum * share, mask=column < D)


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
    """See `ops.block.layer_norm_pooled`."""
    pairs, tokens, D = x.shape[0] // 2, x.shape[1], x.shape[2]
    out, scales = _rows_like(x, kind)
    held = POOL_TOKENS_OF_FEW if pairs <= FEW_PAIRS else POOL_TOKENS
    tiles = triton.cdiv(tokens, held)
    parts = torch.empty(pairs, tiles, 4 * D, device=x.device, dtype=torch.float32)
    _layer_norm_pooled[(tiles, pairs)](
        x,
        shift,
        weight,
        bias,
        out,
        scales,
        parts,
        pairs,
        tokens,
        prefix,
        eps,
        1.0 if kind is None else LIMIT[kind],
        D=D,
        BLOCK=triton.next_power_of_2(D),
        ROWS=POOL_ROWS,
        TOKENS=held,
        EIGHT=kind is not None,
        num_warps=4,
    )
    return Rows(out, None if kind is None else scales), parts


@triton.jit(do_not_specialize=["pairs", "tokens", "prefix"])
def _pair_norm(
    x,
    shift,
    features,
    relation,
    pairs,
    tokens,
    prefix,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    pair = tl.program_id(1)
    patch = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    places = tokens - prefix
    column = tl.arange(0, BLOCK)
    inside = (column < D)[None]
    mask = (patch < places)[:, None] & inside
    offset = tl.load(shift + column, mask=column < D, other=0.0)[None]
    row1 = (pair * tokens + prefix + patch).to(tl.int64)
    row2 = ((pairs + pair) * tokens + prefix + patch).to(tl.int64)
    x1 = tl.load(x + row1[:, None] * D + column[None], mask=mask, other=0.0).to(tl.float32)
    x2 = tl.load(x + row2[:, None] * D + column[None], mask=mask, other=0.0).to(tl.float32)
    f1 = _normalized(x1 + offset, D, inside, eps)
    f2 = _normalized(x2 + offset, D, inside, eps)
    kind = features.dtype.element_ty
    at = (pair * places + patch).to(tl.int64)[:, None] * 2 * D + column[None]
    tl.store(features + at, f1.to(kind), mask=mask)
    tl.store(features + at + D, f2.to(kind), mask=mask)
    tl.store(relation + at, tl.abs(f1 - f2).to(kind), mask=mask)
    tl.store(relation + at + D, (f1 * f2).to(kind), mask=mask)


def pair_norm(x: Tensor, *, prefix: int, shift: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """See `ops.adapter.pair_norm`."""
    pairs, tokens, D = x.shape[0] // 2, x.shape[1], x.shape[2]
    features = x.new_empty(pairs, tokens - prefix, 2, D)
    relation = torch.empty_like(features)
    _pair_norm[(triton.cdiv(tokens - prefix, PAIR_ROWS), pairs)](
        x,
        shift,
        features,
        relation,
        pairs,
        tokens,
        prefix,
        eps,
        D=D,
        BLOCK=triton.next_power_of_2(D),
        ROWS=PAIR_ROWS,
        num_warps=4,
    )
    return features, relation


def _rows_like(x: Tensor, kind: Kind | None) -> tuple[Tensor, Tensor]:
    assert x.is_contiguous()
    rows = x.numel() // x.shape[-1]
    dtype = x.dtype if kind is None else DTYPE[kind]
    out = torch.empty(rows, x.shape[-1], device=x.device, dtype=dtype)
    scales = torch.empty(rows if kind else 1, device=x.device, dtype=torch.float32)
    return out, scales

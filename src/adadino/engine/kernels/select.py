# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""The policy in two launches: its first product by slices of the input, then the rest.

The first layer's weight (4 MB for ViT-L) is too much for one program to read, so a program adds up
the parts of some columns of PoolPair and multiplies them with the same columns of the weight. The
second kernel adds the slices' results in a fixed order, without atomics, so the scores are always
the same. In a large batch the attention hides this time; of a single pair's 6.0 ms it saves 0.7.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PAIRS = 16
"""Pairs that a program holds: the least that a product takes."""
COLUMNS, UNITS = 128, 64
"""The tile of the first layer's weight."""
DEEP = 8
"""Parts or slices that are read at once, so that one waits for memory less often."""


@triton.jit(do_not_specialize=["pairs"])
def _slices(
    parts,
    weight,
    out,
    pairs,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    HIDDEN: tl.constexpr,
    PAIRS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNITS: tl.constexpr,
    DEEP: tl.constexpr,
):
    piece = tl.program_id(0)
    pair = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    column = piece * COLUMNS + tl.arange(0, COLUMNS)
    there = (pair < pairs)[:, None]
    mask = there & (column < WIDTH)[None]
    at = parts + pair.to(tl.int64)[:, None] * PARTS * WIDTH + column[None]
    pooled = tl.zeros([PAIRS, COLUMNS], tl.float32)
    for start in range(0, PARTS, DEEP):
        for step in tl.static_range(DEEP):
            part = start + step
            pooled += tl.load(at + part * WIDTH, mask=mask & (part < PARTS), other=0.0)
    for first in range(0, HIDDEN, UNITS):
        unit = first + tl.arange(0, UNITS)
        known = (column < WIDTH)[:, None] & (unit < HIDDEN)[None]
        w = tl.load(weight + unit[None] * WIDTH + column[:, None], mask=known, other=0.0)
        y = tl.dot(pooled, w, input_precision="tf32x3")
        row = (piece * pairs + pair)[:, None]
        tl.store(out + row * HIDDEN + unit[None], y, mask=there & (unit < HIDDEN)[None])


@triton.jit(do_not_specialize=["pairs", "k"])
def _decide(
    slices,
    bias1,
    weight2,
    bias2,
    scores,
    keep,
    pairs,
    k,
    TILES: tl.constexpr,
    SLICES: tl.constexpr,
    HIDDEN: tl.constexpr,
    CHUNKS: tl.constexpr,
    PAIRS: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    DEEP: tl.constexpr,
):
    chunk = tl.arange(0, BLOCK)
    inside = chunk < CHUNKS
    b2 = tl.load(bias2 + chunk, mask=inside, other=0.0)
    total = tl.zeros([BLOCK], tl.float32)
    for tile in range(TILES):
        pair = tile * PAIRS + tl.arange(0, PAIRS)
        there = (pair < pairs)[:, None]
        score = tl.zeros([PAIRS, BLOCK], tl.float32)
        for first in range(0, HIDDEN, UNITS):
            unit = first + tl.arange(0, UNITS)
            known = unit < HIDDEN
            at = slices + pair[:, None] * HIDDEN + unit[None]
            y = tl.zeros([PAIRS, UNITS], tl.float32)
            for start in range(0, SLICES, DEEP):
                for step in tl.static_range(DEEP):
                    piece = start + step
                    read = there & known[None] & (piece < SLICES)
                    y += tl.load(at + piece * pairs * HIDDEN, mask=read, other=0.0)
            y += tl.load(bias1 + unit, mask=known, other=0.0)[None]
            y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
            both = known[:, None] & inside[None]
            w = tl.load(weight2 + chunk[None] * HIDDEN + unit[:, None], mask=both, other=0.0)
            score += tl.dot(y, w, input_precision="tf32x3")
        score += b2[None]
        tl.store(scores + pair[:, None] * CHUNKS + chunk[None], score, mask=there & inside[None])
        total += tl.sum(tl.where(there, score, 0.0), 0)
    mean = total / pairs
    mean = tl.where(mean != mean, float("inf"), mean)  # as in topk, NaN is the greatest
    mean = tl.where(inside, mean, -float("inf"))
    mine, other = mean[:, None], mean[None]
    earlier = chunk[None] < chunk[:, None]
    ahead = (other > mine) | ((other == mine) & earlier)
    chosen = (tl.sum(ahead.to(tl.int32), 1) < k) & inside
    place = tl.sum((chosen.to(tl.int32)[None] * earlier.to(tl.int32)), 1)
    tl.store(keep + place, chunk.to(tl.int64), mask=chosen)


def select(
    parts: Tensor, *, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """See `ops.block.select`."""
    assert all(t.is_contiguous() for t in (parts, weight1, weight2))
    B, count, width = parts.shape
    chunks, hidden = weight2.shape
    pieces, tiles = triton.cdiv(width, COLUMNS), triton.cdiv(B, PAIRS)
    slices, scores = parts.new_empty(pieces, B, hidden), parts.new_empty(B, chunks)
    keep = torch.empty(k, device=parts.device, dtype=torch.int64)
    _slices[(pieces, tiles)](
        parts,
        weight1,
        slices,
        B,
        PARTS=count,
        WIDTH=width,
        HIDDEN=hidden,
        PAIRS=PAIRS,
        COLUMNS=COLUMNS,
        UNITS=UNITS,
        DEEP=DEEP,
        num_warps=8,
        num_stages=2,  # little shared memory: it runs beside the attention, which has most of it
    )
    _decide[(1,)](
        slices,
        bias1,
        weight2,
        bias2,
        scores,
        keep,
        B,
        k,
        TILES=tiles,
        SLICES=pieces,
        HIDDEN=hidden,
        CHUNKS=chunks,
        PAIRS=PAIRS,
        UNITS=UNITS,
        BLOCK=max(16, triton.next_power_of_2(chunks)),
        DEEP=DEEP,
        num_warps=8,
    )
    return scores, keep

# ruff: noqa: N803  (what a kernel takes as a compile-time constant is written in capitals)
"""All weights of the chosen chunks in one launch.

A tensor of chunks is (outer, C, run): a chunk is `outer` runs of contiguous numbers. A program
copies one tile of one chunk of one tensor: it looks up the chunk once, and the copy is as wide as
memory allows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from adadino.engine.ops.block import Chunks

TILE = 8192
"""Numbers that a program copies."""


@triton.jit
def _copy(
    source,
    out,
    tile,
    place,
    chunk,
    k,
    CHUNKS: tl.constexpr,
    OUTER: tl.constexpr,
    RUN: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Copy one tile (ROWS, WIDE) of a chunk of (OUTER, CHUNKS, RUN) to its place among k."""
    across: tl.constexpr = (RUN + WIDE - 1) // WIDE
    row = (tile // across * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tile % across * WIDE + tl.arange(0, WIDE))[None]
    mask = (row < OUTER) & (column < RUN)
    value = tl.load(source + (row * CHUNKS + chunk) * RUN + column, mask=mask)
    tl.store(out + (row * k + place) * RUN + column, value, mask=mask)


@triton.jit(do_not_specialize=["k"])
def _gather(
    up,
    down,
    bias,
    scale,
    up_out,
    down_out,
    bias_out,
    scale_out,
    keep,
    k,
    CHUNKS: tl.constexpr,
    UP: tl.constexpr,
    UP_TILES: tl.constexpr,
    UP_WIDE: tl.constexpr,
    OUTER: tl.constexpr,
    DOWN: tl.constexpr,
    DOWN_TILES: tl.constexpr,
    DOWN_ROWS: tl.constexpr,
    DOWN_WIDE: tl.constexpr,
    BIAS: tl.constexpr,
    BIAS_WIDE: tl.constexpr,
    SCALED: tl.constexpr,
):
    place, tile = tl.program_id(0), tl.program_id(1)
    chunk = tl.load(keep + place)
    if tile < UP_TILES:
        _copy(up, up_out, tile, place, chunk, k, CHUNKS, 1, UP, 1, UP_WIDE)
    elif tile < UP_TILES + DOWN_TILES:
        tile -= UP_TILES
        _copy(down, down_out, tile, place, chunk, k, CHUNKS, OUTER, DOWN, DOWN_ROWS, DOWN_WIDE)
    else:
        _copy(bias, bias_out, 0, place, chunk, k, CHUNKS, 1, BIAS, 1, BIAS_WIDE)
        if SCALED:
            _copy(scale, scale_out, 0, place, chunk, k, CHUNKS, 1, BIAS, 1, BIAS_WIDE)


def gather(chunks: Chunks, keep: Tensor) -> Chunks:
    """See `ops.block.gather`."""
    up, scale, bias, down = chunks
    assert all(t.is_contiguous() for t in (up, bias, down))
    assert keep.is_contiguous()
    (C, rows, D), k = up.shape, len(keep)
    eight = scale is not None
    outer, run = (down.shape[0], down.shape[2]) if eight else (1, down.shape[1] * D)
    made = Chunks(
        up.new_empty(k, rows, D),
        None if scale is None else scale.new_empty(k, rows),
        bias.new_empty(k, rows),
        down.new_empty(outer, k, run) if eight else down.new_empty(k, *down.shape[1:]),
    )
    up_wide = min(TILE, triton.next_power_of_2(rows * D))
    down_wide = min(TILE, triton.next_power_of_2(run))
    down_rows = min(TILE // down_wide, triton.next_power_of_2(outer))
    up_tiles = triton.cdiv(rows * D, up_wide)
    down_tiles = triton.cdiv(run, down_wide) * triton.cdiv(outer, down_rows)
    _gather[(k, up_tiles + down_tiles + 1)](
        _bits(up),
        _bits(down),
        _bits(bias),
        _bits(bias if scale is None else scale),
        _bits(made.up),
        _bits(made.down),
        _bits(made.bias),
        _bits(made.bias if made.scale is None else made.scale),
        keep,
        k,
        CHUNKS=C,
        UP=rows * D,
        UP_TILES=up_tiles,
        UP_WIDE=up_wide,
        OUTER=outer,
        DOWN=run,
        DOWN_TILES=down_tiles,
        DOWN_ROWS=down_rows,
        DOWN_WIDE=down_wide,
        BIAS=rows,
        BIAS_WIDE=triton.next_power_of_2(rows),
        SCALED=eight,
        num_warps=4,
    )
    return made


def _bits(values: Tensor) -> Tensor:
    """The same memory as integers: a copy needs no arithmetic type."""
    return values.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[values.element_size()])

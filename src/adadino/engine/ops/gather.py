"""The weights of the chosen chunks, side by side; on a GPU in one kernel for all tensors."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from adadino.engine.ops import on_gpu
from adadino.engine.rows import take


class Chunks(NamedTuple):
    """An FFN's weights by chunk; all of them, or the gathered ones."""

    up: Tensor
    """(C, rows, D)"""
    scale: Tensor | None
    """(C, rows), in eight bits."""
    bias: Tensor
    """(C, rows)"""
    down: Tensor
    """(C, size, D); in eight bits (D, C, size)"""


def gather(chunks: Chunks, keep: Tensor) -> Chunks:
    """The chunks `keep` (k,), in that order."""
    if on_gpu(chunks.up):
        from adadino.engine.kernels.gather import gather as kernel

        return kernel(chunks, keep)
    up, scale, bias, down = chunks
    return Chunks(
        take(up, 0, keep),
        None if scale is None else scale.index_select(0, keep),
        bias.index_select(0, keep),
        take(down, 0 if scale is None else 1, keep),
    )

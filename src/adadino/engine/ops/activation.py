"""The FFN's non-linearity, with the rows of the next product quantised in the same pass."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from adadino.engine.ops import on_gpu
from adadino.engine.rows import Kind, Rows, quantize


def activate(hidden: Tensor, *, gated: int = 0, kind: Kind | None = None) -> Rows:
    """GELU of rows (R, K), or SwiGLU of rows made of chunks [gate, value].

    Args:
        hidden: What the input projection gave.
        gated: Channels of one chunk if the FFN is gated; 0 if it is plain.
        kind: Eight-bit kind of the result, if any.
    """
    if on_gpu(hidden):
        from adadino.engine.kernels.activation import activate as kernel

        return kernel(hidden, gated=gated, kind=kind)
    if gated:
        gate, value = hidden.unflatten(-1, (-1, 2, gated)).unbind(-2)
        return quantize((F.silu(gate) * value).flatten(1), kind)
    return quantize(F.gelu(hidden), kind)

"""Matrices in eight bits, a scale for every row, and their product.

A frozen weight is quantised once. Every row (an output channel) has its own scale, so the chunks of
an input projection have their own scales too. The chunks of an output projection lie side by side
in a row and share its scale, because a matrix product can only be scaled by row and column. e4m3
keeps its relative precision over a range of 2^15, so scales of their own would gain nothing.
Activations are quantised by row when they are computed.

- `fp8` is e4m3 through `torch._scaled_mm` (row-wise scales, bf16 out); without a GPU the same
  rounding is emulated.
- `int8` is for CPUs, through `torch._int_mm`.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Kind = Literal["fp8", "int8"]

LIMIT: dict[Kind, float] = {"fp8": 448.0, "int8": 127.0}
"""The largest magnitude of each kind."""
DTYPE: dict[Kind, torch.dtype] = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
SMALLEST_SCALE = 1e-12
"""A row of zeros still needs a scale that one can divide by."""


class Rows(NamedTuple):
    """A matrix (R, K), or more dimensions in front; in eight bits if it has a scale."""

    values: Tensor
    scale: Tensor | None = None
    """(R,) float32: value = values * scale."""


def quantize(x: Tensor, kind: Kind | None) -> Rows:
    """Hold the last dimension's rows in eight bits; None leaves them as they are."""
    if kind is None:
        return Rows(x)
    x = x.float()
    scale = x.abs().amax(-1).clamp_min(SMALLEST_SCALE) / LIMIT[kind]
    x = x / scale[..., None]
    return Rows((x.round() if kind == "int8" else x).to(DTYPE[kind]), scale)


def product(x: Rows, weight: Rows, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """X @ weight.T + bias for rows (R, K) and a weight (N, K), as a matrix (R, N) of `dtype`."""
    if x.scale is None or weight.scale is None:
        return F.linear(x.values, weight.values, bias)
    left, right = x.scale[:, None], weight.scale[None]
    if x.values.dtype == torch.int8:
        y = torch._int_mm(x.values, weight.values.t()).float() * left * right
        return (y if bias is None else y + bias).to(dtype)
    if x.values.is_cuda:
        inside = bias is None or _takes_bias(x.values.device)
        y = _scaled(x.values, weight.values, left, right, bias if inside else None, dtype)
        return y if inside or bias is None else y.add_(bias)
    y = (x.values.float() * left) @ (weight.values.float() * weight.scale[:, None]).t()
    return (y if bias is None else y + bias).to(dtype)


def _scaled(
    x: Tensor, weight: Tensor, left: Tensor, right: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    return torch._scaled_mm(
        x,
        weight.t(),
        scale_a=left,
        scale_b=right,
        bias=bias,
        out_dtype=dtype,
        use_fast_accum=True,
    )


@cache
def _takes_bias(device: torch.device) -> bool:
    """Whether the device's library can add a bias to a product that is scaled by row."""
    x = torch.ones(64, 64, device=device).to(torch.float8_e4m3fn)
    scale, bias = torch.ones(64, device=device), torch.ones(64, device=device, dtype=torch.bfloat16)
    try:
        y = _scaled(x, x, scale[:, None], scale[None], bias, torch.bfloat16)
    except RuntimeError:
        return False
    return bool((y == 65).all())


def take(values: Tensor, dim: int, keep: Tensor) -> Tensor:
    """index_select for any type: eight-bit floats go as bytes, which every device can gather."""
    if values.dtype == torch.float8_e4m3fn:
        return values.view(torch.uint8).index_select(dim, keep).view(values.dtype)
    return values.index_select(dim, keep)

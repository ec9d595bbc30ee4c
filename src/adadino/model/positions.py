"""Where a token is: DINOv3 turns queries and keys by it, DINOv2 adds a learned vector.

- **Rotary** (DINOv3): every patch has coordinates in [-1, 1] on each axis, whatever the grid's
  size. Class and register tokens get the angle zero, so that no tensor is taken apart and put
  together again.
- **Learned** (DINOv2): a vector for each cell of the 37 x 37 grid of pretraining, interpolated
  bicubically to other grids. Meta's code differs between its models: with registers it antialiases;
  without, it adds 0.1 to the wanted size before it computes the scale (`grid_offset`). Hugging
  Face's code adds nothing. Interpolation is written as a product with the matrix of its weights, so
  that one form serves training, the engine and exported graphs of any size.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

Rope = tuple[Tensor, Tensor]
"""Cosine and sine of the rotation of every token, each (tokens, head_dim)."""


def rope_tables(
    height: int,
    width: int,
    *,
    prefix: int,
    head_dim: int,
    theta: float,
    device: torch.device | None = None,
) -> Rope:
    """Cosine and sine of the axial rotation of every token, in float32.

    Args:
        height: Rows of the patch grid.
        width: Columns of the patch grid.
        prefix: Tokens in front of the patches, which are turned by nothing.
        head_dim: Channels of one attention head.
        theta: Base of the periods.
        device: Where the tables live.

    Returns:
        Two tensors (prefix + height * width, head_dim).
    """
    periods = theta ** (torch.arange(head_dim // 4, device=device) * (4 / head_dim))
    y = (torch.arange(height, device=device) + 0.5) / height * 2 - 1
    x = (torch.arange(width, device=device) + 0.5) / width * 2 - 1
    grid = torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1).flatten(0, 1)  # (hw, 2)
    angles = 2 * math.pi * grid[:, :, None] / periods  # (hw, 2, head_dim / 4)
    angles = F.pad(angles.flatten(1).tile(2), (0, 0, prefix, 0))  # (prefix + hw, head_dim)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys (B, N, heads, head_dim) by their tokens' places."""
    first, second = x.chunk(2, dim=-1)
    # x: [first, second]; turned: x cos + [-second, first] sin. The minus is taken on the table of
    # sines, which is small, not on the tokens.
    low, high = sin.chunk(2, dim=-1)
    return x * cos + torch.cat((second, first), dim=-1) * torch.cat((-low, high), dim=-1)


def interpolate_positions(
    table: Tensor, grid: tuple[int, int], *, offset: float, antialias: bool
) -> Tensor:
    """Learned positions for a grid of patches.

    Args:
        table: The learned vectors (1, side * side, D), row by row.
        grid: Rows and columns that are wanted.
        offset: What is added to rows and columns before the scale is computed.
        antialias: Widen the filter where the grid shrinks.

    Returns:
        (1, rows * columns, D) in float32.
    """
    side, device = math.isqrt(table.shape[1]), table.device
    sizes = torch.stack([torch.scalar_tensor(size, device=device) for size in grid])
    # The grid of pretraining is taken as it is, whatever the offset.
    extra = torch.where((sizes == side).all(), 0.0, offset)
    # Autocast would round the weights of the interpolation; the meta device has none.
    casts = torch.amp.is_autocast_available(device.type)
    with torch.autocast(device.type, enabled=False) if casts else nullcontext():
        rows, columns = (_bicubic(side, size, extra, antialias=antialias) for size in grid)
        x = rows @ table.float().view(side, -1)  # (side, side D) -> (rows, side D)
        x = columns @ x.unflatten(1, (side, -1))  # (rows, side, D) -> (rows, columns, D)
    return x.flatten(0, 1)[None]


def _bicubic(size: int, wanted: int, extra: Tensor, *, antialias: bool) -> Tensor:
    """What each old cell gives to each new one (wanted, size), as F.interpolate computes it."""
    device = extra.device
    step = size / (torch.scalar_tensor(wanted, device=device) + extra)
    centres = ((torch.arange(wanted, device=device) + 0.5) * step)[:, None]
    if antialias:
        distance = (torch.arange(size, device=device) + 0.5 - centres) / step.clamp(min=1)
        weights = _cubic(distance, -0.5)
        return weights / weights.sum(1, keepdim=True)
    # Two cells beyond each edge, which repeat the edge.
    weights = _cubic(torch.arange(-2, size + 2, device=device) + 0.5 - centres, -0.75)
    first, last = (w.sum(1, keepdim=True) for w in (weights[:, :3], weights[:, -3:]))
    return torch.cat((first, weights[:, 3:-3], last), dim=1)


def _cubic(x: Tensor, a: float) -> Tensor:
    """The cubic convolution kernel; PyTorch's a is -0.75, and -0.5 where it antialiases."""
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, 0.0))

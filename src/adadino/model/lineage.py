"""The decoder block of the paper's lineage (ChangeDINO), behind `cpgr.block=lineage`. Sec. 3.4.

The paper does not describe the block of a stage. Its losses and augmentation are ChangeDINO's, and
with ChangeDINO's block our stages have 9,410,788 parameters, which is the paper's 9.41M. So this is
a likely reading of the paper; `cpgr.block=gated` is ours. Each block is, with a residual around
every part: differential attention over places, a convolutional FFN, attention between channels, a
second FFN.

- Differential attention (Ye et al. 2024) subtracts one softmax map from another, so that what both
  attend to cancels: (A1 - lambda A2) V, then a normalisation of every head.
- It is global at P5 and P4. At P3 and P2 queries attend from windows of 8 x 8 to the 12 x 12 places
  around them, with learned relative positions.
- The norms have no bias and subtract no mean.

Where we depart from the released code: it leaves the windows' results in the order of the windows,
so that a place gets another place's result; ours go back to where they came from. It takes only
sides that are multiples of 64 and pads with zeros; ours takes any, and repeats the edge.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adadino.model.sizes import Sizes

WINDOW, MARGIN = 8, 2
"""Side of a window of queries, and how far its keys reach beyond it."""
LAYER = {5: 3, 4: 3, 3: 2, 2: 1}
"""The depth from which lambda starts, by pyramid level."""
GLOBAL = (5, 4)
"""Levels at which attention is global."""


def cut_windows(x: Tensor, counts: tuple[int, int], margin: int) -> Tensor:
    """Cut a map into windows that reach beyond their sides; the map's edge is repeated.

    Args:
        x: The map (B, C, h, w).
        counts: Rows and columns of windows, which cover the map.
        margin: Places that a window has beyond its own, on every side.

    Returns:
        The windows (B, m, n, C, r, r), r = WINDOW + 2 margin.
    """
    reach = torch.arange(-margin, WINDOW + margin, device=x.device)
    for dim, count in zip((2, 3), counts, strict=True):
        starts = WINDOW * torch.arange(count, device=x.device)[:, None]
        places = (starts + reach).clamp(min=0).clamp(max=x.shape[dim] - 1)
        x = x.index_select(dim, places.flatten())
    # (B, C, m*r, n*r) -> (B, C, m, r, n, r) -> (B, m, n, C, r, r)
    (m, n), r = counts, len(reach)
    return x.unflatten(3, (n, r)).unflatten(2, (m, r)).permute(0, 2, 4, 1, 3, 5)


class ScaleNorm(nn.Module):
    """Divide the channels of a map by their standard deviation, and scale each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same, statistics in float32."""
        variance = x.float().var(1, keepdim=True, correction=0)
        return (x.float() * torch.rsqrt(variance + 1e-5)).to(x.dtype) * self.weight[:, None, None]


class RelativePositions(nn.Module):
    """What the place of a key in the reach of a window adds to a query's scores."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        reach = WINDOW + 2 * MARGIN
        self.rows = nn.Parameter(torch.randn(2 * reach - 1, dim) * dim**-0.5)
        self.columns = nn.Parameter(torch.randn(2 * reach - 1, dim) * dim**-0.5)
        steps = torch.arange(reach) - torch.arange(WINDOW)[:, None] + reach - 1
        self.steps: Tensor
        self.register_buffer("steps", steps, persistent=False)  # (window, reach)

    def forward(self, q: Tensor) -> Tensor:
        """Queries (..., window * window, d) -> scores (..., window * window, reach * reach)."""
        q = q.unflatten(-2, (WINDOW, WINDOW))
        by_row = torch.einsum("...yxd,ykd->...yxk", q, self.rows[self.steps])
        by_column = torch.einsum("...yxd,xkd->...yxk", q, self.columns[self.steps])
        return (by_row[..., :, None] + by_column[..., None, :]).flatten(-2).flatten(-3, -2)


class DifferentialAttention(nn.Module):
    """The difference of two attentions over the places of a map, global or in windows."""

    sizes = Sizes()

    def __init__(self, width: int, *, heads: int, layer: int, windows: bool) -> None:
        super().__init__()
        self.heads, dim = heads, width // heads
        self.q, self.k, self.v = (nn.Conv2d(width, 2 * width, 1, bias=False) for _ in range(3))
        self.start = 0.8 - 0.6 * math.exp(-0.3 * layer)
        self.lambdas = nn.Parameter(0.1 * torch.randn(2, 2, heads, dim))
        self.scale = nn.Parameter(torch.ones(2 * dim))
        self.places = RelativePositions(dim) if windows else None
        self.proj = nn.Conv2d(2 * width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        h, w = x.shape[-2], x.shape[-1]
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.places is None:
            y = self.attend(*(self.split(t[:, None]) for t in (q, k, v)))  # (B, 1, heads, hw, 2d)
            return self.proj(y.movedim(3, -1).flatten(1, 3).unflatten(2, (h, w)))
        # (B, 2C, h, w) -> (B, m, n, 2C, s, t), one window after the other
        counts = self.sizes.parts(h, WINDOW), self.sizes.parts(w, WINDOW)
        windows = [
            cut_windows(t, counts, margin) for t, margin in ((q, 0), (k, MARGIN), (v, MARGIN))
        ]
        y = self.attend(*(self.split(t.flatten(1, 2)) for t in windows))  # (B, mn, heads, ss, 2d)
        y = y.unflatten(1, counts).unflatten(-2, (WINDOW, WINDOW))  # (B, m, n, heads, s, t, 2d)
        y = y.permute(0, 3, 6, 1, 4, 2, 5).flatten(5).flatten(3, 4).flatten(1, 2)  # (B, 2C, ..)
        return self.proj(self.sizes.crop(y, h, w))

    def split(self, x: Tensor) -> Tensor:
        """(B, windows, 2C, s, t) -> (B, windows, heads, places, 2d)."""
        return x.flatten(3).unflatten(2, (self.heads, -1)).transpose(-2, -1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend inside every window, both ways at once."""
        # (.., places, 2d) -> (2, .., places, d): the queries and keys of the two attentions
        q, k = (torch.stack(t.chunk(2, dim=-1)) for t in (q, k))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if self.places is not None:
            scores = scores + self.places(q)
        first, second = scores.softmax(-1, dtype=torch.float32)
        weights = (self.lambdas[0] * self.lambdas[1]).float().sum(-1).exp()  # (2, heads)
        share = (weights[0] - weights[1] + self.start)[:, None, None]
        y = ((first - share * second).to(v.dtype) @ v).float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)
        return y.to(v.dtype) * (self.scale * (1 - self.start))


class ConvFFN(nn.Sequential):
    """1x1 to twice the width, grouped 3x3, ReLU6, 1x1 back, BatchNorm before and between."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.BatchNorm2d(width),
            nn.Conv2d(width, 2 * width, 1),
            nn.BatchNorm2d(2 * width),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=width),
            nn.ReLU6(),
            nn.Conv2d(2 * width, width, 1),
        )

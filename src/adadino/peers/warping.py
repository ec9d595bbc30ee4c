"""FAEWNet's comparison: each date, seen at several ranges, warped to the other one.

Y.-C. Li et al., TGRS 2025 (`faewnet.py`). Two fields of shifts are read from both dates. A date is
widened: four dilated convolutions look far, then every place weighs its nine neighbours for each
channel on its own. The widened date is shifted, and the other date is subtracted.

As released, but for a convolution that it holds and never uses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DILATIONS = (5, 7, 9, 11)
SIDE = 3
"""Rows and columns of a neighbourhood."""


class Ranges(nn.Module):
    """Four dilated convolutions of the same map, each filtered by one and the same convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, width, 1)
        self.dilated = nn.ModuleList(
            nn.Conv2d(width, width, 3, dilation=d, padding=d, bias=False) for d in DILATIONS
        )
        self.filter = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        x = self.reduce(F.relu(x))
        return torch.stack([self.filter(look(x)) for look in self.dilated]).sum(0)


class Widen(nn.Module):
    """Ranges, then neighbourhoods whose places are weighed against one another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        places = SIDE**2
        self.ranges = Ranges(width)
        self.weigh = nn.Sequential(
            nn.Conv2d(places * width, places * width, 1, groups=width),
            nn.BatchNorm2d(places * width),
        )
        self.join = nn.Conv2d(places * width, width, 1)
        self.again = nn.Conv2d(width, width, 1)
        self.experts = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        grid = x.shape[-2], x.shape[-1]
        near = F.unfold(self.ranges(x), SIDE, padding=SIDE // 2).unflatten(2, grid)  # (B, 9C, h, w)
        weights = self.weigh(near).unflatten(1, (-1, SIDE**2)).softmax(2).flatten(1, 2)
        joined = self.join(near * weights)
        joined = joined + self.again(joined)
        mean = torch.stack([expert(joined) for expert in self.experts]).mean(0)
        return F.relu(self.norm(mean))


class Warping(nn.Module):
    """Each widened date, shifted to the other date, minus the other date."""

    def __init__(self, width: int) -> None:
        super().__init__()
        both = 2 * width
        self.flow = nn.Sequential(
            nn.Conv2d(both, both, 5, padding=2, groups=both),
            nn.InstanceNorm2d(both),
            nn.GELU(),
            nn.Conv2d(both, 4, 1, bias=False),
        )
        self.widen = Widen(width)

    def forward(
        self, before: Tensor, after: Tensor, wide_before: Tensor, wide_after: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Both dates (B, C, h, w), and both widened -> two comparisons (B, C, h, w)."""
        flow = self.flow(torch.cat((before, after), dim=1)).float()
        first, second = flow.split(2, dim=1)
        return shift(wide_before, first) - after, shift(wide_after, second) - before


def shift(x: Tensor, flow: Tensor) -> Tensor:
    """A map (B, C, h, w), read `flow` (B, 2, h, w) half cells further: columns, then rows."""
    height, width = x.shape[-2], x.shape[-1]
    rows = torch.linspace(-1, 1, height, device=x.device, dtype=flow.dtype)
    columns = torch.linspace(-1, 1, width, device=x.device, dtype=flow.dtype)
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)  # (h, w, 2)
    size = torch.stack([flow.new_tensor(float(side)) for side in (width, height)])
    grid = grid + flow.permute(0, 2, 3, 1) / size
    return F.grid_sample(x.to(flow.dtype), grid, align_corners=True).to(x.dtype)

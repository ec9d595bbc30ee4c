"""VMamba's blocks and encoder: a state space model that scans a map in four directions.

Y. Liu et al., "VMamba: Visual State Space Model", NeurIPS 2024. A block is a scan and an MLP, both
behind a norm and added to what came in. The scan widens the map, filters it, reads it row by row
and column by column, forwards and backwards, and narrows it again. An encoder has four stages at
strides 4, 8, 16, 32.

As released: ChangeMamba's blocks (0229flex) have no gate beside the scan and one state for each
channel; RS-Mamba's have a gate, sixteen states and eight directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.cpgr import ChannelNorm
from adadino.peers.base import DropPath
from adadino.peers.scan import CROSS, merge, selective_scan, visit


class DirectedScan(nn.Module):
    """What a map's places learn of one another along K ways through it."""

    def __init__(self, width: int, *, rank: int, states: int, ways: Sequence[str] = CROSS) -> None:
        """Make the scan.

        Args:
            width: Channels that are scanned.
            rank: Channels from which the steps are made.
            states: States of each channel.
            ways: Orders of `scan`, each with weights of its own.
        """
        super().__init__()
        self.ways, self.rank, self.states = tuple(ways), rank, states
        count = len(self.ways)
        bound = width**-0.5
        self.project = nn.Parameter(
            torch.empty(count, rank + 2 * states, width).uniform_(-bound, bound)
        )
        bound = rank**-0.5
        self.step = nn.Parameter(torch.empty(count, width, rank).uniform_(-bound, bound))
        # Steps begin between 0.001 and 0.1; what is stored goes through softplus.
        first = torch.empty(count, width).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.step_bias = nn.Parameter(first + torch.log(-torch.expm1(-first)))
        rates = torch.arange(1.0, states + 1).log().expand(count, width, states)
        self.log_rate = nn.Parameter(rates.clone())
        self.skip = nn.Parameter(torch.ones(count, width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same, float32."""
        grid = x.shape[-2], x.shape[-1]
        seen = visit(x, self.ways)  # (B, K, C, hw)
        said = torch.einsum("bkcl,kpc->bkpl", seen, self.project.to(seen.dtype))
        low, up, down = said.split((self.rank, self.states, self.states), dim=2)
        step = torch.einsum("bkrl,kcr->bkcl", low, self.step.to(low.dtype)).float()
        step = F.softplus(step + self.step_bias[..., None])
        found = selective_scan(seen.float(), step, -self.log_rate.float().exp(), up, down)
        return merge(found + self.skip[..., None] * seen, self.ways, grid)


class VSSConfig(NamedTuple):
    """What differs between the blocks of two models."""

    states: int = 1
    """States of each channel."""
    ways: tuple[str, ...] = CROSS
    gated: bool = False
    """Whether what the scan found is weighed by a gate made of the same input."""
    filter_bias: bool = False


PLAIN = VSSConfig()


class VSSBlock(nn.Module):
    """Scan and MLP."""

    def __init__(self, width: int, config: VSSConfig = PLAIN, *, drop_path: float = 0.0) -> None:
        super().__init__()
        inner = 2 * width
        self.gated = config.gated
        self.norm1 = ChannelNorm(width)
        self.widen = nn.Conv2d(width, (1 + config.gated) * inner, 1, bias=False)
        self.filter = nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=config.filter_bias)
        rank = math.ceil(width / 16)
        self.scan = DirectedScan(inner, rank=rank, states=config.states, ways=config.ways)
        self.scan_norm = ChannelNorm(inner)
        self.narrow = nn.Conv2d(inner, width, 1, bias=False)
        self.norm2 = ChannelNorm(width)
        self.mlp = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        wide = self.widen(self.norm1(x))
        wide, gate = wide.chunk(2, dim=1) if self.gated else (wide, None)
        found = self.scan_norm(self.scan(F.silu(self.filter(wide)))).to(wide.dtype)
        x = x + self.drop_path(self.narrow(found if gate is None else found * F.silu(gate)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class VMamba(nn.Module):
    """Overlapping patches and four stages, each but the first behind a convolution of stride 2."""

    def __init__(
        self,
        *,
        width: int,
        depths: Sequence[int],
        drop_path: float,
        config: VSSConfig = PLAIN,
        normed: bool = True,
    ) -> None:
        """Make an encoder.

        Args:
            width: Channels of the first stage; every other has twice those before it.
            depths: Blocks of each stage.
            drop_path: Rate of the last block; it rises from zero at the first.
            config: The blocks.
            normed: Whether a norm stands behind every map that is handed out.
        """
        super().__init__()
        self.widths = [width * 2**i for i in range(len(depths))]
        self.patches = nn.Sequential(
            nn.Conv2d(3, width // 2, 3, stride=2, padding=1),
            ChannelNorm(width // 2),
            nn.GELU(),
            nn.Conv2d(width // 2, width, 3, stride=2, padding=1),
            ChannelNorm(width),
        )
        rates = torch.linspace(0, drop_path, sum(depths), device="cpu").tolist()
        stages, downs, norms = [], [], []
        for i, depth in enumerate(depths):
            blocks = [
                VSSBlock(self.widths[i], config, drop_path=rates.pop(0)) for _ in range(depth)
            ]
            stages.append(nn.Sequential(*blocks))
            norms.append(ChannelNorm(self.widths[i]) if normed else nn.Identity())
            if i:
                down = nn.Conv2d(self.widths[i - 1], self.widths[i], 3, stride=2, padding=1)
                downs.append(nn.Sequential(down, ChannelNorm(self.widths[i])))
        self.stages, self.downs = nn.ModuleList(stages), nn.ModuleList(downs)
        self.norms = nn.ModuleList(norms)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) -> maps at strides 4, 8, 16, 32."""
        x, maps = self.patches(x), []
        for i, stage in enumerate(self.stages):
            x = stage(self.downs[i - 1](x) if i else x)
            maps.append(self.norms[i](x))
        return maps

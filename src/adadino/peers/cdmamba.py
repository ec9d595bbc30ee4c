"""CDMamba: scans in two directions beside convolutions, and dates that gate one another.

H. Zhang, K. Chen, C. Liu, H. Chen, Z. Zou, Z. Shi, "CDMamba: Incorporating Local Clues Into Mamba
for Remote Sensing Image Binary Change Detection", TGRS 2025. Every layer scans the map forwards and
backwards and adds what two convolutions say of the neighbourhood. At the two finest scales the
scans of each date are gated by the other date, once by its neighbourhood and once by a scan of it,
and a score for the whole image weighs the two. A decoder takes the dates' absolute difference.

As released for LEVIR-CD (16 to 128 channels, blocks 1, 2, 2, 4): full convolutions in the encoder,
separable ones in the decoder. The original also holds the gates of the two coarsest scales, which
its configuration does not run and which we do not have. It takes square images only; ours takes
any. The selective scan here is that of `scan.py`.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.peers.base import Peer, resize
from adadino.peers.scan import selective_scan

WIDTHS = (16, 32, 64, 128)
BLOCKS = (1, 2, 2, 4)
GATED = 2
"""Scales, from the finest, at which the dates gate one another."""
STATES, TAPS, GROUPS = 16, 4, 8


class Path(nn.Module):
    """One direction: a causal filter along the sequence, the scan, and a gate of its own."""

    def __init__(self, inner: int, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.filter = nn.Conv1d(inner, inner, TAPS, groups=inner)
        self.project = nn.Linear(inner, rank + 2 * STATES, bias=False)
        self.step = nn.Linear(rank, inner)
        nn.init.uniform_(self.step.weight, -(rank**-0.5), rank**-0.5)
        # Steps begin between 0.001 and 0.1; what is stored goes through softplus.
        first = torch.empty(inner).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.step.bias.data = first + torch.log(-torch.expm1(-first))
        self.log_rate = nn.Parameter(torch.arange(1.0, STATES + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))

    def forward(self, both: Tensor) -> Tensor:
        """What is scanned and its gate (B, 2C, L) -> (B, C, L)."""
        x, gate = both.chunk(2, dim=1)
        x = F.silu(self.filter(F.pad(x, (TAPS - 1, 0))))
        said = self.project(x.transpose(1, 2)).transpose(1, 2)  # (B, rank + 2N, L)
        low, up, down = said.split((self.rank, STATES, STATES), dim=1)
        step = F.softplus(self.step(low.transpose(1, 2)).transpose(1, 2).float())
        rate = -self.log_rate.float().exp()
        found = selective_scan(x[:, None], step[:, None], rate[None], up[:, None], down[:, None])
        return (found[:, 0] + self.skip[:, None] * x) * F.silu(gate)


def _neighbourhood(inside: int, inner: int, *, separable: bool) -> nn.Sequential:
    def convolution(channels: int, outside: int) -> nn.Module:
        if not separable:
            return nn.Conv2d(channels, outside, 3, padding=1)
        single = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        return nn.Sequential(single, nn.Conv2d(channels, outside, 1))

    middle = inside if separable else inner
    return nn.Sequential(convolution(inside, middle), nn.SiLU(), convolution(middle, inner))


class TwoWays(nn.Module):
    """A scan forwards and one backwards; a subclass says what joins them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.rank = 2 * width, math.ceil(width / 16)
        self.widen = nn.Linear(width, 2 * self.inner, bias=False)
        self.forwards = Path(self.inner, self.rank)
        self.backwards = Path(self.inner, self.rank)
        self.narrow = nn.Linear(self.inner, width, bias=False)

    def scan(self, tokens: Tensor) -> Tensor:
        """(B, L, C) -> (B, inner, L)."""
        both = self.widen(tokens).transpose(1, 2)
        return self.forwards(both) + self.backwards(both.flip(-1)).flip(-1)


class Layer(TwoWays):
    """Scans plus neighbourhood, behind a norm and added to what came in; then a projection."""

    def __init__(self, inside: int, outside: int, *, separable: bool = False) -> None:
        super().__init__(inside)
        self.norm = nn.LayerNorm(inside)
        self.local = _neighbourhood(inside, self.inner, separable=separable)
        self.keep = nn.Parameter(torch.ones(1))
        self.project = nn.Linear(inside, outside)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C', h, w)."""
        grid = x.shape[-2:]
        tokens = x.flatten(2).transpose(1, 2)
        normed = self.norm(tokens)
        local = self.local(normed.transpose(1, 2).unflatten(2, grid)).flatten(2)
        found = self.narrow((self.scan(normed) + local).transpose(1, 2))
        out = self.project(self.norm(found + self.keep * tokens))
        return out.transpose(1, 2).unflatten(2, grid)


class Block(nn.Module):
    """Two layers, each behind a norm and ReLU, added to what came in."""

    def __init__(self, width: int, *, separable: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, width), nn.GroupNorm(GROUPS, width)
        self.layer1 = Layer(width, width, separable=separable)
        self.layer2 = Layer(width, width, separable=separable)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        y = self.layer1(F.relu(self.norm1(x)))
        return x + self.layer2(F.relu(self.norm2(y)))


class Gate(TwoWays):
    """A date's scans, gated by the other date's neighbourhood or by a scan of it."""

    def __init__(self, width: int, *, local: bool) -> None:
        super().__init__(width)
        self.norms = nn.ModuleList((nn.LayerNorm(width), nn.LayerNorm(width)))
        self.local = _neighbourhood(width, self.inner, separable=False) if local else None
        if not local:
            self.widen_other = nn.Linear(width, 2 * self.inner, bias=False)
            self.other = Path(self.inner, self.rank)

    def forward(self, before: Tensor, after: Tensor) -> list[Tensor]:
        """Both dates (B, C, h, w) -> both, gated."""
        grid = before.shape[-2:]
        dates = [
            norm(x.flatten(2).transpose(1, 2))
            for norm, x in zip(self.norms, (before, after), strict=True)
        ]
        gated = []
        for one, two in (dates, dates[::-1]):
            if self.local is not None:
                gate = self.local(two.transpose(1, 2).unflatten(2, grid)).flatten(2)
            else:
                gate = self.other(self.widen_other(two).transpose(1, 2))
            found = self.narrow((self.scan(one) * F.relu(gate)).transpose(1, 2))
            gated.append(found.transpose(1, 2).unflatten(2, grid))
        return gated


class Exchange(nn.Module):
    """Both kinds of gates, weighed by a score for the whole image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near, self.far = Gate(width, local=True), Gate(width, local=False)
        self.score = nn.Linear(2 * width, 2, bias=False)

    def forward(self, before: Tensor, after: Tensor) -> list[Tensor]:
        """Both dates (B, C, h, w) -> both."""
        mixed = []
        for near, far in zip(self.near(before, after), self.far(before, after), strict=True):
            means = torch.cat((near.mean((2, 3)), far.mean((2, 3))), dim=1)
            weight = self.score(means).softmax(-1)[..., None, None, None]  # (B, 2, 1, 1, 1)
            mixed.append(weight[:, 0] * near + weight[:, 1] * far)
        return mixed


class CDMamba(Peer):
    """Encoder, exchange at the finest scales, decoder over the differences."""

    stride = 8

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.downs = nn.ModuleList(Layer(inside, width) for inside, width in pairwise(WIDTHS))
        self.stages = nn.ModuleList(
            nn.Sequential(*(Block(width) for _ in range(count)))
            for width, count in zip(WIDTHS, BLOCKS, strict=True)
        )
        self.exchange = nn.ModuleList(Exchange(width) for width in WIDTHS[:GATED])
        self.ups = nn.ModuleList(
            nn.Conv2d(2 * width, width, 1, bias=False) for width in WIDTHS[:-1]
        )
        self.levels = nn.ModuleList(Block(width, separable=True) for width in WIDTHS[:-1])
        self.head = nn.Sequential(
            nn.GroupNorm(GROUPS, WIDTHS[0]), nn.ReLU(), nn.Conv2d(WIDTHS[0], 2, 1)
        )

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        x = self.stem(self.prepare_pair(before, after))
        differences = []
        for i, stage in enumerate(self.stages):
            x = stage(F.max_pool2d(self.downs[i - 1](x), 2) if i else x)
            first, second = split_dates(x)
            if i < GATED:
                first, second = self.exchange[i](first, second)
            differences.append((first - second).abs())
        y = differences.pop()
        for i in reversed(range(len(differences))):
            size = differences[i].shape[-2], differences[i].shape[-1]
            y = self.levels[i](resize(self.ups[i](y), size) + differences[i])
        return self.head(y), []

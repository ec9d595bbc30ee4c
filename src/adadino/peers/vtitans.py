"""VTitans with an adapter: a plain row of Titans' blocks beside a pyramid of convolutions.

Z. Yang et al., "ChangeTitans: Toward Remote Sensing Change Detection with Neural Memory", TGRS
2025; Z. Chen et al., "Vision Transformer Adapter", ICLR 2023. Twelve blocks (`titans.py`) read
patches of 16 pixels; every third has a memory. Before each of four groups of blocks the tokens read
the pyramid by deformable attention, behind it the pyramid reads the tokens. Both are summed to maps
at strides 4, 8, 16 and 32.

As released, with plain BatchNorm in the place of one that several devices share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.peers.base import DropPath, resize
from adadino.peers.memory import NeuralMemory
from adadino.peers.titans import State, TitansBlock

WIDTH, PATCH, GRID = 192, 16, 16
"""Channels, pixels of a patch, and rows and columns of the learned positions."""
GROUPS = (2, 4, 4, 2)
"""Blocks between two exchanges with the pyramid."""
CHUNK, EVERY = 64, 3
HEADS, POINTS = 6, 4
STEM = 64
DROP_PATH = 0.1

Grid = tuple[int, int]


class DeformableAttention(nn.Module):
    """Each query reads a few places of each map, around its own place, wherever it wants."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.maps = maps
        self.offsets = nn.Linear(WIDTH, HEADS * maps * POINTS * 2)
        self.weights = nn.Linear(WIDTH, HEADS * maps * POINTS)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, places: Tensor, read: Tensor, grids: Sequence[Grid]) -> Tensor:
        """Read from maps.

        Args:
            x: Queries (B, L, C).
            places: Where they are (L, 2), columns and rows in [0, 1].
            read: The maps' tokens (B, M, C), one map after the other.
            grids: Rows and columns of each map.
        """
        B, length = x.shape[:2]
        shape = (B, length, HEADS, self.maps, POINTS)
        offsets = self.offsets(x).view(*shape, 2)
        weights = self.weights(x).view(B, length, HEADS, -1).softmax(-1).view(shape)
        values = self.value(read).split([height * width for height, width in grids], dim=1)
        out = x.new_zeros(B, HEADS, WIDTH // HEADS, length)
        for i, (height, width) in enumerate(grids):
            size = offsets.new_tensor([width, height])
            where = 2 * (places[:, None, None] + offsets[:, :, :, i] / size) - 1
            where = where.transpose(1, 2).flatten(0, 1)  # (B heads, L, points, 2)
            held = values[i].transpose(1, 2).reshape(B * HEADS, -1, height, width)
            found = F.grid_sample(held, where.to(held.dtype), align_corners=False)
            found = found.view(B, HEADS, -1, length, POINTS)
            out = out + (found * weights[:, :, :, i].transpose(1, 2)[:, :, None]).sum(-1)
        return self.proj(out.flatten(1, 2).transpose(1, 2))


def _places(grids: Sequence[Grid], device: torch.device) -> Tensor:
    """Centres of the cells of maps, (L, 2): columns and rows in [0, 1]."""
    found = []
    for height, width in grids:
        rows = (torch.arange(height, device=device) + 0.5) / height
        columns = (torch.arange(width, device=device) + 0.5) / width
        found.append(torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).flatten(0, 1))
    return torch.cat(found)


class Injector(nn.Module):
    """The tokens read the pyramid."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.attention = DeformableAttention(3)
        self.scale = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor, pyramid: Tensor, grid: Grid, grids: Sequence[Grid]) -> Tensor:
        """Tokens (B, L, C) of one grid and those of three -> the former."""
        places = _places([grid], x.device).to(x.dtype)
        return x + self.scale * self.attention(self.norm1(x), places, self.norm2(pyramid), grids)


class Extractor(nn.Module):
    """The pyramid reads the tokens; then an FFN with a filter on each of its maps."""

    def __init__(self) -> None:
        super().__init__()
        hidden = WIDTH // 4
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(3))
        self.attention = DeformableAttention(1)
        self.up = nn.Linear(WIDTH, hidden)
        self.filter = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.down = nn.Linear(hidden, WIDTH)
        self.drop_path = DropPath(DROP_PATH)

    def forward(self, pyramid: Tensor, x: Tensor, grid: Grid, grids: Sequence[Grid]) -> Tensor:
        """Tokens of three grids (B, M, C) and of one -> the former."""
        places = _places(grids, x.device).to(x.dtype)
        asked = self.norm1(pyramid)
        pyramid = pyramid + self.attention(asked, places, self.norm2(x), [grid])
        hidden = self.up(self.norm3(pyramid))
        maps = hidden.split([height * width for height, width in grids], dim=1)
        filtered = [
            self.filter(each.transpose(1, 2).unflatten(2, size)).flatten(2).transpose(1, 2)
            for each, size in zip(maps, grids, strict=True)
        ]
        return pyramid + self.drop_path(self.down(F.gelu(torch.cat(filtered, dim=1))))


def _unit(inside: int, outside: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]


class VTitans(nn.Module):
    """Blocks, pyramid, and their exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.positions = nn.Parameter(torch.zeros(1, WIDTH, GRID, GRID))
        count = sum(GROUPS)
        self.blocks = nn.ModuleList(
            TitansBlock(
                WIDTH,
                first=i == 0,
                memory=NeuralMemory(WIDTH, chunk=CHUNK, follows=i > 1) if i % EVERY == 1 else None,
                drop_path=DROP_PATH * i / (count - 1),
            )
            for i in range(count)
        )
        self.stem = nn.Sequential(
            *_unit(3, STEM, 2), *_unit(STEM, STEM, 1), *_unit(STEM, STEM, 1), nn.MaxPool2d(3, 2, 1)
        )
        widths = (STEM, 2 * STEM, 4 * STEM, 4 * STEM)
        self.downs = nn.ModuleList(
            nn.Sequential(*_unit(inside, outside, 2)) for inside, outside in pairwise(widths)
        )
        self.project = nn.ModuleList(nn.Conv2d(width, WIDTH, 1) for width in widths)
        self.levels = nn.Parameter(torch.randn(3, WIDTH))
        self.injectors = nn.ModuleList(Injector() for _ in GROUPS)
        # The last group's pyramid reads the tokens three times.
        self.extractors = nn.ModuleList(Extractor() for _ in range(len(GROUPS) + 2))
        self.up = nn.ConvTranspose2d(WIDTH, WIDTH, 2, 2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(WIDTH) for _ in range(4))
        for module in self.modules():
            if isinstance(module, nn.ConvTranspose2d):
                nn.init.normal_(module.weight, std=math.sqrt(2 / (4 * WIDTH)))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Normalised images (B, 3, H, W), multiples of 32 -> maps at strides 4, 8, 16, 32."""
        finest, pyramid, grids = self._pyramid(images)
        x = self.patches(images)
        grid = x.shape[-2], x.shape[-1]
        positions: Tensor = self.positions
        if grid != (GRID, GRID):
            wide = positions.to(torch.promote_types(positions.dtype, torch.float32))
            positions = F.interpolate(wide, grid, mode="bicubic").to(x.dtype)
        x = (x + positions).flatten(2).transpose(1, 2)
        state, outs = State(), []
        for group, injector in enumerate(self.injectors):
            start = sum(GROUPS[:group])
            x = injector(x, pyramid, grid, grids)
            for block in self.blocks[start : start + GROUPS[group]]:
                x, state = block(x, state)
            last = group == len(GROUPS) - 1
            for extractor in self.extractors[group : None if last else group + 1]:
                pyramid = extractor(pyramid, x, grid, grids)
            outs.append(x.transpose(1, 2).unflatten(2, grid))
        maps = [
            tokens.transpose(1, 2).unflatten(2, size)
            for tokens, size in zip(pyramid.split([h * w for h, w in grids], 1), grids, strict=True)
        ]
        maps = [finest + self.up(maps[0]), *maps]
        return [
            norm(level + resize(out, (level.shape[-2], level.shape[-1])))
            for norm, level, out in zip(self.norms, maps, outs, strict=True)
        ]

    def _pyramid(self, images: Tensor) -> tuple[Tensor, Tensor, list[Grid]]:
        """The map at stride 4; those at 8, 16 and 32 as tokens (B, M, C); and their sides."""
        maps = [self.stem(images)]
        for down in self.downs:
            maps.append(down(maps[-1]))
        finest, *coarser = (project(x) for project, x in zip(self.project, maps, strict=True))
        tokens = [x.flatten(2).transpose(1, 2) + self.levels[i] for i, x in enumerate(coarser)]
        return finest, torch.cat(tokens, dim=1), [(x.shape[-2], x.shape[-1]) for x in coarser]

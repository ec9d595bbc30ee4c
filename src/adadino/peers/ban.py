"""BAN-style: a small trainable branch that reads a frozen backbone over bridges.

K. Li, X. Cao, D. Meng, "A New Learning Paradigm for Foundation Model-Based Remote-Sensing Change
Detection", TGRS 2024. The frozen model is left alone. A change detector of its own (the bi-temporal
adapter branch) sees the images; behind three of its stages a bridge lets it read the frozen
features by cross-attention and adds them, resized.

The original's: the bridges, the branch (a Mix Transformer b0) and its decoder: every scale to 128
channels, fused for each date, both dates side by side through an FFN with a depthwise convolution,
and a classifier. Ours: DINOv3 in the place of CLIP, read at the last three taps of the pyramid. The
branch is random here; theirs began with ImageNet weights.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import Config
from adadino.model.cpgr import ChannelNorm
from adadino.model.pair import split_dates
from adadino.peers.base import conv_unit, resize
from adadino.peers.frozen import FrozenPeer
from adadino.peers.mit import MiTConfig, MixFFN, MixTransformer

STRIDE = 32
"""Stride of the branch, which is larger than the backbone's patches."""
BRANCH = MiTConfig(widths=(32, 64, 160, 256), heads=(1, 2, 5, 8), depths=(2, 2, 2, 2))
WIDTH = 128


class Bridge(nn.Module):
    """Let a map of the branch read a map of the frozen backbone."""

    def __init__(self, *, frozen: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.align = nn.Sequential(ChannelNorm(frozen), nn.Conv2d(frozen, width, 1))
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.ffn = MixFFN(width, 4)

    def forward(self, x: Tensor, frozen: Tensor) -> Tensor:
        """(2B, C, h, w) and (2B, D, h', w') -> (2B, C, h, w)."""
        grid = x.shape[-2], x.shape[-1]
        aligned = self.align(frozen)
        x = x.flatten(2).transpose(1, 2)  # (2B, C, h, w) -> (2B, hw, C)
        memory = aligned.flatten(2).transpose(1, 2)
        q = self.query(self.norm1(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.key_value(memory).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(read.transpose(1, 2).flatten(2))
        x = x + self.ffn(self.norm2(x), grid)
        return x.transpose(1, 2).unflatten(2, grid) + resize(aligned, grid)


class BranchDecoder(nn.Module):
    """Four scales of both dates -> logits at the finest scale."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.ModuleList(conv_unit(width, WIDTH, 1) for width in BRANCH.widths)
        self.fuse = conv_unit(len(BRANCH.widths) * WIDTH, WIDTH, 1)
        self.ffn = MixFFN(2 * WIDTH, 2 * WIDTH)
        self.head = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(2 * WIDTH, 2, 1))

    def forward(self, maps: list[Tensor]) -> Tensor:
        """Four maps (2B, C_i, h_i, w_i), finest first -> (B, 2, h_1, w_1)."""
        grid = maps[0].shape[-2], maps[0].shape[-1]
        dates = zip(*map(split_dates, maps), strict=True)  # one after the other, as the original
        pair = torch.cat([self.join(date, grid) for date in dates], dim=1)  # (B, 2 WIDTH, h, w)
        tokens = pair.flatten(2).transpose(1, 2)
        tokens = tokens + self.ffn(tokens, grid)
        return self.head(tokens.transpose(1, 2).unflatten(2, grid))

    def join(self, maps: tuple[Tensor, ...], grid: tuple[int, int]) -> Tensor:
        """Four maps (B, C_i, h_i, w_i) of one date -> (B, WIDTH, h_1, w_1)."""
        same = [resize(project(x), grid) for project, x in zip(self.project, maps, strict=True)]
        return self.fuse(torch.cat(same, dim=1))


class BAN(FrozenPeer):
    """Frozen backbone, bridges, branch."""

    def make_decoder(self, config: Config) -> None:
        """The branch decodes by itself: no pyramid and no CPGR."""
        self.stride = math.lcm(config.stride, STRIDE)
        self.branch = MixTransformer(BRANCH)
        self.bridges = nn.ModuleList(
            Bridge(frozen=config.backbone.dim, width=width, heads=heads)
            for width, heads in zip(BRANCH.widths[1:], BRANCH.heads[1:], strict=True)
        )
        self.branch_decoder = BranchDecoder()

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        images = torch.cat((before, after))
        features = self.encode(self.prepare(self.sizes.enlarge(images, self.config.scale)))
        maps = [self.branch.stages[0](self.prepare(images))]
        for i, bridge in enumerate(self.bridges):
            maps.append(bridge(self.branch.stages[i + 1](maps[-1]), features[i + 1]))
        return self.branch_decoder(maps), []

"""The Mix Transformer of SegFormer, which ChangeFormer and BAN's branch are built on.

E. Xie et al., "SegFormer", NeurIPS 2021. Four stages at strides 4, 8, 16, 32: an overlapping patch
embedding, blocks whose attention reads a reduced map, an FFN with a depthwise convolution in the
place of position embeddings, and a norm.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from adadino.peers.base import DropPath


class MiTConfig(NamedTuple):
    """Sizes of the four stages."""

    widths: tuple[int, ...]
    heads: tuple[int, ...]
    depths: tuple[int, ...]
    kernel: int = 3
    """Side of the patch embeddings of stages 2, 3 and 4; the first one's is always 7."""
    reductions: tuple[int, ...] = (8, 4, 2, 1)
    """How much smaller the map is that a stage's attention reads."""
    dropout: float = 0.0
    drop_path: float = 0.1
    """Rate of the last block; it rises from zero at the first."""


class ReducedAttention(nn.Module):
    """Self-attention whose keys and values come from a smaller map."""

    def __init__(self, width: int, heads: int, reduction: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.shrink = None
        if reduction > 1:
            self.shrink = nn.Conv2d(width, width, reduction, stride=reduction)
            self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B, hw, C) -> the same."""
        memory = x
        if self.shrink is not None:
            smaller = self.shrink(x.transpose(1, 2).unflatten(2, grid))
            memory = self.norm(smaller.flatten(2).transpose(1, 2))
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.key_value(memory).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return F.dropout(self.proj(x.transpose(1, 2).flatten(2)), dropout, self.training)


class MixFFN(nn.Module):
    """Two linear layers with a depthwise 3x3 convolution between them."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.local = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.down = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B, hw, C) -> the same."""
        hidden = self.local(self.up(x).transpose(1, 2).unflatten(2, grid))
        x = self.dropout(F.gelu(hidden.flatten(2).transpose(1, 2)))
        return self.dropout(self.down(x))


class MixBlock(nn.Module):
    """Attention and FFN, both behind a norm and added to what came in."""

    def __init__(
        self, width: int, heads: int, reduction: int, *, dropout: float, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = ReducedAttention(width, heads, reduction, dropout)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.ffn = MixFFN(width, 4 * width, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B, hw, C) -> the same."""
        x = x + self.drop_path(self.attention(self.norm1(x), grid))
        return x + self.drop_path(self.ffn(self.norm2(x), grid))


class Stage(nn.Module):
    """Patch embedding, blocks, norm: one map in, a smaller one out."""

    def __init__(
        self, inside: int, width: int, *, kernel: int, stride: int, blocks: list[MixBlock]
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(inside, width, kernel, stride=stride, padding=kernel // 2)
        self.norm1 = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(blocks)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C', h / stride, w / stride)."""
        x = self.embed(x)
        grid = x.shape[-2], x.shape[-1]
        x = self.norm1(x.flatten(2).transpose(1, 2))
        for block in self.blocks:
            x = block(x, grid)
        return self.norm2(x).transpose(1, 2).unflatten(2, grid)


class MixTransformer(nn.Module):
    """The four stages."""

    def __init__(self, config: MiTConfig) -> None:
        super().__init__()
        last = sum(config.depths) - 1
        index = 0
        stages = []
        for i, width in enumerate(config.widths):
            blocks = []
            for _ in range(config.depths[i]):
                blocks.append(
                    MixBlock(
                        width,
                        config.heads[i],
                        config.reductions[i],
                        dropout=config.dropout,
                        drop_path=config.drop_path * index / last,
                    )
                )
                index += 1
            inside, kernel, stride = (config.widths[i - 1], config.kernel, 2) if i else (3, 7, 4)
            stages.append(Stage(inside, width, kernel=kernel, stride=stride, blocks=blocks))
        self.stages = nn.ModuleList(stages)
        self.apply(_initialise)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) -> maps at strides 4, 8, 16, 32."""
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
        nn.init.normal_(module.weight, std=(2 * module.groups / fan_out) ** 0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

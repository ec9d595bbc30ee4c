"""The frozen vision transformer, DINOv3 or DINOv2: patch embedding, attention, FFN, block.

The E and B^l of Eq. 1. Equal to transformers' `DINOv3ViTModel`, `Dinov2Model` and
`Dinov2WithRegistersModel` block by block (tests/model). It is written out here because CGLA sits
between the blocks and BSCS inside them. The paper's is DINOv3; DINOv2 is the one that anybody may
have. The two differ in how a token knows its place (`positions.py`) and in settings.

- One fused QKV projection; keys have no bias, so the bias is kept as its query and value parts.
  DINOv3's keys have none. DINOv2's would add the same to all scores of a query, which softmax takes
  away again.
- The class token's learned position is part of the class token.
- The FFN takes a `Selection` of chunks: gathered into a compact dense FFN, or as weights of all.
- Folded for inference in `engine/block.py`; tests/engine/test_engine.py holds the two equal.
- Frozen means frozen: parameters without gradients, and `train()` leaves the backbone in eval mode.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import BackboneConfig
from adadino.model.positions import Rope, interpolate_positions, rope_tables, rotate


def cut_patches(images: Tensor, side: int) -> Tensor:
    """Images (B, 3, h p, w p) -> patches (B, hw, 3 p p), the input of the patch embedding."""
    cells = images.unflatten(3, (-1, side)).unflatten(2, (-1, side))  # (B, 3, h, p, w, p)
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention with one fused QKV projection."""

    def __init__(self, *, dim: int, heads: int, qkv_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(dim)) if qkv_bias else None
        self.v_bias = nn.Parameter(torch.zeros(dim)) if qkv_bias else None
        self.proj = nn.Linear(dim, dim)

    @property
    def qkv_bias(self) -> Tensor | None:
        """The bias of the fused projection (3D,): none for the keys."""
        if self.q_bias is None or self.v_bias is None:
            return None
        return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))

    def forward(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Attend over all tokens (B, N, D), queries and keys turned by their places if given."""
        B, N, D = x.shape
        qkv = F.linear(x, self.qkv.weight, self.qkv_bias)
        # (B, N, 3 D) -> 3 x (B, N, heads, D / heads). Tokens stay outermost in memory, the order in
        # which attention kernels write their result, so that no tensor is copied to be turned over.
        q, k, v = qkv.view(B, N, 3, self.heads, D // self.heads).unbind(2)
        if rope is not None:
            # Not x's type: under autocast a LayerNorm hands on float32, and so would the rotation.
            cos, sin = (table[:, None].to(qkv.dtype) for table in rope)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(B, N, D))


class Selection(NamedTuple):
    """Which chunks of its hidden width a block's FFN executes. `bscs.py` chooses them."""

    size: int
    """Hidden channels of one chunk."""
    keep: Tensor | None = None
    """(k,) chunks to gather into a compact dense FFN; the others are skipped."""
    gate: Tensor | None = None
    """(C,) weights of all chunks: the mask of Eq. 12, in training."""


class FeedForward(nn.Module):
    """The block's FFN, plain (GELU) or gated (SwiGLU), whole or in chunks of its hidden width.

    A chunk is a run of rows of the input projection (of both, when gated) and the same run of
    columns of the output projection.
    """

    def __init__(self, *, dim: int, hidden: int, gated: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden) if gated else None
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: Tensor, chosen: Selection | None = None) -> Tensor:
        """Apply the FFN, or the chosen chunks of it, to tokens (..., D)."""
        keep, size = (None, 0) if chosen is None else (chosen.keep, chosen.size)
        hidden = F.linear(x, *_rows(self.up, keep, size))
        if self.gate is None:
            hidden = F.gelu(hidden)
        else:
            hidden = F.silu(F.linear(x, *_rows(self.gate, keep, size))) * hidden
        if keep is not None:
            weight = self.down.weight.unflatten(1, (-1, size)).index_select(1, keep).flatten(1)
            return F.linear(hidden, weight, self.down.bias)
        if chosen is not None and chosen.gate is not None:
            # Eq. 12. The mask multiplies the weight, not the tokens: the same product, and a pass
            # over D x 4D numbers instead of several over all tokens, forward and backward.
            weight = self.down.weight * chosen.gate.to(hidden.dtype).repeat_interleave(size)
            return F.linear(hidden, weight, self.down.bias)
        return self.down(hidden)


def _rows(linear: nn.Linear, keep: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a projection into the hidden width, of the kept chunks only."""
    if keep is None:
        return linear.weight, linear.bias
    weight = linear.weight.unflatten(0, (-1, size)).index_select(0, keep).flatten(0, 1)
    bias = linear.bias.unflatten(0, (-1, size)).index_select(0, keep).flatten()
    return weight, bias


class Block(nn.Module):
    """Pre-norm transformer block with LayerScale on both residuals."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        dim, eps = config.dim, config.norm_eps
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = Attention(dim=dim, heads=config.heads, qkv_bias=config.qkv_bias)
        self.ls1 = nn.Parameter(torch.ones(dim))
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.ffn = FeedForward(dim=dim, hidden=config.ffn, gated=config.gated)
        self.ls2 = nn.Parameter(torch.ones(dim))

    def forward(
        self,
        x: Tensor,
        rope: Rope | None,
        chosen: Selection | None = None,
    ) -> Tensor:
        """Encode tokens (B, N, D) with the whole FFN or the chosen chunks of it."""
        x = x + self.attn(self.norm1(x), rope) * self.ls1
        return x + self.ffn(self.norm2(x), chosen) * self.ls2


class Backbone(nn.Module):
    """Patch embedding, prefix tokens, blocks and the final LayerNorm."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = nn.Conv2d(3, config.dim, config.patch, stride=config.patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.registers = nn.Parameter(torch.zeros(1, config.registers, config.dim))
        learned = torch.zeros(1, config.grid**2, config.dim) if config.grid else None
        self.positions = None if learned is None else nn.Parameter(learned)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.reset_parameters()
        self.requires_grad_(config.trainable)
        self.train(config.trainable)

    def reset_parameters(self) -> None:
        """Draw the initial weights as DINO does: truncated normal, std 0.02."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        if self.config.registers:
            nn.init.trunc_normal_(self.registers, std=0.02)
        if self.positions is not None:
            nn.init.trunc_normal_(self.positions, std=0.02)

    def train(self, mode: bool = True) -> Self:
        """Enter training mode only when the backbone is trainable at all."""
        return super().train(mode and self.config.trainable)

    def embed(self, image: Tensor) -> Tensor:
        """Turn a normalised image (B, 3, H, W) into tokens (B, prefix + hw, D)."""
        # As the matrix product it is: cuDNN runs this convolution outside the tensor cores in bf16.
        cells = cut_patches(image, self.config.patch)
        patches = F.linear(cells, self.patch_embed.weight.flatten(1), self.patch_embed.bias)
        if (positions := self.learned_positions(*self.grid(image))) is not None:
            patches = patches + positions.to(patches.dtype)
        prefix = torch.cat((self.cls_token, self.registers), dim=1)
        return torch.cat((prefix.expand(image.shape[0], -1, -1), patches), dim=1)

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of the patches of images (B, 3, H, W)."""
        patch = self.config.patch
        return images.shape[-2] // patch, images.shape[-1] // patch

    def to_map(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B, prefix + hw, D) -> a map (B, D, h, w), through the final LayerNorm."""
        patches = self.norm(x[:, self.config.prefix :])
        return patches.transpose(1, 2).unflatten(2, grid)

    def learned_positions(self, height: int, width: int) -> Tensor | None:
        """What is added to the patches of a grid (1, hw, D), float32; None if they are rotary."""
        if self.positions is None:
            return None
        config = self.config
        return interpolate_positions(
            self.positions,
            (height, width),
            offset=config.grid_offset,
            antialias=config.registers > 0,
        )

    def rope(self, height: int, width: int) -> Rope | None:
        """Rotary tables for a grid of patches; None if positions are learned."""
        config = self.config
        if config.grid:
            return None
        return rope_tables(
            height,
            width,
            prefix=config.prefix,
            head_dim=config.dim // config.heads,
            theta=config.rope_theta,
            device=self.cls_token.device,
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        """Encode single images the plain way: the output of every block, the last one normalised.

        The pair-aware path is `encoder.py`; this one is what DINO itself computes.
        """
        x = self.embed(image)
        rope = self.rope(*self.grid(image))
        outputs = []
        for block in self.blocks:
            x = block(x, rope)
            outputs.append(x)
        return [*outputs[:-1], self.norm(x)]

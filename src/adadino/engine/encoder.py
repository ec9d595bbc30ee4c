"""The pair-aware encoder on tokens: the loop of `model/encoder.py` over folded blocks.

Mirrors `Encoder` and `Policy`; tests/engine/test_engine.py holds them equal. The policy reads what
enters a block, but only the FFN needs its answer: on a GPU it runs on a second stream, with the
gather behind it, while the attention computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.engine.adapter import Adapter, PlainAdapter
from adadino.engine.block import FastBlock, hold
from adadino.engine.cuda import SideStream
from adadino.engine.ops.block import layer_norm, select
from adadino.engine.rows import Kind
from adadino.model.backbone import Block
from adadino.model.bscs import ChunkSelector, Policy
from adadino.model.cgla import CGLA
from adadino.model.encoder import Encoder, Encoding
from adadino.model.positions import Rope, interpolate_positions, rope_tables


class FastPolicy(nn.Module):
    """One block's policy, always in float32: it is small, and rounding could change its choice."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        weight = policy.fc1.weight.detach().float().clone()
        if policy.order_invariant:  # the midpoint in both slots = half of each date in each
            both = weight.unflatten(1, (4, -1))
            both[:, :2] = both[:, :2].mean(1, keepdim=True)
        self.weight1: Tensor
        self.bias1: Tensor
        self.weight2: Tensor
        self.bias2: Tensor
        hold(
            self,
            weight1=weight,
            bias1=policy.fc1.bias.float(),
            weight2=policy.fc2.weight.float(),
            bias2=policy.fc2.bias.float(),
        )

    def forward(self, parts: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores (B, C) and the k best chunks from the parts (B, parts, 4D) of PoolPair."""
        return select(
            parts,
            weight1=self.weight1,
            bias1=self.bias1,
            weight2=self.weight2,
            bias2=self.bias2,
            k=k,
        )


class FastEncoder(nn.Module):
    """Backbone, adapters and chunk selection, for inference only."""

    def __init__(self, encoder: Encoder, *, dtype: torch.dtype, kind: Kind | None) -> None:
        super().__init__()
        backbone = encoder.backbone
        self.config, self.taps, self.dtype = backbone.config, encoder.taps, dtype
        device = backbone.cls_token.device
        shift = torch.zeros(self.config.dim, device=device)
        blocks = []
        chunks = encoder.bscs.config.chunks
        for block in backbone.blocks:
            assert isinstance(block, Block)
            blocks.append(FastBlock(block, shift, chunks=chunks, dtype=dtype, kind=kind))
            shift = blocks[-1].shift_out
        self.blocks = nn.ModuleList(blocks)
        policies = cast(Iterable[Policy], encoder.bscs.policies)
        self.policies = nn.ModuleList(FastPolicy(policy) for policy in policies)
        self.selector = _selector(encoder.bscs)
        self.adapters = nn.ModuleDict(
            {
                depth: (Adapter if cgla.mode == "pair" else PlainAdapter)(cgla, dtype)
                for depth, cgla in cast(dict[str, CGLA], encoder.cgla).items()
            }
        )
        self.patch_weight: Tensor
        self.patch_bias: Tensor
        self.prefix: Tensor
        self.positions: Tensor | None
        self.norm_weight: Tensor
        self.norm_bias: Tensor
        hold(
            self,
            patch_weight=backbone.patch_embed.weight.flatten(1).to(dtype),
            patch_bias=cast(Tensor, backbone.patch_embed.bias).to(dtype),
            prefix=torch.cat((backbone.cls_token, backbone.registers), dim=1).to(dtype),
            positions=None if backbone.positions is None else backbone.positions.float(),
            norm_weight=backbone.norm.weight.float(),
            norm_bias=backbone.norm.bias.float(),
        )
        self.settle()

    def settle(self) -> None:
        """Get ready on the device where the weights are."""
        self.side = SideStream(self.prefix.device)
        self.made: dict[tuple[int, int], tuple[Rope | None, Tensor | None]] = {}

    def forward(
        self, cells: Tensor, grid: tuple[int, int], *, k: int, chunks: Tensor | None = None
    ) -> Encoding:
        """Encode patches (2B, hw, 3 p p), first dates first; see `Encoder.forward`."""
        config = self.config
        prefix, pairs = config.prefix, len(cells) // 2
        rope, positions = self.places(grid)
        patches = F.linear(cells, self.patch_weight, self.patch_bias)
        if positions is not None:
            patches = patches + positions
        x = torch.cat((self.prefix.expand(2 * pairs, -1, -1), patches), dim=1)
        choose = chunks is None and k < self.selector.config.chunks and len(self.policies) > 0
        features, responses, scores = [], [], []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, FastBlock)
            rows, parts = block.norm1(x, prefix=prefix, pooled=choose)
            with self.side.fork():
                if parts is None:
                    chosen = self.selector.select(index, k=k, scores=None, chunks=chunks)
                    keep = None if chosen is None else chosen.keep
                else:
                    score, keep = self.policies[index](parts, k)
                    scores.append(score)
                weights = block.ffn.choose(keep)
            x = block.attend(x, rows, rope, prefix=prefix)
            rows = block.norm2(x)
            self.side.join()
            x = block.ffn(x, rows, weights)
            del parts  # only now: the second stream has read it
            if str(index) in self.adapters:
                adapter = self.adapters[str(index)]
                responses.append(adapter(x, block.shift_out, grid, self.side))
            if index in self.taps:
                features.append(self.tap(x, block.shift_out, grid))
        return Encoding.of(features, responses, scores)

    def tap(self, x: Tensor, shift: Tensor, grid: tuple[int, int]) -> Tensor:
        """The final LayerNorm of the patch tokens as maps (2B, D, h, w), channels last."""
        rows = layer_norm(
            x,
            shift=shift,
            weight=self.norm_weight,
            bias=self.norm_bias,
            eps=self.config.norm_eps,
        )
        tokens = rows.values.view_as(x)[:, self.config.prefix :]
        return tokens.unflatten(1, grid).permute(0, 3, 1, 2)

    def places(self, grid: tuple[int, int]) -> tuple[Rope | None, Tensor | None]:
        """Rotary tables of a grid or its learned positions, made once."""
        if grid not in self.made:
            config, rope, positions = self.config, None, None
            if self.positions is not None:
                positions = interpolate_positions(
                    self.positions,
                    grid,
                    offset=config.grid_offset,
                    antialias=config.registers > 0,
                ).to(self.dtype)
            else:
                rope = rope_tables(
                    *grid,
                    prefix=config.prefix,
                    head_dim=config.dim // config.heads,
                    theta=config.rope_theta,
                    device=self.prefix.device,
                )
            self.made[grid] = rope, positions
        return self.made[grid]


def _selector(bscs: ChunkSelector) -> ChunkSelector:
    """A copy of the selector without its policies, which are `FastPolicy` here."""
    copy = ChunkSelector.__new__(ChunkSelector)
    nn.Module.__init__(copy)
    copy.config, copy.size = bscs.config, bscs.size
    fixed = None if bscs.fixed is None else bscs.fixed.clone()
    copy.register_buffer("fixed", fixed, persistent=False)
    return copy.eval()

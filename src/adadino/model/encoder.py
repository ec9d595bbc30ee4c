"""The pair-aware encoder: policy -> frozen block -> CGLA, block by block. Sec. 3.1, Eq. 1.

Both dates travel as one batch (2B, N, D), first dates first, so that a frozen block runs once. The
loop is mirrored in `engine/encoder.py`; tests/engine/test_engine.py holds the two equal.

The paper does not say which maps feed the pyramid, nor whether they are normalised. Ours: behind
the last adapter of each of four groups of depths, through the backbone's final LayerNorm, as
DINOv3's own intermediate layers are read. Nor does it say whether its depths count from 0 or from
1. Ours count blocks from 0, so the last of ViT-L's 24 blocks is depth 23.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adadino.config import Config
from adadino.model.backbone import Backbone
from adadino.model.bscs import ChunkSelector
from adadino.model.cgla import CGLA, Responses
from adadino.model.pair import split_dates


class Encoding(NamedTuple):
    """What the decoder and the losses need from the encoder."""

    features: list[Tensor]
    """Four maps (2B, D, h, w), shallow to deep, through the backbone's final LayerNorm."""
    responses: Responses | None
    """CGLA's responses, each (B, depths, h, w); None without CGLA."""
    scores: Tensor | None
    """The policy's scores (B, blocks, C); None where no policy ran."""

    @classmethod
    def of(
        cls, features: list[Tensor], responses: list[Responses], scores: list[Tensor]
    ) -> Encoding:
        """Put together what single adapters and policies gave, block by block."""
        maps = [torch.cat(kind, dim=1) for kind in zip(*responses, strict=True)]
        return cls(
            features,
            Responses(*maps) if maps else None,
            torch.stack(scores, dim=1) if scores else None,
        )


class Encoder(nn.Module):
    """Frozen backbone, adapters and chunk selection."""

    def __init__(self, config: Config, *, backbone: Backbone | None = None) -> None:
        super().__init__()
        self.depths, self.taps = config.depths, config.taps
        self.backbone = Backbone(config.backbone) if backbone is None else backbone
        self.bscs = ChunkSelector(config)
        self.checkpointing = False
        """Recompute frozen blocks in the backward pass instead of keeping their activations."""
        adapters = config.depths if config.cgla.mode != "off" else ()
        self.cgla = nn.ModuleDict(
            {
                str(depth): CGLA(
                    dim=config.backbone.dim,
                    hidden=config.cgla_hidden,
                    config=config.cgla,
                    order_invariant=config.order_invariant,
                )
                for depth in adapters
            }
        )

    def forward(self, images: Tensor, *, k: int, chunks: Tensor | None = None) -> Encoding:
        """Encode normalised images (2B, 3, H, W), first dates first.

        Args:
            images: Both dates; H and W are multiples of the patch side.
            k: FFN chunks to execute.
            chunks: Chunks to execute in every block (blocks, k), instead of choosing them.
        """
        backbone, prefix = self.backbone, self.backbone.config.prefix
        grid = backbone.grid(images)
        rope = backbone.rope(*grid)
        # Frozen weights in half precision need no autocast. It would run every LayerNorm, and with
        # it every residual, in float32: twice the bytes, and casts between them.
        half = backbone.cls_token.dtype != torch.float32
        plain = torch.autocast(images.device.type, enabled=False) if half else nullcontext()
        choose = chunks is None and k < self.bscs.config.chunks and len(self.bscs.policies) > 0

        x = backbone.embed(images)  # Eq. 1: x^0
        features, responses, scores = [], [], []
        for index, block in enumerate(backbone.blocks):
            score = None
            if choose:
                score = self.bscs.score(index, *split_dates(x[:, prefix:]))
                scores.append(score)
            chosen = self.bscs.select(index, k=k, scores=score, chunks=chunks)
            with plain:
                if self.checkpointing and x.requires_grad:
                    x = checkpoint(block, x, rope, chosen, use_reentrant=False)
                else:
                    x = block(x, rope, chosen)  # Eq. 1: a frozen block
            if str(index) in self.cgla:
                x, response = self.cgla[str(index)](x, grid)
                responses.append(response)
            if index in self.taps:
                features.append(backbone.to_map(x, grid))
        return Encoding.of(features, responses, scores)

"""Peers on the same frozen DINOv3 as AdaDINO: only what adapts it differs.

The base class is AdaDINO's frozen baseline: the images are enlarged as AdaDINO's are, four tapped
blocks feed the project's own pyramid, and CPGR without priors decodes. A peer changes one of three
steps: what follows a block (`step`), how all blocks run (`encode`), or what is compared
(`differences`). Where an original has another decoder, its file says so; with one decoder for all,
a difference in accuracy comes from the adaptation.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from adadino.config import Config, preset
from adadino.model.backbone import Backbone
from adadino.model.cpgr import CPGR
from adadino.model.pyramid import Pyramid
from adadino.model.refiner import Refiner
from adadino.peers.base import Peer

Rope = tuple[Tensor, Tensor] | None


def baseline(config: Config | None) -> Config:
    """The configuration without CGLA, chunk selection and priors; by default of `tiny`."""
    config = preset("tiny") if config is None else config
    return dataclasses.replace(
        config,
        cgla=dataclasses.replace(config.cgla, mode="off"),
        bscs=dataclasses.replace(config.bscs, selection="off", k=config.bscs.chunks),
        cpgr=dataclasses.replace(config.cpgr, prior=()),
    )


class FrozenPeer(Peer):
    """The frozen baseline, for a subclass to adapt."""

    backbone_path = "backbone"

    def __init__(self, config: Config | None = None, *, backbone: Backbone | None = None) -> None:
        """Make the baseline.

        Args:
            config: The backbone, the width of the decoder and the enlargement; CGLA, selection and
                priors are switched off in it.
            backbone: The backbone with its weights; a random one if left out.
        """
        config = baseline(config)
        super().__init__(mean=config.backbone.mean, std=config.backbone.std)
        self.config = config
        self.stride = config.stride
        self.backbone = Backbone(config.backbone) if backbone is None else backbone
        self.make_decoder(config)

    def make_decoder(self, config: Config) -> None:
        """Build what turns the tapped features into logits."""
        self.neck = Pyramid(dim=config.backbone.dim, width=config.cpgr.width)
        self.decoder = CPGR(config)
        self.refiner = Refiner() if config.cpgr.refiner else None

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        images = torch.cat((before, after))
        features = self.encode(self.prepare(self.sizes.enlarge(images, self.config.scale)))
        pyramid = self.decoder(self.differences(images, features), None)
        return pyramid[0] if self.refiner is None else self.refiner(pyramid[0]), pyramid

    def prepare(self, images: Tensor) -> Tensor:
        """Normalise images in float32, then take on the type of the backbone."""
        return self.normalize(images).to(self.backbone.patch_embed.weight.dtype)

    def encode(self, images: Tensor) -> list[Tensor]:
        """Normalised images (2B, 3, H, W) -> four maps (2B, D, h, w), shallow to deep."""
        grid = self.backbone.grid(images)
        rope = self.backbone.rope(*grid)
        x = self.backbone.embed(images)
        features = []
        for index in range(self.config.backbone.depth):
            x = self.step(index, x, rope)
            if index in self.config.taps:
                features.append(self.backbone.to_map(x, grid))
        return features

    def step(self, index: int, x: Tensor, rope: Rope) -> Tensor:
        """Run one block on the tokens of both dates (2B, prefix + hw, D)."""
        return self.backbone.blocks[index](x, rope)

    def differences(self, images: Tensor, features: list[Tensor]) -> list[Tensor]:
        """D_2..D_5 from both dates' padded images in [0, 1] and their four maps."""
        return self.neck(features)

"""ChangeDINO-style: frozen features beside a small convolutional stream.

C.-H. Cheng, C.-C. Hsu, "ChangeDINO: DINOv3-Driven Building Change Detection in Optical Remote
Sensing Imagery", ISPRS Annals 2026. Frozen DINOv3 features say what is there, a light convolutional
network where exactly; both are merged at four scales for each date, and a decoder refines their
difference from coarse to fine.

The original's: the two streams, their fusion at four scales, the absolute difference, the
morphological refinement. Ours: EfficientNet-lite0 as the convolutional stream (theirs is a
MobileNetV2 with a pyramid of deformable convolutions, which need a compiled kernel), a sum as the
fusion (theirs concatenates and attends), and the project's decoder (theirs has differential
attention). Of the F1 that the AdaDINO paper quotes, its authors reproduced those on WHU-CD and
LEVIR-CD+ themselves.
"""

from __future__ import annotations

from torch import Tensor, nn

from adadino.config import Config
from adadino.model.backbone import Backbone
from adadino.model.lite0 import Lite0
from adadino.model.pair import split_dates
from adadino.peers.base import resize
from adadino.peers.frozen import FrozenPeer


class ChangeDINO(FrozenPeer):
    """The frozen baseline with a convolutional stream added to its pyramid."""

    def __init__(self, config: Config | None = None, *, backbone: Backbone | None = None) -> None:
        super().__init__(config, backbone=backbone)
        width = self.config.cpgr.width
        self.trunk = Lite0()  # `build` fills in the weights that the configuration names
        self.laterals = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width))
            for channels in Lite0.CHANNELS[1:]
        )

    def differences(self, images: Tensor, features: list[Tensor]) -> list[Tensor]:
        """Merge both streams of each date at strides 4, 8, 16, 32, then compare the dates."""
        details = self.trunk(images.to(features[0].dtype))[1:]
        differences = []
        for i, (frozen, detail) in enumerate(zip(features, details, strict=True)):
            merged = self.neck.necks[i](frozen)
            size = merged.shape[-2], merged.shape[-1]
            before, after = split_dates(merged + resize(self.laterals[i](detail), size))
            differences.append((before - after).abs())
        return differences

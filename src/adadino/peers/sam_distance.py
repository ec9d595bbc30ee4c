"""SAM distance: change as the angle between the dates' SAM features, without any training.

Z. Zheng, Y. Zhong, L. Zhang, S. Ermon, "Segment Any Change", NeurIPS 2024 (AnyChange) finds that
SAM's features of one place agree across dates where nothing has changed. A place has changed where
the angle between its features is large.

Ours: MobileSAM's encoder in the place of ViT-H; every pixel is judged on its own, where AnyChange
averages features over SAM's mask proposals and so returns objects. Proposals need SAM's decoder and
a thousand prompts a pair; they change how a map looks, not what it is a distance of. Images are
enlarged four times, so that a benchmark's 256 pixels are SAM's 1,024.

AnyChange takes the last norm's gain away and calls 25 degrees a change (its default of 155, between
one feature and the negative of the other). MobileSAM was trained to give ViT-H's features with
their gain, and its own is zero for some channels: without it the dates are never more than 15
degrees apart. So features are taken as they are, and the threshold is 55 degrees, the best of
thirteen on four tiles of LEVIR's training scenes: the one number that has seen labels. It is fixed:
one that is taken from an image, as Otsu's, would find change in every tile of a large scene.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.model.pair import split_dates
from adadino.peers.base import Peer
from adadino.peers.mobile_sam import MEAN, STD, STRIDE, MobileSAM

ENLARGED = 4
ANGLE = 55.0
"""Degrees between the dates' features from which a place counts as changed."""
SHARPNESS = 10.0
"""Log-odds of change for each unit of cosine; it moves probabilities, and no decision at 0.5."""


class SamDistance(Peer):
    """Frozen features of both dates, and how far they are apart."""

    stride = STRIDE // ENLARGED

    def __init__(self) -> None:
        super().__init__(mean=MEAN, std=STD)
        self.encoder = MobileSAM().requires_grad_(False)  # `build` fills in the weights

    def train(self, mode: bool = True) -> SamDistance:
        """Stay in inference: there is nothing to learn, and statistics must not move."""
        return super().train(False)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        images = self.sizes.enlarge(torch.cat((before, after)), ENLARGED)
        first, second = split_dates(self.encoder(self.prepare(images)).float())
        cosine = F.cosine_similarity(first, second, dim=1)[:, None]  # (B, 1, h, w)
        logit = SHARPNESS * (math.cos(math.radians(ANGLE)) - cosine)
        return torch.cat((torch.zeros_like(logit), logit), dim=1), []

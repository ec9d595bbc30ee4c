"""RS-Mamba (RSM-CD, tiny): a VMamba that also scans along the diagonals, and a plain U-Net decoder.

S. Zhao, H. Chen, X. Zhang, P. Xiao, L. Bai, W. Ouyang, "RS-Mamba for Large Remote Sensing Image
Dense Prediction", TGRS 2024. Each block reads the map in eight directions. The dates' maps of a
scale are stacked and fused; the decoder enlarges, joins and fuses from the coarsest to the finest,
and two convolutions between enlargements lead back to full resolution.

As released (widths 96 to 768, depths 2, 2, 9, 2, sixteen states, gated): the selective scan here is
that of `scan.py`. The one logit z of the original is returned as the two logits (0, z), whose
softmax is its sigmoid. The encoder is random; so is theirs in the released program.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import LVD_MEAN, LVD_STD
from adadino.model.pair import split_dates
from adadino.peers.base import Peer, conv_unit
from adadino.peers.scan import OMNIDIRECTIONAL
from adadino.peers.vmamba import VMamba, VSSConfig

BLOCK = VSSConfig(states=16, ways=OMNIDIRECTIONAL, gated=True, filter_bias=True)


class RSMamba(Peer):
    """Encoder, fusion at four scales, decoder, head."""

    stride = 32

    def __init__(self) -> None:
        super().__init__(mean=LVD_MEAN, std=LVD_STD)
        self.encoder = VMamba(
            width=96, depths=(2, 2, 9, 2), drop_path=0.2, config=BLOCK, normed=False
        )
        widths = self.encoder.widths
        self.fuse = nn.ModuleList(conv_unit(2 * width, width, 1) for width in widths)
        self.join = nn.ModuleList(conv_unit(3 * width, width, 1) for width in widths[:-1])
        half = widths[0] // 2
        self.detail = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()
            )
            for inside, outside in ((widths[0], half), (half, 8))
        )
        self.head = nn.Conv2d(8, 1, 7, padding=3)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        maps = self.encoder(self.prepare_pair(before, after))
        *finer, x = (
            fuse(torch.cat(split_dates(pair), dim=1))
            for fuse, pair in zip(self.fuse, maps, strict=True)
        )
        for join, fused in zip(reversed(self.join), reversed(finer), strict=True):
            x = join(torch.cat((F.interpolate(x, scale_factor=2.0), fused), dim=1))
        for convolve in self.detail:
            x = F.interpolate(convolve(x), scale_factor=2.0, mode="bilinear", align_corners=True)
        logit = self.head(x)
        return torch.cat((torch.zeros_like(logit), logit), dim=1), []

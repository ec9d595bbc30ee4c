"""FAEWNet-style: SAM's encoder, adapted in the Fourier domain, and dates that are warped together.

Y.-C. Li et al., "SAM-Based Building Change Detection With Distribution-Aware Fourier Adaptation and
Edge-Constrained Warping", TGRS 2025. A frozen encoder with low-rank updates; behind each windowed
block the dates exchange what an activation map lets through (TTP's gate); what went into the last
block also goes through an adapter of Fourier coefficients and statistics, and is added. Then each
date, seen at four ranges (`warping.py`), is warped to the other and compared with it; a simple
pyramid and a projection decode both comparisons.

As released: the gate, the adapter, the warping, the pyramid and the projection, and rank 16 and
alpha 32. Ours: MobileSAM's encoder in the place of SAM's ViT-L (all ten of its blocks have windows,
so all have a gate), no dropout on the low-rank path, and a projection at a quarter of the image's
size for every size (theirs: 128 cells for a crop of 256 or 512). The released program hands the
warping the first date twice, and its settings freeze gates and adapter as they were initialised;
ours hands it both dates and trains them, as the paper's figure has it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from adadino.model.cpgr import ChannelNorm
from adadino.model.pair import split_dates
from adadino.peers.base import Peer, conv_unit, resize
from adadino.peers.mobile_sam import FEATURES, MEAN, STD, WIDTHS, Block, MobileSAM
from adadino.peers.peftcd import LowRank
from adadino.peers.warping import Warping

RANK, ALPHA = 16, 32
LEVELS = 5
"""Maps of the pyramid, at strides 4, 8, 16, 32 and 64."""


class TimeGate(nn.Module):
    """Give each date what the other one has, where their common activation map is open."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Conv2d(2 * width, 1, 1, bias=False)
        nn.init.constant_(self.gate.weight, 1 / (2 * width))
        self.ffn = nn.Sequential(nn.Conv2d(width, width, 1), nn.GELU(), nn.Conv2d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Maps of both dates (2B, C, h, w) -> the same."""
        before, after = split_dates(x)
        open_ = torch.sigmoid(self.gate(torch.cat((before, after), dim=1)))
        before = before + self.ffn(after * open_)
        return torch.cat((before, after + self.ffn(before * open_)))


class Statistics(nn.Module):
    """Weigh channels by their mean size, mean and deviation, and those of their neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        reach = int((math.log2(width) + 1) / 2)
        reach += 1 - reach % 2
        self.mix = nn.Conv1d(3, 1, reach, padding=reach // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        flat = x.flatten(2)
        deviation = (flat.var(dim=2) + 1e-6).sqrt()
        seen = torch.stack((flat.abs().mean(2), flat.mean(2), deviation), dim=1)  # (B, 3, C)
        return x * torch.sigmoid(self.mix(seen))[:, 0, :, None, None]


class FourierAdapter(nn.Module):
    """Widen, add Fourier coefficients to weighted channels, filter, weigh again, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = 2 * width
        self.widen = nn.Conv2d(width, hidden, 1)
        self.statistics = Statistics(hidden)
        self.filter = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.squeeze = nn.Linear(hidden, hidden // 8, bias=False)
        self.excite = nn.Linear(hidden // 8, hidden, bias=False)
        self.narrow = nn.Conv2d(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> the same."""
        y = F.gelu(self.widen(x))
        y = F.gelu(self.filter(real_fourier(y) + self.statistics(y)))
        seen = y.mean((2, 3)) + y.amax((2, 3))
        weight = torch.sigmoid(self.excite(F.relu(self.squeeze(seen))))
        return self.narrow(y * weight[..., None, None])


def real_fourier(x: Tensor) -> Tensor:
    """The real part of the Fourier transform of maps (B, C, h, w), as products of matrices.

    cos(a + b) = cos a cos b - sin a sin b, so rows and columns are transformed one after the other.
    """
    (cos_h, sin_h), (cos_w, sin_w) = (_waves(side, x.device) for side in (x.shape[-2], x.shape[-1]))
    x32 = x.float() if x.dtype != torch.float64 else x
    cos_h, sin_h, cos_w, sin_w = (wave.to(x32) for wave in (cos_h, sin_h, cos_w, sin_w))
    return (cos_h @ x32 @ cos_w - sin_h @ x32 @ sin_w).to(x.dtype)


def _waves(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    places = torch.arange(side, device=device)
    turns = (places[:, None] * places) % side  # whole turns are left out: exact in integers
    angle = turns.double() * (2 * math.pi / side)
    return angle.cos(), angle.sin()


class FAEWNet(Peer):
    """Adapted encoder, warping, pyramid, projection."""

    stride = 32

    def __init__(self) -> None:
        super().__init__(mean=MEAN, std=STD)
        self.encoder = MobileSAM().requires_grad_(False)  # `build` fills in the weights
        blocks = [step for step in self.encoder.steps() if isinstance(step, Block)]
        for block in blocks:
            block.qkv.bias.requires_grad_(True)
        widths = [block.qkv.in_features for block in blocks]
        self.lora = nn.ModuleList(
            LowRank(inside=width, outside=3 * width, rank=RANK, alpha=ALPHA) for width in widths
        )
        self.gates = nn.ModuleList(TimeGate(width) for width in widths)
        self.adapter = FourierAdapter(WIDTHS[-1])
        self.warping = Warping(FEATURES)
        self.pyramid = SimplePyramid(2 * FEATURES, FEATURES)
        self.project = nn.ModuleList(conv_unit(FEATURES, FEATURES, 1) for _ in range(LEVELS))
        self.fuse = conv_unit(LEVELS * FEATURES, FEATURES, 1)
        self.head = nn.Conv2d(FEATURES, 2, 1)

    def train(self, mode: bool = True) -> FAEWNet:
        """Train what adapts the encoder; its own statistics stay as they are."""
        super().train(mode)
        self.encoder.eval()
        return self

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        features = self.encode(self.prepare_pair(before, after))
        wide = self.per_date(self.warping.widen, features)
        compared = self.warping(*split_dates(features), *split_dates(wide))
        maps = self.pyramid(torch.cat(compared, dim=1))
        size = maps[0].shape[-2], maps[0].shape[-1]
        projected = [
            resize(project(level), size) for project, level in zip(self.project, maps, strict=True)
        ]
        return self.head(self.fuse(torch.cat(projected, dim=1))), []

    def encode(self, images: Tensor) -> Tensor:
        """Normalised images (2B, 3, H, W) -> (2B, 256, H/16, W/16)."""
        x = last = self.encoder.patches(images)
        index = 0
        for step in self.encoder.steps():
            last = x
            if isinstance(step, Block):
                adapted = {"qkv.weight": self.lora[index](step.qkv.weight)}
                x = self.gates[index](functional_call(step, adapted, (x,)))
                index += 1
            else:
                x = step(x)
        return self.encoder.neck(x + self.adapter(last))


class SimplePyramid(nn.Module):
    """Five maps of one: enlarged four times and twice, as it is, and at a half and a quarter."""

    def __init__(self, inside: int, width: int) -> None:
        super().__init__()
        half, quarter = inside // 2, inside // 4
        self.four = nn.Sequential(
            nn.ConvTranspose2d(inside, half, 2, 2),
            ChannelNorm(half, eps=1e-6),
            nn.GELU(),
            nn.ConvTranspose2d(half, quarter, 2, 2),
        )
        self.two = nn.ConvTranspose2d(inside, half, 2, 2)
        self.levels = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, width, 1, bias=False),
                ChannelNorm(width, eps=1e-6),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                ChannelNorm(width, eps=1e-6),
            )
            for channels in (quarter, half, inside, inside)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, C, h, w) -> maps of 4, 2, 1, 1/2 and 1/4 of its sides."""
        inputs = (self.four(x), self.two(x), x, F.max_pool2d(x, 2))
        maps = [level(each) for level, each in zip(self.levels, inputs, strict=True)]
        return [*maps, F.max_pool2d(maps[-1], 1, stride=2)]

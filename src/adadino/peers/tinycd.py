"""TinyCD: a quarter of a million parameters, most of them in the first blocks of EfficientNet-b4.

A. Codegoni, G. Lombardi, A. Ferrari, "TINYCD: A (Not So) Deep Learning Model for Change Detection",
Neural Computing and Applications 2023. Both dates pass the stem and the first three stages. At each
resolution a mixing block (MAMB) interleaves the channels of the dates, so that one grouped
convolution compares each channel with its counterpart, and a pixelwise MLP turns the result into a
mask. The coarsest mixture is enlarged step by step under these masks and classified by a pixelwise
MLP (PW-MLP).

The one logit z of the original is returned as the two logits (0, z), whose softmax is its sigmoid.
The trunk is random here; theirs began with ImageNet weights.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import LVD_MEAN, LVD_STD
from adadino.model.pair import split_dates
from adadino.peers.base import DropPath, Peer

STAGES = ((24, 2, 1, 3, 1), (32, 4, 6, 3, 2), (56, 4, 6, 5, 2))
"""Channels, blocks, expansion, kernel and stride of EfficientNet-b4's first stages."""
STEM = 48
BLOCKS = 32
"""Blocks of the whole EfficientNet-b4, over which its stochastic depth rises to 0.2."""


def _unit(inside: int, outside: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
    )


class MBConv(nn.Module):
    """EfficientNet's block: expand, filter each channel, squeeze and excite, project."""

    def __init__(
        self,
        inside: int,
        outside: int,
        *,
        expansion: int,
        kernel: int,
        stride: int,
        drop_path: float,
    ) -> None:
        super().__init__()
        hidden, squeezed = inside * expansion, inside // 4
        self.expand = _unit(inside, hidden, 1) if expansion > 1 else None
        self.filter = _unit(hidden, hidden, kernel, stride=stride, groups=hidden)
        self.squeeze = nn.Conv2d(hidden, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, hidden, 1)
        self.project = _unit(hidden, outside, 1)
        self.residual = stride == 1 and inside == outside
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C', h / stride, w / stride)."""
        y = x if self.expand is None else F.silu(self.expand(x))
        y = F.silu(self.filter(y))
        weights = self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        y = self.project(y * torch.sigmoid(weights))
        return x + self.drop_path(y) if self.residual else y


def efficientnet_b4() -> nn.ModuleList:
    """The stem and the first three stages: strides 2, 2, 4, 8."""
    stages: list[nn.Module] = [nn.Sequential(_unit(3, STEM, 3, stride=2), nn.SiLU())]
    inside, index = STEM, 0
    for outside, depth, expansion, kernel, stride in STAGES:
        blocks = []
        for position in range(depth):
            blocks.append(
                MBConv(
                    inside,
                    outside,
                    expansion=expansion,
                    kernel=kernel,
                    stride=1 if position else stride,
                    drop_path=0.2 * index / BLOCKS,
                )
            )
            inside = outside
            index += 1
        stages.append(nn.Sequential(*blocks))
    return nn.ModuleList(stages)


class Mixing(nn.Module):
    """Compare every channel with its counterpart at the other date."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2 * width, width, 3, padding=1, groups=width)
        self.act = nn.PReLU()
        self.norm = nn.InstanceNorm2d(width)

    def forward(self, pair: Tensor) -> Tensor:
        """Both dates (2B, C, h, w) -> (B, C, h, w)."""
        mixed = torch.stack(split_dates(pair), dim=2).flatten(1, 2)  # channels a0, b0, a1, b1, ..
        return self.norm(self.act(self.conv(mixed)))


class PixelwiseMLP(nn.Sequential):
    """Linear layers over the channels of each pixel, with PReLU between them."""

    def __init__(self, widths: tuple[int, ...], last: nn.Module | None) -> None:
        layers: list[nn.Module] = []
        for inside, outside in pairwise(widths):
            layers += [nn.Conv2d(inside, outside, 1), nn.PReLU()]
        super().__init__(*layers[:-1], *([] if last is None else [last]))


class Mask(nn.Sequential):
    """The mixing and attention mask block: both dates (2B, C, h, w) -> a mask (B, 1, h, w)."""

    def __init__(self, width: int, hidden: tuple[int, int]) -> None:
        super().__init__(Mixing(width), PixelwiseMLP((width, *hidden, 1), nn.PReLU()))


class Up(nn.Module):
    """Enlarge by two, mask, and convolve separably."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(inside, inside, 3, padding=1, groups=inside),
            nn.PReLU(),
            nn.InstanceNorm2d(inside),
            nn.Conv2d(inside, outside, 1),
            nn.PReLU(),
            nn.InstanceNorm2d(outside),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, C, h, w) and (B, 1, 2h, 2w) -> (B, C', 2h, 2w)."""
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        return self.conv(x * mask)


class TinyCD(Peer):
    """Trunk, masks, masked enlargement and pixelwise classifier."""

    # The coarsest map is at stride 8; InstanceNorm needs more than one cell of it.
    stride = 16

    def __init__(self) -> None:
        super().__init__(mean=LVD_MEAN, std=LVD_STD)
        self.trunk = efficientnet_b4()
        self.masks = nn.ModuleList((Mask(3, (10, 5)), Mask(24, (12, 6)), Mask(32, (16, 8))))
        self.mix = Mixing(56)
        self.ups = nn.ModuleList((Up(56, 64), Up(64, 64), Up(64, 32)))
        self.head = PixelwiseMLP((32, 16, 8, 1), None)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        images = self.prepare_pair(before, after)
        *finer, coarsest = self.per_date(self.encode, images)
        masks = [mask(pair) for mask, pair in zip(self.masks, (images, *finer), strict=True)]
        z = self.mix(coarsest)
        for up, mask in zip(self.ups, reversed(masks), strict=True):
            z = up(z, mask)
        logit = self.head(z)
        return torch.cat((torch.zeros_like(logit), logit), dim=1), []

    def encode(self, x: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) -> the trunk's maps at strides 2, 4, 8."""
        stem, *stages = self.trunk
        x, maps = stem(x), []
        for stage in stages:
            x = stage(x)
            maps.append(x)
        return maps

"""A light stream for all bands of a pair, at the images' own size, that is zero at the start.

Not in the paper, whose backbone knows red, green and blue alone. It stays as it is and sees the
three bands nearest to them. This stream sees every band and adds to the finished logits what it
finds, through a last convolution that begins as zero: an untrained model with bands is exactly the
model without. It works at the images' own pixels, because at 10 m a house is one pixel, and the
backbone's tokens are eight.

- Each date and band is brought to mean 0 and deviation 1 over the tile first. Haze, sun and season
  move whole bands, and that is no change.
- Dates are compared as in `stream.py`: by their absolute difference and their mean, which are the
  same for swapped dates.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.bands import BandsConfig
from adadino.model.pair import split_dates

LEVELS = 3
"""Sizes of the maps: that of the image, its half, its quarter."""
FLOOR = 0.02
"""Added to a deviation, so that the noise of an empty band is not enlarged."""
MOST = 4.0
"""How many deviations a value may lie from the mean."""


def standardize(images: Tensor) -> Tensor:
    """Images (2B, N, H, W) -> each band of each with mean 0 and deviation 1, in float32."""
    images = images.float()
    deviation, mean = torch.std_mean(images, dim=(-2, -1), keepdim=True, correction=0)
    return ((images - mean) / (deviation + FLOOR)).clamp(-MOST, MOST)


def _unit(inside: int, outside: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inside, outside):
        layers += [
            nn.Conv2d(channels, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.SiLU(),
        ]
    return nn.Sequential(*layers)


class BandStream(nn.Module):
    """A small U-Net over the bands of both dates, and over what the model found without them."""

    def __init__(self, config: BandsConfig) -> None:
        super().__init__()
        widths = [config.width * 2**level for level in range(LEVELS)]
        self.down = nn.ModuleList(map(_unit, [config.count, *widths], widths))
        self.compare = nn.ModuleList(nn.Conv2d(2 * width, width, 1) for width in widths)
        self.up = nn.ModuleList(_unit(fine + coarse, fine) for fine, coarse in pairwise(widths))
        self.dropout = nn.Dropout2d(config.dropout)
        self.join = _unit(widths[0] + 1, widths[0])
        self.head = nn.Conv2d(widths[0], 2, 1)
        nn.init.zeros_(self.head.weight)
        assert self.head.bias is not None
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor, logits: Tensor) -> Tensor:
        """Bands in 0..1 (2B, N, H, W) and logits (B, 2, H, W) -> better logits, float32."""
        x = standardize(images).to(self.head.weight.dtype)
        found = []
        for level, (down, compare) in enumerate(zip(self.down, self.compare, strict=True)):
            x = down(F.max_pool2d(x, 2) if level else x)
            before, after = split_dates(x)
            # (2B, C, h, w) -> (B, C, h, w)
            found.append(
                F.silu(compare(torch.cat(((before - after).abs(), (before + after) / 2), dim=1)))
            )
        y = self.dropout(found[-1])
        for fine, up in zip(reversed(found[:-1]), reversed(self.up), strict=True):
            larger = F.interpolate(y, fine.shape[-2:], mode="bilinear", align_corners=False)
            y = up(torch.cat((fine, larger), dim=1))
        odds = (logits[:, 1:] - logits[:, :1]).detach().to(y.dtype) / 4
        more: Tensor = self.head(self.join(torch.cat((y, odds.clamp(-2, 2)), dim=1)))
        return logits + more.float()

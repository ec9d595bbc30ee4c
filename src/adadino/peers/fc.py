"""FC-EF, FC-Siam-Conc and FC-Siam-Diff: the first fully convolutional change detectors.

R. Caye Daudt, B. Le Saux, A. Boulch, "Fully Convolutional Siamese Networks for Change Detection",
ICIP 2018. Three small U-Nets with one encoder layout (16, 32, 64, 128 channels; 2, 2, 3, 3
convolutions) that differ in where the dates meet: at the input (EF), or at the skip connections, as
both maps (Conc) or as their absolute difference (Diff).

As released: every convolution has a bias, BatchNorm, ReLU and dropout 0.2 behind it; the decoder
starts from the second date's deepest map, so not even Diff is indifferent to the order of the
dates. Ours: the decoder's transposed convolutions of stride 1 are written as the convolutions they
are (the kernel is learned either way), and the result is logits, not their logarithmic softmax.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.peers.base import Peer

WIDTHS = (16, 32, 64, 128)
ENCODER = ((16, 16), (32, 32), (64, 64, 64), (128, 128, 128))
"""Channels after each convolution of a level, finest level first."""
DECODER = ((16,), (32, 16), (64, 64, 32), (128, 128, 64))
"""The same for the decoder; the finest level ends in the head."""


def _convolutions(inside: int, widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for outside in widths:
        layers += [
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Dropout2d(0.2),
        ]
        inside = outside
    return nn.Sequential(*layers)


class Encoder(nn.Module):
    """Four levels, each followed by a pooling by two."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inputs = (channels, *WIDTHS[:-1])
        self.levels = nn.ModuleList(map(_convolutions, inputs, ENCODER))

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, C, H, W) -> the maps at strides 1, 2, 4, 8, and the pooled last one at 16."""
        maps = []
        for level in self.levels:
            x = level(x)
            maps.append(x)
            x = F.max_pool2d(x, 2)
        return [*maps, x]


class Decoder(nn.Module):
    """Four levels, each enlarged by two and joined with the encoder's map of its size."""

    def __init__(self, *, skips: int) -> None:
        """Make a decoder.

        Args:
            skips: How many maps of the encoder's width come in at every level.
        """
        super().__init__()
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
            for width in WIDTHS
        )
        self.levels = nn.ModuleList(
            _convolutions((1 + skips) * width, widths)
            for width, widths in zip(WIDTHS, DECODER, strict=True)
        )
        self.head = nn.Conv2d(WIDTHS[0], 2, 3, padding=1)

    def forward(self, x: Tensor, skips: list[Tensor]) -> Tensor:
        """Decode the deepest map with the skip connections, finest first, into logits."""
        for i in reversed(range(len(WIDTHS))):
            x = self.levels[i](torch.cat((self.ups[i](x), skips[i]), dim=1))
        return self.head(x)


class FCEarlyFusion(Peer):
    """FC-EF: one U-Net over the six channels of both dates."""

    stride = 16

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(6)
        self.decoder = Decoder(skips=1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        both = torch.cat((self.prepare(before), self.prepare(after)), dim=1)
        *skips, x = self.encoder(both)
        return self.decoder(x, skips), []


class FCSiamese(Peer):
    """FC-Siam-Conc and FC-Siam-Diff: a shared encoder, the dates meet at the skip connections."""

    stride = 16

    def __init__(self, skip: Literal["concatenation", "difference"]) -> None:
        super().__init__()
        self.skip = skip
        self.encoder = Encoder(3)
        self.decoder = Decoder(skips=2 if skip == "concatenation" else 1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        *maps, deepest = self.per_date(self.encoder, self.prepare_pair(before, after))
        skips = [self.join(*split_dates(level)) for level in maps]
        return self.decoder(split_dates(deepest)[1], skips), []

    def join(self, before: Tensor, after: Tensor) -> Tensor:
        """What a skip connection carries of the two dates' maps."""
        if self.skip == "concatenation":
            return torch.cat((before, after), dim=1)
        return (after - before).abs()

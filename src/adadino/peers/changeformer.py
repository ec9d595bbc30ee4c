"""ChangeFormer (V6): a Siamese transformer with a difference module at every scale.

W. G. C. Bandara, V. M. Patel, "A Transformer-Based Siamese Network for Change Detection", IGARSS
2022. A Mix Transformer encodes both dates at four scales; both maps of a scale are brought to 256
channels and compared by two convolutions, to which the coarser comparison is added; the four
comparisons are fused at a quarter of the resolution, enlarged twice and classified. Every scale
also predicts on its own, for training.

As released (V6, 41.03M): all four patch embeddings are 7x7. The transformer is random here; theirs
began with weights trained on ADE20K.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.peers.base import Peer, resize
from adadino.peers.mit import MiTConfig, MixTransformer

ENCODER = MiTConfig(
    widths=(64, 128, 320, 512), heads=(1, 2, 4, 8), depths=(3, 3, 4, 3), kernel=7, dropout=0.1
)
WIDTH = 256


class Difference(nn.Sequential):
    """Compare two stacked maps with two convolutions."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(WIDTH),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
        )


class Prediction(nn.Sequential):
    """Two logits from one scale, for training."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(WIDTH, 2, 3, padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(2),
            nn.Conv2d(2, 2, 3, padding=1),
        )


class Enlarge(nn.Module):
    """Twice the size by a transposed convolution, then a residual block scaled by a tenth."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(WIDTH, WIDTH, 4, stride=2, padding=1)
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, 2h, 2w)."""
        x = self.up(x)
        return x + 0.1 * self.conv2(F.relu(self.conv1(x)))


class ChangeFormer(Peer):
    """Encoder, four comparisons, fusion and head."""

    stride = 32

    def __init__(self) -> None:
        super().__init__()
        self.encoder = MixTransformer(ENCODER)
        self.project = nn.ModuleList(nn.Conv2d(width, WIDTH, 1) for width in ENCODER.widths)
        self.difference = nn.ModuleList(Difference() for _ in ENCODER.widths)
        self.prediction = nn.ModuleList(Prediction() for _ in ENCODER.widths)
        self.fuse = nn.Sequential(
            nn.Conv2d(len(ENCODER.widths) * WIDTH, WIDTH, 1), nn.BatchNorm2d(WIDTH)
        )
        self.enlarge = nn.Sequential(Enlarge(), Enlarge())
        self.head = nn.Conv2d(WIDTH, 2, 3, padding=1)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        maps = self.encoder(self.prepare_pair(before, after))
        comparisons: list[Tensor] = []  # coarsest first
        for i in reversed(range(len(maps))):
            pair = torch.cat(split_dates(self.project[i](maps[i])), dim=1)
            compared = self.difference[i](pair)
            if comparisons:
                compared = compared + resize(comparisons[-1], compared.shape[-2:])
            comparisons.append(compared)
        comparisons.reverse()
        finest = comparisons[0].shape[-2], comparisons[0].shape[-1]
        fused = self.fuse(torch.cat([resize(x, finest) for x in comparisons], dim=1))
        logits = self.head(self.enlarge(fused))
        auxiliary = [head(x).float() for head, x in zip(self.prediction, comparisons, strict=True)]
        return logits, auxiliary

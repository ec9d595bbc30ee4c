"""SNUNet-CD/32: a Siamese, densely connected U-Net++ with ensemble channel attention.

S. Fang, K. Li, J. Shao, Z. Li, "SNUNet-CD: A Densely Connected Siamese Network for Change Detection
of VHR Images", GRSL 2022. Node X[i, j] of the nested U-Net joins both dates' encoder maps of level
i, all earlier nodes of that level and the enlarged X[i + 1, j - 1]. Four outputs of full resolution
are weighed by two channel attentions: over all of them (between), and over their sum (within).

As released: the enlarged encoder maps, and so the deepest level, are the second date's alone. The
normalisation is ours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.peers.base import Peer

WIDTHS = (32, 64, 128, 256, 512)
LAST = len(WIDTHS) - 1


class ResidualUnit(nn.Module):
    """Two convolutions; the first one's result is added to the second's."""

    def __init__(self, inside: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, width, h, w)."""
        x = self.conv1(x)
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(x)))))


class ChannelAttention(nn.Module):
    """A weight in (0, 1) for every channel, from its mean and its maximum."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Conv2d(width, width // reduction, 1, bias=False),
            nn.ReLU(),
            nn.Conv2d(width // reduction, width, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, 1, 1)."""
        mean, peak = x.mean((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        return torch.sigmoid(self.mlp(mean) + self.mlp(peak))


class SNUNet(Peer):
    """The encoder, the ten nodes of the nested decoder and the ensemble."""

    stride = 16

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(map(ResidualUnit, (3, *WIDTHS[:-1]), WIDTHS))
        nodes, ups = {}, {}
        for j in range(1, LAST + 1):
            for i in range(LAST + 1 - j):
                nodes[f"{i}_{j}"] = ResidualUnit((j + 1) * WIDTHS[i] + WIDTHS[i + 1], WIDTHS[i])
                ups[f"{i + 1}_{j - 1}"] = nn.ConvTranspose2d(
                    WIDTHS[i + 1], WIDTHS[i + 1], 2, stride=2
                )
        self.nodes, self.ups = nn.ModuleDict(nodes), nn.ModuleDict(ups)
        self.between = ChannelAttention(LAST * WIDTHS[0], reduction=16)
        self.within = ChannelAttention(WIDTHS[0], reduction=4)
        self.head = nn.Conv2d(LAST * WIDTHS[0], 2, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        *maps, pooled = self.per_date(self.encode, self.prepare_pair(before, after))
        # Per level, the maps that its nodes join; the deepest level is the second date's alone.
        levels = [list(split_dates(level)) for level in maps]
        levels.append([self.encoder[-1](split_dates(pooled)[1])])
        # What is enlarged out of column j: at first the second date's maps, then the nodes.
        column = [maps[-1] for maps in levels]
        for j in range(1, LAST + 1):
            below = [self.ups[f"{i}_{j - 1}"](column[i]) for i in range(1, len(column))]
            column = [
                self.nodes[f"{i}_{j}"](torch.cat((*levels[i], up), dim=1))
                for i, up in enumerate(below)
            ]
            for i, node in enumerate(column):
                levels[i].append(node)
        outputs = levels[0][2:]  # X[0, 1] .. X[0, 4]
        return self.ensemble(outputs), []

    def encode(self, x: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) -> the maps of the first four levels, and the last one pooled."""
        maps = []
        for unit in list(self.encoder)[:-1]:
            maps.append(unit(x))
            x = F.max_pool2d(maps[-1], 2)
        return [*maps, x]

    def ensemble(self, outputs: list[Tensor]) -> Tensor:
        """Weigh four maps (B, 32, H, W) and classify."""
        both = torch.cat(outputs, dim=1)
        within = self.within(torch.stack(outputs).sum(0))
        return self.head(self.between(both) * (both + within.repeat(1, LAST, 1, 1)))

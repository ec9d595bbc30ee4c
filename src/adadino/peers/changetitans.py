"""ChangeTitans: a backbone with neural memories, dates that attend to one another, and a decoder.

Z. Yang, G. Pei, Y. Yao, T. Zhou, L. Ding, F. Shen, "ChangeTitans: Toward Remote Sensing Change
Detection with Neural Memory", TGRS 2025. The dates' maps at each of four scales (`vtitans.py`)
exchange channel and spatial attention three times and are added. Each scale goes through blocks of
its own, the first with a memory that gates it; coarser scales are added to finer ones, and a
learned convex combination of neighbours leads from stride 4 to full resolution.

As released (VTitans-tiny, the one size): the memory is that of `memory.py`, and the deformable
attention is written in PyTorch, in the place of a CUDA extension. The one logit z of the original
is returned as the two logits (0, z), whose softmax is its sigmoid. The released count includes the
memories' networks twice, and rotary constants. The backbone is random here; theirs begins with
ImageNet weights, which no registry has.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.config import LVD_MEAN, LVD_STD
from adadino.model.pair import split_dates
from adadino.peers.base import Peer, resize
from adadino.peers.changemamba import Smooth
from adadino.peers.memory import NeuralMemory
from adadino.peers.titans import State, TitansBlock
from adadino.peers.vtitans import DROP_PATH, GROUPS, VTitans
from adadino.peers.vtitans import WIDTH as INSIDE

WIDTH = 128
CHUNKS = (16, 64, 256, 1024)
"""Tokens of a memory's chunk, from the coarsest scale to the finest."""
EXCHANGES = 3
UP = 4
"""How much larger the result is than the finest map."""


class Exchange(nn.Module):
    """Weigh each date's channels and places by what stands out in the other one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(INSIDE, INSIDE, 3, padding=1)
        self.channels = nn.ModuleList(
            nn.Sequential(nn.Conv2d(INSIDE, INSIDE, 1), nn.ReLU(), nn.Conv2d(INSIDE, INSIDE, 1))
            for _ in range(2)
        )
        self.places = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(INSIDE) for _ in range(2))

    def forward(self, dates: list[Tensor]) -> list[Tensor]:
        """Both dates (B, C, h, w) -> both."""
        dates = [self.conv(x) for x in dates]
        which = [
            torch.sigmoid(weigh(x.mean((2, 3), keepdim=True)) + weigh(x.amax((2, 3), keepdim=True)))
            for weigh, x in zip(self.channels, dates, strict=True)
        ]
        dates = [x * other for x, other in zip(dates, which[::-1], strict=True)]
        where = [
            torch.sigmoid(weigh(torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)))
            for weigh, x in zip(self.places, dates, strict=True)
        ]
        pairs = zip(self.norms, dates, where[::-1], strict=True)
        return [norm(x * other) for norm, x, other in pairs]


class Decode(nn.Module):
    """Blocks over the places of one scale, the first with a memory."""

    def __init__(self, depth: int, chunk: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(INSIDE, WIDTH, 1)
        self.blocks = nn.ModuleList(
            TitansBlock(
                WIDTH,
                first=i == 0,
                memory=None if i else NeuralMemory(WIDTH, chunk=chunk, follows=False),
                gates=True,
                drop_path=DROP_PATH,
            )
            for i in range(depth)
        )
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, WIDTH, h, w)."""
        x, grid, state = self.reduce(x), (x.shape[-2], x.shape[-1]), State()
        tokens = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            tokens, state = block(tokens, state)
        return F.relu(self.norm(tokens.transpose(1, 2).unflatten(2, grid)))


class ChangeTitans(Peer):
    """Backbone, exchange at four scales, decoder, convex enlargement."""

    stride = 32

    def __init__(self) -> None:
        super().__init__(mean=LVD_MEAN, std=LVD_STD)
        self.encoder = VTitans()
        self.exchange = nn.ModuleList(
            nn.ModuleList(Exchange() for _ in range(EXCHANGES)) for _ in GROUPS
        )
        self.decode = nn.ModuleList(
            Decode(depth, chunk) for depth, chunk in zip(GROUPS, CHUNKS, strict=True)
        )
        self.smooth = nn.ModuleList(Smooth() for _ in GROUPS[1:])
        self.neighbours = nn.Sequential(
            nn.Conv2d(WIDTH, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 9 * UP**2, 1)
        )
        self.head = nn.Conv2d(WIDTH, 1, 1)
        self.apply(_initialise)

    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See `Peer.compare`."""
        fused = []
        for exchange, pair in zip(
            self.exchange, self.encoder(self.prepare_pair(before, after)), strict=True
        ):
            dates = list(split_dates(pair))
            for step in exchange.children():
                dates = step(dates)
            fused.append(dates[0] + dates[1])
        coarse, *finer = (decode(x) for decode, x in zip(self.decode, reversed(fused), strict=True))
        x = coarse
        for smooth, level in zip(self.smooth, finer, strict=True):
            x = smooth(resize(x, (level.shape[-2], level.shape[-1])) + level)
        # A quarter: the authors' balance of gradients.
        logit = enlarge(self.head(x), self.neighbours(x) / 4)
        return torch.cat((torch.zeros_like(logit), logit), dim=1), []


def enlarge(x: Tensor, neighbours: Tensor) -> Tensor:
    """Enlarge a map (B, 1, h, w) four times, each pixel a convex combination of nine cells.

    Args:
        x: The map.
        neighbours: What each of 4 x 4 pixels takes of the nine, before softmax (B, 9 * 16, h, w).
    """
    B, _, height, width = x.shape
    weights = neighbours.view(B, 9, UP, UP, height, width).softmax(1)
    cells = F.unfold(x, 3, padding=1).view(B, 9, 1, 1, height, width)
    found = (weights * cells).sum(1)  # (B, 4, 4, h, w)
    return found.permute(0, 3, 1, 4, 2).reshape(B, 1, UP * height, UP * width)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

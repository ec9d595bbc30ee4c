"""Masked dense distillation: a ViT learns to predict the features of EfficientNet-lite0.

The student gets the image with some patches hidden and predicts, at every token, the teacher's
features of that place at several strides. Shallow taps answer for fine strides, deep taps for
coarse ones, because those taps are what the decoder will read: tap i predicts the teacher's levels
i and i + 1. Targets are standardised channel by channel, so that no level outweighs another.

A backbone that is pretrained already (`init`) goes on by itself instead: the teacher is a slow
copy of the student, which sees the image whole and in its own colours, and its four taps are the
levels (as in data2vec, Baevski et al. 2022). So DINOv2, which knows photographs, moves towards the
images that it is given.
"""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone, Selection
from adadino.model.lite0 import CHANNELS, Lite0

STRIDES = (4, 8, 16, 32)
"""The teacher's levels, in pixels of the image as the encoder sees it (enlarged)."""


def target_channels(patch: int) -> list[int]:
    """Channels of each level once it lies on the token grid: finer levels are folded into it."""
    return [
        c * max(1, patch // stride) ** 2 for c, stride in zip(CHANNELS[1:], STRIDES, strict=True)
    ]


def targets(teacher: Lite0, images: Tensor, patch: int) -> list[Tensor]:
    """The teacher's levels on the student's token grid, each (B, hw, C).

    Args:
        teacher: The teacher.
        images: RGB in [0, 1] (B, 3, H, W), enlarged as the encoder sees them.
        patch: Side of a token in those pixels.
    """
    grid = images.shape[-2] // patch, images.shape[-1] // patch
    levels = []
    for stride, maps in zip(STRIDES, teacher(images)[1:], strict=True):
        if stride < patch:
            maps = F.pixel_unshuffle(maps, patch // stride)
        elif stride > patch:
            maps = F.interpolate(maps.float(), grid, mode="bilinear", align_corners=False)
        levels.append(maps.flatten(2).transpose(1, 2).float())
    return levels


class Student(nn.Module):
    """A trainable backbone, a mask token, and one linear answer for each tap and level.

    Attributes:
        slow: The slow copy that teaches; None where EfficientNet-lite0 does.
    """

    def __init__(self, model: AdaDINO, *, own_teacher: bool = False) -> None:
        super().__init__()
        config = model.config
        self.backbone, self.taps = model.encoder.backbone, config.taps
        dim = config.backbone.dim
        self.mask_token = nn.Parameter(torch.zeros(dim))
        channels = [dim] * 4 if own_teacher else target_channels(config.backbone.patch)
        self.slow: Backbone | None = None
        if own_teacher:
            self.slow = deepcopy(self.backbone).requires_grad_(False)
        self.answers = nn.ModuleDict(
            {
                f"{tap}-{level}": nn.Linear(dim, channels[level])
                for tap in range(len(self.taps))
                for level in levels_of(tap)
            }
        )

    def forward(
        self, images: Tensor, hidden: Tensor | None = None, gates: Tensor | None = None
    ) -> list[list[Tensor]]:
        """Answer for normalised images (B, 3, H, W): per tap, per level, (B, hw, C).

        Args:
            images: What `AdaDINO.prepare` returns.
            hidden: (B, hw) bool, the patches to hide.
            gates: (blocks, C), which chunks of every FFN are executed.
        """
        return [
            [self.answers[f"{tap}-{level}"](tokens) for level in levels_of(tap)]
            for tap, tokens in enumerate(self.features(images, hidden, gates))
        ]

    def features(
        self, images: Tensor, hidden: Tensor | None = None, gates: Tensor | None = None
    ) -> list[Tensor]:
        """The four taps (B, hw, D), through the final LayerNorm, as the encoder hands them on."""
        x, prefix = self.backbone.embed(images), self.backbone.config.prefix
        if hidden is not None:
            shown = torch.where(hidden[..., None], self.mask_token.to(x.dtype), x[:, prefix:])
            x = torch.cat((x[:, :prefix], shown), dim=1)
        return self.read_taps(self.backbone, x, images, gates)

    @torch.no_grad()
    def targets(self, images: Tensor) -> list[Tensor]:
        """The slow copy's four taps of normalised images, each (B, hw, D) in float32."""
        assert self.slow is not None
        taps = self.read_taps(self.slow, self.slow.embed(images), images, None)
        return [tap.float() for tap in taps]

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """Move the slow copy a little towards the student."""
        if self.slow is not None:
            for slow, fast in zip(self.slow.parameters(), self.backbone.parameters(), strict=True):
                slow.lerp_(fast.to(slow.dtype), 1 - momentum)

    def read_taps(
        self, backbone: Backbone, x: Tensor, images: Tensor, gates: Tensor | None
    ) -> list[Tensor]:
        """Run embedded tokens through a backbone, and read its taps."""
        prefix, rope = backbone.config.prefix, backbone.rope(*backbone.grid(images))
        taps = []
        for index, block in enumerate(backbone.blocks):
            chosen = None
            if gates is not None:
                chosen = Selection(backbone.config.ffn // gates.shape[1], gate=gates[index])
            x = block(x, rope, chosen)
            if index in self.taps:
                taps.append(backbone.norm(x[:, prefix:]))
        return taps


def levels_of(tap: int) -> tuple[int, ...]:
    """Which of the teacher's levels a tap answers for: its own and the next coarser one."""
    return tuple(sorted({tap, min(tap + 1, len(STRIDES) - 1)}))


def distillation_loss(
    answers: list[list[Tensor]], wanted: list[Tensor], statistics: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """Mean over taps and levels of the smooth absolute error of standardised targets.

    Args:
        answers: What the student returns.
        wanted: What `targets` returns.
        statistics: Mean and standard deviation (C,) of every level.
    """
    goals = [(w - mean) / std for w, (mean, std) in zip(wanted, statistics, strict=True)]
    losses = [
        F.smooth_l1_loss(answer.float(), goals[level])
        for tap, given in enumerate(answers)
        for level, answer in zip(levels_of(tap), given, strict=True)
    ]
    return torch.stack(losses).mean()


def drop_chunks(
    blocks: int, chunks: int, *, least: int, share: float, generator: torch.Generator
) -> Tensor:
    """Choose the FFN chunks of every block for one step: (blocks, chunks) of 0 and 1.

    A large pretrained FFN bears pruning because it is redundant; a small one must learn to. With
    probability `share` a step runs on a random number of chunks, from `least` to all, drawn anew in
    every block.
    """
    device = generator.device
    order = torch.rand(blocks, chunks, generator=generator, device=device).argsort(1)
    count = torch.randint(least, chunks + 1, (1,), generator=generator, device=device)
    dense = torch.rand(1, generator=generator, device=device) >= share
    return ((order < count) | dense).float()


def hide(batch: int, tokens: int, share: float, generator: torch.Generator) -> Tensor:
    """Choose the patches to hide, exactly the same number in every image: (B, tokens) bool."""
    order = torch.rand(batch, tokens, generator=generator, device=generator.device).argsort(1)
    return order < round(share * tokens)

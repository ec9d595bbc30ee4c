"""A convolutional stream beside the frozen transformer: fine detail that 8-pixel tokens blur.

Not in the paper; ChangeDINO, where its losses come from, has one. Ours is EfficientNet-lite0 up to
stride 16 (0.70M parameters), trained with the rest. A model without it (`stream: none`) is the pure
one, and is reported beside it.
"""

from __future__ import annotations

from torch import Tensor

from adadino.model.lite0 import CHANNELS as LITE0_CHANNELS
from adadino.model.lite0 import Lite0

CHANNELS = LITE0_CHANNELS[1:4]
"""Channels at strides 4, 8 and 16: those of P2, P3 and P4 for tokens of 8 pixels."""


class Stream(Lite0):
    """EfficientNet-lite0 up to stride 16."""

    def __init__(self) -> None:
        super().__init__(levels=4)

    def forward(self, images: Tensor) -> list[Tensor]:
        """RGB in [0, 1] (2B, 3, H, W), whole tokens -> maps at strides 4, 8, 16."""
        return super().forward(images)[1:]

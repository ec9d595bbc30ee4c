"""The settings of a scene."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from adadino.errors import ConfigError
from adadino.schema import say

MOST_READERS = 8
"""More threads than this read no faster: they wait for the disk."""
MOST = {"tile": 16_384, "readers": 256, "sample": 4096, "batch": 4096}
"""What is refused beyond: no memory holds it, or it would be begun and never end."""


@dataclass(frozen=True)
class SceneOptions:
    """How a scene is predicted."""

    threshold: float = 0.5
    tile: int = 256
    """Side of a tile; the size the model was trained on."""
    overlap: int = 64
    batch: int | None = None
    """Tiles per forward pass; None chooses by the device's free memory. On the CPU a scene's tiles
    always go one by one, because sums of another shape round differently."""
    selection: Literal["scene", "batch"] = "scene"
    """Choose the FFN chunks once for the scene, or for every batch, as the paper does."""
    engine: Literal["auto", "off", "bf16", "fp8", "int8"] = "auto"
    """The inference engine: `auto` on a GPU only, in bf16; `off`; or a precision."""
    sample: int = 8
    """Tiles from which a scene's chunks are chosen."""
    bands: tuple[int, ...] | None = None
    scale: tuple[float, float] | None = None
    register: bool = False
    """Move `after` by the estimated shift, if the estimate is reliable."""
    min_area: float = 0.0
    simplify: float = 0.0
    readers: int | None = None
    """Threads that read; None takes one for each processor, at most eight."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ConfigError(f"threshold is {self.threshold}, must lie between 0 and 1.")
        for name in ("batch", "sample", "readers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}, must be at least 1.")
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise ConfigError(f"{name} is {say(value)}, must be at most {most}.")

    @property
    def threads(self) -> int:
        """The number of reading threads."""
        return self.readers or min(MOST_READERS, os.cpu_count() or 1)

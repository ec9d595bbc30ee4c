"""The settings of an adaptation: names, types, defaults and help, for Python and command line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from adadino.errors import ConfigError

Part = Literal["decoder", "adapters", "both"]
MANY = 64
"""Tiles from which the adapters are trained, too; fewer would be learned by heart."""


@dataclass(frozen=True)
class AdaptOptions:
    """How a model is adapted; an annotated field is an option of the command line."""

    part: Annotated[
        Literal["auto", "decoder", "adapters", "both"],
        "What is trained; auto is the decoder, from 64 tiles on the adapters too.",
    ] = "auto"
    steps: Annotated[int, "The most updates of one training."] = 60
    folds: Annotated[int, "Parts of the tiles that are held out in turn."] = 4
    lr: Annotated[float, "Learning rate."] = 1e-3
    replay: Annotated[int, "Synthetic pairs that are trained along, against forgetting."] = 8
    seed: Annotated[int, "What all random draws depend on."] = 0
    resolution: Annotated[
        float | None, "Side of the tiles' pixels in metres, where the tiles do not say it."
    ] = None
    anyway: Annotated[bool, "Write the new model even if it is not better."] = False
    batch: int = 4
    """Pairs of an update."""
    every: int = 10
    """Updates between two looks at the tiles that are held out."""
    way: float = 0.5
    """How far the new model goes from the base's weights to the trained ones."""
    weight_decay: float = 0.01
    views: int = 64
    """Flipped and turned copies of tiles whose features are kept: 10 MB each for `tiny`."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("folds", 2), ("replay", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}, must be at least {least}.")
        if self.resolution is not None and not 0 < self.resolution < math.inf:
            raise ConfigError(f"resolution is {self.resolution}; give metres, as in 0.5.")
        if not 0 < self.lr < 1:
            raise ConfigError(f"lr is {self.lr}, must lie between 0 and 1.")

    def trained(self, tiles: int) -> Part:
        """What is trained for so many tiles."""
        if self.part != "auto":
            return self.part
        return "both" if tiles >= MANY else "decoder"

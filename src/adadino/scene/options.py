"""The settings of a scene: names, types, defaults and help, for Python and the command line."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Annotated

from adadino.errors import ConfigError, say
from adadino.runtime.protocol import EngineName, Selection
from adadino.schema import Bounds

MOST_READERS = 8
"""More threads than this read no faster: they wait for the disk."""
LARGEST = {"tile": 16_384, "readers": 256, "sample": 4096, "batch": 4096}
"""What is refused beyond: no memory holds it, or it would be begun and never end."""


@dataclass(frozen=True)
class SceneOptions:
    """How a scene is predicted; an annotated field is an option of the command line, with its help.

    - The default tile is the size that models are trained on.
    - On the CPU a scene's tiles go one by one whatever the batch: sums of another shape round
      differently.
    - The paper chooses the FFN chunks for every batch. The default here is once for the scene, so
      that the answer for a place does not depend on which tiles share its batch.
    """

    threshold: Annotated[float, "Probability from which a pixel changed."] = 0.5
    bands: Annotated[
        tuple[int, ...] | None, "Red, green, blue from 1: 3,2,1; or all of a model's bands."
    ] = None
    scale: Annotated[tuple[float, float] | None, "Raw values that are black and white."] = None
    gsd: Annotated[float | None, "Resample to pixels of so many metres."] = None
    any_resolution: Annotated[bool, "Predict whatever the model was trained for."] = False
    register: Annotated[bool, "Apply the estimated shift, if it is reliable."] = False
    min_area: Annotated[float, "Leave smaller polygons out, m2 (pixels without a CRS)."] = 0.0
    split: Annotated[
        float | None, "Cut changes apart between parts surer than this, e.g. 0.95; predict only."
    ] = None
    regularise: Annotated[bool, "Draw right-angled outlines, as buildings have; predict only."] = (
        False
    )
    simplify: Annotated[float, "How far outlines may move, m (pixels without a CRS)."] = 0.0
    selection: Annotated[Selection, "FFN chunks: once a scene, or per batch."] = "scene"
    tile: Annotated[int, "Side of a tile in pixels."] = 256
    overlap: Annotated[int, "Pixels that neighbouring tiles share."] = 64
    batch: Annotated[int | None, "Tiles per forward pass; auto by free memory."] = None
    readers: Annotated[
        int | None, "Threads that read; one per processor, at most 8.", Bounds(1)
    ] = None
    engine: Annotated[EngineName, "Inference engine: auto is bf16 on a GPU, else off."] = "auto"
    sample: int = 8
    """Tiles from which a scene's chunks are chosen."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ConfigError(f"threshold is {self.threshold}, must lie between 0 and 1.")
        if self.split is not None and not self.threshold < self.split < 1:
            raise ConfigError(
                f"split is {self.split}, must lie between the threshold, {self.threshold}, and 1."
            )
        if self.split is not None and self.simplify > 0:
            raise ConfigError("give split or simplify, not both: parts follow the pixels.")
        if self.regularise and self.simplify > 0:
            raise ConfigError("give regularise or simplify, not both: each draws its own outlines.")
        if self.gsd is not None and not 0 < self.gsd < math.inf:
            raise ConfigError(f"gsd is {self.gsd}; give metres per pixel, as in --gsd 0.5.")
        for name in ("batch", "sample", "readers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}, must be at least 1.")
        for name, most in LARGEST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise ConfigError(f"{name} is {say(value)}, must be at most {most}.")

    @property
    def threads(self) -> int:
        """The number of reading threads."""
        return self.readers or min(MOST_READERS, os.cpu_count() or 1)

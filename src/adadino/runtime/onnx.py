"""An exported model over tiles, without torch.

Tiles go one by one. Where the file chooses its chunks for every batch, a tile is a batch, so the
result still depends on nothing but the tile; a file with `selection=static` chose long before.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.errors import AdaDINOWarning, ConfigError
from adadino.runtime.exported import ExportedModel
from adadino.scene.options import SceneOptions
from adadino.scene.tiles import Images


class Arrived(NamedTuple):
    """Probabilities that are here already."""

    values: NDArray[np.float32]

    def wait(self) -> NDArray[np.float32]:
        """The probabilities (B, size, size)."""
        return self.values


class OnnxForward:
    """Runs an exported model; the surface is that of `forward.Forward`."""

    chooses = False
    chunks = None

    def __init__(self, model: ExportedModel, options: SceneOptions) -> None:
        self.model, self.options = model, options
        self.stride, self.kind, self.batch = model.stride, model.device, 1
        self.warnings: list[str] = []
        if options.engine not in ("auto", "off"):
            raise ConfigError(
                f"engine is {options.engine}, but {model.path} is exported and runs as it is; "
                "leave it out, or predict with the checkpoint it came from."
            )
        if model.size is not None and model.size != options.tile:
            raise ConfigError(
                f"{model.path} takes tiles of {model.size} pixels only, not {options.tile}: give "
                f"--tile {model.size}, or export it for any size."
            )
        said = model.metadata
        if said.get("selection") == "batch" and said["k"] < said["chunks"]:
            text = (
                f"{model.path} chooses its FFN chunks for every tile, not once for the scene; "
                "export with --selection static to fix them."
            )
            self.warnings.append(text)
            warnings.warn(text, AdaDINOWarning, stacklevel=2)

    def choose_chunks(self, sample: Sequence[Images]) -> None:
        """Nothing to choose: the file does."""

    def choose_batch(self) -> None:
        """Always one."""

    def resume(self, *, chunks: list[list[int]] | None, batch: int) -> None:
        """Nothing was chosen."""

    def start(self, tiles: Sequence[Images]) -> list[Arrived]:
        """Run the model on tiles."""
        return [
            Arrived(self.model.predict(_floats(tile.before), _floats(tile.after))) for tile in tiles
        ]

    def digest(self) -> str:
        """Name the model by the file's content."""
        return self.model.digest

    def tags(self) -> dict[str, object]:
        """What rasters say of the model."""
        said = self.model.metadata
        return {
            "ADADINO_PEER": said.get("peer"),
            "ADADINO_BACKBONE": said.get("backbone"),
            "ADADINO_K": said.get("k"),
            "ADADINO_SELECTION": "tile"
            if said.get("selection") == "batch"
            else said.get("selection"),
        }


def _floats(image: NDArray[np.generic]) -> NDArray[np.float32]:
    """One image (3, H, W) as a batch of floats in 0..1."""
    floats = image[None].astype(np.float32)
    return floats / np.float32(255) if image.dtype == np.uint8 else floats

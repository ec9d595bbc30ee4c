"""What a scene needs of a model, and the two kinds that give it: torch's and exported ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

from adadino.runtime.exported import ExportedModel, is_exported
from adadino.scene.options import SceneOptions
from adadino.scene.tiles import Images

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adadino.model.detector import Detector


class Answers(Protocol):
    """The probabilities of a batch, which may still be on their way."""

    def wait(self) -> NDArray[np.float32]:
        """The probabilities (B, size, size), when they are here."""


class Runner(Protocol):
    """Runs a model over tiles."""

    options: SceneOptions
    batch: int
    """Tiles per forward pass."""
    chunks: Any
    """The FFN chunks of every block, if they were chosen for the scene."""
    warnings: list[str]
    stride: int
    """What the side of a tile must be a multiple of."""
    kind: str
    """The kind of device, and the engine's precision there: cpu, cuda, cuda bf16."""

    @property
    def chooses(self) -> bool:
        """Whether chunks are to be chosen from a sample of tiles first."""

    def choose_chunks(self, sample: Sequence[Images]) -> None:
        """Choose them."""

    def choose_batch(self) -> None:
        """Settle how many tiles go through the model at once."""

    def resume(self, *, chunks: list[list[int]] | None, batch: int) -> None:
        """Take what an interrupted run had chosen."""

    def start(self, tiles: Sequence[Images]) -> Sequence[Answers]:
        """Start the model on tiles; the answers come in their order."""

    def digest(self) -> str:
        """Name the model by its content."""

    def tags(self) -> dict[str, object]:
        """What rasters say of the model."""


@contextmanager
def open_runner(
    model: Detector | str | PathLike[str],
    device: str,
    options: SceneOptions,
    *,
    backbone: str | None = None,
) -> Iterator[Runner]:
    """Get a model ready: an ONNX file without torch, anything else with it.

    Args:
        model: A model, or what `adadino.load` takes.
        device: Where it runs.
        options: How the scene is predicted.
        backbone: The weights of a named model's backbone, if not where it says.
    """
    if is_exported(model):
        assert isinstance(model, str | PathLike)
        from adadino.runtime.onnx import OnnxForward

        yield OnnxForward(ExportedModel(model, device=device), options)
        return
    import torch

    from adadino.checkpoint import load
    from adadino.runtime.devices import choose_device
    from adadino.runtime.forward import Forward

    network = load(model, backbone=backbone) if isinstance(model, str | PathLike) else model
    training = network.training
    # Outside of inference mode: what is moved inside of it cannot be trained afterwards.
    network = network.to(choose_device(device)).eval()
    try:
        with torch.inference_mode():
            yield Forward(network, options)
    finally:
        network.train(training)

"""Open a model to run it over tiles: torch's, or an exported one without torch.

This is the one place that tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

from adadino.errors import ConfigError
from adadino.runtime.exported import ExportedModel, OnnxForward, is_exported
from adadino.runtime.protocol import EngineName, Runner, Selection

if TYPE_CHECKING:
    from adadino.model.detector import Detector


@contextmanager
def open_runner(
    model: Detector | str | PathLike[str],
    device: str,
    *,
    tile: int,
    batch: int | None,
    selection: Selection,
    engine: EngineName,
    backbone: str | None = None,
    threads: int | None = None,
    classes: bool = False,
) -> Iterator[Runner]:
    """Get a model ready: an ONNX file without torch, anything else with it.

    Args:
        model: A model, or what `adadino.load` takes.
        device: Where it runs.
        tile: Side of the tiles that will come.
        batch: Tiles per forward pass; None chooses by the free memory.
        selection: Whether chunks are chosen once for a scene, or for every batch.
        engine: The inference engine, or `auto`, or `off`.
        backbone: The weights of a named model's backbone, if not where it says.
        threads: Threads of torch on the CPU; None leaves them as they are.
        classes: Also give the probabilities of the classes of both dates, if the model has them.

    Raises:
        ConfigError: The model has no such device or engine, or does not take such tiles.
        WeightsError: The model is missing or broken.
    """
    if is_exported(model):
        assert isinstance(model, str | PathLike)
        if backbone is not None:
            raise ConfigError(f"{model} holds its backbone; leave --backbone out.")
        yield OnnxForward(ExportedModel(model, device=device), tile=tile, engine=engine)
        return
    import torch

    from adadino.checkpoint import load
    from adadino.runtime.devices import choose_device
    from adadino.runtime.forward import Forward
    from adadino.source import short_name

    if threads is not None:
        torch.set_num_threads(threads)
    network = load(model, backbone=backbone) if isinstance(model, str | PathLike) else model
    training = network.training
    # Outside of inference mode: what is moved inside of it cannot be trained afterwards.
    network = network.to(choose_device(device)).eval()
    try:
        with torch.inference_mode():
            forward = Forward(network, tile=tile, batch=batch, selection=selection, engine=engine)
            if isinstance(model, str | PathLike):
                forward.name = short_name(model)
            if classes and network.config.classes.names:
                forward.classes = network.config.classes
            yield forward
    finally:
        network.train(training)


def check_there(model: str) -> None:
    """Refuse a model that is not there; read no more of it than its settings.

    Raises:
        WeightsError: It is missing or broken, and not on the hub.
    """
    if is_exported(model):
        ExportedModel(model, device="cpu")
        return
    from adadino.source import read_settings

    read_settings(model)

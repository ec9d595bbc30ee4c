"""The fast recipe: how a step runs, kept apart from what it learns.

Frozen weights live in bf16, the trained ones in float32 under autocast. The model is compiled part
by part and not as a whole: its 24 blocks share one compiled graph (14 graphs in all), the rotary
tables enter as data instead of being computed again inside every block, and blocks before the first
adapter, which need no gradient, get a graph without one. `docs/performance.md` has the figures.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector

Model = TypeVar("Model", bound=Detector)


def ready(
    model: Model, *, precision: str, compile: bool = False, checkpointing: bool = False
) -> Model:
    """Set a model up for a recipe, in place.

    Args:
        model: The model.
        precision: "32" is the paper's; "bf16" the fast one.
        compile: Compile blocks, adapters, neck, decoder and refiner; AdaDINO only.
        checkpointing: Recompute the blocks in the backward pass: less memory, more time; AdaDINO
            only.
    """
    frozen = model.dino if not model.config.backbone.trainable else None
    if precision == "bf16" and frozen is not None:
        # Half the memory, and no cast of 300M weights in every step. They receive no gradient, so
        # none is lost. The tokens are in bf16 too: what CGLA adds at its start, a ten-thousandth of
        # them, is mostly rounded away, until its gains have grown (docs/notes/results.md).
        frozen.to(torch.bfloat16)
    if not isinstance(model, AdaDINO):
        if precision == "bf16":
            # Most of a peer is convolutions, and tensor cores read channels last: without this
            # every one of them turns its map over and back.
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model
    model.encoder.checkpointing = checkpointing
    if compile:
        # One block's code meets: with and without gradient, masked or dense, training and
        # validation, a split's last batch. The default limit of eight would fall back to eager.
        torch._dynamo.config.recompile_limit = 64
        encoder = model.encoder
        parts = [*encoder.backbone.blocks, *encoder.cgla.values(), *model.neck.necks]
        parts += [model.decoder.block, *model.decoder.stages]
        parts += [part for part in (model.refiner, model.stream) if part is not None]
        for part in parts:
            part.compile(dynamic=False)
    return model

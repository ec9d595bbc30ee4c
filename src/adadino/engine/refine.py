"""Everything behind the encoder, for inference: pyramid, decoder, refiner, convolutional stream.

The model's own modules, copied, with BatchNorm folded away, in channels-last order, compiled part
by part. The refiner stays in float32.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from adadino.engine.fold import Module, fold_batch_norms
from adadino.model.adadino import AdaDINO
from adadino.model.cgla import Responses


class Refine(nn.Module):
    """From the encoder's maps to the finest prediction."""

    def __init__(self, model: AdaDINO, *, dtype: torch.dtype, compile: bool) -> None:
        super().__init__()
        self.dtype = dtype
        self.neck, self.decoder = self._ready(model.neck), self._ready(model.decoder)
        self.stream = None if model.stream is None else self._ready(model.stream)
        self.refiner = deepcopy(model.refiner)
        if compile:
            # Stages share their code, and every batch and size is a graph of its own; beyond the
            # default limit of eight PyTorch would silently run them uncompiled.
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 256)
            parts = [*self.neck.necks, self.decoder.block, *self.decoder.stages]
            parts += [part for part in (self.refiner, self.stream) if part is not None]
            for part in parts:
                part.compile(dynamic=False)

    def _ready(self, part: Module) -> Module:
        part = fold_batch_norms(deepcopy(part).eval()).to(self.dtype)
        ordered: Module = part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return ordered

    def forward(
        self, features: list[Tensor], responses: Responses | None, images: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Returns P_2..P_5, finest first, and the refined finest logits, float32."""
        differences, evidence = self.neck(features), None
        if self.stream is not None:
            evidence = self.stream(images.to(self.dtype, memory_format=torch.channels_last))
            differences = self.stream.join(evidence, differences)
        if responses is not None:
            responses = Responses(*(one.to(self.dtype) for one in responses))
        pyramid = self.decoder(differences, responses)
        finest = pyramid[0].float() if self.refiner is None else self.refiner(pyramid[0])
        if self.stream is not None and evidence is not None:
            finest = self.stream.refine(finest, evidence)
        return pyramid, finest

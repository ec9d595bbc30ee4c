"""Everything behind the encoder, for inference: the model's own modules, copied and folded.

BatchNorm lies inside the convolutions in front of it, maps have channels last, and the modules are
compiled part by part. The refiner stays in float32. What they compute is `model.adadino.decode`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from adadino.model.adadino import AdaDINO, decode
from adadino.model.cgla import Responses
from adadino.model.detector import Output
from adadino.model.encoder import Encoding
from adadino.model.pyramid import Neck
from adadino.model.stream import Compare

Module = TypeVar("Module", bound=nn.Module)


class FastDecoder(nn.Module):
    """From the encoder's maps to the prediction."""

    def __init__(self, model: AdaDINO, *, dtype: torch.dtype, compile: bool) -> None:
        super().__init__()
        self.dtype = dtype
        self.neck, self.decoder = self._ready(model.neck), self._ready(model.decoder)
        self.stream = None if model.stream is None else self._ready(model.stream)
        self.classes = None if model.classes is None else self._ready(model.classes)
        self.refiner = deepcopy(model.refiner)
        if compile:
            # Stages share their code, and every batch and size is compiled by itself. Beyond the
            # default limit of eight, PyTorch would silently run them uncompiled.
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 256)
            parts = [*self.neck.necks, self.decoder.block, *self.decoder.stages]
            parts += [
                part for part in (self.refiner, self.stream, self.classes) if part is not None
            ]
            for part in parts:
                part.compile(dynamic=False)

    def _ready(self, part: Module) -> Module:
        part = fold_batch_norms(deepcopy(part).eval()).to(self.dtype)
        ordered: Module = part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return ordered

    def forward(self, encoding: Encoding, images: Tensor, size: tuple[int, int]) -> Output:
        """See `decode`; the responses it returns are those it was given, in float32."""
        responses = encoding.responses
        if responses is not None:
            responses = Responses(*(one.to(self.dtype) for one in responses))
        if self.stream is not None:
            images = images.to(self.dtype, memory_format=torch.channels_last)
        output = decode(self, encoding._replace(responses=responses), images, size)
        return output._replace(responses=encoding.responses)


def fold_batch_norms(module: Module) -> Module:
    """Fold, in place, every BatchNorm2d of a module in eval mode that follows a convolution."""
    for part in module.modules():
        if isinstance(part, nn.Sequential):
            for index in range(1, len(part)):
                conv, norm = part[index - 1], part[index]
                if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    part[index - 1], part[index] = fuse_conv_bn_eval(conv, norm), nn.Identity()
        elif isinstance(part, Neck):
            # A resize stands between reduce and norm1. It keeps constants, so norm1 may come first.
            part.reduce = fuse_conv_bn_eval(part.reduce, part.norm1)
            part.local = fuse_conv_bn_eval(part.local, part.norm2)
            part.norm1 = part.norm2 = nn.Identity()  # type: ignore[assignment]
        elif isinstance(part, Compare):
            part.fuse = fuse_conv_bn_eval(part.fuse, part.norm)
            part.norm = nn.Identity()  # type: ignore[assignment]
    return module

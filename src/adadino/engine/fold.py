"""BatchNorm inside the convolutions in front of it."""

from __future__ import annotations

from typing import TypeVar

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from adadino.model.pyramid import Neck
from adadino.model.stream import Compare

Module = TypeVar("Module", bound=nn.Module)


def fold_batch_norms(module: Module) -> Module:
    """Fold, in place, every BatchNorm2d of a module in eval mode that follows a convolution."""
    for part in module.modules():
        if isinstance(part, nn.Sequential):
            for index in range(1, len(part)):
                conv, norm = part[index - 1], part[index]
                if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    part[index - 1], part[index] = fuse_conv_bn_eval(conv, norm), nn.Identity()
        elif isinstance(part, Neck):
            # A resize stands between the first two. It keeps constants, so the order is free.
            part.reduce = fuse_conv_bn_eval(part.reduce, part.norm1)
            part.local = fuse_conv_bn_eval(part.local, part.norm2)
            part.norm1 = part.norm2 = nn.Identity()  # type: ignore[assignment]
        elif isinstance(part, Compare):
            part.fuse = fuse_conv_bn_eval(part.fuse, part.norm)
            part.norm = nn.Identity()  # type: ignore[assignment]
    return module

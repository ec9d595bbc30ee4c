"""Training augmentation of a batch of pairs, on its device (App. A, Training Configuration).

Each with probability 0.5 for each sample, in this order: swap the dates, flip left-right, flip
top-bottom, turn by 90, 180 or 270 degrees, jitter the colours, crop and resize. Both dates and the
mask move together; the jitter leaves the mask alone.

- All randomness is drawn first, on the CPU, from an explicit generator: one seed gives one epoch on
  any device, and the draws can be read, stored and replayed.
- Flips, turns and the crop all keep the axes, so together they are two 1-D coordinates and one
  transposition: a single bilinear sampling of both images, a single nearest one of the mask.
- Jitter looks at single pixels and at the image's mean, which flips and turns do not change; so it
  runs on the untouched image, before the one sampling that also crops.

The paper does not say in which order; we follow the lineage (ChangeDINO), also in the random order
of brightness, contrast and saturation.
The paper does not say how the crop is drawn; we follow torchvision's RandomResizedCrop, whose
parameters it names: ten tries, the ratio log-uniform, then a central crop.
The paper does not say how colours are jittered; we follow torchvision's blends, in float instead of
8 bits, so that three steps do not round three times.
The paper does not say where a nearest label is read; we read it at the centre of the output pixel,
where the images are read too, because reading at its corner shifts labels by half an output pixel.
The paper does not say what to do with a tile that is not square; we turn it by 180 degrees only.
The paper does not say how to antialias, and need not: the crop only ever enlarges. So that it stays
true, a tile larger than the output is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.data.augment_bands import BandDraws, draw_bands, jitter_bands
from adadino.errors import ConfigError, InputError
from adadino.schema import added

_BRIGHTNESS, _CONTRAST, _SATURATION = range(3)
_LUMA = (0.2989, 0.587, 0.114)  # ITU-R 601, with torchvision's digits
_CROP_TRIES = 10


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How strongly to augment; the defaults are the paper's."""

    p: float = 0.5
    """Probability of each of the six augmentations."""
    jitter: float = 0.25
    """Brightness, contrast and saturation factors come from [1 - jitter, 1 + jitter]."""
    scale: tuple[float, float] = (0.333, 1.0)
    """Share of the tile's area a crop covers."""
    ratio: tuple[float, float] = (0.75, 1.333)
    """Width over height of a crop."""
    size: int = 256
    """Side of the output in pixels."""
    band_dropout: float = added(0.0)
    """Of models with bands of their own: probability that a sample loses one of them, on both
    dates."""

    def __post_init__(self) -> None:
        for name in ("p", "jitter", "band_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"augment.{name} is {getattr(self, name)}, must be in 0..1.")
        for name, most in (("scale", 1.0), ("ratio", math.inf)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                raise ConfigError(
                    f"augment.{name} is {low}, {high}; must be two numbers above 0"
                    f"{' and at most 1' if most == 1 else ''}, the smaller one first."
                )
        if self.size < 1:
            raise ConfigError(f"augment.size is {self.size}, must be at least 1 pixel.")


class Draws(NamedTuple):
    """Every random decision for one batch, on the CPU; the first dimension is the sample."""

    swap: Tensor
    """(B,) bool: exchange the dates."""
    hflip: Tensor
    """(B,) bool: mirror left-right."""
    vflip: Tensor
    """(B,) bool: mirror top-bottom."""
    turns: Tensor
    """(B,) int64: quarter turns, counter-clockwise as in torch.rot90."""
    factors: Tensor
    """(B, 3) float32: brightness, contrast, saturation; 1 leaves the image as it is."""
    order: Tensor
    """(B, 3) int64: which of the three factors comes first, second, third."""
    crop: Tensor
    """(B, 4) int64: top, left, height, width in the flipped and turned image."""
    bands: BandDraws | None = None
    """What takes the place of factors and order where images have other bands than RGB."""

    def to(self, device: torch.device) -> Draws:
        """The same on a device."""

        def move(field: Tensor) -> Tensor:
            return field.to(device, non_blocking=True)

        bands = None if self.bands is None else BandDraws(*map(move, self.bands))
        moved = {name: move(getattr(self, name)) for name in self._fields if name != "bands"}
        return Draws(**moved, bands=bands)


class Augment:
    """Augment batches of pairs: draw for each sample, then apply to the batch at once."""

    def __init__(self, config: AugmentConfig | None = None, *, bands: int | None = None) -> None:
        """Keep the settings.

        Args:
            config: How strongly to augment.
            bands: How many bands images have whose bands are named; None for RGB.
        """
        self.config, self.bands = config or AugmentConfig(), bands

    def __call__(
        self, before: Tensor, after: Tensor, mask: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw and apply.

        Args:
            before: (B, 3, H, W), uint8, or float in [0, 1]; or as many bands as there are.
            after: As ``before``.
            mask: (B, H, W), uint8 or bool; or with classes (B, 3, H, W), which change places with
                the dates.
            generator: The only source of randomness, on the CPU.

        Returns:
            before and after (B, 3, size, size) float32 in [0, 1]; mask uint8, of as many channels.
        """
        draws = self.draw(generator, len(before), *before.shape[-2:])
        return self.apply(draws, before, after, mask)

    def draw(self, generator: torch.Generator, batch: int, height: int, width: int) -> Draws:
        """Draw everything for one batch of tiles of one size.

        Args:
            generator: The only source of randomness, on the CPU.
            batch: Number of samples.
            height: Height of the tiles.
            width: Width of the tiles.
        """
        config = self.config
        swap, hflip, vflip, turn, jitter, crop = (
            torch.rand(6, batch, generator=generator) < config.p
        )
        turns = torch.randint(1, 4, (batch,), generator=generator)
        if height != width:
            turns = torch.full_like(turns, 2)
        factors = 1 + config.jitter * (2 * torch.rand(batch, 3, generator=generator) - 1)
        order = torch.rand(batch, 3, generator=generator).argsort(dim=1)
        boxes = _draw_crops(generator, batch, height, width, config.scale, config.ratio)
        bands = None
        if self.bands is not None:
            bands = draw_bands(
                generator, jitter, self.bands, config.jitter, dropout=config.band_dropout
            )
        return Draws(
            swap=swap,
            hflip=hflip,
            vflip=vflip,
            turns=turns * turn,
            factors=torch.where(jitter[:, None], factors, 1.0),
            order=order,
            crop=torch.where(crop[:, None], boxes, torch.tensor([0, 0, height, width])),
            bands=bands,
        )

    def apply(
        self, draws: Draws, before: Tensor, after: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the draws to the whole batch on its device, without a host synchronisation.

        Args:
            draws: What ``draw`` returned for tiles of this size.
            before: (B, 3, H, W), uint8, or float in [0, 1].
            after: As ``before``.
            mask: (B, H, W), uint8 or bool; or with classes (B, 3, H, W).

        Returns:
            before and after (B, 3, size, size) float32 in [0, 1]; mask uint8, of as many channels.
        """
        size = self.config.size
        _check(before, after, mask, size, bands=self.bands or 3)
        height, width = mask.shape[-2:]
        draws = draws.to(before.device)
        count = before.shape[1]
        # The dates of sample b are rows 2b and 2b + 1; flipping the last bit exchanges them.
        rows = torch.arange(2 * len(mask), device=mask.device).view(-1, 2) ^ draws.swap[:, None]
        pair = torch.stack([before, after], dim=1).flatten(0, 1)[rows]  # (B, 2, 3, H, W)
        pair = pair.float() if pair.is_floating_point() else pair.float().div_(255)
        if draws.bands is None:
            pair = jitter(pair, draws.factors, draws.order)
        else:
            pair = jitter_bands(pair, draws.bands)

        grid = _grid(draws, height, width, size)  # (B, size, size, 2)
        images = F.grid_sample(pair.flatten(1, 2), grid, mode="bilinear", align_corners=False)
        images.clamp_(max=1)  # four bilinear weights may sum to a rounding error above 1
        channels = mask if mask.ndim == 4 else mask[:, None]
        labels = F.grid_sample(channels.float(), grid, mode="nearest", align_corners=False)
        labels = labels.to(torch.uint8)
        if mask.ndim == 3:
            return images[:, :count], images[:, count:], labels[:, 0]
        swapped = draws.swap[:, None, None, None]
        labels = torch.where(swapped, labels[:, [0, 2, 1]], labels)
        return images[:, :count], images[:, count:], labels


def _draw_crops(
    generator: torch.Generator,
    batch: int,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Tensor:
    """Return (B, 4) int64 boxes by torchvision's rule: the first of ten tries that fits."""
    tries = torch.rand(2, batch, _CROP_TRIES, generator=generator, dtype=torch.float64)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    area = height * width * (scale[0] + (scale[1] - scale[0]) * tries[0])
    aspect = torch.exp(low + (high - low) * tries[1])
    # After the tries comes the fallback, which always fits: the largest central crop in ratio.
    h = F.pad((area / aspect).sqrt().round(), (0, 1), value=min(height, round(width / ratio[0])))
    w = F.pad((area * aspect).sqrt().round(), (0, 1), value=min(width, round(height * ratio[1])))
    fits = (h >= 1) & (h <= height) & (w >= 1) & (w <= width)
    first = fits.int().argmax(dim=1, keepdim=True)  # argmax returns the first maximum
    h, w = h.gather(1, first).squeeze(1), w.gather(1, first).squeeze(1)
    where = torch.rand(2, batch, generator=generator, dtype=torch.float64)
    fallback = first.squeeze(1) == _CROP_TRIES
    top = torch.where(fallback, (height - h) / 2, where[0] * (height - h + 1)).floor()
    left = torch.where(fallback, (width - w) / 2, where[1] * (width - w + 1)).floor()
    return torch.stack([top, left, h, w], dim=1).long()


def jitter(pair: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """Blend (B, 2, 3, H, W) in place with black, its mean grey or its own grey, sample by sample.

    Each of the three slots runs once over the batch; which blend a sample gets there is in the
    coefficients, so samples need no loop and no branch. A factor of 1 is exactly the identity.
    """
    factors = factors.gather(1, order)  # (B, 3), now by slot
    grey_shares = (1 - factors) * (order == _SATURATION)
    mean_shares = (1 - factors) * (order == _CONTRAST)
    for slot in range(3):
        keep, grey_share, mean_share = (
            share[:, slot, None, None, None, None] for share in (factors, grey_shares, mean_shares)
        )
        red, green, blue = pair.unbind(dim=2)
        grey = (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])
        grey = grey.unsqueeze(2)  # (B, 2, 1, H, W)
        mean = grey.mean(dim=(-2, -1), keepdim=True)  # of each date on its own
        pair.mul_(keep).add_(grey * grey_share + mean * mean_share).clamp_(0, 1)
    return pair


def _grid(draws: Draws, height: int, width: int, size: int) -> Tensor:
    """Where in the source each output pixel comes from: (B, size, size, 2) as (x, y) in [-1, 1].

    Exact for sides that are powers of two; elsewhere good to 1e-5 of a pixel.
    """
    top, left, h, w = draws.crop.unbind(dim=1)
    rows = _axis(top, h, height, size)[:, :, None]  # (B, size, 1)
    columns = _axis(left, w, width, size)[:, None, :]  # (B, 1, size)
    # torch.rot90 by k quarters: transposed if k is odd, then mirrored in x for 1, 2, in y for 2, 3.
    turns = draws.turns
    transposed = (turns % 2 == 1)[:, None, None]
    mirror_x = draws.hflip ^ (turns == 1) ^ (turns == 2)
    mirror_y = draws.vflip ^ (turns == 2) ^ (turns == 3)
    x = torch.where(transposed, rows, columns)
    y = torch.where(transposed, columns, rows)
    return torch.stack([_negate_where(mirror_x, x), _negate_where(mirror_y, y)], dim=-1)


def _axis(start: Tensor, length: Tensor, full: int, size: int) -> Tensor:
    """Centres of ``size`` output pixels over a crop of one axis: (B, size) in [-1, 1]."""
    centres = torch.arange(size, device=start.device) + 0.5
    pixel = centres * length[:, None] / size - 0.5
    # A resize of the crop repeats the crop's own border and never sees the pixels beyond it.
    pixel = torch.minimum(pixel.clamp_min(0), length[:, None] - 1.0) + start[:, None]
    return (2 * pixel + 1) / full - 1


def _negate_where(condition: Tensor, coordinate: Tensor) -> Tensor:
    return torch.where(condition[:, None, None], -coordinate, coordinate)


def _check(before: Tensor, after: Tensor, mask: Tensor, size: int, *, bands: int) -> None:
    if before.ndim != 4 or before.shape[1] != bands or after.shape != before.shape:
        raise InputError(
            f"the images are {tuple(before.shape)} and {tuple(after.shape)}; "
            f"pass two batches of one shape (B, {bands}, H, W)."
        )
    batch, _, height, width = before.shape
    if mask.shape not in ((batch, height, width), (batch, 3, height, width)):
        raise InputError(
            f"the mask is {tuple(mask.shape)} for images {tuple(before.shape)}; pass (B, H, W), or "
            "(B, 3, H, W) with classes."
        )
    if max(height, width) > size:
        raise InputError(
            f"tiles of {height} x {width} are larger than the output of {size} x {size}; "
            "cut smaller tiles or raise `size`."
        )

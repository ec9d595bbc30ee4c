"""Augmentation of what bands hold, where images have others than red, green and blue.

Brightness, contrast and saturation are made for eyes. What moves between two dates of a satellite
moves bands: haze adds to the short ones, the sun and the season multiply. So each band of each date
gets a gain and an offset of its own, with the probability of the colour jitter. A dropped band is
zero on both dates, as a band is that a file lacks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class BandDraws(NamedTuple):
    """The random decisions for the bands of one batch."""

    gains: Tensor
    """(B, 2, N) float32; 1 leaves the band as it is."""
    offsets: Tensor
    """(B, 2, N) float32; 0 leaves the band as it is."""
    kept: Tensor
    """(B, N) float32: 0 for a band that is dropped, else 1."""


def draw_bands(
    generator: torch.Generator, jittered: Tensor, count: int, strength: float, *, dropout: float
) -> BandDraws:
    """Draw for one batch.

    Args:
        generator: The only source of randomness, on the CPU.
        jittered: (B,) bool: which samples are jittered.
        count: Number of bands.
        strength: Gains come from 1 +- strength; offsets are up to a quarter of that.
        dropout: Probability that a sample loses one band.
    """
    batch = len(jittered)
    gains, offsets = 2 * torch.rand(2, batch, 2, count, generator=generator) - 1
    shared = 2 * torch.rand(batch, 2, 1, generator=generator) - 1  # the sun moves all of them
    lost = torch.randint(count, (batch,), generator=generator)
    dropped = torch.rand(batch, generator=generator) < dropout
    touched = jittered[:, None, None] * strength
    kept = torch.ones(batch, count)
    kept[dropped, lost[dropped]] = 0
    return BandDraws(1 + touched * (gains + shared) / 2, touched * offsets / 4, kept)


def jitter_bands(pair: Tensor, draws: BandDraws) -> Tensor:
    """Apply to (B, 2, N, H, W) in 0..1; a pixel without data, zero in all bands, stays so."""
    seen = pair.amax(dim=2, keepdim=True) > 0
    gains, offsets = (each[..., None, None] for each in (draws.gains, draws.offsets))
    moved = (pair * gains + offsets).clamp_(0, 1) * seen
    return moved * draws.kept[:, None, :, None, None]

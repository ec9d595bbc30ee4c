"""Smooth random fields."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FloatImage = NDArray[np.float32]


def enlarge(field: FloatImage, shape: tuple[int, ...], cell: float) -> FloatImage:
    """Interpolate a field with a sample every `cell` pixels to (H, W).

    The field needs H / cell by W / cell samples; more are cut off.
    """
    height, width = shape[:2]
    box = (0.0, 0.0, width / cell, height / cell)
    wide = Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC, box)
    return np.asarray(wide, np.float32)


def smooth(rng: np.random.Generator, shape: tuple[int, ...], cell: float) -> FloatImage:
    """Noise (H, W) with mean 0, a deviation of about 1, and features of `cell` pixels."""
    rows, columns = (int(np.ceil(size / cell)) + 1 for size in shape[:2])
    return enlarge(rng.standard_normal((rows, columns), np.float32), shape, cell)


def fractal(
    rng: np.random.Generator, shape: tuple[int, ...], cell: float, octaves: int
) -> FloatImage:
    """Noise (H, W) whose features of `cell`, `cell` / 2, ... pixels fade by half each time."""
    total = np.zeros(shape[:2], np.float32)
    for octave in range(octaves):
        if cell / 2**octave >= 1:
            total += np.float32(0.5**octave) * smooth(rng, shape, cell / 2**octave)
    return total

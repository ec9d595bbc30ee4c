"""Compare an exported file with the model it came from, on random images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adadino.errors import AdaDINOError
from adadino.model.detector import Detector

Float = NDArray[np.float32]
Run = Callable[[Float, Float], Float]
"""Two batches of images (B, 3, H, W) in, the probability of change (B, H, W) out."""

TOLERANCE = {"fp32": 5e-4, "fp16": 2e-2}
"""How far a probability may be from the model's. AdaDINO's are 1e-6 off; TinyCD normalises maps
that hardly vary, and is itself 1e-4 away from what it would compute in float64."""
SHAPES = ((1, 64, 64), (3, 77, 109), (2, 128, 96))
"""Batches, heights and widths to compare; one is no multiple of the stride."""


def worst_difference(
    run: Run,
    model: Detector,
    *,
    k: int | None,
    chunks: Tensor | None,
    shapes: Iterable[tuple[int, int, int]],
) -> float:
    """The largest difference of a probability over random images of all the shapes."""
    # The same images every time: the file records the difference, and exporting twice must give the
    # same file.
    draw, worst = np.random.default_rng(0), 0.0
    for batch, height, width in shapes:
        before, after = draw.random((2, batch, 3, height, width), np.float32)
        with torch.inference_mode():
            images = map(torch.from_numpy, (before, after))
            expected = model.probability(*images, k=k, chunks=chunks).numpy()
        got = run(before, after)
        if got.shape != expected.shape or not np.isfinite(got).all():
            return float("inf")
        worst = max(worst, float(np.abs(got - expected).max()))
    return worst


def refuse(path: Path, worst: float, tolerance: float, *, hint: str) -> None:
    """Refuse a file that disagrees with its model.

    Raises:
        AdaDINOError: The difference is above the tolerance.
    """
    if not worst <= tolerance:
        raise AdaDINOError(
            f"{path} was not written: its probabilities differ from the model's by up to "
            f"{worst:.2g}, more than {tolerance:g}. {hint}"
        )

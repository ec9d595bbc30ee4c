"""Weights and images by formula, so that a figure computed elsewhere can be computed here again."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def formula(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """A tensor for every name, in float64: sines of the element's and the name's place."""
    tensors = {}
    for place, (name, shape) in enumerate(sorted(shapes.items())):
        if name.endswith("num_batches_tracked"):
            tensors[name] = torch.zeros((), dtype=torch.int64)
            continue
        count = int(torch.tensor(shape).prod()) if shape else 1
        wave = torch.sin(1.7 * torch.arange(count, dtype=torch.float64) + place).reshape(shape)
        if name.endswith(("running_var", "weight")) and len(shape) == 1:
            wave = 1 + 0.3 * wave
        elif len(shape) > 1:
            wave = wave * (2 / (count / shape[0])) ** 0.5
        else:
            wave = 0.1 * wave
        tensors[name] = wave
    return tensors


def images(size: int = 64) -> tuple[Tensor, Tensor]:
    """Two batches (2, 3, size, size) in [0, 1], the second darker."""
    ramp = torch.arange(2 * 3 * size * size, dtype=torch.float64).reshape(2, 3, size, size)
    return torch.sin(0.37 * ramp) / 2 + 0.5, 0.3 * torch.cos(0.11 * ramp) + 0.35


POINTS = ((0, 0, 0), (0, 31, 40), (1, 8, 55), (1, 63, 63))
"""Batch, row and column of the logits that are compared."""


def difference(logits: Tensor) -> list[float]:
    """Changed minus unchanged (B, 2, H, W) at some points: what softmax sees."""
    return [float(logits[b, 1, y, x] - logits[b, 0, y, x]) for b, y, x in POINTS]

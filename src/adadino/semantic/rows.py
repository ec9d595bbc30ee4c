"""Blended rows of a scene, split into what is kept of them. The one part that meets numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]


def told(block: Float) -> tuple[Float] | tuple[Float, NDArray[np.uint8]]:
    """A block of rows as a journal takes it.

    Args:
        block: The probability of change (h, w); of a model with classes (1 + 2 classes, h, w), the
            probabilities of both dates' classes behind it.

    Returns:
        The probability of change, and with classes those of both dates (2, h, w) from 1.
    """
    if block.ndim == 2:
        return (block,)
    import torch

    from adadino.semantic.choice import from_to

    change, *classes = block
    both = torch.from_numpy(np.stack(classes)).unflatten(0, (2, -1))
    return np.ascontiguousarray(change), from_to(both.nan_to_num()).numpy()

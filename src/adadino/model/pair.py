"""Both dates as one batch: (2B, ...), all first dates and then all second dates."""

from __future__ import annotations

from torch import Tensor


def split_dates(x: Tensor) -> tuple[Tensor, Tensor]:
    """Views (B, ...) of the first and of the second dates.

    Not `chunk(2)`, which would fix the batch size of an exported graph.
    """
    before, after = x.unflatten(0, (2, -1)).unbind(0)
    return before, after

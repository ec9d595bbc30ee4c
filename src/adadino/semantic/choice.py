"""From the probabilities of both dates' classes to one class for each date.

A changed place was one thing and is another. So of all pairs of different classes we take the one
whose probabilities have the largest product; the field takes each date's largest on its own, which
says "building to building" where a date is unsure. Where the two largest differ, both are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor


def from_to(probabilities: Tensor) -> Tensor:
    """The class of the first and of the second date, which differ.

    Args:
        probabilities: (..., 2, classes, H, W), at least two classes.

    Returns:
        (..., 2, H, W) uint8, classes from 1.
    """
    (p, q), (a, b) = (
        (part.select(-4, 0), part.select(-4, 1)) for part in probabilities.topk(2, dim=-3)
    )
    # Each (..., 2, H, W): the best and the second best of a date. If both dates have one best, one
    # of them takes its second: the one that loses less.
    best, second = (slice(0, 1), slice(1, 2))
    tie = a[..., best, :, :] == b[..., best, :, :]
    first_gives = tie & (
        p[..., second, :, :] * q[..., best, :, :] > p[..., best, :, :] * q[..., second, :, :]
    )
    before = torch.where(first_gives, a[..., second, :, :], a[..., best, :, :])
    after = torch.where(tie & ~first_gives, b[..., second, :, :], b[..., best, :, :])
    return (torch.cat((before, after), dim=-3) + 1).to(torch.uint8)

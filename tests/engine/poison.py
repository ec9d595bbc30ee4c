"""Fill fresh tensors with NaN, so that an element nobody wrote is seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch


@contextmanager
def poisoned() -> Iterator[None]:
    """`torch.empty`, `empty_like` and `new_empty` give NaN instead of whatever lay there."""
    originals = torch.empty, torch.empty_like, torch.Tensor.new_empty

    def fill(make):
        def filled(*args, **kwargs):
            made = make(*args, **kwargs)
            return made.fill_(float("nan")) if made.is_floating_point() else made

        return filled

    empty, like, new = map(fill, originals)
    with (
        mock.patch.object(torch, "empty", empty),
        mock.patch.object(torch, "empty_like", like),
        mock.patch.object(torch.Tensor, "new_empty", new),
    ):
        yield

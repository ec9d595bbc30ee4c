"""Agreement of models: what is the same agrees, what differs is counted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adadino.benchmark.agreement import agree
from adadino.metrics import Confusion
from adadino.model.detector import Detector, Normalize, Output


class Redder(Detector):
    """Says "changed" where the second date is redder than the first by more than a margin."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.normalize, self.margin = Normalize((0, 0, 0), (1, 1, 1)), margin
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, before, after, *, k=None, chunks=None):
        score = (after - before)[:, :1] - self.margin
        return Output(torch.cat((-score, score), dim=1), [], None, None)


def test_scores_and_pixels_against_the_first_model():
    generator = torch.Generator().manual_seed(0)
    batches = []
    for size in (8, 12):
        images = torch.randint(256, (2, 3, 3, size, size), generator=generator, dtype=torch.uint8)
        label = torch.randint(2, (3, size, size), generator=generator, dtype=torch.uint8)
        batches.append((*images, label))
    models = {"one": Redder(0.0), "same": Redder(0.0), "other": Redder(0.3)}
    one, same, other = agree(models, batches)
    assert (one.name, one.pixels, one.f1_change, one.pairs) == ("one", 1.0, 0.0, 6)
    assert (same.pixels, same.f1) == (1.0, one.f1)
    rise = [(b[1][:, 0].float() - b[0][:, 0].float()) / 255 for b in batches]
    between = sum(int(((r >= 0) & (r < 0.3)).sum()) for r in rise)
    assert other.pixels == pytest.approx(1 - between / sum(r.numel() for r in rise), abs=1e-3)
    confusion = Confusion.from_tensors(
        torch.cat([(r >= 0.3).flatten() for r in rise]),
        torch.cat([b[2].flatten() for b in batches]),
    )
    assert other.f1 == pytest.approx(confusion.f1, abs=1e-2)
    assert other.f1_change == pytest.approx(100 * (other.f1 - one.f1))

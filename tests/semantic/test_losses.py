"""The term that teaches classes, against float64 loops over pixels."""

from __future__ import annotations

import math

import pytest
import torch

from adadino.errors import InputError
from adadino.semantic.losses import classes_loss


def labelled(seed: int, *, unknown: bool = True, size: int = 5) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    low = 0 if unknown else 1
    classes = torch.randint(low, 4, (2, 2, size, size), generator=draw)
    changed = torch.randint(0, 2, (2, 1, size, size), generator=draw)
    return torch.cat((changed, classes), dim=1).to(torch.uint8)


def restated(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Every pixel of every date in turn, in Python's own floats."""
    entropy = {True: [], False: []}
    consistency = []
    for b in range(len(logits)):
        for y in range(logits.shape[-2]):
            for x in range(logits.shape[-1]):
                changed = bool(labels[b, 0, y, x])
                shares, known = [], []
                for date in range(2):
                    values = [float(v) for v in logits[b, date, :, y, x]]
                    total = math.fsum(math.exp(v) for v in values)
                    shares.append([math.exp(v) / total for v in values])
                    known.append(int(labels[b, 1 + date, y, x]))
                    if known[-1]:
                        entropy[changed].append(-math.log(shares[-1][known[-1] - 1]))
                p, q = shares
                dot = math.fsum(i * j for i, j in zip(p, q, strict=True))
                size = math.sqrt(math.fsum(i * i for i in p) * math.fsum(j * j for j in q))
                cosine = dot / size
                if not changed:
                    consistency.append(1 - cosine)
                elif all(known) and known[0] != known[1]:
                    consistency.append(max(cosine, 0))
    means = [math.fsum(part) / max(len(part), 1) for part in (*entropy.values(), consistency)]
    return math.fsum(means)


@pytest.mark.parametrize("unknown", [True, False])
def test_the_loss_is_that_of_a_float64_restatement(unknown):
    logits = 3 * torch.randn(2, 2, 3, 5, 5, dtype=torch.float64)
    labels = labelled(1, unknown=unknown)
    assert float(classes_loss(logits, labels)) == pytest.approx(restated(logits, labels), rel=1e-5)


def test_a_changed_pixel_weighs_the_same_however_many_others_there_are():
    labels = labelled(2, unknown=False)
    labels[:, 0] = 0
    labels[0, 0, 0, 0] = 1
    logits = torch.zeros(2, 2, 3, 5, 5, requires_grad=True)
    classes_loss(logits, labels).backward()
    gradient = logits.grad.abs().sum((1, 2))
    assert gradient[0, 0, 0] > 20 * gradient[1, 1, 1]


def test_pixels_without_labels_teach_consistency_alone():
    labels = labelled(3)
    labels[:, 1:] = 0
    same = torch.randn(2, 1, 3, 5, 5).expand(2, 2, 3, 5, 5)
    labels[:, 0] = 0
    assert float(classes_loss(same, labels)) == pytest.approx(0, abs=1e-6)
    labels[:, 0] = 1  # changed, but nobody says into what: nothing to learn
    assert float(classes_loss(torch.randn(2, 2, 3, 5, 5), labels)) == 0


def test_the_right_answer_costs_nothing():
    labels = labelled(4, unknown=False)
    after = torch.where(labels[:, 0] != 0, labels[:, 1] % 3 + 1, labels[:, 1])
    labels[:, 2] = after
    logits = 40.0 * torch.nn.functional.one_hot(labels[:, 1:].long() - 1, 3).movedim(-1, 2)
    assert float(classes_loss(logits, labels)) == pytest.approx(0, abs=1e-5)


def test_a_mask_of_change_alone_is_refused():
    with pytest.raises(InputError, match=r"pass \(B, 2, classes, H, W\)"):
        classes_loss(torch.zeros(1, 2, 3, 4, 4), torch.zeros(1, 4, 4))

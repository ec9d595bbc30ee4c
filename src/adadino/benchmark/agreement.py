"""Does a faster model still draw the same map? Scores and pixels of several models on one split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from adadino.metrics import Confusion, confusion_counts
from adadino.model.detector import Detector


@dataclass(frozen=True)
class Agreement:
    """One model compared with the first one."""

    name: str
    f1: float
    f1_change: float
    """F1 minus that of the first model, in points."""
    pixels: float
    """Share of pixels with the same answer, change or none."""
    pairs: int


@torch.inference_mode()
def agree(
    models: Mapping[str, Detector], batches: Iterable[tuple[Tensor, Tensor, Tensor]]
) -> list[Agreement]:
    """Run models over labelled batches and compare them with the first one.

    Args:
        models: The models by name, on one device; the others are compared with the first.
        batches: First dates and second dates (B, 3, H, W) as uint8, labels (B, H, W).
    """
    counts: dict[str, list[Tensor]] = {name: [] for name in models}
    same, pixels, pairs = dict.fromkeys(models, 0), 0, 0
    for before, after, label in batches:
        first: Tensor | None = None
        for name, model in models.items():
            images = (image.to(model.device).float() / 255 for image in (before, after))
            changed = model.probability(*images) >= 0.5
            first = changed if first is None else first
            same[name] += int((changed == first).sum())
            counts[name].append(confusion_counts(changed, label.to(model.device)).cpu())
        pixels, pairs = pixels + label.numel(), pairs + len(label)
    scores = {name: Confusion.from_counts(torch.stack(c).sum(0)).f1 for name, c in counts.items()}
    base = next(iter(scores.values()))
    return [
        Agreement(name, f1, 100 * (f1 - base), same[name] / pixels, pairs)
        for name, f1 in scores.items()
    ]

"""The term that teaches the classes of both dates; the paper has none.

It is what the field trains with (Bi-SRNet's loss, whose weights are one as well):

- **Classes.** The cross-entropy of each date, over the labelled pixels, half for each date. SECOND
  labels changed pixels alone, so its mask is the change. Where all pixels are labelled, as in HRSCD
  and the synthetic world, the changed ones weigh as much as all others together: they are what is
  asked for, and they are few.
- **Consistency.** Where nothing changed, both dates should say the same: one minus the cosine of
  their probabilities. Where the labels say that the class changed they should differ: the cosine,
  if positive. Bi-SRNet pulls all changed pixels apart; we leave alone those whose two labels are
  equal or missing, because nothing says that the classes differ there.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.errors import InputError

IGNORED = -1
"""The target of a pixel that has no label."""


def classes_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """What both terms add up to, as a scalar in float32.

    Args:
        logits: (B, 2, classes, H, W), the first and the second date's.
        labels: (B, 3, H, W): change, and the classes from 1 of both dates, 0 where unlabelled.
    """
    if logits.ndim != 5 or labels.ndim != 4 or labels.shape[1] != 3 or logits.shape[1] != 2:
        raise InputError(
            f"the logits are {tuple(logits.shape)} and the labels {tuple(labels.shape)}; pass "
            "(B, 2, classes, H, W) and (B, 3, H, W)."
        )
    changed = labels[:, 0] != 0  # (B, H, W)
    classes = labels[:, 1:].long()  # (B, 2, H, W)
    log_probabilities = logits.float().log_softmax(2)
    return _entropy(log_probabilities, classes, changed) + _consistency(
        log_probabilities.exp(), classes, changed
    )


def _entropy(log_probabilities: Tensor, classes: Tensor, changed: Tensor) -> Tensor:
    """The mean over changed pixels and that over the others; a kind without labels adds nothing."""
    flat = log_probabilities.flatten(0, 1)  # (2B, classes, H, W)
    each = F.nll_loss(flat, classes.flatten(0, 1) - 1, ignore_index=IGNORED, reduction="none")
    each = each.unflatten(0, (-1, 2))  # (B, 2, H, W)
    both = changed[:, None].expand_as(classes)
    total: Tensor = each.new_zeros(())
    for kind in (both, ~both):
        counted = kind & (classes > 0)
        total = total + (each * counted).sum() / counted.sum().clamp_min(1)
    return total


def _consistency(probabilities: Tensor, classes: Tensor, changed: Tensor) -> Tensor:
    """Alike where nothing changed, apart where the labelled class did; a mean over those pixels."""
    alike = F.cosine_similarity(probabilities[:, 0], probabilities[:, 1], dim=1)  # (B, H, W)
    before, after = classes.unbind(1)
    differs = changed & (before > 0) & (after > 0) & (before != after)
    cost = torch.where(changed, alike.clamp_min(0), 1 - alike)
    counted = ~changed | differs
    mean: Tensor = (cost * counted).sum() / counted.sum().clamp_min(1)
    return mean

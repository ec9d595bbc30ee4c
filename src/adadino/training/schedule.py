"""What moves while a run goes on: the learning rate, the FFN budget k, and CGLA's lambda.

Sec. 4.1 and App. A fix the ends: a cosine from 5e-4 to 1e-7 over 100 epochs, three epochs with all
chunks, and a lambda that is zero for five epochs and then grows linearly over ten to 0.01. The
values themselves are defaults of `TrainConfig`.

The paper does not say how often the cosine moves, or which step is its last. Ours moves once an
epoch (`train.schedule=step`: once an update), and the last epoch runs at the minimum. PyTorch's
CosineAnnealingLR would reach the minimum one epoch later, when training is over.
The paper does not say whether lambda moves within an epoch; ours does, so that its ramp has no
steps.
"""

from __future__ import annotations

import math

from adadino.config import BSCSConfig
from adadino.training.config import TrainConfig


def executed_chunks(epoch: int, settings: TrainConfig, bscs: BSCSConfig) -> int:
    """FFN chunks that an epoch's steps execute: all of them while warming up, in the end k.

    Between the two, `bscs_anneal` epochs take equal steps down; the paper has none.
    """
    since = epoch - settings.bscs_warmup
    if since < 0:
        return bscs.chunks
    left = max(0.0, 1 - (since + 1) / (settings.bscs_anneal + 1))
    return bscs.k + round(left * (bscs.chunks - bscs.k))


def lambda_cgla(epoch: float, settings: TrainConfig) -> float:
    """Coefficient of CGLA's auxiliary loss (Eq. S1).

    Args:
        epoch: Epochs completed, 0 at the start of training, with fractions. By default epochs 0 to
            5 give zero, and epoch 15 the maximum.
        settings: `lambda_start` says when the ramp begins, `lambda_ramp` how long it is (zero is a
            step), `lambda_max` where it ends.
    """
    if epoch <= settings.lambda_start:
        return 0.0
    grown = (epoch - settings.lambda_start) / settings.lambda_ramp if settings.lambda_ramp else 1.0
    return settings.lambda_max * min(grown, 1.0)


def learning_rate(period: int, periods: int, settings: TrainConfig) -> float:
    """Share of `lr` in a period, an epoch or an update.

    The cosine is 1 in the first period and at `min_lr` in the last. The others are those of the
    peers' released code: linear falls from 1 to 2 / (periods + 1), exponential by a factor every
    few epochs.
    """
    low = settings.min_lr / settings.lr
    if settings.decay == "linear":
        return max(1 - period / (periods + 1), low)
    if settings.decay == "exponential":
        return max(settings.decay_factor ** (period // settings.decay_every), low)
    return _cosine(min(period / max(periods - 1, 1), 1.0), low)


def pretraining_rate(step: int, *, warmup: int, steps: int) -> float:
    """Share of `lr` in a step of pretraining: a linear warm-up, then a cosine to one per cent."""
    if step < warmup:
        return (step + 1) / warmup
    return _cosine((step - warmup) / max(steps - warmup, 1), 0.01)


def _cosine(position: float, low: float) -> float:
    """Half a cosine: 1 at position 0, `low` at position 1."""
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * position))

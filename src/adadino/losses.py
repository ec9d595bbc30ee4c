"""The training objective: focal, Dice and CGLA terms over five predictions (App. A, Eq. S1-S4).

- Two classes need one number: the log-odds of change, z1 - z0. Its log-sigmoid is the log-softmax,
  and because upsampling is linear the difference may be taken first, at half the work.
- The five predictions share one mask, so they are stacked and each term is computed once.
- Every term is computed in float32, whatever the logits' precision.

The paper does not say which class alpha weighs; we give 0.25 to unchanged and 0.75 to change, and
detach the factor (1 - p_t)^gamma, as the lineage (ChangeDINO) does.
The paper does not say over what Dice is summed; we sum over the whole batch. Micro Dice over two
classes is then exactly 1 - mean(p_true), which does nothing for class imbalance. It is the default
because it is what the paper names; ``foreground`` Dice is the option that does.
The paper does not say how M^l is resized; we average by area, because that equals supervising every
pixel of the mask with the response of its cell, and an object smaller than a cell does not vanish.
The paper does not say over what Eq. S3 and Eq. S4 sum; we sum over the batch, so that every changed
pixel weighs the same whichever image it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.errors import ConfigError, InputError

DiceKind = Literal["micro", "foreground"]
LossTerms = tuple[Tensor, ...]
"""Focal, Dice, CGLA and, where there are, those of the classes and of a teacher, as scalars. A
plain tuple, because a CUDA graph returns it."""

ALPHA, GAMMA = 0.25, 4.0
"""The focal loss's weight of unchanged pixels, and the exponent of its focusing factor."""
MARGIN = 0.1
"""The delta response above which a changed cell costs nothing."""

_PIXELS = (-3, -2, -1)  # batch, height, width


class LossParts(NamedTuple):
    """The objective and its terms (Eq. S1), as scalars: total = focal + dice + lambda * cgla.

    Terms that the paper does not have, of classes and of a teacher, are in the total alone.
    """

    total: Tensor
    focal: Tensor
    dice: Tensor
    cgla: Tensor
    """The auxiliary term before its coefficient, so that it can be watched while that is zero."""


def focal_loss(
    logits: Tensor, target: Tensor, *, alpha: float = ALPHA, gamma: float = GAMMA
) -> Tensor:
    """Focal loss of one prediction, averaged over pixels.

    Args:
        logits: (B, 2, h, w), unchanged then change; upsampled to the mask where smaller.
        target: (B, H, W); anything but zero is change.
        alpha: Weight of unchanged pixels; change weighs 1 - alpha.
        gamma: Exponent of the focusing factor, through which no gradient flows.
    """
    return _focal(_log_odds(logits, target), target != 0, alpha, gamma)


def dice_loss(logits: Tensor, target: Tensor, kind: DiceKind = "micro") -> Tensor:
    """Dice loss of one prediction over the whole batch.

    Args:
        logits: (B, 2, h, w), unchanged then change; upsampled to the mask where smaller.
        target: (B, H, W); anything but zero is change.
        kind: ``micro`` pools both classes; ``foreground`` is the change class alone.
    """
    return _dice(_log_odds(logits, target), target != 0, kind)


def cgla_loss(delta: Tensor, target: Tensor, *, margin: float = MARGIN) -> Tensor:
    """Push the delta response above the margin where there is change, to zero elsewhere.

    Eq. S2 is the mean over the depths of Eq. S3 (changed cells) and Eq. S4 (unchanged cells).

    Args:
        delta: (B, L, h, w), the channel-averaged absolute delta response q of each adapted depth.
        target: (B, H, W); anything but zero is change.
        margin: Response above which a changed cell costs nothing.
    """
    if delta.ndim != 4 or target.ndim != 3 or len(delta) != len(target):
        raise InputError(
            f"the delta responses are {tuple(delta.shape)} and the mask {tuple(target.shape)}; "
            "pass (B, L, h, w) and (B, H, W)."
        )
    q = delta.float()
    mask = (target != 0).float().unsqueeze(1)  # (B, H, W) -> (B, 1, H, W)
    changed = F.interpolate(mask, size=q.shape[-2:], mode="area")  # (B, 1, h, w), all depths share
    unchanged = 1 - changed
    missing = (margin - q).clamp_min(0)
    # Eq. S3 and Eq. S4, each (L,)
    chg = (changed * missing.square()).sum((0, 2, 3)) / changed.sum().clamp_min(1)
    unchg = (unchanged * q.square()).sum((0, 2, 3)) / unchanged.sum().clamp_min(1)
    return (chg + unchg).mean()  # Eq. S2


def loss_terms(
    logits: Tensor,
    pyramid: Sequence[Tensor],
    delta: Tensor | None,
    target: Tensor,
    *,
    dice: DiceKind = "micro",
) -> LossTerms:
    """The three terms of the objective (Eq. S1), not yet weighed against each other.

    Args:
        logits: (B, 2, H, W), the final refined prediction.
        pyramid: The predictions of the decoder's stages, (B, 2, h, w) each, of any sizes.
        delta: (B, L, h, w) delta responses, or None for a model without CGLA.
        target: (B, H, W); anything but zero is change.
        dice: Which Dice loss.

    Returns:
        Half the sum of the focal losses; the final Dice loss plus half the sum of the others; the
        CGLA loss.
    """
    change = target != 0
    # 1 + R predictions -> (1 + R, B, H, W), the final one first
    odds = torch.stack([_log_odds(each, target) for each in (logits, *pyramid)])
    focal = 0.5 * _focal(odds, change, ALPHA, GAMMA).sum()
    each_dice = _dice(odds, change, dice)
    dice_term = each_dice[0] + 0.5 * each_dice[1:].sum()
    cgla = focal.new_zeros(()) if delta is None else cgla_loss(delta, target)
    return focal, dice_term, cgla


def teacher_loss(
    logits: Tensor, taught: Tensor, features: Sequence[Tensor], seen: Sequence[Tensor]
) -> Tensor:
    """How far a pruned model is from a dense one; not in the paper.

    Args:
        logits: (B, 2, H, W), the pruned model's prediction.
        taught: (B, 2, H, W), the dense model's.
        features: The pruned model's tapped maps (2B, D, h, w).
        seen: The dense model's.

    Returns:
        The cross-entropy to the dense model's probabilities, and the mean over taps and places of
        one minus the cosine of the features.
    """
    odds, theirs = ((one[:, 1] - one[:, 0]).float() for one in (logits, taught))
    answer = F.binary_cross_entropy_with_logits(odds, theirs.sigmoid())
    pairs = zip(features, seen, strict=True)
    alike = [F.cosine_similarity(one.float(), other.float(), dim=1).mean() for one, other in pairs]
    return answer + 1 - torch.stack(alike).mean()


def weigh(terms: LossTerms, lambda_cgla: float) -> LossParts:
    """The complete objective (Eq. S1) from its terms, with lambda at this point of training."""
    focal, dice, cgla, *lessons = terms
    return LossParts(focal + dice + lambda_cgla * cgla + sum(lessons), focal, dice, cgla)


def total_loss(
    logits: Tensor,
    pyramid: Sequence[Tensor],
    delta: Tensor | None,
    target: Tensor,
    *,
    lambda_cgla: float,
    dice: DiceKind = "micro",
) -> LossParts:
    """The complete objective (Eq. S1) of predictions; see `loss_terms` and `weigh`."""
    return weigh(loss_terms(logits, pyramid, delta, target, dice=dice), lambda_cgla)


def _log_odds(logits: Tensor, target: Tensor) -> Tensor:
    """(B, 2, h, w) -> (B, H, W): the log-odds of change at the mask's resolution, in float32."""
    # Unchecked, a (B, 1, H, W) mask would broadcast against every image of the batch.
    if target.ndim != 3 or logits.ndim != 4 or logits.shape[:2] != (len(target), 2):
        raise InputError(
            f"the logits are {tuple(logits.shape)} and the mask {tuple(target.shape)}; "
            "pass (B, 2, h, w) and (B, H, W)."
        )
    odds = logits[:, 1:].float() - logits[:, :1].float()  # (B, 1, h, w)
    if odds.shape[-2:] != target.shape[-2:]:
        odds = F.interpolate(odds, size=target.shape[-2:], mode="bilinear", align_corners=False)
    return odds.squeeze(1)


def _focal(odds: Tensor, change: Tensor, alpha: float, gamma: float) -> Tensor:
    """(..., B, H, W) log-odds -> (...) focal losses."""
    true_odds = torch.where(change, odds, -odds)
    weight = torch.where(change, 1 - alpha, alpha)
    focus = torch.sigmoid(-true_odds.detach()) ** gamma  # 1 - p_t without cancellation
    return -(weight * focus * F.logsigmoid(true_odds)).mean(_PIXELS)


def _dice(odds: Tensor, change: Tensor, kind: DiceKind) -> Tensor:
    """(..., B, H, W) log-odds -> (...) Dice losses."""
    if kind == "micro":
        return torch.sigmoid(torch.where(change, -odds, odds)).mean(_PIXELS)
    if kind == "foreground":
        p = torch.sigmoid(odds)
        overlap = (p * change).sum(_PIXELS)
        # One imagined pixel of agreement: defined, with a gradient, where nothing has changed.
        return 1 - (2 * overlap + 1) / (p.sum(_PIXELS) + change.sum() + 1)
    raise ConfigError(f"there is no Dice loss {kind!r}; choose one of {get_args(DiceKind)}.")

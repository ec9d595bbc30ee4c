"""The objective against the paper's formulas, restated with loops over pixels in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from adadino.errors import ConfigError, InputError
from adadino.losses import (
    DiceKind,
    cgla_loss,
    dice_loss,
    focal_loss,
    total_loss,
)

DICE_KINDS: tuple[DiceKind, ...] = ("micro", "foreground")


def example(
    *, batch: int = 2, height: int = 8, width: int = 12, change: float = 0.3
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(batch, 2, height, width, generator=generator)
    pyramid = [
        2 * torch.randn(batch, 2, max(height // r, 1), max(width // r, 1), generator=generator)
        for r in (1, 2, 4, 8)
    ]
    delta = 0.2 * torch.rand(batch, 3, height // 4, width // 4, generator=generator)
    target = torch.rand(batch, height, width, generator=generator) < change
    return logits, pyramid, delta, target


def naive_upsample(plane: list[list[float]], height: int, width: int) -> list[list[float]]:
    rows, columns = len(plane), len(plane[0])
    out = []
    for i in range(height):
        y = min(max((i + 0.5) * rows / height - 0.5, 0), rows - 1)
        y0 = min(int(y), max(rows - 2, 0))
        y1 = min(y0 + 1, rows - 1)
        line = []
        for j in range(width):
            x = min(max((j + 0.5) * columns / width - 0.5, 0), columns - 1)
            x0 = min(int(x), max(columns - 2, 0))
            x1 = min(x0 + 1, columns - 1)
            top = plane[y0][x0] * (1 - (x - x0)) + plane[y0][x1] * (x - x0)
            bottom = plane[y1][x0] * (1 - (x - x0)) + plane[y1][x1] * (x - x0)
            line.append(top * (1 - (y - y0)) + bottom * (y - y0))
        out.append(line)
    return out


def naive_terms(logits: Tensor, target: Tensor, kind: DiceKind) -> tuple[float, float]:
    """Focal and Dice of one prediction, from class probabilities, pixel by pixel."""
    focal, overlap, predicted, true, pixels = 0.0, 0.0, 0.0, 0.0, 0
    for planes, mask in zip(logits.double().tolist(), target.int().tolist(), strict=True):
        z0, z1 = (naive_upsample(plane, len(mask), len(mask[0])) for plane in planes)
        for i, line in enumerate(mask):
            for j, label in enumerate(line):
                total = math.exp(z0[i][j]) + math.exp(z1[i][j])
                p = (math.exp(z0[i][j]) / total, math.exp(z1[i][j]) / total)
                focal -= (0.25, 0.75)[label] * (1 - p[label]) ** 4 * math.log(p[label])
                pixels += 1
                for c in (0, 1) if kind == "micro" else (1,):
                    overlap += p[c] * (label == c)
                    predicted += p[c]
                    true += label == c
    smooth = 0 if kind == "micro" else 1
    dice = 1 - (2 * overlap + smooth) / (predicted + true + smooth)
    return focal / pixels, dice


def naive_cgla(delta: Tensor, target: Tensor) -> float:
    """Every pixel of the mask against the response of the cell it lies in."""
    batch, depths, rows, columns = delta.shape
    height, width = target.shape[1:]
    cell = (height // rows) * (width // columns)
    total = 0.0
    for depth in range(depths):
        chg = unchg = changed = unchanged = 0.0
        for b in range(batch):
            for i in range(height):
                for j in range(width):
                    q = float(delta[b, depth, i * rows // height, j * columns // width])
                    if target[b, i, j]:
                        chg += max(0.0, 0.1 - q) ** 2 / cell
                        changed += 1 / cell
                    else:
                        unchg += q**2 / cell
                        unchanged += 1 / cell
        total += chg / max(changed, 1) + unchg / max(unchanged, 1)
    return total / depths


@pytest.mark.parametrize("kind", DICE_KINDS)
def test_each_term_equals_the_loops(kind: DiceKind) -> None:
    logits, pyramid, delta, target = example()
    for each in (logits, *pyramid):
        focal, dice = naive_terms(each, target, kind)
        assert focal_loss(each, target).item() == pytest.approx(focal, rel=1e-5)
        assert dice_loss(each, target, kind).item() == pytest.approx(dice, rel=1e-5)
    assert cgla_loss(delta, target).item() == pytest.approx(naive_cgla(delta, target), rel=1e-5)


@pytest.mark.parametrize("kind", DICE_KINDS)
def test_total_weighs_the_terms_as_the_paper_does(kind: DiceKind) -> None:
    logits, pyramid, delta, target = example()
    focal, dice = naive_terms(logits, target, kind)
    expected = 0.5 * focal + dice + 0.01 * naive_cgla(delta, target)
    for each in pyramid:
        focal, dice = naive_terms(each, target, kind)
        expected += 0.5 * focal + 0.5 * dice

    parts = total_loss(logits, pyramid, delta, target, lambda_cgla=0.01, dice=kind)

    assert parts.total.item() == pytest.approx(expected, rel=1e-5)
    assert parts.total.item() == pytest.approx(
        (parts.focal + parts.dice + 0.01 * parts.cgla).item(), rel=1e-6
    )


def test_focal_by_hand() -> None:
    # Equal logits: p_t = 1/2 everywhere, so (1/2)^4 * ln 2 times the weight of the class.
    logits = torch.zeros(1, 2, 1, 2)
    base = 0.5**4 * math.log(2)
    assert focal_loss(logits, torch.tensor([[[0, 0]]])).item() == pytest.approx(0.25 * base)
    assert focal_loss(logits, torch.tensor([[[1, 1]]])).item() == pytest.approx(0.75 * base)
    assert focal_loss(logits, torch.tensor([[[0, 1]]])).item() == pytest.approx(0.5 * base)


def test_focal_gradient_does_not_flow_through_the_focusing_factor() -> None:
    logits = torch.tensor([0.3, -0.8]).view(1, 2, 1, 1).requires_grad_()
    focal_loss(logits, torch.ones(1, 1, 1, dtype=torch.bool)).backward()  # type: ignore[no-untyped-call]
    p = math.exp(-0.8) / (math.exp(0.3) + math.exp(-0.8))
    assert logits.grad is not None
    # d(-log p)/dz1 = p - 1, scaled by the constant 0.75 (1 - p)^4
    assert logits.grad[0, 1].item() == pytest.approx(0.75 * (1 - p) ** 4 * (p - 1), rel=1e-5)
    assert logits.grad.sum().item() == pytest.approx(0, abs=1e-7)


def test_micro_dice_is_one_minus_the_mean_true_probability() -> None:
    logits, _, _, target = example()
    p_true = logits.softmax(dim=1).gather(1, target.long()[:, None])
    torch.testing.assert_close(dice_loss(logits, target), 1 - p_true.mean())


def test_foreground_dice_ignores_the_unchanged_majority() -> None:
    # Nothing is found in a mask that is 1 % change: micro sees 99 % right, foreground sees failure.
    logits = torch.tensor([9.0, -9.0]).view(1, 2, 1, 1).expand(1, 2, 50, 50)
    target = torch.zeros(1, 50, 50, dtype=torch.bool)
    target[:, :5, :5] = True
    assert dice_loss(logits, target, "micro").item() == pytest.approx(0.01, abs=1e-3)
    assert dice_loss(logits, target, "foreground").item() > 0.95


def test_cgla_by_hand() -> None:
    # Two cells of 2x2 pixels: one holds a single changed pixel, the other none.
    delta = torch.tensor([0.04, 0.2]).view(1, 1, 1, 2)
    target = torch.zeros(1, 2, 4, dtype=torch.uint8)
    target[0, 1, 0] = 1
    chg = 0.25 * 0.06**2 / 1  # a quarter of a cell, over max(0.25, 1)
    unchg = (0.75 * 0.04**2 + 0.2**2) / 1.75
    assert cgla_loss(delta, target).item() == pytest.approx(chg + unchg, rel=1e-5)


def test_cgla_gradient_raises_changed_cells_and_lowers_the_others() -> None:
    delta = torch.full((1, 1, 2, 2), 0.05, requires_grad=True)
    target = torch.zeros(1, 8, 8, dtype=torch.bool)
    target[:, :4, :4] = True
    cgla_loss(delta, target).backward()  # type: ignore[no-untyped-call]
    assert delta.grad is not None
    assert torch.equal(delta.grad[0, 0].sign(), torch.tensor([[-1.0, 1.0], [1.0, 1.0]]))


@pytest.mark.parametrize("kind", DICE_KINDS)
@pytest.mark.parametrize("change", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("magnitude", [1.0, 1e4])
def test_loss_and_gradients_stay_finite(kind: DiceKind, change: float, magnitude: float) -> None:
    logits, pyramid, delta, target = example(change=change)
    inputs = [(magnitude * each).requires_grad_() for each in (logits, *pyramid)]
    delta.requires_grad_()
    parts = total_loss(inputs[0], inputs[1:], delta, target, lambda_cgla=0.01, dice=kind)
    parts.total.backward()  # type: ignore[no-untyped-call]
    assert all(part.isfinite() for part in parts)
    for each in (*inputs, delta):
        assert each.grad is not None
        assert each.grad.isfinite().all()
        assert magnitude > 1 or each.grad.abs().max() > 0


def test_zero_lambda_sends_no_gradient_to_the_responses() -> None:
    logits, pyramid, delta, target = example()
    logits.requires_grad_()
    delta.requires_grad_()
    parts = total_loss(logits, pyramid, delta, target, lambda_cgla=0.0)
    parts.total.backward()  # type: ignore[no-untyped-call]
    assert parts.cgla > 0
    assert delta.grad is not None
    assert not delta.grad.any()


def test_a_model_without_cgla_has_no_auxiliary_term() -> None:
    logits, pyramid, delta, target = example()
    without = total_loss(logits, pyramid, None, target, lambda_cgla=0.01)
    zero = total_loss(logits, pyramid, delta, target, lambda_cgla=0.0)
    assert without.cgla == 0
    assert without.total == zero.total


def test_half_precision_logits_are_computed_in_float32() -> None:
    logits, pyramid, delta, target = example()
    half = [each.bfloat16() for each in (logits, *pyramid, delta)]
    parts = total_loss(half[0], half[1:5], half[5], target, lambda_cgla=0.01)
    same = [each.float() for each in half]
    assert parts.total.dtype == torch.float32
    assert parts == total_loss(same[0], same[1:5], same[5], target, lambda_cgla=0.01)


def test_mask_may_be_bool_or_any_integer() -> None:
    logits, pyramid, delta, target = example()
    expected = total_loss(logits, pyramid, delta, target, lambda_cgla=0.01)
    for mask in (target.long(), target.to(torch.uint8), 255 * target.to(torch.uint8)):
        assert total_loss(logits, pyramid, delta, mask, lambda_cgla=0.01) == expected


def test_shapes_that_would_broadcast_are_refused() -> None:
    logits, _, delta, target = example()
    with pytest.raises(InputError, match=r"\(2, 1, 8, 12\)"):
        focal_loss(logits, target[:, None])
    with pytest.raises(InputError, match="pass"):
        dice_loss(logits, target[:1])
    with pytest.raises(InputError, match="pass"):
        cgla_loss(delta, target[:1])


def test_unknown_dice_is_refused_with_the_choices() -> None:
    logits, _, _, target = example()
    with pytest.raises(ConfigError, match="foreground"):
        dice_loss(logits, target, "macro")  # type: ignore[arg-type]

"""Soft opening and closing: constants stay, specks fade, gaps close, borders are not special."""

from __future__ import annotations

import pytest
import torch

from adadino.model.refiner import Morphology, Refiner
from tests.conftest import randomise


def logits_of(p: torch.Tensor) -> torch.Tensor:
    return torch.stack((torch.zeros_like(p), torch.logit(p)), dim=1)


def test_it_has_70_parameters():
    assert sum(p.numel() for p in Refiner().parameters()) == 70


@pytest.mark.parametrize("value", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("size", [(1, 1), (2, 7), (16, 16)])
def test_a_constant_map_stays_constant_also_at_the_borders(value, size):
    refiner = randomise(Refiner())
    logits = logits_of(torch.full((1, *size), value))
    assert torch.allclose(refiner(logits), logits, atol=1e-5)


def test_dilation_is_the_logsumexp_of_the_window():
    morphology = randomise(Morphology(3)).double()
    p, tau = torch.rand(1, 1, 5, 6).double(), torch.tensor(0.2).double()
    got = morphology.dilate(p, tau)[0, 0]
    w = morphology.dilation.view(3, 3)
    norm = tau * torch.logsumexp(w.flatten() / tau, 0)
    for y in range(5):
        for x in range(6):
            values = torch.stack(
                [
                    p[0, 0, min(max(y + dy, 0), 4), min(max(x + dx, 0), 5)] + w[dy + 1, dx + 1]
                    for dy in (-1, 0, 1)
                    for dx in (-1, 0, 1)
                ]
            )
            expected = tau * torch.logsumexp(values / tau, 0) - norm
            assert got[y, x].item() == pytest.approx(expected.item(), abs=1e-12)
    assert torch.allclose(
        randomise(Morphology(3)).double().erode(p, tau),
        -_dilate_with(p, tau, randomise(Morphology(3)).double().erosion),
    )


def _dilate_with(p, tau, w):
    mirror = Morphology(3).double()
    with torch.no_grad():
        mirror.dilation.copy_(w)
    return mirror.dilate(-p, tau)


def test_small_tau_is_the_flat_maximum():
    morphology = Morphology(3).double()
    p = torch.rand(1, 1, 6, 6).double()
    flat = torch.nn.functional.max_pool2d(
        torch.nn.functional.pad(p, (1, 1, 1, 1), mode="replicate"), 3, stride=1
    )
    assert torch.allclose(morphology.dilate(p, torch.tensor(1e-4).double()), flat, atol=1e-3)


def test_specks_lose_and_gaps_gain():
    refiner = Refiner()
    with torch.no_grad():
        refiner.blend.fill_(5.0)
    speck = torch.full((1, 11, 11), 0.05)
    speck[0, 5, 5] = 0.95
    assert refiner(logits_of(speck))[0, 1, 5, 5] < logits_of(speck)[0, 1, 5, 5] - 0.1
    gap = 1 - speck
    assert refiner(logits_of(gap))[0, 1, 5, 5] > logits_of(gap)[0, 1, 5, 5] + 0.1


def test_it_opens_by_three_and_then_closes_by_five():
    """App. A: with a small tau, flat morphology; an opening erodes first, a closing dilates."""

    def dilate(p: torch.Tensor, size: int) -> torch.Tensor:
        pad = (size // 2,) * 4
        padded = torch.nn.functional.pad(p, pad, mode="replicate")
        return torch.nn.functional.max_pool2d(padded, size, stride=1)

    def erode(p: torch.Tensor, size: int) -> torch.Tensor:
        return -dilate(-p, size)

    refiner = Refiner()
    with torch.no_grad():
        refiner.log_tau.fill_(1e-4).log_()
        refiner.blend.fill_(1.0)
    p = torch.rand(1, 1, 12, 13) * 0.98 + 0.01
    logits = logits_of(p[:, 0])
    expected = erode(dilate(dilate(erode(p, 3), 3), 5), 5)
    refined = refiner(logits)
    assert torch.equal(refined[:, 0], logits[:, 0])
    assert torch.allclose(refined[:, 1:] - logits[:, 1:], expected - p, atol=2e-3)


def test_bf16_is_refined_in_float32():
    assert Refiner()(torch.randn(1, 2, 4, 4).bfloat16()).dtype == torch.float32

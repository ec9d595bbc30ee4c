"""What moves during a run: lambda, the budget k and the learning rate."""

from __future__ import annotations

import pytest
import torch

from adadino.config import BSCSConfig
from adadino.training.config import TrainConfig
from adadino.training.schedule import (
    executed_chunks,
    lambda_cgla,
    learning_rate,
    pretraining_rate,
)

PAPER = TrainConfig()


def test_lambda_is_zero_for_five_epochs_then_linear_over_ten() -> None:
    assert [lambda_cgla(e, PAPER) for e in (0, 2.5, 4.999, 5)] == [0, 0, 0, 0]
    assert lambda_cgla(6, PAPER) == pytest.approx(0.001)
    assert lambda_cgla(7.5, PAPER) == pytest.approx(0.0025)
    assert lambda_cgla(14, PAPER) == pytest.approx(0.009)
    assert [lambda_cgla(e, PAPER) for e in (15, 100)] == [0.01, 0.01]


def test_a_ramp_of_no_length_is_a_step() -> None:
    step = TrainConfig(lambda_ramp=0)
    assert [lambda_cgla(e, step) for e in (5, 5.001)] == [0, 0.01]


def test_all_chunks_run_for_three_epochs_then_k() -> None:
    bscs = BSCSConfig(k=6)
    assert [executed_chunks(e, PAPER, bscs) for e in range(5)] == [16, 16, 16, 6, 6]


def test_the_budget_can_fall_in_equal_steps() -> None:
    bscs, settings = BSCSConfig(k=6), TrainConfig(bscs_warmup=2, bscs_anneal=4)
    budgets = [executed_chunks(e, settings, bscs) for e in range(8)]
    assert budgets == [16, 16, 14, 12, 10, 8, 6, 6]
    slow = TrainConfig(bscs_warmup=0, bscs_anneal=20)
    fine = [executed_chunks(e, slow, bscs) for e in range(22)]
    assert fine == sorted(fine, reverse=True)
    assert set(fine) == set(range(6, 17))


def test_the_last_epoch_runs_at_the_minimum() -> None:
    rates = [PAPER.lr * learning_rate(e, PAPER.epochs, PAPER) for e in range(PAPER.epochs)]
    assert rates[0] == 5e-4
    assert rates[-1] == pytest.approx(1e-7)
    assert rates[-2] > 1.1e-7
    assert rates == sorted(rates, reverse=True)


def test_pretraining_warms_up_and_then_falls() -> None:
    rates = [pretraining_rate(step, warmup=4, steps=20) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 0.01 < rates[-1] < 0.03


def test_the_rates_of_the_released_peers():
    """BIT: 1 - epoch / (epochs + 1). FC: ExponentialLR(0.95). SNUNet: StepLR(8, gamma=0.5)."""
    linear = TrainConfig(decay="linear", min_lr=0.0)
    assert [learning_rate(e, 4, linear) for e in range(4)] == pytest.approx([1, 0.8, 0.6, 0.4])
    halved = TrainConfig(decay="exponential", decay_factor=0.5, decay_every=8, min_lr=0.0)
    fading = TrainConfig(decay="exponential", min_lr=0.0)
    model = torch.nn.Linear(1, 1)
    for settings, scheduler in (
        (halved, lambda o: torch.optim.lr_scheduler.StepLR(o, 8, 0.5)),
        (fading, lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.95)),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        theirs = scheduler(optimizer)
        for epoch in range(20):
            assert learning_rate(epoch, 100, settings) == pytest.approx(theirs.get_last_lr()[0])
            optimizer.step()
            theirs.step()


def test_the_rate_never_falls_below_its_least():
    settings = TrainConfig(decay="exponential", decay_factor=0.1, lr=1.0, min_lr=0.01)
    assert [learning_rate(e, 9, settings) for e in range(4)] == pytest.approx([1, 0.1, 0.01, 0.01])

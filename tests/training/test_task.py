"""Schedules, optimiser and loss of a run, as the paper has them."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch

from adadino.build import build
from adadino.checkpoint import load, save
from adadino.errors import ConfigError
from adadino.model.adadino import AdaDINO
from adadino.training.config import load_run
from adadino.training.step import set_up
from adadino.training.task import ChangeTask, seeded
from tests.training.runs import last, run

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


@pytest.fixture
def steps(monkeypatch):
    """The schedules of every training step, as the task saw them."""
    seen = []
    original = ChangeTask.training_step

    def step(self, batch, index):
        loss = original(self, batch, index)
        seen.append({"epoch": self.current_epoch, **self.schedule})
        return loss

    monkeypatch.setattr(ChangeTask, "training_step", step)
    return seen


@pytest.mark.parametrize("schedule", ["epoch", "step"])
def test_the_cosine_runs_from_lr_to_its_minimum(data, tmp_path, steps, schedule):
    paper = ("train.lr=5e-4", "train.min_lr=1e-7", f"train.schedule={schedule}")
    result = run(data, tmp_path, *paper, "train.epochs=3")
    rates = [step["lr"] for step in steps]
    assert rates[0] == 5e-4
    assert rates[-1] == pytest.approx(1e-7, rel=1e-6)
    assert rates == sorted(rates, reverse=True)
    middle = 1e-7 + (5e-4 - 1e-7) / 2
    # 9 pairs in batches of 2 are 4 steps, 2 steps to an update: 6 updates in 3 epochs.
    assert last(tmp_path)["global_step"] == 6
    if schedule == "epoch":
        assert rates == pytest.approx([5e-4] * 4 + [middle] * 4 + [1e-7] * 4, rel=1e-6)
    else:
        assert len(set(rates)) == 6
        assert rates[0::2] == rates[1::2]  # both steps of an update share its rate
        assert rates[4] + rates[6] == pytest.approx(2 * middle)
    assert [row["lr"] for row in result.history] == rates[3::4]


def test_bscs_warms_up_for_three_epochs(data, tmp_path, monkeypatch):
    budgets = []
    original = AdaDINO.forward

    def forward(self, *args, k=None, **rest):
        if self.training:
            budgets.append(k)
        return original(self, *args, k=k, **rest)

    monkeypatch.setattr(AdaDINO, "forward", forward)
    result = run(data, tmp_path, "train.bscs_warmup=3", "train.epochs=5")
    assert budgets == [8] * 3 * 4 + [3] * 2 * 4
    assert [row["train_k"] for row in result.history] == [8, 8, 8, 3, 3]


def test_the_auxiliary_loss_sets_in_and_grows_linearly(trained):
    # 0 for one epoch, then to 0.01 over two; the last of 4 steps is 3/4 into its epoch.
    weights = [row["lambda_cgla"] for row in trained.history]
    assert weights == pytest.approx([0, 0.00375, 0.00875, 0.01])
    for row in trained.history:
        if row["lambda_cgla"] == 0:
            assert row["loss_total"] == pytest.approx(row["loss_focal"] + row["loss_dice"])
        else:
            assert row["loss_total"] > row["loss_focal"] + row["loss_dice"]


def test_only_what_is_trained_has_optimiser_state(trained, data, tmp_path):
    from adadino.checkpoint import load

    state = last(trained.folder)
    model = load(trained.folder / "best")
    trainable = {n: p for n, p in model.named_parameters() if not n.startswith("encoder.backbone")}
    (optimizer,) = state["optimizer_states"]
    assert len(optimizer["param_groups"][0]["params"]) == len(trainable)
    assert set(optimizer["state"]) == set(range(len(trainable)))
    shapes = [tuple(s["exp_avg"].shape) for _, s in sorted(optimizer["state"].items())]
    assert shapes == [tuple(p.shape) for p in trainable.values()]


def test_the_checkpoint_leaves_the_frozen_backbone_out(trained):
    names = set(last(trained.folder)["state_dict"])
    assert names
    assert not [name for name in names if name.startswith("model.encoder.backbone.")]


def test_checkpointing_changes_no_loss(data, tmp_path, trained):
    result = run(data, tmp_path, "train.checkpointing=true")
    for ours, theirs in zip(result.history, trained.history, strict=True):
        assert ours["loss_total"] == pytest.approx(theirs["loss_total"], rel=1e-4)


@pytest.mark.slow
def test_compiling_changes_no_loss(data, tmp_path, trained, monkeypatch):
    # Traced as for the fast recipe, but run by torch: generating code would take minutes.
    original = torch.nn.Module.compile
    compiled = []

    def traced(self, *args, **rest):
        compiled.append(type(self).__name__)
        original(self, *args, **{**rest, "backend": "eager"})

    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    result = run(data, tmp_path, "train.compile=true", "train.epochs=1")
    assert {"Block", "CGLA"} <= set(compiled)
    ours, theirs = result.history[0], trained.history[0]
    assert ours["loss_total"] == pytest.approx(theirs["loss_total"], rel=0.05)
    assert set(last(tmp_path)["state_dict"]) == set(last(trained.folder)["state_dict"])


def test_compiling_in_bf16_is_refused_on_a_cpu(data, tmp_path):
    with pytest.raises(ConfigError, match="needs a GPU: on a CPU what PyTorch compiles gives NaN"):
        run(data, tmp_path, "train.compile=true", "train.precision=bf16")
    assert not list(tmp_path.iterdir())


def test_a_peer_in_bf16_has_its_channels_last_and_is_saved_whole(data, tmp_path):
    config = load_run(None, ["preset=tiny", "model.peer=fc-ef"]).model
    model = set_up(build(config), precision="bf16")
    kernels = [p for p in model.parameters() if p.dim() == 4 and min(p.shape[1:]) > 1]
    assert kernels
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    save(model, tmp_path / "peer")
    for name, tensor in load(tmp_path / "peer").state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_bf16_runs_close_to_32(data, tmp_path, trained):
    result = run(data, tmp_path, "train.precision=bf16", "train.epochs=1")
    assert result.history[0]["loss_total"] == pytest.approx(
        trained.history[0]["loss_total"], rel=0.05
    )
    trained_types = {tensor.dtype for tensor in last(tmp_path)["state_dict"].values()}
    assert trained_types <= {torch.float32, torch.int64}


def test_a_batch_without_change_trains_on(tmp_path):
    import numpy as np
    from PIL import Image

    from tests.training.runs import dataset

    data = dataset(tmp_path / "data", train=4, val=2)
    for path in (data / "train" / "label").iterdir():
        Image.fromarray(np.zeros((32, 32), np.uint8)).save(path)
    result = run(data, tmp_path / "run", "train.epochs=2", "train.dice=foreground")
    assert result.epochs == 2


def test_seeds_differ_in_every_number():
    draws = {
        torch.rand(1, generator=seeded(*numbers)).item()
        for numbers in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    }
    assert len(draws) == 5


def task_of(*overrides: str) -> ChangeTask:
    """A task of a small peer, outside of any run."""
    config = load_run(None, ["preset=tiny", "model.peer=fc-ef", *overrides])
    return ChangeTask(build(config.model), config)


def seeds_of_step(seed: int, epoch: int, index: int, rank: int) -> tuple[int, int]:
    """The seeds that one training step gives its augmentation and the model's dropout."""
    task, seen = task_of(f"train.seed={seed}"), []

    def augment(before, after, mask, generator):
        seen.append(generator.initial_seed())
        return before, after, mask

    def step(*_):
        seen.append(torch.initial_seed())
        return (torch.zeros(()),) * 3

    task.augment, task.step_for = augment, lambda k, batch: step
    optimizer = SimpleNamespace(param_groups=[{"lr": 1.0}])
    task._trainer = SimpleNamespace(
        current_epoch=epoch, global_rank=rank, num_training_batches=9, optimizers=[optimizer]
    )
    image = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    task.training_step((image, image, image[:, 0], torch.zeros(1)), index)
    augmentation, dropout = seen
    return augmentation, dropout


def test_every_step_of_every_epoch_and_rank_draws_its_own():
    """Ranks see different pairs and steps different batches: none may repeat another's draws."""
    places = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 1, 1)]
    seeds = [seeds_of_step(*place) for place in places]
    assert len({seed for pair in seeds for seed in pair}) == 2 * len(places)
    assert seeds_of_step(*places[0]) == seeds[0]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_the_optimiser_decays_by_the_configured_weight(optimizer):
    """One step without a gradient moves the weights by the decay alone, as AdamW and SGD state."""
    task = task_of(
        f"train.optimizer={optimizer}", "train.weight_decay=0.3", "train.lr=0.1", "train.epochs=1"
    )
    made = task.configure_optimizers()["optimizer"]
    before = {n: p.detach().clone() for n, p in task.model.named_parameters()}
    for parameter in task.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert [group["weight_decay"] for group in made.param_groups] == [0.3]
    (group,) = made.param_groups
    made.step()
    for name, parameter in task.model.named_parameters():
        rate = group["lr"]
        if optimizer == "adam":  # the decay is part of the gradient, of which Adam keeps the sign
            g = 0.3 * before[name]
            expected = before[name] - rate * g / (g.abs() + 1e-8)
        else:
            expected = before[name] * (1 - rate * 0.3)
        assert torch.allclose(parameter, expected, atol=1e-5), name


def test_the_clock_of_a_resumed_run_goes_on_from_the_checkpoint(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    first, second = task_of(), task_of()
    first.on_train_start()
    now[0] += 40
    checkpoint = {"state_dict": {f"model.{n}": t for n, t in first.model.state_dict().items()}}
    first.on_save_checkpoint(checkpoint)
    now[0] = 5.0  # another process, another clock
    second.on_load_checkpoint(checkpoint)
    second.on_train_start()
    now[0] += 2
    again = {"state_dict": {}}
    second.on_save_checkpoint(again)
    assert (checkpoint["seconds"], again["seconds"]) == (40, 42)

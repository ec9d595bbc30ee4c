"""What helps a pruned model: a dense teacher, a budget that falls slowly, faster adapters."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from adadino.build import build
from adadino.checkpoint import load, save
from adadino.errors import ConfigError
from adadino.losses import teacher_loss, weigh
from adadino.training.config import load_run
from adadino.training.step import StepLoss
from adadino.training.task import ChangeTask
from tests.conftest import SMALL, randomise, with_backbone, with_bscs
from tests.training.runs import run

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


def test_the_teacher_is_met_where_both_agree():
    logits = torch.randn(2, 2, 8, 8, requires_grad=True)
    features = [torch.randn(4, 6, 3, 3) for _ in range(4)]
    far = [torch.randn(4, 6, 3, 3) for _ in range(4)]
    own = teacher_loss(logits, logits.detach(), features, features)
    p = logits.detach().softmax(1)[:, 1]
    entropy = -(p * p.log() + (1 - p) * (1 - p).log()).mean()
    assert own.item() == pytest.approx(entropy.item(), abs=1e-5)
    assert torch.autograd.grad(own, logits)[0].abs().max() < 1e-6
    assert teacher_loss(logits, -logits.detach(), features, features) > own
    assert teacher_loss(logits, logits.detach(), features, far) > own + 0.5
    doubled = [2 * one for one in features]  # the direction counts, not the length
    assert teacher_loss(logits, logits.detach(), features, doubled).item() == pytest.approx(
        own.item(), abs=1e-5
    )


def test_a_lesson_is_part_of_the_total_alone():
    one, two, three, four = (torch.tensor(v) for v in (1.0, 2.0, 3.0, 4.0))
    assert weigh((one, two, three, four), 0.5).total == 1 + 2 + 1.5 + 4
    assert weigh((one, two, three, four), 0.5)[1:] == weigh((one, two, three), 0.5)[1:]


def test_a_pruned_model_comes_nearer_to_its_dense_teacher():
    """The teacher is never changed, and the lesson's gradient reaches policy, CGLA and decoder."""
    torch.manual_seed(0)
    config = with_bscs(SMALL, k=3)
    dense = randomise(build(config)).eval()
    model = build(config)
    model.load_state_dict(dense.state_dict())
    model.train()
    state = {name: value.clone() for name, value in dense.state_dict().items()}
    step = StepLoss(model, k=3, dice="micro", teacher=dense)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 3e-3)
    before, after = torch.rand(2, 2, 3, 32, 32)
    mask = torch.zeros(2, 32, 32)
    with torch.no_grad():
        seen, taught = dense.encode_and_decode(before, after, k=8)
        least = teacher_loss(taught.logits, taught.logits, seen.features, seen.features).item()
    lessons = []
    for _ in range(20):
        *_, lesson = step(before, after, mask)
        lessons.append(lesson.item())
        optimizer.zero_grad()
        lesson.backward()
        optimizer.step()
    assert lessons[-1] - least < 0.6 * (lessons[0] - least)
    for part in (model.encoder.bscs, model.encoder.cgla, model.decoder):
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in part.parameters())
    assert all(torch.equal(value, state[name]) for name, value in dense.state_dict().items())


def test_a_run_is_taught_and_keeps_nothing_of_its_teacher(data, tmp_path):
    run(data, tmp_path / "dense", "train.epochs=1", "model.bscs.k=8")
    teacher = f"train.teacher={tmp_path / 'dense' / 'final'}"
    settings = ("train.epochs=2", "train.bscs_warmup=0", "train.bscs_anneal=1")
    taught = run(data, tmp_path / "taught", *settings, teacher)
    alone = run(data, tmp_path / "alone", *settings)
    row, other = taught.history[0], alone.history[0]
    parts = row["loss_focal"] + row["loss_dice"] + row["lambda_cgla"] * row["loss_cgla"]
    assert row["loss_total"] > parts + 0.05
    assert other["loss_total"] == pytest.approx(other["loss_focal"] + other["loss_dice"], abs=1e-3)
    assert [r["train_k"] for r in taught.history] == [5, 3]
    kept = load(tmp_path / "taught" / "final").state_dict()
    assert not any("teacher" in name for name in kept)


def test_a_teacher_of_other_features_is_refused(data, tmp_path):
    save(build(with_backbone(SMALL, dim=64)), tmp_path / "wide", with_backbone=True)
    with pytest.raises(ConfigError, match="has other features than this model"):
        run(data, tmp_path / "run", f"train.teacher={tmp_path / 'wide'}")


def test_adapters_can_learn_faster(tmp_path):
    config = load_run(None, ["preset=tiny", "train.lr=1e-3", "train.adapter_lr=3"])
    model = build(SMALL)
    task = ChangeTask(model, config)
    optimizer = task.configure_optimizers()["optimizer"]
    others, adapters = optimizer.param_groups
    assert (others["lr"], adapters["lr"]) == (1e-3, pytest.approx(3e-3))
    assert set(adapters["params"]) == set(model.encoder.cgla.parameters())
    trained = {p for p in model.parameters() if p.requires_grad}
    assert set(others["params"]) | set(adapters["params"]) == trained
    assert len(others["params"]) + len(adapters["params"]) == len(trained)
    plain = dataclasses.replace(config, train=dataclasses.replace(config.train, adapter_lr=1.0))
    assert len(ChangeTask(model, plain).configure_optimizers()["optimizer"].param_groups) == 1


@pytest.mark.parametrize("setting", ["teacher=x", "bscs_anneal=3", "adapter_lr=2"])
def test_peers_have_none_of_it(setting):
    with pytest.raises(ConfigError, match="is for AdaDINO, not for fc-siam-diff"):
        load_run(None, ["preset=tiny", "model.peer=fc-siam-diff", f"train.{setting}"])

"""Runs in other circumstances: without validation, longer than planned, under another's Trainer."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import pytorch_lightning as pl
from torch.utils.data import DataLoader

from adadino.build import build
from adadino.checkpoint import load
from adadino.data.folder import PairFolder
from adadino.errors import DataError, ExtendedWarning, TrainingError
from adadino.training.task import ChangeTask
from tests.training.runs import config, dataset, last, run, same

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")

CONSTANT = ("train.decay=exponential", "train.decay_factor=1")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Pairs for training and none for validation, as LEVIR-CD+'s variant `whole` has."""
    return dataset(tmp_path / "whole", train=5)


def test_without_a_validation_split_only_the_last_epoch_is_kept(whole, tmp_path):
    result = run(whole, tmp_path / "run", "train.validate=false", "train.epochs=2")
    assert result.best_f1 is None
    assert [row["epoch"] for row in result.history] == [1, 2]
    assert all("f1" not in row and row["loss_total"] > 0 for row in result.history)
    folder = result.folder
    assert not (folder / "best").exists()
    assert not (folder / "pictures").exists()
    assert (folder / "curves.png").exists()
    assert load(folder / "final").config.backbone.dim == 32
    assert "without validation" in (folder / "card.md").read_text()


def test_a_run_without_validation_goes_on_to_the_same_bits(whole, tmp_path, monkeypatch):
    from adadino.training.callbacks import Keeper

    settings = ("train.validate=false", "train.epochs=2")
    run(whole, tmp_path / "a", *settings)
    keep = Keeper.on_train_epoch_end

    def killed(self, trainer, task):
        keep(self, trainer, task)
        raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "on_train_epoch_end", killed)
    with pytest.raises(KeyboardInterrupt):
        run(whole, tmp_path / "b", *settings)
    monkeypatch.undo()
    assert run(whole, tmp_path / "b", *settings).resumed
    assert same(last(tmp_path / "a")["state_dict"], last(tmp_path / "b")["state_dict"])


def test_a_set_without_validation_says_how_to_train_on_it(whole, tmp_path):
    with pytest.raises(DataError, match=r"has no val folder.*--train.validate false"):
        run(whole, tmp_path / "run")


@pytest.mark.slow
def test_an_extended_run_goes_on_and_says_so(data, tmp_path):
    """With a constant learning rate it ends in the bits of a run of that length."""
    run(data, tmp_path / "long", *CONSTANT, "train.epochs=3")
    run(data, tmp_path / "grown", *CONSTANT, "train.epochs=2")
    with pytest.warns(ExtendedWarning, match="extended from 2 to 3 epochs"):
        result = run(data, tmp_path / "grown", *CONSTANT, "train.epochs=3")
    assert result.resumed
    assert [row["epoch"] for row in result.history] == [1, 2, 3]
    ends = (load(tmp_path / name / "final").state_dict() for name in ("long", "grown"))
    assert same(*ends)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExtendedWarning)  # the folder knows its new length
        run(data, tmp_path / "grown", *CONSTANT, "train.epochs=3")


def test_a_run_is_not_shortened_and_nothing_else_changes(data, trained):
    with pytest.raises(TrainingError, match=r"another train.epochs \(4, not 2\)"):
        run(data, trained.folder, "train.epochs=2")
    with pytest.raises(TrainingError, match=r"another train.lr"):
        run(data, trained.folder, "train.epochs=6", "train.lr=1e-3")


def test_the_task_trains_under_a_plain_trainer(data, tmp_path):
    """With Lightning's defaults, sanity check included, and loaders of one's own."""
    settings = config(data, tmp_path)
    task = ChangeTask(build(settings.model), settings)
    train, val = (DataLoader(PairFolder(data, split), batch_size=2) for split in ("train", "val"))
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", default_root_dir=tmp_path, logger=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(task, train, val)
    assert [row["epoch"] for row in task.history] == [1]
    assert 0 <= float(trainer.callback_metrics["val_f1"]) <= 1
    assert list((tmp_path / "checkpoints").glob("*.ckpt"))

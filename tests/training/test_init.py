"""`train --init`: a run that starts from a trained model, and a checkpoint that remembers it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from adadino.checkpoint import load
from adadino.errors import ConfigError, WeightsError
from adadino.source import read_settings
from adadino.training.config import load_run
from adadino.training.run import RunResult, train
from tests.training.runs import SMALL, same

QUICK = [item for item in SMALL if not item.startswith(("preset=", "model."))]


def further(init: Path | str, data: Path, output: Path, *overrides: str) -> RunResult:
    given = [f"init={init}", f"data.root={data}", f"output={output}", *QUICK, *overrides]
    return train(load_run(None, given), quiet=True)


def test_it_starts_from_the_trained_tensors(trained, data, tmp_path):
    """With a learning rate of next to nothing, the result is what it started from."""
    best = trained.folder / "best"
    rate = ("train.lr=1e-12", "train.min_lr=0", "train.weight_decay=0", "train.epochs=1")
    result = further(best, data, tmp_path / "next", *rate)
    before, after = load(best).state_dict(), load(result.folder / "final").state_dict()
    moving = [name for name in before if "running" in name or "num_batches" in name]
    assert moving  # BatchNorm's statistics go on
    for name in before.keys() - moving:
        assert torch.allclose(before[name], after[name], atol=1e-6), name


def test_it_goes_on_learning_where_the_other_run_stopped(trained, data, tmp_path):
    result = further(trained.folder / "final", data, tmp_path / "next", "train.epochs=1")
    assert result.history[0]["loss_total"] < 0.9 * trained.history[0]["loss_total"]


def test_a_checkpoint_remembers_its_ancestors(trained, data, tmp_path):
    first, one = trained.folder / "best", ("train.epochs=1",)
    second = further(first, data, tmp_path / "second", *one).folder / "best"
    third = further(second, data, tmp_path / "third", *one).folder
    digests = [
        hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:16]
        for folder in (first, second)
    ]
    for saved in ("best", "final"):
        said = read_settings(third / saved)["ancestors"]
        assert [one["model"] for one in said] == [str(first), str(second)]
        assert [one["digest"] for one in said] == [f"sha256:{digest}" for digest in digests]
        assert said[0]["validation"]["f1"] == pytest.approx(trained.best_f1)
    assert load(third / "best").ancestors == tuple(said)
    assert f"{second} (`sha256:{digests[1]}`)" in (third / "card.md").read_text()
    assert "ancestors" not in json.loads((first / "config.json").read_text())


def test_an_interrupted_run_goes_on_to_the_same_bits(trained, data, tmp_path, monkeypatch):
    from adadino.training.callbacks import Keeper

    best = trained.folder / "best"
    whole = further(best, data, tmp_path / "whole", "train.epochs=2")
    keep = Keeper.on_train_epoch_end

    def killed(self, trainer, task):
        keep(self, trainer, task)
        raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "on_train_epoch_end", killed)
    with pytest.raises(KeyboardInterrupt):
        further(best, data, tmp_path / "killed", "train.epochs=2")
    monkeypatch.undo()
    resumed = further(best, data, tmp_path / "killed", "train.epochs=2")
    assert resumed.resumed
    ends = (load(r.folder / "final").state_dict() for r in (whole, resumed))
    assert same(*ends)


def test_the_model_is_the_checkpoints_and_settings_without_tensors_may_change(trained):
    best = trained.folder / "best"
    run = load_run(None, [f"init={best}", "model.bscs.k=2"])
    assert run.model.backbone.dim == 32
    assert run.model.bscs.k == 2
    own = read_settings(best)["model"]
    assert run.model.bscs.chunks == own["bscs"]["chunks"]


def test_a_recipe_gives_its_training_and_not_its_model(trained, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("preset: vitl16\nmodel: {bscs: {k: 16}}\ntrain: {epochs: 7}\n")
    run = load_run(recipe, [f"init={trained.folder / 'best'}"])
    assert (run.train.epochs, run.preset, run.model.bscs.k) == (7, "tiny", 3)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("preset=vits16", "--preset has no effect with --init"),
        ("model.peer=fc-ef", "is AdaDINO: leave --model out"),
    ],
)
def test_what_contradicts_the_trained_model_is_refused(trained, override, said):
    with pytest.raises(ConfigError, match=said):
        load_run(None, [f"init={trained.folder / 'best'}", override])


def test_a_setting_that_changes_a_tensor_is_refused_by_the_tensors_name(trained, data, tmp_path):
    with pytest.raises(ConfigError, match=r"has .* the settings of this run need"):
        further(trained.folder / "best", data, tmp_path / "wide", "model.cpgr.width=32")
    assert not (tmp_path / "wide").exists()


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WeightsError, match="there is no checkpoint"):
        load_run(None, [f"init={tmp_path / 'nowhere'}"])


def test_a_peer_starts_from_a_peer(data, tmp_path):
    one = ("train.epochs=1",)
    quick = [f"data.root={data}", f"output={tmp_path / 'first'}", "model.peer=fc-ef", *QUICK, *one]
    first = train(load_run(None, quick), quiet=True)
    second = further(first.folder / "best", data, tmp_path / "second", *one)
    assert load(second.folder / "best").config.peer == "fc-ef"
    assert load(second.folder / "best").ancestors[0]["model"] == str(first.folder / "best")

"""More devices, other devices: what an update sees stays the same, and so do the scores."""

from __future__ import annotations

import json
import warnings

import pytest
import torch

from adadino.checkpoint import load
from adadino.data.folder import PairFolder
from adadino.errors import ConfigError, TrainingError
from adadino.evaluation import Protocol, evaluate
from adadino.source import read_settings
from adadino.training import step
from adadino.training.folder import same_update
from adadino.training.step import choose_strategy
from tests.training.runs import command, config, finish, last, run

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


@pytest.fixture
def named(data, tmp_path):
    """The setting that names a backbone on disk."""
    from safetensors.torch import save_file

    from adadino.model.adadino import AdaDINO

    torch.manual_seed(5)
    path = tmp_path / "lvd1689m.safetensors"
    save_file(AdaDINO(config(data, tmp_path).model).encoder.backbone.state_dict(), path)
    return f"model.backbone.weights={path}"


@pytest.mark.slow
def test_a_run_goes_on_with_two_processes_that_share_the_backbone(
    data, tmp_path, named, monkeypatch
):
    settings = (named, "model.bscs.k=8", "train.epochs=2", "train.batch=2", "train.accumulate=2")
    folder = tmp_path / "run"
    original = step.loss_terms

    def stop(*arguments, **options):
        if (folder / "last.ckpt").exists():
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(step, "loss_terms", stop)
    with pytest.raises(KeyboardInterrupt):
        run(data, folder, *settings)
    assert len(last(folder)["history"]) == 1

    two = ("train.devices=2", "train.strategy=fsdp")
    end = finish([*command(data, folder, *settings, *two), "--json"])
    assert end.returncode == 0, end.stderr
    said = json.loads(end.stdout)
    assert (said["resumed"], said["epochs"]) == (True, 2)
    assert end.stderr.count("goes on with 2 devices: it accumulates 1 steps instead of 2") == 1
    # Nine pairs: 4 steps of 2 on one process, 2 on each of two; always two updates an epoch.
    assert last(folder)["global_step"] == 4
    # One rank has three tiles to validate, one two; together they score as one process.
    best = said["history"][read_settings(folder / "best")["epoch"] - 1]
    alone = evaluate(load(folder / "best"), PairFolder(data, "val"), Protocol(batch=5))
    counts = ("tp", "fp", "fn", "tn")
    assert [best[name] for name in counts] == [alone.confusion.as_dict()[name] for name in counts]
    assert not [name for name in last(folder)["state_dict"] if "backbone" in name]


def test_another_number_of_devices_accumulates_to_the_same_update(data, tmp_path):
    from adadino import schema

    begun = config(data, tmp_path, "train.devices=2", "train.accumulate=3")
    (tmp_path / "config.yaml").write_text(schema.write_yaml(begun))

    def now(*overrides):
        return same_update(tmp_path, config(data, tmp_path, "train.accumulate=3", *overrides))

    # Of a run that has finished nothing there is no update to be the same as.
    assert now("train.devices=1").train.accumulate == 3
    (tmp_path / "last.ckpt").touch()
    assert now("train.devices=1").train.accumulate == 6
    assert now("train.devices=3", "train.nodes=2").train.accumulate == 1
    assert now("train.devices=2").train.accumulate == 3
    given = config(data, tmp_path, "train.devices=3", "train.accumulate=2")
    assert same_update(tmp_path, given) == given  # who does the sum himself may
    with pytest.raises(TrainingError, match=r"12 pairs per update, .* with 1, 2, 3, 6 devices"):
        now("train.devices=4")
    with pytest.raises(TrainingError, match=r"another train.accumulate \(3, not 2\)"):
        now("train.devices=2", "train.accumulate=2")


def test_only_a_named_frozen_backbone_is_shared(data, tmp_path, named):
    fsdp = ("train.strategy=fsdp", "train.devices=2")
    for wrong in ((), (named, "model.backbone.trainable=true")):
        with pytest.raises(ConfigError, match=r"shards a frozen backbone .*train.strategy=ddp"):
            choose_strategy(config(data, tmp_path, *fsdp, *wrong))
    with pytest.raises(ConfigError, match="there is one"):
        choose_strategy(config(data, tmp_path, named, "train.strategy=fsdp"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_strategy(config(data, tmp_path)) == "auto"


@pytest.mark.slow
def test_two_processes_score_as_one(data, tmp_path):
    # A batch chooses its chunks together, so the ranks must score the batches of one process.
    # Five tiles: one rank has three, one two.
    two = ("train.devices=2", "train.epochs=2", "train.batch=2", "train.bscs_warmup=0")
    end = finish([*command(data, tmp_path, *two), "--json"])
    assert end.returncode == 0, end.stderr
    said = json.loads(end.stdout)  # one object, although two processes ran
    assert "warning" not in end.stderr.replace("adadino: warning: the frozen", "").lower()
    best = said["history"][read_settings(tmp_path / "best")["epoch"] - 1]
    alone = evaluate(load(tmp_path / "best"), PairFolder(data, "val"), Protocol(batch=2))
    counts = ("tp", "fp", "fn", "tn")
    assert [best[name] for name in counts] == [alone.confusion.as_dict()[name] for name in counts]
    assert sum(best[name] for name in counts) == 5 * 32 * 32
    # 9 pairs: 2 batches of 2 on each of two ranks, one update an epoch.
    assert last(tmp_path)["global_step"] == 2

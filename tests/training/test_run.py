"""A run's folder, its end, and every way in which it may end early."""

from __future__ import annotations

import csv
import errno
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from adadino import pictures
from adadino.data.folder import PairFolder, fingerprint
from adadino.errors import AdaDINOError, ConfigError, EmptyWarning, TrainingError
from adadino.evaluation import Protocol, evaluate
from adadino.files import locked
from adadino.model.checkpoint import load, read_settings
from adadino.training import callbacks, graph
from tests.disks import fill, small_disk
from tests.training.runs import command, config, finish, last, run, same, start

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# What a finished run leaves


def test_the_folder_holds_what_a_figure_depends_on(trained, data):
    folder = trained.folder
    names = {path.name for path in folder.iterdir()} - {".lock"}
    assert names == {
        "config.yaml", "environment.json", "history.csv", "curves.png", "pictures", "last.ckpt",
        "best", "final", "card.md",
    }  # fmt: skip
    said = json.loads((folder / "environment.json").read_text())
    for split, count in (("train", 9), ("val", 5)):
        pairs = PairFolder(data, split).pairs
        expected = {"pairs": count, "tiles": count, "fingerprint": fingerprint(pairs)}
        assert said["data"][split] == expected
    assert said["versions"]["torch"] == torch.__version__
    with Image.open(folder / "curves.png") as picture:
        assert min(picture.size) > 300


def test_the_history_is_the_result_s(trained):
    with (trained.folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4]
    for row, ours in zip(rows, trained.history, strict=True):
        assert {name: float(value) for name, value in row.items()} == ours
        assert sum(ours[name] for name in ("tp", "fp", "fn", "tn")) == 5 * 32 * 32


def test_best_is_chosen_by_validation_f1_and_scores_as_it_said(trained, data):
    scores = [row["f1"] for row in trained.history]
    best = int(np.argmax(scores))  # the first of equals
    said = read_settings(trained.folder / "best")
    assert said["epoch"] == best + 1
    assert said["validation"]["f1"] == scores[best] == trained.best_f1
    model = load(trained.folder / "best")
    again = evaluate(model, PairFolder(data, "val"), Protocol(batch=2))
    row = trained.history[best]
    assert again.confusion.as_dict() == {name: row[name] for name in again.confusion.as_dict()}


def test_a_named_backbone_is_not_copied(data, tmp_path):
    from safetensors.torch import load_file, save_file

    from adadino.model.adadino import AdaDINO

    small = config(data, tmp_path / "run", "train.epochs=2")
    torch.manual_seed(5)
    weights = AdaDINO(small.model).encoder.backbone.state_dict()
    save_file(weights, tmp_path / "backbone.safetensors")
    named = f"model.backbone.weights={tmp_path / 'backbone.safetensors'}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file does not say how it was normalised
        result = run(data, tmp_path / "run", "train.epochs=2", named)
    for names in (
        last(result.folder)["state_dict"],
        load_file(result.folder / "best" / "model.safetensors"),
    ):
        assert names
        assert not [name for name in names if "encoder.backbone." in name]
    model = load(result.folder / "best")
    assert same(model.encoder.backbone.state_dict(), weights)


def test_pictures_have_the_paper_s_colours(trained, data):
    prediction = np.array([[True, True], [False, False]])
    truth = np.array([[True, False], [True, False]])
    white, red, green, black = pictures.error_map(prediction, truth).reshape(4, 3).tolist()
    assert (white, black) == ([255, 255, 255], [0, 0, 0])
    assert red[0] > 200 > 100 > max(red[1:])
    assert green[1] > 150 > 100 > max(green[0], green[2])
    shown = sorted(path.name for path in (trained.folder / "pictures").iterdir())
    assert shown == [f"epoch-{epoch:03d}.png" for epoch in (1, 2, 3, 4)]
    with Image.open(trained.folder / "pictures" / shown[0]) as picture:
        sheet = np.asarray(picture)
    assert sheet.shape == (5 * 36 + 4, 4 * 36 + 4, 3)
    errors = sheet[4:36, 3 * 36 + 4 : 4 * 36]  # the first pair's last panel
    colours = {tuple(colour) for colour in errors.reshape(-1, 3).tolist()}
    assert colours <= set(pictures.COLOURS.values())
    with_change = {pictures.COLOURS["TP"], pictures.COLOURS["FN"]}
    mask = PairFolder(data, "val")[0][2].numpy().astype(bool)
    assert {tuple(c) for c in errors[mask].tolist()} <= with_change


def test_the_card_holds_measured_figures(trained):
    card = (trained.folder / "card.md").read_text()
    best = max(trained.history, key=lambda row: row["f1"])
    for name in ("f1", "iou", "precision", "recall", "oa", "kappa"):
        assert f"{100 * best[name]:.2f}" in card
    assert fingerprint(PairFolder(config_root(trained), "val").pairs) in card
    assert max(len(line) for line in card.splitlines()) < 200


def config_root(result):
    from adadino import schema

    return schema.read_yaml(result.folder / "config.yaml")["data"]["root"]


# The same folder again


def test_a_finished_run_is_not_trained_again(data, tmp_path):
    first = run(data, tmp_path, "train.epochs=1")
    weights = last(tmp_path)["state_dict"]
    again = run(data, tmp_path, "train.epochs=1")
    assert (again.resumed, again.history) == (True, first.history)
    assert same(weights, last(tmp_path)["state_dict"])


def test_another_configuration_is_refused_by_its_first_difference(trained, data):
    before = tree(trained.folder)
    with pytest.raises(TrainingError, match=r"another train.lr \(0.005, not 0.001\); give another"):
        run(data, trained.folder, "train.lr=1e-3", "train.seed=3")
    assert tree(trained.folder) == before


def test_overwriting_leaves_nothing_of_the_former_run(data, tmp_path):
    run(data, tmp_path, "train.epochs=2")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".last.0badc0de.part.ckpt").write_text("left by a killed process")
    result = run(data, tmp_path, "train.epochs=1", "train.seed=1", overwrite=True)
    assert (result.resumed, len(result.history)) == (False, 1)
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["epoch-001.png"]
    assert read_settings(tmp_path / "best")["epoch"] == 1
    assert (tmp_path / "notes.txt").exists()
    assert not list(tmp_path.rglob(".*.part*"))


def test_a_run_does_not_go_on_with_other_data(data, tmp_path):
    import shutil

    copy = shutil.copytree(data, tmp_path / "data")
    run(copy, tmp_path / "run", "train.epochs=1")
    mask = next((copy / "val" / "label").iterdir())
    Image.fromarray(np.full((32, 32), 255, np.uint8)).save(mask)
    with pytest.raises(TrainingError, match="val split is not the one this run was begun on"):
        run(copy, tmp_path / "run", "train.epochs=1")
    # The same data elsewhere is the same data.
    assert run(data, tmp_path / "run", "train.epochs=1").resumed


def test_a_folder_in_use_is_refused(data, tmp_path):
    with locked(tmp_path, "training run"), pytest.raises(AdaDINOError, match="another process"):
        run(data, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_reading_processes_do_not_inherit_the_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    reading = context.Event()

    def read():
        reading.set()
        time.sleep(30)

    reader = context.Process(target=read)
    with locked(tmp_path, "training run"):
        reader.start()
        assert reading.wait(20)
    try:
        with locked(tmp_path, "training run"):  # as after a kill: the reader lives, its parent not
            assert reader.is_alive()
    finally:
        reader.kill()
        reader.join()


# Ending early: the last good checkpoint survives and the same command goes on


def expect_one_epoch(folder):
    state = last(folder)
    assert len(state["history"]) == 1
    assert all(tensor.isfinite().all() for tensor in state["state_dict"].values())
    assert load(folder / "best")
    assert not list(folder.rglob(".*.part*"))


def after_one_epoch(monkeypatch, owner, name, fault):
    """Let `fault(original, *args)` take the place of a function once the first epoch is over."""
    original, folder = getattr(owner, name), []

    def replaced(*args, **rest):
        if folder and (folder[0] / "last.ckpt").exists():
            return fault(original, *args, **rest)
        return original(*args, **rest)

    monkeypatch.setattr(owner, name, replaced)
    return folder.append


def raising(error):
    def fault(*_, **__):
        raise error

    return fault


def nan_loss(original, *args, **rest):
    return type(original(*args, **rest))(*(p * float("nan") for p in original(*args, **rest)))


def nan_gradient(original, logits, *args, **rest):
    parts = original(logits, *args, **rest)
    return parts._replace(focal=parts.focal + (logits.sum() * 0).sqrt())  # value 0, slope NaN


@pytest.mark.parametrize("fault", [nan_loss, nan_gradient])
def test_a_loss_that_is_no_number_never_reaches_a_checkpoint(data, tmp_path, monkeypatch, fault):
    after_one_epoch(monkeypatch, graph, "total_loss", fault)(tmp_path)
    with pytest.raises(TrainingError, match=r"infinite in epoch 2.*is untouched. Lower train.lr"):
        run(data, tmp_path)
    expect_one_epoch(tmp_path)


def test_out_of_memory_says_what_to_lower(data, tmp_path, monkeypatch):
    error = torch.OutOfMemoryError("CUDA out of memory")
    after_one_epoch(monkeypatch, graph, "total_loss", raising(error))(tmp_path)
    with pytest.raises(TrainingError, match=r"train.batch=2; halve it and double train.accumulate"):
        run(data, tmp_path)
    expect_one_epoch(tmp_path)


def test_a_full_disk_says_so_and_spares_the_checkpoint(data, tmp_path, monkeypatch, trained):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    after_one_epoch(monkeypatch, callbacks.pictures, "curves", raising(full))(tmp_path)
    with pytest.raises(TrainingError, match=r"No space left .*Finished epochs are safe in"):
        run(data, tmp_path)
    expect_one_epoch(tmp_path)
    monkeypatch.undo()
    assert run(data, tmp_path).resumed
    assert same(last(tmp_path)["state_dict"], last(trained.folder)["state_dict"])


def test_a_disk_that_is_really_full_spares_the_checkpoint(data, tmp_path, monkeypatch, trained):
    with small_disk(tmp_path / "disk", 32 * 2**20) as disk:
        folder = disk / "run"

        def filled(original, *args, **rest):
            if not (disk / "ballast").exists():
                fill(disk, leave=100_000)
            return original(*args, **rest)

        after_one_epoch(monkeypatch, torch, "save", filled)(folder)
        with pytest.raises(TrainingError, match=r"cannot write .*Make room") as caught:
            run(data, folder)
        assert "\n" not in str(caught.value)
        expect_one_epoch(folder)
        monkeypatch.undo()
        (disk / "ballast").unlink()
        assert run(data, folder).resumed
        assert same(last(folder)["state_dict"], last(trained.folder)["state_dict"])


def test_a_checkpoint_cut_short_by_the_system_leaves_the_former_one(data, tmp_path, monkeypatch):
    # A limit on the size of files stops torch's own writer where a full disk would.
    def limited(original, *args, **rest):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            return original(*args, **rest)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    after_one_epoch(monkeypatch, torch, "save", limited)(tmp_path)
    with pytest.raises(TrainingError, match=r"cannot write .*last.ckpt.*Make room") as caught:
        run(data, tmp_path)
    assert "\n" not in str(caught.value)
    expect_one_epoch(tmp_path)


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    run(data, tmp_path, "train.epochs=1")
    path = tmp_path / "last.ckpt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TrainingError, match=r"cannot read .*last.ckpt.*--overwrite"):
        run(data, tmp_path, "train.epochs=1")


KILLED_WHILE_SAVING = """
import io, os, signal, torch
saved = 0
def save(state, path, original=torch.save):
    global saved
    saved += 1
    if saved < 2:
        return original(state, path)
    whole = io.BytesIO()
    original(state, whole)
    path.write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
torch.save = save
from adadino.cli.app import main
main()
"""


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_as_if_it_never_was(data, tmp_path, trained):
    # Reading processes are on: they must neither hold the lock nor read ahead in a wrong order.
    again = command(data, tmp_path, "data.workers=2")

    # Killed in the middle of its second checkpoint.
    process = start([sys.executable, "-c", KILLED_WHILE_SAVING, *again[3:]])
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert len(last(tmp_path)["history"]) == 1
    assert list(tmp_path.glob(".last.*.part.ckpt"))

    # Killed some time after the second epoch.
    process = start(again)
    for line in process.stderr:
        if line.startswith("epoch 2/4"):
            break
    time.sleep(random.random() * 0.3)
    process.kill()
    process.communicate()
    assert len(last(tmp_path)["history"]) >= 2

    # Ctrl-C, which a terminal sends to the whole group.
    process = start(again)
    for line in process.stderr:
        if line.startswith("epoch 3/4"):
            break
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode:  # else it was over already
        assert process.returncode == 130
        spoken = [line for line in errors.splitlines() if not line.startswith("epoch")]
        assert len(spoken) == 1
        assert spoken[0].startswith("adadino: interrupted; nothing is half-written")

    end = finish([*again, "--json"])
    assert end.returncode == 0
    said = json.loads(end.stdout)
    assert (said["resumed"], said["history"]) == (True, trained.history)
    assert same(last(tmp_path)["state_dict"], last(trained.folder)["state_dict"])
    for name in ("history.csv", "best/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (trained.folder / name).read_bytes()
    assert not list(tmp_path.rglob(".*.part*"))


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


def test_a_checkpoint_without_its_settings_is_not_gone_on_with(data, tmp_path):
    run(data, tmp_path, "train.epochs=1")
    (tmp_path / "config.yaml").unlink()
    before = (tmp_path / "last.ckpt").read_bytes()
    with pytest.raises(TrainingError, match=r"holds last.ckpt, but config.yaml is gone"):
        run(data, tmp_path, "train.epochs=2", "train.seed=7")
    assert (tmp_path / "last.ckpt").read_bytes() == before
    result = run(data, tmp_path, "train.epochs=1", "train.seed=7", overwrite=True)
    assert (result.resumed, result.epochs) == (False, 1)


def test_masks_without_any_change_are_said(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    for mask in (copy / "val" / "label").iterdir():
        Image.new("L", (32, 32)).save(mask)
    with pytest.warns(EmptyWarning, match="no pixel of .*validation split changed") as said:
        run(copy, tmp_path / "run", "train.epochs=2")
    assert len([one for one in said if one.category is EmptyWarning]) == 1


def test_no_checkpoint_is_promised_that_is_not_there(data, tmp_path):
    with pytest.raises(TrainingError) as error:
        run(data, tmp_path, "train.lr=1e30", "train.epochs=2")
    assert "in epoch 1. Lower train.lr" in str(error.value)


def test_more_processes_than_validation_tiles_are_refused(tmp_path):
    from adadino.training.data import PairData
    from tests.training.runs import dataset

    data = dataset(tmp_path / "data", train=2, val=1)
    settings = config(data, tmp_path / "run", "train.devices=2")
    loaders = PairData({"val": PairFolder(data, "val")}, settings)
    loaders.trainer = type("Trainer", (), {"global_rank": 1, "world_size": 2})()
    with pytest.raises(TrainingError, match=r"1 validation tile\(s\) make too few batches of"):
        loaders.val_dataloader()


def test_validation_every_second_epoch_leaves_rows_and_checkpoints_there(data, tmp_path):
    whole = run(data, tmp_path / "every", "train.epochs=4")
    result = run(data, tmp_path / "second", "train.epochs=4", "train.validate_every=2")
    assert [row["epoch"] for row in result.history] == [2, 4]
    assert result.epochs == 4
    # What is learned does not depend on how often it is looked at.
    for name in ("f1", "loss_total"):
        assert [r[name] for r in result.history] == [r[name] for r in whole.history[1::2]]
    with pytest.raises(ConfigError, match=r"validate_every is 3, must divide train.epochs = 4"):
        run(data, tmp_path / "third", "train.epochs=4", "train.validate_every=3")


def test_the_final_weights_are_the_last_epoch_s(trained):
    state = last(trained.folder)["state_dict"]
    final = load(trained.folder / "final")
    assert read_settings(trained.folder / "final")["epoch"] == trained.epochs
    learned = {n: t for n, t in final.state_dict().items() if f"model.{n}" in state}
    assert len(learned) == len(state)
    for name, tensor in learned.items():
        assert torch.equal(tensor, state[f"model.{name}"]), name

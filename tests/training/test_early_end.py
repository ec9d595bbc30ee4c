"""Every way in which a run may end early: what is good survives, the same command goes on."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import sys
import time

import pytest
import torch

from adadino.checkpoint import load
from adadino.errors import TrainingError
from adadino.training import callbacks, step
from adadino.training.config import load_run
from adadino.training.run import train
from tests.disks import fill, small_disk
from tests.training.runs import command, finish, last, run, same, start

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


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
    return tuple(term * float("nan") for term in original(*args, **rest))


def nan_gradient(original, logits, *args, **rest):
    focal, *others = original(logits, *args, **rest)
    return focal + (logits.sum() * 0).sqrt(), *others  # value 0, slope NaN


@pytest.mark.parametrize("fault", [nan_loss, nan_gradient])
def test_a_loss_that_is_no_number_never_reaches_a_checkpoint(data, tmp_path, monkeypatch, fault):
    after_one_epoch(monkeypatch, step, "loss_terms", fault)(tmp_path)
    with pytest.raises(TrainingError, match=r"infinite in epoch 2.*is untouched. Lower train.lr"):
        run(data, tmp_path)
    expect_one_epoch(tmp_path)


def test_out_of_memory_says_what_to_lower(data, tmp_path, monkeypatch):
    error = torch.OutOfMemoryError("CUDA out of memory")
    after_one_epoch(monkeypatch, step, "loss_terms", raising(error))(tmp_path)
    with pytest.raises(TrainingError, match=r"train.batch=2; halve it and double train.accumulate"):
        run(data, tmp_path)
    expect_one_epoch(tmp_path)


@pytest.mark.slow
def test_a_full_disk_says_so_and_spares_the_checkpoint(data, tmp_path, monkeypatch, trained):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    after_one_epoch(monkeypatch, callbacks.pictures, "training_curves", raising(full))(tmp_path)
    with pytest.raises(TrainingError, match=r"No space left .*Finished epochs are safe in"):
        run(data, tmp_path)
    expect_one_epoch(tmp_path)
    monkeypatch.undo()
    assert run(data, tmp_path).resumed
    assert same(last(tmp_path)["state_dict"], last(trained.folder)["state_dict"])


@pytest.mark.parametrize("peer", ["fc-ef", pytest.param("tinycd", marks=pytest.mark.slow)])
def test_dropout_goes_on_as_if_it_had_never_stopped(data, tmp_path, monkeypatch, peer):
    recipe = ("model.peer=" + peer, "augment.size=32", "train.epochs=2", "train.batch=2")

    def trained(folder):
        train(load_run(None, [*recipe, f"data.root={data}", f"output={folder}"]), quiet=True)
        return last(folder)["state_dict"]

    whole = trained(tmp_path / "whole")
    after_one_epoch(monkeypatch, step, "loss_terms", raising(KeyboardInterrupt))(tmp_path / "cut")
    with pytest.raises((KeyboardInterrupt, TrainingError)):
        trained(tmp_path / "cut")
    monkeypatch.undo()
    torch.manual_seed(99)  # another process, another state
    assert same(trained(tmp_path / "cut"), whole)


@pytest.mark.slow
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

"""`adadino train`: what it prints, and how it ends."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest

from adadino.files import locked
from tests.training.runs import SMALL, command, dataset, finish

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")

OPTIONS = [f"--{item}" for item in SMALL]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), train=4, val=2)


@pytest.mark.slow
def test_off_a_terminal_it_prints_one_line_for_each_epoch(data, tmp_path):
    end = finish(command(data, tmp_path / "run", "train.epochs=2"))
    assert end.returncode == 0
    warning, *lines = end.stderr.splitlines()
    assert warning.startswith("adadino: warning: the frozen backbone is random: set model.backbone")
    assert len(lines) == 2  # nothing of Lightning's, nothing of torch's
    for number, line in enumerate(lines, start=1):
        assert re.fullmatch(
            rf"epoch {number}/2  loss [\d.]+  F1 [\d.]+  IoU [\d.]+  "
            r"[\d.]+ s/epoch  \d:\d\d:\d\d left",
            line,
        )
    assert lines[-1].endswith("0:00:00 left")
    assert "best validation F1" in end.stdout
    assert f"next: adadino evaluate {tmp_path / 'run' / 'best'}" in end.stdout


def test_json_is_one_object_and_resumes(adadino, data, tmp_path):
    arguments = ("train", "--data", data, "-o", tmp_path, *OPTIONS, "--train.epochs", 1, "--json")
    first, second = adadino(*arguments), adadino(*arguments)
    assert (first.code, second.code) == (0, 0)
    said, again = json.loads(first.out), json.loads(second.out)
    assert set(said) == {"folder", "epochs", "best_f1", "resumed", "history"}
    assert (said["resumed"], again["resumed"]) == (False, True)
    assert (said["epochs"], said["history"]) == (1, again["history"])


def test_a_file_and_overrides_on_top(adadino, data, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(f"data: {{root: {data}}}\ntrain: {{epochs: 9}}\n")
    said = adadino("train", "--config", path, "-o", tmp_path / "r", *OPTIONS, "--train.epochs=1")
    assert said.code == 0
    assert (tmp_path / "r" / "history.csv").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train.epoch", "3"], "unknown setting train.epoch; did you mean epochs?"),
        (["--config", "nowhere.yaml"], "cannot read nowhere.yaml: No such file"),
        (["--data", "nowhere"], "there is no folder nowhere/train/A"),
        ([], "data.root is not set"),
        (["--data.roam", "true"], "data.roam moves tiles, and there are none"),
    ],
)
def test_a_mistake_is_one_line(adadino, tmp_path, arguments, message):
    said = adadino("train", "-o", tmp_path / "run", *OPTIONS, *arguments)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"adadino: {message}")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stray"], "unexpected argument 'stray'"),
        (["--train.lr"], "--train.lr needs a value"),
        (["--train.compile", "--train.lr", "1"], "--train.compile needs a value"),
    ],
)
def test_arguments_that_are_no_overrides_are_refused(adadino, arguments, message):
    said = adadino("train", *arguments)
    assert said.code == 2
    assert message in " ".join(said.err.replace("│", " ").split())


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_a_missing_logger_is_named(adadino, data, tmp_path):
    said = adadino("train", "--data", data, "-o", tmp_path, *OPTIONS, "--train.wandb", "true")
    assert said.code == 1
    assert said.err == (
        "adadino: train.wandb needs wandb, which is not installed: pip install wandb\n"
    )


def test_wrong_weights_leave_no_run_behind(adadino, data, tmp_path):
    arguments = ("train", "--data", data, "-o", tmp_path / "run", *OPTIONS, "--train.epochs", 1)
    said = adadino(*arguments, "--model.backbone.weights", "nope.pth", "-q")
    assert (said.code, (tmp_path / "run" / "config.yaml").exists()) == (1, False)
    assert adadino(*arguments, "-q").code == 0


def test_a_command_that_failed_leaves_the_folder_free(adadino, data, tmp_path):
    arguments = ("train", "--data", data, "-o", tmp_path / "run", *OPTIONS, "-q")
    said = adadino(*arguments, "--train.batch", 64, "--train.accumulate", 1)
    assert said.code == 1
    assert "4 training tiles do not fill one batch of 64" in said.err
    said = adadino(*arguments, "--train.epochs", 1)
    assert said.code == 0, said.err


def test_a_preset_is_refused_for_a_peer_that_has_one_size(adadino, data, tmp_path):
    arguments = ("train", "--model", "fc-ef", "--data", data, "-o", tmp_path / "run", "-q")
    said = adadino(*arguments, "--preset", "vits16")
    assert (said.code, said.out) == (1, "")
    assert said.err == "adadino: --preset has no effect on fc-ef: leave it out.\n"
    assert not (tmp_path / "run").exists()
    # A recipe names its own model's preset, and trains a peer all the same.
    (tmp_path / "run.yaml").write_text("preset: tiny\naugment: {size: 32}\ndata: {workers: 0}\n")
    short = ("--train.epochs", 1, "--train.batch", 2)
    said = adadino(*arguments, "--config", tmp_path / "run.yaml", *short)
    assert said.code == 0, said.err


def test_names_are_taken_as_they_are(adadino, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a, b: c"
    place.symlink_to(data)
    said = adadino("train", "--data", place, "-o", "007", *OPTIONS, "--train.epochs", 1, "-q")
    assert said.code == 0, said.err
    assert (tmp_path / "007" / "final").is_dir()


def test_a_folder_that_is_no_runs_is_left_alone(adadino, data, tmp_path):
    theirs = [tmp_path / name for name in ("config.yaml", "pictures/wedding.jpg", ".a.part.tex")]
    (tmp_path / "pictures").mkdir()
    for path in theirs:
        path.write_text("mine: 1\n")
    said = adadino("train", "--data", data, "-o", tmp_path, *OPTIONS, "--overwrite", "-q")
    assert said.code == 1
    assert "config.yaml is not of a training run (unknown setting mine" in said.err
    assert all(path.read_text() == "mine: 1\n" for path in theirs)


def test_a_folder_in_use_and_a_folder_of_another_run(adadino, data, tmp_path):
    arguments = ("train", "--data", data, "-o", tmp_path, *OPTIONS, "--train.epochs", 1, "-q")
    with locked(tmp_path, "training run"):
        said = adadino(*arguments)
    assert said.code == 1
    assert said.err.startswith(f"adadino: another process holds the training run in {tmp_path}")
    assert adadino(*arguments).code == 0
    said = adadino(*arguments, "--train.seed", 5)
    assert said.code == 1
    assert "holds a run with another train.seed (0, not 5)" in said.err
    assert adadino(*arguments, "--train.seed", 5, "--overwrite").code == 0

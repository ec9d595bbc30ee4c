"""Training with classes: a head on a trained model, whose map of change keeps every bit."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch

from adadino.checkpoint import load
from adadino.cli.train import read_run
from adadino.config import ClassesConfig
from adadino.data.folder import PairFolder
from adadino.data.synthetic import CLASSES, write_dataset
from adadino.errors import ConfigError, DataError
from adadino.evaluation import Protocol, evaluate
from adadino.source import read_settings
from adadino.training.config import load_run
from adadino.training.run import train
from adadino.training.start import hold_all_but_classes, start_from
from adadino.training.step import StepLoss
from adadino.training.task import to_float
from tests.training.runs import SMALL, last, run, same

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")
NAMES = f"model.classes.names=[{', '.join(CLASSES.names)}]"
SHORT = [item for item in SMALL if not item.startswith(("preset=", "model.", "train.epochs"))]


@pytest.fixture(scope="session")
def semantic(tmp_path_factory):
    """Nine training pairs and five for validation, with the classes of both dates."""
    folder = tmp_path_factory.mktemp("semantic")
    write_dataset(folder, {"train": 9, "val": 5}, size=32, classes=True)
    return folder


def onto(init, data, output, *overrides):
    given = [f"init={init}", f"data.root={data}", f"output={output}", NAMES, *SHORT]
    return train(load_run(None, [*given, "train.epochs=2", *overrides]), quiet=True)


def images(seed: int = 0) -> list[torch.Tensor]:
    return [*torch.rand(2, 2, 3, 40, 40, generator=torch.Generator().manual_seed(seed))]


@pytest.fixture(scope="session")
def headed(trained, semantic, tmp_path_factory):
    """A head of classes trained on `trained`, which is held."""
    folder = tmp_path_factory.mktemp("headed")
    return onto(trained.folder / "best", semantic, folder, "train.part=classes")


def test_a_head_alone_leaves_the_change_to_the_bit(trained, headed):
    before, after = load(trained.folder / "best"), load(headed.folder / "final")
    tensors = after.state_dict()
    assert all(tensors[n].equal(t) for n, t in before.state_dict().items())  # BatchNorm's as well
    with torch.no_grad():
        one, other = before(*images()), after(*images())
    assert one.logits.equal(other.logits)
    assert other.classes.shape == (2, 2, 5, 40, 40)
    assert len({row["f1"] for row in headed.history}) == 1


def test_the_head_learns_a_batch_that_it_sees_again(headed, semantic):
    model = load(headed.folder / "best").train()
    hold_all_but_classes(model)
    pairs = PairFolder(semantic, "train", classes=CLASSES)
    before, after, labels = (torch.stack(part) for part in list(zip(*pairs, strict=True))[:3])
    step = StepLoss(model, k=None, dice="micro")
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), 1e-2)
    costs = []
    for _ in range(25):
        *_, cost = step(to_float(before), to_float(after), labels)
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        costs.append(float(cost.detach()))
    assert costs[-1] < 0.6 * costs[0]


def test_the_history_says_how_well_the_head_does(headed):
    assert all({"miou", "sek", "fscd"} <= row.keys() for row in headed.history)
    assert headed.best_f1 == max(row["fscd"] for row in headed.history)
    validation = read_settings(headed.folder / "best")["validation"]
    assert validation["fscd"] == headed.best_f1
    card = (headed.folder / "card.md").read_text()
    assert "Tells what changed into what: water, ground" in card
    assert "F_scd" in card


def test_the_history_is_what_evaluate_says(semantic, headed):
    pairs = PairFolder(semantic, "val", classes=CLASSES)
    scores = evaluate(load(headed.folder / "final"), pairs, Protocol(batch=2))
    for name in ("miou", "sek", "fscd"):
        assert getattr(scores.semantic, name) == pytest.approx(headed.history[-1][name], abs=1e-6)
    assert scores.as_dict()["semantic"] == scores.semantic.as_dict()


def test_swapped_dates_swap_the_truth_too(semantic, headed):
    pairs = PairFolder(semantic, "val", classes=CLASSES)
    model = load(headed.folder / "final")
    swapped = evaluate(model, pairs, Protocol(batch=2, swap=True)).semantic
    plain = evaluate(model, pairs, Protocol(batch=2)).semantic
    assert swapped.fscd == pytest.approx(plain.fscd, abs=0.15)
    coarse = Protocol(batch=2, disturbance="pixels twice as large")
    assert 0 <= evaluate(model, pairs, coarse).semantic.fscd <= 1


def test_names_and_colours_are_in_the_checkpoint(headed):
    classes = load(headed.folder / "best").config.classes
    assert classes.names == CLASSES.names
    assert len(classes.colours) == len(CLASSES.names)


@pytest.mark.slow
def test_a_whole_model_learns_both_at_once(semantic, tmp_path):
    result = run(semantic, tmp_path / "run", NAMES, "train.epochs=2", "train.precision=bf16")
    assert "fscd" in result.history[-1]


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(trained, semantic, headed, tmp_path):
    best = trained.folder / "best"
    onto(best, semantic, tmp_path, "train.part=classes", "train.epochs=1")
    with pytest.warns(match="extended from 1 to 2"):
        onto(best, semantic, tmp_path, "train.part=classes", "train.lr=5e-3")
    # Another schedule, so not the same tensors: but all that was held is.
    one, other = last(tmp_path)["state_dict"], last(headed.folder)["state_dict"]
    held = {n for n in one if not n.startswith("model.classes.")}
    assert same({n: one[n] for n in held}, {n: other[n] for n in held})


def test_the_command_reads_the_classes_of_the_data(semantic, trained, tmp_path):
    config = read_run(
        [], None, None, str(trained.folder / "best"), tmp_path, semantic, classes=True
    )
    assert config.model.classes == CLASSES
    with pytest.raises(ConfigError, match=r"--classes reads classes.json of the dataset"):
        read_run([], None, None, "tiny", tmp_path, None, classes=True)
    with pytest.raises(DataError, match="It names a set's classes"):
        read_run([], None, None, "tiny", tmp_path, tmp_path, classes=True)


def test_other_classes_than_a_trained_heads_are_refused(headed):
    best = headed.folder / "best"
    other = dataclasses.replace(load(best).config, classes=ClassesConfig(("a", "b")))
    with pytest.raises(ConfigError, match=r"tells water, ground, .*: leave the classes out"):
        start_from(str(best), other)


def test_data_whose_classes_the_model_does_not_know_is_refused(trained, semantic, tmp_path):
    with pytest.raises(DataError, match="classes that the model does not know: low vegetation"):
        onto(trained.folder / "best", semantic, tmp_path / "x",
             "model.classes.names=[water, ground, tree, building]")  # fmt: skip
    assert not (tmp_path / "x").exists()


def test_a_head_cannot_be_trained_alone_where_there_is_none(data, tmp_path):
    with pytest.raises(ConfigError, match=r"train.part=classes trains the head of the classes"):
        run(data, tmp_path / "x", "train.part=classes")
    assert not (tmp_path / "x").exists()


def test_a_model_with_classes_needs_labels_of_them(headed, data, tmp_path):
    with pytest.raises(DataError, match="a mask of change alone, and the model also learns"):
        onto(headed.folder / "best", data, tmp_path / "x")


@pytest.mark.slow
def test_folds_of_a_set_with_classes(semantic, trained, tmp_path):
    shutil.copytree(semantic, tmp_path / "set")
    result = onto(trained.folder / "best", tmp_path / "set", tmp_path / "run", "data.fold=1/2",
                  "train.epochs=1", "train.part=classes")  # fmt: skip
    assert "fscd" in result.history[-1]

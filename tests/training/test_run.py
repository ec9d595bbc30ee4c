"""A run's folder: what a finished run leaves, and what may go on in it."""

from __future__ import annotations

import csv
import json
import multiprocessing
import shutil
import time
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from adadino.checkpoint import load
from adadino.data.folder import PairFolder, fingerprint
from adadino.domain import Domain
from adadino.errors import (
    AdaDINOError,
    BackboneWarning,
    ConfigError,
    EmptyWarning,
    LeakageWarning,
    TrainingError,
)
from adadino.evaluation import Protocol, evaluate
from adadino.files import locked
from adadino.reporting import pictures
from adadino.source import read_settings
from adadino.training.config import load_run
from adadino.training.run import train
from tests.training.runs import config, last, run, same

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


def test_the_model_and_its_card_hold_what_it_was_trained_on(trained, data, tmp_path):
    assert load(trained.folder / "best").domain == Domain(None, {})  # nothing says it: nine tiles
    assert "Ground resolution: not known" in (trained.folder / "card.md").read_text()
    said = run(data, tmp_path / "run", "train.epochs=1", "data.resolution=[0.5, 2]")
    for name in ("best", "final"):
        assert load(said.folder / name).domain == Domain((0.5, 2.0), {})
        assert read_settings(said.folder / name)["domain"]["resolution_m"] == [0.5, 2.0]
    assert "Ground resolution: 0.5 to 2 m." in (said.folder / "card.md").read_text()
    # What the card says is not what is learned: a run may go on with a better word.
    assert run(data, tmp_path / "run", "train.epochs=1", "data.resolution=[0.5, 1]").resumed
    with pytest.raises(ConfigError, match=r"data.resolution is 2, 0.5; give the finest"):
        config(data, tmp_path / "run", "data.resolution=[2, 0.5]")


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


def test_a_command_that_failed_before_its_first_epoch_claims_nothing(data, tmp_path):
    with pytest.raises(TrainingError, match=r"9 training tiles do not fill one batch of 100"):
        run(data, tmp_path, "train.batch=100", "train.accumulate=1", "train.epochs=3")
    # As a run that is going on has left it: its lock keeps others out, whatever they ask for.
    claim = tree(tmp_path)
    with locked(tmp_path, "training run"), pytest.raises(AdaDINOError, match="another process"):
        run(data, tmp_path, "train.epochs=1")
    assert tree(tmp_path) == claim
    result = run(data, tmp_path, "train.epochs=1")
    assert (result.resumed, result.epochs) == (False, 1)
    with pytest.raises(TrainingError, match=r"another train.seed \(0, not 3\)"):
        run(data, tmp_path, "train.epochs=1", "train.seed=3")


def test_an_epoch_s_results_are_protected_without_their_checkpoint(data, tmp_path):
    run(data, tmp_path, "train.epochs=1")
    (tmp_path / "last.ckpt").unlink()  # it is large, and the run is over
    before = tree(tmp_path)
    with pytest.raises(TrainingError, match=r"another train.seed \(0, not 7\)"):
        run(data, tmp_path, "train.epochs=1", "train.seed=7")
    assert tree(tmp_path) == before


def test_settings_that_somebody_wrote_are_not_written_over(data, tmp_path):
    mine = "preset: tiny  # mine\ntrain: {epochs: 7}\n"
    (tmp_path / "config.yaml").write_text(mine)
    with pytest.raises(TrainingError, match=r"holds a run with another .*give another output"):
        run(data, tmp_path, "train.accumulate=2")
    assert (tmp_path / "config.yaml").read_text() == mine


def test_files_of_someone_else_are_not_written_over(data, tmp_path):
    (tmp_path / "history.csv").write_text("mine")
    with pytest.raises(TrainingError, match=r"holds history.csv, but no config.yaml"):
        run(data, tmp_path, "train.epochs=1")
    assert (tmp_path / "history.csv").read_text() == "mine"


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


def test_a_checkpoint_without_its_settings_is_not_gone_on_with(data, tmp_path):
    run(data, tmp_path, "train.epochs=1")
    (tmp_path / "config.yaml").unlink()
    before = (tmp_path / "last.ckpt").read_bytes()
    with pytest.raises(TrainingError, match=r"holds last.ckpt, but no config.yaml that says"):
        run(data, tmp_path, "train.epochs=2", "train.seed=7")
    assert (tmp_path / "last.ckpt").read_bytes() == before
    result = run(data, tmp_path, "train.epochs=1", "train.seed=7", overwrite=True)
    assert (result.resumed, result.epochs) == (False, 1)


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["lite-unet", "changedino"])
def test_a_random_trunk_is_said_with_the_way_out(data, tmp_path, peer):
    def begin(name, *more):
        base = ("preset=tiny", f"model.peer={peer}", f"data.root={data}", "data.workers=0")
        short = ("augment.size=32", "train.epochs=1", "train.batch=4", f"output={tmp_path / name}")
        train(load_run(None, [*base, *short, *more]), quiet=True)

    way_out = rf"trunk of {peer} is random.* --model.stream.weights imagenet"
    with pytest.warns(BackboneWarning, match=way_out):
        begin("random")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begin("pretrained", "model.stream.weights=imagenet")
    assert not [one for one in said if "trunk" in str(one.message)]


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


@pytest.mark.slow
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


def test_training_on_the_validation_pairs_draws_a_warning(data, tmp_path):
    for split in ("train", "val"):
        shutil.copytree(data / "train", tmp_path / "set" / split)
    with pytest.warns(LeakageWarning, match="train and val hold the same 9 pairs"):
        run(tmp_path / "set", tmp_path / "run", "train.epochs=1")

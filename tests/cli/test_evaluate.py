"""`adadino evaluate`: scores with their protocol, files by request."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil

import pytest

from adadino.checkpoint import save
from adadino.config import ClassesConfig
from adadino.data.disturb import DISTURBANCES
from adadino.data.folder import PairFolder, fingerprint
from adadino.data.synthetic import write_dataset
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL, randomise


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_dataset(folder, {"val": 3, "test": 2}, size=32)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return save(randomise(AdaDINO(SMALL), 0.5), folder, with_backbone=True)


def test_people_see_scores_protocol_counts_and_fingerprint(adadino, data, model):
    said = adadino("evaluate", model, "--data", data, "-q")
    assert (said.code, said.err) == (0, "")
    text = " ".join(said.out.split())
    for part in ("PRECISION", "RECALL", "F1", "IOU", "OA", "kappa", "2 tiles of 32 x 32 pixels"):
        assert part in text
    assert "batches of 16, pairs by name, k = 3, threshold 0.5" in text
    assert fingerprint(PairFolder(data, "test").pairs) in text


def test_what_is_no_checkpoint_is_told_by_its_kind(adadino, data, tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"graph")
    said = adadino("evaluate", tmp_path / "x.onnx", "--data", data)
    assert (said.code, said.out) == (1, "")
    assert "x.onnx is an exported model, and a checkpoint folder is needed" in said.err
    for command in (
        ("evaluate", "fc-ef", "--data", data),
        ("export", "fc-ef", "-o", tmp_path / "m.onnx"),
        ("predict", "a.tif", "b.tif", "-o", tmp_path / "c.tif", "--model", "fc-ef"),
    ):
        said = adadino(*command)
        assert (said.code, said.out) == (1, "")
        assert "fc-ef is a peer without trained weights; train it first" in said.err


def test_json_is_one_object(adadino, data, model):
    said = adadino("evaluate", model, "--data", data, "--split", "val", "--k", 8, "--json")
    scores = json.loads(said.out)
    keys = {"precision", "recall", "f1", "iou", "oa", "kappa", "pairs", "fingerprint", "protocol"}
    assert keys <= set(scores)
    assert (scores["pairs"], scores["protocol"]["k"]) == (3, 8)
    assert "best_threshold" not in scores


def test_a_threshold_is_offered_on_validation_only(adadino, data, model, tmp_path):
    arguments = ("evaluate", model, "--data", data, "-o", tmp_path, "--overwrite", "-q")
    on_test, on_val = adadino(*arguments), adadino(*arguments, "--split", "val")
    assert "choose it on the validation split, never on this one" in on_test.out
    assert "threshold of the highest F1 on this validation split" in on_val.out
    assert (tmp_path / "pr.png").stat().st_size > 1000
    with (tmp_path / "tiles.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3
    said = json.loads(adadino(*arguments, "--split", "val", "--json").out)
    again = adadino(*arguments, "--split", "val", "--json", "--threshold", said["best_threshold"])
    assert json.loads(again.out)["f1"] >= said["f1"]
    assert "best_threshold" not in json.loads(adadino(*arguments, "--json").out)
    kept = json.loads((tmp_path / "scores.json").read_text())
    assert (kept["split"], kept["pairs"], kept["protocol"]["threshold"]) == ("test", 2, 0.5)


def test_finished_scores_are_not_replaced_unasked(adadino, data, model, tmp_path):
    arguments = ("evaluate", model, "--data", data, "-o", tmp_path, "-q")
    assert adadino(*arguments).code == 0
    before = (tmp_path / "tiles.csv").read_bytes()
    said = adadino(*arguments, "--split", "val")
    assert (said.code, "scores.json exists; give another --output" in said.err) == (1, True)
    assert (tmp_path / "tiles.csv").read_bytes() == before


@pytest.mark.parametrize(("protocol", "rows"), [("batch-size", 4), ("ordering", 6), ("swap", 2)])
def test_the_protocols_of_app_b(adadino, data, model, protocol, rows):
    options = ["--protocol", protocol, "--threshold", 0.4, "--json"]
    if protocol != "batch-size":
        options += ["--batch", 2]
    said = json.loads(adadino("evaluate", model, "--data", data, *options).out)
    assert len(said["rows"]) == rows
    batches = [row["protocol"]["batch"] for row in said["rows"]]
    assert batches == ([1, 4, 8, 16] if protocol == "batch-size" else [2] * rows)
    assert {row["protocol"]["threshold"] for row in said["rows"]} == {0.4}
    assert said["f1"] == said["rows"][0]["f1"]


def test_robustness_is_a_table_with_the_loss_of_each_row(adadino, data, model, tmp_path):
    arguments = ("evaluate", model, "--data", data, "--robustness", "-q")
    said = adadino(*arguments, "-o", tmp_path)
    assert said.code == 0
    for name in DISTURBANCES:
        assert name in said.out
    kept = json.loads((tmp_path / "scores.json").read_text())
    assert [row["name"] for row in kept["rows"]] == ["as given", *DISTURBANCES]
    assert kept["f1"] == json.loads(adadino(*arguments[:-2], "--json").out)["f1"]


def test_tiles_and_folders_without_splits(adadino, data, model):
    arguments = ("evaluate", model, "--data", data / "val", "--split", "none", "--tile", 16)
    said = json.loads(adadino(*arguments, "--json").out)
    assert (said["pairs"], said["tile"]) == (12, "16 x 16")
    assert f"{data / 'val'}/none" not in "".join(adadino(*arguments, "-q").out.split("\n"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "train"], "there is no folder"),
        (["--k", 99], "k is 99, must be between 1 and 8"),
        (["--threshold", 2], "threshold is 2.0"),
        (["--device", "toaster"], "there is no device 'toaster' here"),
        (["--tile", 24], "tiles of 24 do not fill"),
        (["--batch", 2, "--protocol", "batch-size"], "--batch does not go with"),
        (["--robustness", "--protocol", "swap"], "--robustness does not go with --protocol"),
    ],
)
def test_a_mistake_is_one_line(adadino, data, model, arguments, message):
    said = adadino("evaluate", model, "--data", data, "-q", *arguments)
    assert (said.code, said.out) == (1, "")
    assert message in said.err
    assert said.err.startswith("adadino: ")
    assert said.err.count("\n") == 1


def test_a_model_that_is_not_there_is_named(adadino, data, tmp_path):
    said = adadino("evaluate", tmp_path / "none", "--data", data)
    assert said.code == 1
    assert f"there is no checkpoint {tmp_path / 'none'}" in said.err


def test_the_same_evaluation_twice_gives_the_same_bytes(adadino, data, model, tmp_path):
    said = []
    for name in ("one", "two"):
        done = adadino("evaluate", model, "--data", data, "-o", tmp_path / name, "--json", "-q")
        files = sorted((tmp_path / name).iterdir())
        said.append((done.code, done.out, {path.name: path.read_bytes() for path in files}))
    assert said[0] == said[1]
    assert (said[0][0], {"pr.png", "tiles.csv"} - set(said[0][2])) == (0, set())


@pytest.mark.filterwarnings("always::adadino.errors.LeakageWarning")
def test_a_split_that_is_a_copy_of_another_draws_a_warning(adadino, data, model, tmp_path):
    shutil.copytree(data / "test", tmp_path / "test")
    shutil.copytree(data / "test", tmp_path / "val")
    said = adadino("evaluate", model, "--data", tmp_path, "-q")
    assert said.code == 0
    assert "val and test hold the same 2 pairs" in said.err


def test_two_models_stand_side_by_side(adadino, model, data):
    """Each row is what the model scores alone; the difference is to the first."""
    alone = json.loads(adadino("evaluate", model, "--data", data, "--json").out)
    said = json.loads(adadino("evaluate", model, "tiny", "--data", data, "--json").out)
    assert [row["name"] for row in said["rows"]] == [str(model), "tiny"]
    assert said["rows"][0]["f1"] == said["f1"] == alone["f1"]
    assert said["rows"][1]["fingerprint"] == alone["fingerprint"]
    table = adadino("evaluate", model, "tiny", "--data", data, "-q").out
    assert "F1 - first" in table
    refused = adadino("evaluate", model, "tiny", "--data", data, "--protocol", "swap")
    assert (refused.code, refused.out) == (1, "")
    assert "--protocol and --output are for one model" in refused.err


def test_classes_are_scored_where_both_model_and_data_have_them(adadino, data, model, tmp_path):
    classes = ClassesConfig(("water", "ground", "low vegetation", "tree", "building"))
    config = dataclasses.replace(SMALL, classes=classes)
    told = save(randomise(AdaDINO(config), 0.5), tmp_path / "told", with_backbone=True)
    write_dataset(tmp_path / "set", {"test": 2}, size=32, classes=True)
    said = adadino("evaluate", told, model, "--data", tmp_path / "set", "-q")
    assert (said.code, said.err) == (0, "")
    for part in ("what changed into what", "mIoU", "SeK", "F_scd", "Score = 0.3 mIoU + 0.7 SeK"):
        assert part in said.out
    scores = json.loads(adadino("evaluate", told, "--data", tmp_path / "set", "--json").out)
    assert set(scores["semantic"]) == {"miou", "sek", "fscd", "score"}
    plain = json.loads(adadino("evaluate", told, "--data", data, "--json").out)
    assert "semantic" not in plain
    table = tmp_path / "set" / "classes.json"
    table.write_text(table.read_text().replace('"tree"', '"shrub"'))
    said = adadino("evaluate", told, "--data", tmp_path / "set")
    assert (said.code, said.out) == (1, "")
    assert "has classes that the model does not know: shrub; it knows water" in said.err

"""Every peer through the commands that AdaDINO goes through: train, evaluate, predict, info."""

from __future__ import annotations

import json

import numpy as np
import pytest
import rasterio
import torch
from safetensors.torch import load_file

import adadino as package
from adadino.checkpoint import save
from adadino.data.synthetic import write_dataset, write_geotiff_pair
from adadino.errors import ConfigError
from adadino.peers import PEERS, build_peer
from adadino.training.config import load_run
from tests.conftest import randomise
from tests.peers.formula import formula
from tests.peers.test_convert import FACTS

pytestmark = pytest.mark.filterwarnings("ignore::adadino.errors.BackboneWarning")

SMALL_BACKBONE = (
    *("--preset", "tiny", "--model.backbone.dim", 32, "--model.backbone.depth=4"),
    *("--model.backbone.heads", 2, "--model.backbone.ffn=64"),
)
QUICK = ("fc-ef", "tinycd", "peftcd")
"""From scratch, on a pretrained trunk, and on the backbone: one of each with every change."""
EVERY = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name, spec in PEERS.items()
    if spec.trained
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_dataset(folder, {"train": 4, "val": 2}, size=64)
    return folder


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    before, after, _ = write_geotiff_pair(tmp_path_factory.mktemp("dates"), 7, (64, 64))
    return before, after


@pytest.fixture
def train(adadino, data, tmp_path):
    def run(name, *more, output=tmp_path / "run"):
        settings = ["--augment.size", 64, "--data.workers", 0, "--train.batch", 2]
        settings += ["--train.accumulate", 1, "--train.epochs", 1]
        spec = PEERS.get(name)
        if spec is not None and spec.backbone:
            settings += SMALL_BACKBONE
            settings += ["--model.cpgr.width", 16] if spec.decoder else []
        return adadino("train", "--model", name, "--data", data, "-o", output, *settings, *more)

    return run


def pixels(path):
    with rasterio.open(path) as raster:
        return np.moveaxis(raster.read([1, 2, 3]), 0, -1)


@pytest.mark.parametrize("name", EVERY)
def test_a_peer_is_trained_scored_applied_and_described(
    adadino, train, data, dates, tmp_path, name
):
    said = train(name, "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["epochs"] == 1
    best = tmp_path / "run" / "best"
    assert json.loads((best / "config.json").read_text())["model"]["peer"] == name
    assert PEERS[name].title in (tmp_path / "run" / "card.md").read_text()
    model = package.load(best)
    assert type(model) is PEERS[name].builder

    said = adadino("evaluate", best, "--data", data, "--split", "val", "--json", "--device", "cpu")
    assert said.code == 0, said.err
    scores = json.loads(said.out)
    trained = json.loads((best / "config.json").read_text())["validation"]
    assert scores["f1"] == pytest.approx(trained["f1"], abs=1e-3)  # the same model as was kept

    mask, probability = tmp_path / "c.tif", tmp_path / "p.tif"
    options = ("-o", mask, "--probability", probability, "--model", best, "--tile", 64)
    said = adadino("predict", *dates, *options, "--overlap", 0, "--device", "cpu", "--json")
    assert said.code == 0, said.err
    with rasterio.open(probability) as raster:
        found = raster.read(1)
        tags = raster.tags()
    # One tile: the scene is what the model says of the two images.
    assert found == pytest.approx(model.predict(*map(pixels, dates)), abs=1e-3)
    assert tags["ADADINO_PEER"] == name
    assert ("ADADINO_BACKBONE" in tags) == PEERS[name].backbone
    assert "ADADINO_K" not in tags

    said = adadino("info", best, "--json")
    card = json.loads(said.out)
    assert card["params"]["total"] == sum(p.numel() for p in model.parameters())
    assert card["peer"]["name"] == name
    assert card["gflops"] > 0


def test_a_run_goes_on_also_from_the_settings_it_wrote(adadino, train, tmp_path):
    assert train("tome").code == 0
    kept = load_file(tmp_path / "run" / "final" / "model.safetensors")
    assert json.loads(train("tome", "--json").out)["resumed"]
    said = adadino("train", "--config", tmp_path / "run" / "config.yaml", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["resumed"]
    again = load_file(tmp_path / "run" / "final" / "model.safetensors")
    assert all(torch.equal(kept[key], again[key]) for key in kept)
    said = train("peftcd")
    assert said.code == 1
    assert "another model.peer ('tome', not 'peftcd')" in said.err


def test_half_precision_holds_the_frozen_backbone_only(train, tmp_path):
    assert train("changedino", "--train.precision", "bf16").code == 0
    held = load_file(tmp_path / "run" / "final" / "model.safetensors")
    kinds = {(name.startswith("backbone."), held[name].dtype) for name in held}
    assert {kind for of_backbone, kind in kinds if of_backbone} == {torch.bfloat16}
    assert {kind for of_backbone, kind in kinds if not of_backbone} == {torch.float32, torch.int64}


def test_a_peer_s_history_has_no_settings_of_adadino(train):
    said = json.loads(train("fc-ef", "--json").out)
    assert "k" not in said["history"][0]
    assert "lambda_cgla" not in said["history"][0]
    assert "lr" in said["history"][0]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fcef", [], "unknown peer 'fcef'; there are fc-ef, fc-siam-diff"),
        ("sam-distance", [], "sam-distance has nothing to train: adadino evaluate and predict"),
        ("faewnet", ["--model.stream.weights", "x.pt"], "there is no file x.pt; MobileSAM's"),
        ("unet", ["--model.bscs.k", 4], "model.bscs.k has no effect on unet: leave it out."),
        ("unet", ["--model.bscs.k", 6], "model.bscs.k has no effect on unet: leave it out."),
        ("unet", ["--model.backbone.weights", "x"], "model.backbone.weights has no effect on unet"),
        ("unet", ["--model.stream.weights", "x"], "model.stream.weights has no effect on unet"),
        ("peftcd", ["--model.cgla.mode", "blind"], "model.cgla.mode has no effect on peftcd"),
        ("peftcd", ["--model.stream.name", "lite0"], "model.stream.name has no effect on peftcd"),
        (
            "unet",
            ["--train.compile", "true"],
            "train.compile is for AdaDINO, not for unet; leave it out.",
        ),
        ("lite-unet", ["--augment.size", 80], "augment.size is 80, must be a multiple of the"),
        (
            "lite-unet",
            ["--train.momentum", 0.9],
            "train.momentum is 0.9, but adamw has betas of its own",
        ),
    ],
)
def test_what_a_peer_cannot_honour_is_one_line(train, tmp_path, name, arguments, message):
    said = train(name, *arguments)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"adadino: {message}")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["levir-cd", "clcd", "whu-cd", "sysu-cd", "levir-cd-plus"])
def test_a_benchmark_s_recipe_trains_a_peer(name):
    ours, path = load_run(f"configs/{name}.yaml"), f"configs/{name}.yaml"
    theirs = load_run(path, ["model.peer=fc-siam-diff"])
    assert theirs.train == ours.train
    assert theirs.model == load_run(None, ["model.peer=fc-siam-diff"]).model
    frozen = load_run(path, ["model.peer=peftcd", "model.backbone.weights=x.pth"])
    assert frozen.model.backbone.weights == "x.pth"


def test_a_recipe_of_a_peer_must_not_set_what_it_ignores(tmp_path):
    (tmp_path / "peer.yaml").write_text("model: {peer: fc-ef, bscs: {k: 16}}")
    with pytest.raises(ConfigError, match=r"model.bscs.k has no effect on fc-ef"):
        load_run(tmp_path / "peer.yaml")


def test_adadino_by_name_is_adadino(train, tmp_path):
    assert (
        train("adadino", *SMALL_BACKBONE, "--model.bscs.k=3", "--model.bscs.hidden", 16).code == 0
    )
    model = package.load(tmp_path / "run" / "best")
    assert isinstance(model, package.AdaDINO)
    assert model.config.bscs.k == 3  # `--model NAME` and `--model.bscs.k` side by side


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "momentum"), [("adamw", 0.0), ("adam", 0.0), ("sgd", 0.0), ("sgd", 0.9)]
)
def test_the_optimiser_is_the_one_asked_for(train, tmp_path, optimizer, momentum):
    more = ("--train.optimizer", optimizer, "--train.momentum", momentum)
    assert train("fc-ef", *more).code == 0
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["optimizer_states"][0]
    group = state["param_groups"][0]
    assert ("betas" in group) == optimizer.startswith("adam")
    assert group.get("decoupled_weight_decay", False) == (optimizer == "adamw")
    assert group.get("momentum", 0.0) == momentum


@pytest.mark.parametrize(
    ("name", "parameters", "published", "idle"),
    [
        ("fc-ef", 1_350_578, 1.35e6, 0),
        ("bit", 3_037_026, 3.55e6, 513_000),
        ("tinycd", 285_128, 0.285e6, 0),
        ("lite-unet", 4_083_010, None, 0),
    ],
)
def test_info_counts_by_component_beside_the_published(adadino, name, parameters, published, idle):
    card = json.loads(adadino("info", name, "--json").out)
    params = card["params"]
    parts = set(params) - {"total", "trainable", "frozen", "idle", "as_published"}
    assert sum(params[part] for part in parts) == params["total"] == params["trainable"]
    assert params["total"] == parameters
    assert (card["peer"]["published"], card["peer"]["idle"]) == (published, idle)
    assert card["backbone"] is card["k"] is card["taps"] is None
    assert card["next"].startswith(f"adadino train --model {name} --data DIR")


@pytest.mark.parametrize("name", [name for name, spec in PEERS.items() if spec.parameters])
def test_info_gives_the_count_that_was_published(adadino, name):
    small = ("--size", 32)  # parameters do not depend on it
    card = json.loads(adadino("info", name, *small, "--json").out)
    params, published = card["params"], PEERS[name].parameters
    assert params["as_published"] == params["total"] + params["idle"]
    digits = 3 if published < 1e6 else 2  # 0.285M, 1.35M: as papers print them
    printed = f"{published / 1e6:.{digits}f}"
    assert f"{params['as_published'] / 1e6:.{digits}f}" == printed
    lines = adadino("info", name, *small).out.splitlines()
    (line,) = (line for line in lines if "as published" in line)
    assert f"{params['as_published']:,}" in line
    assert f"{printed}M" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, spec in PEERS.items() if spec.trunk])
def test_what_info_says_next_starts_the_trunk_from_imagenet(adadino, name):
    for said in (
        json.loads(adadino("info", name, "--json").out)["next"],
        adadino("info", name).out,
    ):
        assert "--model.stream.weights imagenet" in said
        assert "pip install 'adadino[pretrain]'" in said
    assert "stream.weights" not in json.loads(adadino("info", "unet", "--json").out)["next"]


def test_info_says_the_published_recipe_and_the_command_that_follows_it(adadino):
    card = json.loads(adadino("info", "bit", "--json").out)
    recipe = {"optimizer": "sgd", "learning_rate": 0.01, "weight_decay": 5e-4, "momentum": 0.9}
    assert recipe.items() <= card["peer"]["recipe"].items()
    assert card["next"] == "adadino train --model bit --data DIR"  # which takes that recipe
    assert "published recipe: sgd, learning rate 0.01, weight decay 0.0005" in adadino(
        "info", "bit"
    ).out.replace("\n", " ")
    assert json.loads(adadino("info", "lite-unet", "--json").out)["peer"]["recipe"] is None
    card = json.loads(adadino("info", "faewnet", "--json").out)
    assert "--model.stream.weights mobile_sam.pt" in card["next"]
    card = json.loads(adadino("info", "sam-distance", "--json").out)
    assert card["params"]["trainable"] == 0
    assert card["next"].startswith("adadino convert sam-distance mobile_sam.pt -o DIR")


def test_info_of_a_peer_on_the_backbone_takes_a_preset(adadino):
    card = json.loads(adadino("info", "ttp", "--preset", "vits16", "--json").out)
    assert card["backbone"] == "vits16"
    assert card["params"]["frozen"] == card["params"]["backbone"] > 2e7
    assert card["next"].startswith("adadino train --model ttp --preset vits16")
    for arguments in (("unet", "--preset", "tiny"), ("ttp", "--k", 4)):
        said = adadino("info", *arguments)
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    people = adadino("info", "bit").out
    assert "3.55M" in people
    assert "513,000" in people
    assert "3,550,026" in people


def test_a_peer_that_is_not_trained_is_scored_and_applied(adadino, data, dates, tmp_path):
    model = save(randomise(build_peer("sam-distance"), 1.0), tmp_path / "sam")
    said = adadino("evaluate", model, "--data", data, "--split", "val", "--json", "--device", "cpu")
    assert said.code == 0, said.err
    assert json.loads(said.out)["pairs"] == 2
    mask, probability = tmp_path / "c.tif", tmp_path / "p.tif"
    options = ("-o", mask, "--probability", probability, "--model", model, "--tile", 64)
    said = adadino("predict", *dates, *options, "--overlap", 0, "--device", "cpu")
    assert said.code == 0, said.err
    with rasterio.open(probability) as raster:
        found = raster.read(1)
    assert found == pytest.approx(package.load(model).predict(*map(pixels, dates)), abs=1e-3)
    said = adadino("info", model, "--json")
    assert json.loads(said.out)["peer"]["name"] == "sam-distance"


def test_a_released_checkpoint_becomes_a_folder_that_every_command_takes(adadino, tmp_path):
    shapes = {n: tuple(s) for n, s in FACTS["fc-ef"]["tensors"].items()}
    torch.save({n: t.float() for n, t in formula(shapes).items()}, tmp_path / "theirs.pth")
    said = adadino("convert", "fc-ef", tmp_path / "theirs.pth", "-o", tmp_path / "ours")
    assert said.code == 0, said.err
    assert f"next: adadino evaluate {tmp_path / 'ours'}" in said.out
    card = json.loads(adadino("info", tmp_path / "ours", "--json").out)
    assert (card["peer"]["name"], card["trained"]) == ("fc-ef", True)
    again = adadino("convert", "fc-ef", tmp_path / "theirs.pth", "-o", tmp_path / "ours")
    assert (again.code, again.out) == (1, "")
    assert "exists; give another --output, or --overwrite" in again.err

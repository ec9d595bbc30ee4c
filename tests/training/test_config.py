"""A run's configuration: YAML, overrides, presets, and the recipes in configs/."""

from __future__ import annotations

from pathlib import Path

import pytest

from adadino.config import PRESETS
from adadino.errors import ConfigError
from adadino.peers import PEERS
from adadino.training.config import RunConfig, TrainConfig, load_run

CONFIGS = Path(__file__).parents[2] / "configs"
BENCHMARKS = ("sysu-cd", "whu-cd", "levir-cd", "levir-cd-plus", "clcd")


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("preset: tiny\nmodel:\n  bscs: {k: 4}\ntrain: {lr: 1e-3, epochs: 7}\n")
    return path


def test_overrides_lie_over_the_file_and_the_file_over_the_preset(yaml):
    config = load_run(yaml, ["train.epochs=9", "model.cpgr.prior=none"])
    assert (config.train.epochs, config.train.lr) == (9, 1e-3)
    assert (config.model.bscs.k, config.model.cpgr.prior) == (4, ())
    assert config.model.backbone == PRESETS["tiny"].backbone
    assert config.model.bscs.hidden == PRESETS["tiny"].bscs.hidden


def test_an_override_of_the_preset_changes_the_model_below(yaml):
    assert load_run(yaml, ["preset=vitb16"]).model.backbone.dim == 768


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr=0", r"train.lr is 0.0, must be above 0"),
        ("train.weight_decay=-1", r"train.weight_decay is -1.0, must be at least 0"),
        ("train.lambda_max=-5", "train.lambda_max is -5.0, must be at least 0"),
        ("train.bscs_warmup=-1", "train.bscs_warmup is -1, must be at least 0"),
        ("train.seed=-1", r"train.seed is -1, must be in 0\.\.4294967295"),
        ("train.seed=99999999999999", "train.seed is 99999999999999, must be in"),
        ("data.workers=-1", "data.workers is -1, must be at least 0"),
        ("data.tile=0", "data.tile is 0, must be at least 1 pixel"),
        ("augment.p=2", r"augment.p is 2.0, must be in 0\.\.1"),
        ("augment.jitter=3", "augment.jitter is 3.0"),
        ("augment.scale=[1,0.3]", "augment.scale is 1.0, 0.3; must be two numbers above 0 and at"),
        ("augment.ratio=[0,1]", "augment.ratio is 0.0, 1.0; must be two numbers above 0, the"),
        ("augment.size=-64", "augment.size is -64, must be at least 1 pixel"),
        ("train.epoch=3", "unknown setting train.epoch; did you mean epochs"),
        ("model.bscs.kk=3", "unknown setting model.bscs.kk; did you mean k"),
        ("modle.bscs.k=3", "unknown setting modle; did you mean model"),
        ("train.epochs=many", "train.epochs is 'many', must be int"),
        ("train.batch=0", "train.batch is 0, must be at least 1"),
        ("train.min_lr=1", "must lie between 0 and lr"),
        ("train.precision=bf61", "did you mean bf16"),
        ("preset=huge", "unknown preset 'huge'; there are tiny"),
        ("model=3", "model must be a mapping"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(override, message):
    with pytest.raises(ConfigError, match=message):
        load_run(None, [override])


def test_without_a_file_the_defaults_are_the_paper_s():
    assert load_run(None) == RunConfig()
    assert load_run(None).model == PRESETS["vitl16"]


def test_there_is_one_recipe_for_each_benchmark():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} >= set(BENCHMARKS)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_loads(path):
    assert isinstance(load_run(path), RunConfig)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_benchmarks_recipes_are_the_paper_s(name):
    config = load_run(CONFIGS / f"{name}.yaml")
    assert config.train == TrainConfig(
        epochs=100,
        batch=8,
        accumulate=2,
        lr=5e-4,
        weight_decay=5e-4,
        min_lr=1e-7,
        bscs_warmup=3,
        lambda_start=5,
        lambda_ramp=10,
        lambda_max=0.01,
        precision="32",
    )
    assert config.preset == "vitl16"
    assert (config.model.bscs.k, config.model.bscs.chunks) == (16, 16)
    assert config.augment == RunConfig().augment
    assert config.data.root == (f"data/{name}",)


def test_a_peer_takes_its_published_recipe_unless_told_otherwise():
    def told(*overrides: str) -> TrainConfig:
        return load_run(None, ["model.peer=bit", *overrides], published=True).train

    bit = told()
    assert (bit.optimizer, bit.lr, bit.momentum, bit.weight_decay) == ("sgd", 0.01, 0.9, 5e-4)
    assert (bit.batch, bit.accumulate, bit.epochs, bit.decay) == (8, 1, 200, "linear")
    assert told("train.lr=0.1").lr == 0.1
    assert told("train.lr=0.1").momentum == 0.9
    assert (told("train.accumulate=4").batch, told("train.accumulate=4").accumulate) == (8, 4)
    other = told("train.optimizer=adamw")  # no learning rate of sgd for another optimiser
    assert (other.lr, other.momentum, other.decay) == (TrainConfig.lr, 0.0, "linear")


def test_a_recipe_file_tells_otherwise(tmp_path):
    (tmp_path / "run.yaml").write_text("train: {lr: 0.5, epochs: 3}")
    train = load_run(tmp_path / "run.yaml", ["model.peer=snunet"], published=True).train
    assert (train.lr, train.epochs, train.decay_every) == (0.5, 3, 8)


def test_tables_keep_one_schedule_for_all():
    assert load_run(None, ["model.peer=bit"]).train == TrainConfig()


def test_every_published_recipe_is_a_valid_run():
    for name, spec in PEERS.items():
        train = load_run(None, [f"model.peer={name}"], published=True).train
        assert spec.recipe is None or train.lr == spec.recipe.learning_rate

"""The declarations: every row is a valid model, and the quoted figures are consistent."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from adadino.benchmark.cost import gflops
from adadino.config import PRESETS
from adadino.evaluation import Protocol
from adadino.experiments.dinov2 import VIT_S
from adadino.experiments.runs import digest_of, run_config
from adadino.experiments.setting import Setting
from adadino.experiments.small import SMALL
from adadino.experiments.table import PAPER, Row, quickened
from adadino.experiments.tables import TABLES
from adadino.peers import PEERS

ALL = [(table.name, row) for table in TABLES.values() for row in table.rows]
ROWS = [(table, row) for table, row in ALL if row.study is PAPER]
SMALL_ROWS = [row for table, row in ALL if row.study is SMALL and table != "peers"]
VIT_S_ROWS = [row for _, row in ALL if row.study is VIT_S]
PEER_ROWS = TABLES["peers"].rows
RANKING = "[" + ",".join(str(list(range(16))) for _ in range(24)) + "]"


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{t}: {r.name}" for t, r in ROWS])
def test_every_row_is_a_valid_run_with_the_papers_recipe(tmp_path, table, row):
    ranking = RANKING if row.ranked_by is not None else None
    config = run_config(row, 0, Setting(out=tmp_path, data=tmp_path / "data"), ranking=ranking)
    assert config.preset == "vitl16"
    assert config.model.backbone == PRESETS["vitl16"].backbone
    assert config.train.epochs == 100
    assert (config.train.batch, config.train.accumulate) == (8, 2)
    assert ",".join(Path(root).name for root in config.data.root) == row.dataset


@pytest.mark.parametrize("row", SMALL_ROWS, ids=[row.name for row in SMALL_ROWS])
def test_every_row_on_real_pairs_is_one_recipe_on_a_frozen_small_backbone(tmp_path, row):
    ranking = str([list(range(16))] * 12) if row.ranked_by is not None else None
    config = run_config(row, 0, Setting(out=tmp_path, data=tmp_path / "data"), ranking=ranking)
    assert config.preset == "tiny"
    assert not config.model.backbone.trainable
    assert config.model.stream.name == "none"
    assert [Path(root).name for root in config.data.root] == ["levir", "clcd"]
    first = run_config(SMALL_ROWS[0], 0, Setting(out=tmp_path, data=tmp_path / "data"))
    precision = "32" if "float32" in row.name else "bf16"
    assert config.train == dataclasses.replace(first.train, precision=precision)
    assert not row.paper  # the paper has no such figures


@pytest.mark.parametrize("row", VIT_S_ROWS, ids=[row.name for row in VIT_S_ROWS])
def test_every_row_on_dinov2_is_one_recipe_with_the_papers_tokens(tmp_path, row):
    setting = Setting(out=tmp_path, data=tmp_path / "data")
    teacher = str(tmp_path / "0123456789-seed0/final") if row.taught_by is not None else None
    config = run_config(row, 0, setting, teacher=teacher)
    assert config.model.backbone.name == "dinov2-vits14"
    assert (config.model.backbone.patch, config.model.stride) == (16, 8)
    assert not config.model.backbone.trainable
    changed = {"bscs_warmup", "bscs_anneal", "teacher", "adapter_lr"}
    first, other = (
        {
            name: value
            for name, value in dataclasses.asdict(run.train).items()
            if name not in changed
        }
        for run in (run_config(VIT_S_ROWS[0], 0, setting), config)
    )
    assert first == other
    assert config.train.epochs % config.train.validate_every == 0
    assert not row.paper


def test_a_taught_run_is_named_by_its_teacher_s_run_and_not_by_its_place(tmp_path):
    row = next(row for row in VIT_S_ROWS if row.taught_by is not None)

    def name(teacher: str) -> str:
        setting = Setting(out=tmp_path, data=tmp_path / "data")
        return run_config(row, 0, setting, teacher=teacher).output

    assert name("/here/aaa-seed0/final") == name("/there/aaa-seed0/final")
    assert name("/here/aaa-seed0/final") != name("/here/bbb-seed0/final")


@pytest.mark.parametrize("row", PEER_ROWS, ids=[row.name for row in PEER_ROWS])
def test_every_peer_has_the_budget_of_all_and_its_published_optimiser(tmp_path, row):
    setting = Setting(out=tmp_path, data=tmp_path / "data", backbone="weights.pth")
    config = run_config(row, 0, setting)
    standard = run_config(SMALL_ROWS[0], 0, setting)
    own = {"optimizer", "lr", "weight_decay", "momentum"}
    ours, theirs = (dataclasses.asdict(run.train) for run in (config, standard))
    assert {k: v for k, v in ours.items() if k not in own} == {
        k: v for k, v in theirs.items() if k not in own
    }
    assert (config.data, config.augment) == (standard.data, standard.augment)
    spec = PEERS.get(config.model.peer or "")
    recipe = None if spec is None else spec.recipe
    if recipe is None:
        assert config.train == standard.train
    else:
        assert (config.train.optimizer, config.train.lr) == (recipe.optimizer, recipe.learning_rate)
        assert config.train.momentum == recipe.momentum
        if recipe.weight_decay is not None:
            assert config.train.weight_decay == recipe.weight_decay
    on_backbone = spec is None or spec.backbone
    assert config.model.backbone.weights == ("weights.pth" if on_backbone else None)
    stream = spec.trunk == "lite0" if spec is not None else "stream" in row.name
    assert config.model.stream.weights == ("imagenet" if stream else None)


def test_the_table_of_peers_has_every_peer_and_ours():
    titles = [spec.title for spec in PEERS.values()]
    names = [row.name for row in PEER_ROWS]
    assert names[: len(titles)] == titles
    assert all(name.startswith("AdaDINO") for name in names[len(titles) :])
    assert {"AdaDINO", "AdaDINO, k=6", "AdaDINO + stream"} <= set(names)
    for spec in PEERS.values():  # the ten of the paper's Table 1 and what it says of each
        original = f"{spec.title.removesuffix('-style')}, the original: F1 as the paper quotes it"
        assert any(line.startswith(original) for line in TABLES["peers"].footer) == bool(spec.f1)


def test_the_full_budget_has_every_peer_at_as_many_pairs_as_the_bundled_recipe():
    """384 tiles of LEVIR three times and 1,440 of CLCD, thirty times: the recipe has 76,160."""
    full = TABLES["peers-full"].rows
    assert [row.name for row in full] == [row.name for row in PEER_ROWS]
    for row in full:
        config = run_config(row, 0, Setting(data=Path("data"), backbone="weights.pth"))
        names = [Path(root).name for root in config.data.root]
        assert names == ["levir", "levir", "levir", "clcd"]
        assert config.train.epochs * (3 * 384 + 1440) == 77_760
        assert config.train.validate_every == 2  # what a call of ten minutes can lose
        small = next(one for one in PEER_ROWS if one.name == row.name)
        assert row.overrides == small.overrides


def test_the_curve_has_six_models_at_four_budgets():
    rows = TABLES["peers-curve"].rows
    models = {row.name.rpartition(", ")[0] for row in rows}
    assert len(models) == 6
    assert {"AdaDINO + stream", "AdaDINO + stream, k=6"} < models
    for row in rows:
        config = run_config(row, 0, Setting(data=Path("data"), backbone="weights.pth"))
        assert row.pairs == config.train.epochs * 2592
        assert row.name.endswith(f", {row.pairs / 1000:.0f}k")
    last = [row for row in rows if row.pairs == 77_760]
    full = {digest(row) for row in TABLES["peers-full"].rows}
    assert {digest(row) for row in last} <= full  # those runs are trained once


def digest(row: Row) -> str:
    return digest_of(run_config(row, 0, Setting(data=Path("data"), backbone="weights.pth")))


def test_f1_and_iou_of_a_row_belong_together():
    """IoU = F1 / (2 - F1) for one matrix: a wrong digit in either would show."""
    for table, row in ROWS:
        if {"f1", "iou"} <= set(row.paper):
            f1 = row.paper["f1"] / 100
            assert 100 * f1 / (2 - f1) == pytest.approx(row.paper["iou"], abs=0.03), (
                table,
                row.name,
            )


def test_rows_that_name_the_same_model_quote_the_same_figure():
    seen: dict[tuple[str, tuple[str, ...]], float] = {}
    for table, row in ROWS:
        key = (row.dataset, tuple(sorted(row.overrides)))
        default = row.protocols == (Protocol(),)
        # Table 4 retrained its unpruned arm with CGLA (85.59, not 85.61).
        if "f1" in row.paper and default and table != "prunability":
            assert seen.setdefault(key, row.paper["f1"]) == row.paper["f1"], (table, row.name)


@pytest.mark.slow
def test_the_cost_of_every_efficiency_row_is_the_papers(tmp_path):
    for row in TABLES["efficiency"].rows:
        config = run_config(row, 0, Setting(out=tmp_path, data=tmp_path))
        assert gflops(config.model) == pytest.approx(row.paper["gflops"], abs=0.05), row.name


def test_tables_share_models_by_configuration(tmp_path):
    setting = Setting(out=tmp_path, data=tmp_path)
    ours = next(r for r in TABLES["table1"].rows if r.name == "SYSU-CD, ours")
    full = next(r for r in TABLES["ablation"].rows if r.name == "+ CGLA + CPGR")
    blind = next(r for r in TABLES["ablation"].rows if r.name == "+ Pair-blind")
    assert run_config(ours, 0, setting).output == run_config(full, 0, setting).output
    assert run_config(ours, 0, setting).output != run_config(blind, 0, setting).output
    assert run_config(ours, 0, setting).output != run_config(ours, 1, setting).output


@pytest.mark.parametrize("name", TABLES)
def test_a_quick_table_does_not_claim_real_pairs(name):
    title = quickened(TABLES[name]).title
    assert "on synthetic tiles" in title
    assert "real pairs" not in title


def test_random_chunks_are_drawn_with_the_runs_seed_and_the_table_says_so():
    rows = {row.name: row for row in TABLES["ablation"].rows}
    random, learned = rows["Random-6"], rows["BSCS Top-6"]

    def seed_of(row: Row, seed: int, *overrides: str) -> int:
        return run_config(row, seed, Setting(Path("out"), overrides=overrides)).model.bscs.seed

    assert [seed_of(random, seed) for seed in range(3)] == [0, 1, 2]
    assert seed_of(random, 2, "model.bscs.seed=7") == 7
    assert seed_of(learned, 2) == 0  # a seed that has no effect there would only rename the run
    assert "drawn with the run's seed" in TABLES["ablation"].footer[0]

"""The runner end to end on a very small model: trains, ranks, scores, skips, resumes, reports."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from adadino.cli.app import app
from adadino.errors import ConfigError, DataError
from adadino.experiments import needs, report, runner
from adadino.experiments.runner import reproduce
from adadino.experiments.runs import run_config
from adadino.experiments.setting import Setting
from adadino.experiments.table import Table, only
from adadino.experiments.tables import TABLES
from adadino.model.adadino import AdaDINO

SMALL = (
    "model.backbone.dim=32",
    "model.backbone.depth=4",
    "model.backbone.heads=2",
    "model.backbone.ffn=64",
    "model.bscs.hidden=16",
    "model.cpgr.width=16",
    "train.epochs=1",
    "train.bscs_warmup=0",
)


def subset(name: str, *rows: str) -> Table:
    table = TABLES[name]
    return dataclasses.replace(table, rows=tuple(r for r in table.rows if r.name in rows))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def test_a_table_is_filled_in_then_skipped(out, monkeypatch):
    table = subset("ablation", "BSCS Top-6", "Static Top-6", "Bottom-6")
    setting = Setting(out=out, quick=True, seeds=(0, 1), overrides=SMALL)
    filled = reproduce(table, setting)
    assert [f.row.name for f in filled] == ["BSCS Top-6", "Static Top-6", "Bottom-6"]
    for item in filled:
        assert len(item.ours["f1"]) == 2
        assert all(0 <= v <= 100 for v in item.ours["f1"])
    rankings = list(out.glob("runs/*/*/results/ranking.json"))
    assert len(rankings) == 2  # one for each seed, shared by static and bottom
    assert sorted(json.loads(rankings[0].read_text())[0]) == list(range(16))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(needs, "train", never)
    assert reproduce(table, setting) == filled


def test_static_and_bottom_run_the_two_ends_of_the_ranking(out):
    setting = Setting(out=out, quick=True, overrides=SMALL)
    ranking = next(out.glob("runs/*/*/results/ranking.json")).read_text()
    best = json.loads(ranking)[0]
    for name, expected in (("Static Top-6", best[:6]), ("Bottom-6", best[-6:])):
        row = subset("ablation", name).rows[0]
        config = run_config(row, 0, setting, ranking=ranking).model
        chosen = AdaDINO(config).eval().encoder.bscs.select(0, k=6, scores=None, chunks=None)
        assert chosen.keep.tolist() == sorted(expected)


def test_a_run_is_named_by_what_it_learns(tmp_path):
    row = subset("ablation", "BSCS Top-6").rows[0]
    weights = [tmp_path / name for name in ("a.safetensors", "b.safetensors", "c.safetensors")]
    for path, content in zip(weights, (b"one", b"one", b"two"), strict=True):
        path.write_bytes(content)

    def name(*overrides, data="/a", backbone=None):
        setting = Setting(tmp_path, Path(data), backbone and str(backbone), overrides=overrides)
        return Path(run_config(row, 0, setting).output).name

    same = {name(), name(data="/b, c"), name("data.workers=7")}
    assert len(same) == 1
    others = {name("data.tile=128"), name("data.tile=128", "data.roam=true"), name("train.lr=1e-3")}
    assert len(others | same) == 4
    first, moved, other = (name(backbone=path) for path in weights)
    assert first == moved != other


def test_scores_on_other_pairs_are_not_taken_for_these(out, tmp_path, monkeypatch):
    table = subset("ablation", "BSCS Top-6")
    setting = Setting(out=out, quick=True, seeds=(0, 1), overrides=SMALL)
    now = runner._pairs
    for other in ("test", "train"):
        changed = lambda root, split, o=other: "" if split == o else now(root, split)  # noqa: E731
        monkeypatch.setattr(runner, "_pairs", changed)
        with pytest.raises(DataError, match=rf"scores on other pairs than .*/{other} has now"):
            reproduce(table, setting)


def test_the_report_keeps_ours_and_the_papers_apart(out, tmp_path):
    table = subset("ablation", "BSCS Top-6", "Static Top-6")
    setting = Setting(out=out, quick=True, seeds=(0, 1), overrides=SMALL)
    filled = reproduce(table, setting)
    paths = report.write(table, filled, tmp_path, note="a note")
    markdown, table_csv, picture = paths
    assert "85.29" in markdown.read_text()
    assert "a note" in markdown.read_text()
    rows = list(csv.reader(table_csv.open()))
    figures = ["", "ours: F1, %", "paper: F1, %", "ours: IoU, %", "paper: IoU, %"]
    assert rows[0] == [*figures, "note"]
    assert {row[-1] for row in rows[1:]} == {"a note"}
    assert rows[1][2] == "85.29"
    assert "±" in rows[1][1]
    assert Image.open(picture).size[0] > 400


def test_protocol_tables_score_one_checkpoint(out):
    setting = Setting(out=out, quick=True, overrides=SMALL)
    before = set(out.glob("runs/*/*/last.ckpt"))
    filled = {f.row.name: f.ours["f1"][0] for f in reproduce(TABLES["robustness"], setting)}
    assert set(out.glob("runs/*/*/last.ckpt")) == before  # Top-6 was trained already
    assert filled["Shuffled, worst of five"] <= filled["Shuffled, mean of five"]


@pytest.mark.slow
def test_peers_and_ours_share_a_table_and_a_picture(tmp_path):
    table = subset("peers", "FC-EF", "ToMe-style", "AdaDINO, k=6")
    setting = Setting(out=tmp_path, quick=True, overrides=("train.epochs=1",))
    filled = reproduce(table, setting)
    ours = {item.row.name: {m: v[0] for m, v in item.ours.items()} for item in filled}
    assert ours["FC-EF"]["parameters"] == pytest.approx(1.350578)
    assert ours["AdaDINO, k=6"]["parameters"] > ours["ToMe-style"]["parameters"] > 5
    for figures in ours.values():
        assert 0 <= figures["f1_levir"] <= 100
        assert 0 <= figures["f1_clcd"] <= 100
        assert min(figures[m] for m in ("gflops", "pairs_per_s", "fast_pairs_per_s", "minutes")) > 0
    markdown, table_csv, picture = report.write(table, filled, tmp_path, note="a note")
    names, *rows = csv.reader(table_csv.open())
    assert [name for name in names if name.startswith("paper")] == ["paper: params, M"]
    column = names.index("paper: params, M")
    assert [row[column] for row in rows] == ["1.350", "", ""]
    assert "ChangeMamba" in markdown.read_text()
    assert Image.open(picture).size[0] > 1000
    again = reproduce(table, setting)
    assert [item.ours for item in again] == [item.ours for item in filled]


def test_quick_runs_on_one_thread_and_gives_the_others_back(tmp_path, monkeypatch):
    seen = []

    def result(row, seed, setting):
        seen.append(torch.get_num_threads())
        return {"f1": 0.0, "iou": 0.0}

    monkeypatch.setattr(runner, "_result", result)
    monkeypatch.setattr(runner, "write_stand_in", lambda *_: None)
    torch.set_num_threads(2)
    try:
        reproduce(subset("ablation", "BSCS Top-6"), Setting(out=tmp_path, quick=True))
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(1)


def test_a_cost_is_measured_once_whatever_the_seeds(tmp_path, monkeypatch):
    table = dataclasses.replace(
        subset("efficiency", "Ours + BSCS (k=6)"),
        metrics=("gflops", "pairs_per_s", "fast_pairs_per_s"),
    )
    monkeypatch.setattr(runner, "_result", lambda *_: {})
    measured = []

    def throughput(model, **how):
        measured.append((type(model).__name__, how["batch"], how["recorded"]))
        return 3.0

    monkeypatch.setattr(runner, "throughput", throughput)
    setting = Setting(out=tmp_path, quick=True, seeds=(0, 1), overrides=SMALL)
    for _ in range(2):
        (filled,) = reproduce(table, setting)
        assert filled.ours["pairs_per_s"] == filled.ours["fast_pairs_per_s"] == [3.0]
        assert len(filled.ours["gflops"]) == 1
    assert measured == [("AdaDINO", 16, False), ("Engine", 16, False)]  # eager, as the paper


def test_some_rows_of_a_table(tmp_path):
    rows = only(TABLES["small-ablation"], ["Top-6", "4/16"]).rows
    assert [row.name for row in rows] == [
        "BSCS Top-6",
        "Static Top-6",
        "4/16, w/o CGLA",
        "4/16, w/ CGLA",
    ]
    rows = only(TABLES["peers"], ["U-Net", "fc-ef"]).rows  # not the Siamese one
    assert [row.name for row in rows] == ["FC-EF", "U-Net"]
    with pytest.raises(ConfigError, match=r"no row with 'Tip-6' .* it has: w/o delta injection"):
        only(TABLES["small-ablation"], ["Top-6", "Tip-6"])
    arguments = ["reproduce", "ablation", "--row", "Tip-6", "--quick", "-o", str(tmp_path)]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigError)
    assert "no row with 'Tip-6' in its name; it has: Frozen baseline" in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0,0"], "a seed twice is one seed"),
        (["--seeds=-1"], "train.seed is -1"),
        (["--quick", "--data", "."], "--data does not go with --quick"),
        (["--quick", "--backbone", "tiny"], "--backbone does not go with --quick"),
    ],
)
def test_options_that_would_not_count_are_refused(tmp_path, options, message):
    quick = [] if "--quick" in options else ["--quick"]
    arguments = ["reproduce", "ablation", "-o", str(tmp_path), *quick, *options]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigError)
    assert message in str(error)


def test_peers_go_with_the_first_table_only(tmp_path):
    arguments = ["reproduce", "ablation", "--peers", "--quick", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ConfigError)
    assert "--peers goes with table1" in str(result.exception)


def test_missing_data_and_weights_are_all_listed(tmp_path):
    with pytest.raises(DataError) as error:
        reproduce(TABLES["table1"], Setting(out=tmp_path, data=tmp_path))
    for text in ("sysu-cd", "whu-cd", "levir-cd-plus", "adadino prepare", "weights", "--quick"):
        assert text in str(error.value)
    with pytest.raises(DataError, match=r"sysu-cd.*no\.pth, which --backbone names"):
        reproduce(TABLES["table1"], Setting(out=tmp_path, data=tmp_path, backbone="no.pth"))


def test_seeds_are_the_table_s_unless_given(tmp_path, monkeypatch):
    asked = []

    def seen(table, setting, say):
        asked.append((table.name, setting.seeds))
        raise ConfigError("enough")

    monkeypatch.setattr(runner, "reproduce", seen)
    for arguments in (
        ["table1", "--peers"],
        ["table1"],
        ["peers", "--seeds", "4,5"],
        ["peers", "--quick"],
    ):
        CliRunner().invoke(app, ["reproduce", *arguments, "-o", str(tmp_path)])
    assert asked == [("peers", (0, 1, 2)), ("table1", (0,)), ("peers", (4, 5)), ("peers", (0,))]


def test_the_command_prints_one_json_object(tmp_path):
    arguments = ["reproduce", "batch-size", "--quick", "-o", str(tmp_path), "--json"]
    for override in SMALL:
        name, value = override.split("=")
        arguments += [f"--{name}", value]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert [row["name"] for row in data["rows"]] == [f"batch size {b}" for b in (1, 4, 8, 16)]
    assert {"ours", "paper"} <= set(data["rows"][0])
    assert data["rows"][0]["paper"]["f1"] == 85.24
    assert "mean nothing" in data["note"]


ORPHANS = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from adadino.experiments import runner

def work(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(120)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=runner._end_with_parent) as pool:
        pool.submit(work, sys.argv[1]).result()
"""


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_behind(tmp_path):
    script, said = tmp_path / "orphans.py", tmp_path / "pid"
    script.write_text(ORPHANS)
    with subprocess.Popen([sys.executable, str(script), str(said)]) as command:
        assert soon(lambda: said.is_file() and said.read_text())
        command.kill()
    worker = int(said.read_text())
    assert soon(lambda: not alive(worker))


def soon(happened, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not happened():
        time.sleep(0.1)
    return happened()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"  # nobody may wait for it here


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robustness", "ablation"])
def test_rows_that_share_a_model_train_it_once_side_by_side(out, tmp_path, name):
    rows = ("BSCS Top-6", "Static Top-6", "Bottom-6", "Default ordering", "Temporal swap")
    table = subset(name, *rows)
    alone = reproduce(table, Setting(out, quick=True, overrides=SMALL))
    together = reproduce(table, Setting(tmp_path, quick=True, overrides=SMALL, jobs=2))
    assert [item.ours for item in together] == [item.ours for item in alone]


@pytest.mark.slow
def test_models_trained_side_by_side_are_the_same(out, tmp_path):
    table = subset("ablation", "BSCS Top-6", "Random-6")
    alone = reproduce(table, Setting(out, quick=True, overrides=SMALL))
    together = reproduce(table, Setting(tmp_path, quick=True, overrides=SMALL, jobs=2))
    assert [item.ours for item in together] == [item.ours for item in alone]

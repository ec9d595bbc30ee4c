"""`adadino benchmark`: what it prints, what it saves, what a program reads. Never how fast."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from adadino import config as presets
from adadino import paper
from adadino.engine import report as reports
from adadino.engine.benchmark import Protocol, Report, Row, run
from adadino.profiling import gflops
from tests.conftest import SMALL

KEYS = {"mode", "k", "batch", "pairs_per_s", "speedup", "ffn_ms", "gflops", "memory_gb"}
QUICK = ("--size", 32, "--device", "cpu", "--measured", 1)


@pytest.fixture(autouse=True)
def _small_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "small", SMALL)


@pytest.fixture
def benchmark(adadino):
    def read(*arguments: object) -> dict:
        code, out, err = adadino("benchmark", "--preset", "small", *QUICK, *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return read


def test_a_program_reads_rows_and_the_reference(benchmark):
    pytest.importorskip("transformers", reason="the outside reference is transformers' encoder")
    data = benchmark("--k", "8,3", "--mode", "paper,fp32,fast,int8")
    assert [(row["mode"], row["k"]) for row in data["rows"]] == [
        (mode, k) for mode in ("paper", "fp32", "fast", "int8") for k in (8, 3)
    ]
    for row in data["rows"]:
        assert row.keys() >= KEYS
        assert row["batch"] == 1
        assert row["pairs_per_s"] > 0
        assert row["ffn_ms"] > 0
        assert row["memory_gb"] is None
        assert row["gflops"] == pytest.approx(gflops(SMALL, k=row["k"], size=32), abs=0.01)
        base = next(r for r in data["rows"] if (r["mode"], r["k"]) == (row["mode"], 8))
        assert row["speedup"] == pytest.approx(row["pairs_per_s"] / base["pairs_per_s"])
        eager = data["rows"][0]["pairs_per_s"]
        assert row["over_fp32"] == pytest.approx(row["pairs_per_s"] / eager)
    assert {one["name"] for one in data["reference"]} == {"fp32 eager", "bf16 eager"}
    assert data["protocol"] == {"warmup": 1, "measured": 1}


def test_without_transformers_the_reference_is_missing_with_a_reason(benchmark, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    data = benchmark("--k", "3", "--mode", "paper")
    assert data["reference"] == []
    assert "transformers" in data["skipped"][0]
    assert data["rows"][0]["speedup"] is None  # nothing to compare with


def test_what_the_device_cannot_do_is_named(benchmark, tmp_path):
    nothing = benchmark("--k", "3", "--mode", "fp8", "--no-reference", "-o", tmp_path)
    assert nothing["rows"] == []
    assert "- not measured: fp8" in (tmp_path / "benchmark.md").read_text()
    data = benchmark("--k", "3", "--mode", "paper,fp8", "--no-reference")
    assert [row["mode"] for row in data["rows"]] == ["paper"]
    assert data["skipped"] == ["fp8: fp8 needs a GPU; on cpu it would only be emulated."]


def test_people_get_a_table_and_files(adadino, tmp_path):
    code, out, err = adadino(
        *("benchmark", "--preset", "small", *QUICK, "--k", "8,3", "--mode", "paper"),
        *("--no-reference", "-o", tmp_path),
    )
    assert code == 0
    assert "turn 1 of 2" in err
    for words in ("pairs/s", "FFN ms/pair", "GFLOPs", "speed-up", "saved:"):
        assert words in out
    assert "paper: GFLOPs" not in out  # it published no such model
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "benchmark.csv",
        "benchmark.md",
        "benchmark.png",
    ]
    rows = list(csv.DictReader((tmp_path / "benchmark.csv").open()))
    assert [row["k"] for row in rows] == ["8", "3"]
    assert "| paper | 3 | 1 | 32 |" in (tmp_path / "benchmark.md").read_text()


@pytest.mark.parametrize(
    ("sweep", "limit", "expected"),
    [("batch", 4, [(1, 32), (2, 32), (4, 32)]), ("size", 512, [(1, 256), (1, 512)])],
)
def test_a_sweep_grows_what_it_says(benchmark, tmp_path, sweep, limit, expected):
    data = benchmark(
        *("--k", "3", "--mode", "fast", "--no-reference"),
        *("--sweep", sweep, "--limit", limit, "-o", tmp_path),
    )
    assert [(row["batch"], row["size"]) for row in data["rows"]] == expected
    assert (tmp_path / "benchmark.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--k", "8,x"), "--k is '8,x'"),
        (("--k", "9"), "--k has 9, must be between 1 and 8"),
        (
            ("--k", "8", "--mode", "slow"),
            "--mode has 'slow'; there are paper, fp32, fast, fp8, int8",
        ),
        (("--preset", "vitx"), "unknown preset 'vitx'"),
    ],
)
def test_wrong_options_are_named(adadino, arguments, message):
    code, out, err = adadino("benchmark", "--preset", "small", *QUICK, *arguments)
    assert (code, out) == (1, "")
    assert message in err


def test_the_papers_figures_have_columns_of_their_own():
    row = Row("paper", 6, 16, 256, 842.99, 34.5, 1.35, 1.35, 5.0, 20.0, 1.0)
    report = Report([row, Row("fast", 6, 1, 256, 842.99, 1.0, None, None, 1.0, 2.0, 1.0)])
    first, second = (
        dict(zip(reports.HEADER, cells, strict=True))
        for cells in reports.cells(report, published=True)
    )
    assert first["paper: pairs/s"] == "15.48" == f"{paper.PAIRS_PER_S[6]:.2f}"
    assert first["pairs/s"] == "34.50"
    assert first["paper: speed-up"] == "1.41"
    assert first["paper: FFN ms/pair"] == "17.84"
    assert second["paper: pairs/s"] == ""  # the paper's is of batch 16
    unpublished = reports.cells(report, published=False)
    assert unpublished[0][reports.HEADER.index("paper: pairs/s")] == ""


def test_the_speedups_of_the_paper_are_its_throughputs():
    for k, speedup in paper.SPEEDUP.items():
        ratio = paper.PAIRS_PER_S[k] / paper.PAIRS_PER_S[16]
        assert ratio == pytest.approx(speedup, abs=0.006)


def test_the_function_behind_the_verb():
    import torch

    said: list[str] = []
    result = run(
        SMALL,
        modes=("paper",),
        budgets=(8,),
        shapes=((2, 16),),
        device=torch.device("cpu"),
        protocol=Protocol(1, 2),
        reference=False,
        say=said.append,
    )
    assert [row.batch for row in result.rows] == [2]
    assert result.rows[0].speedup == 1
    assert len(said) == 3
    assert result.reference == []

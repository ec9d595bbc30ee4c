"""`adadino benchmark`: what it prints, what it saves, what a program reads. Never how fast."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from adadino import config as presets
from adadino import paper
from adadino.benchmark import report as reports
from adadino.benchmark.cost import gflops
from adadino.benchmark.options import Timing
from adadino.benchmark.report import Measurement, Report
from adadino.benchmark.run import run
from adadino.engine.model import Engine
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
    data = benchmark("--k", "3", "--mode", "paper,fp8", "--no-reference", "-o", tmp_path)
    assert "- not measured: fp8" in (tmp_path / "benchmark.md").read_text()
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
    assert "The paper's figures: A800" in (tmp_path / "benchmark.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "benchmark.csv",
        "benchmark.md",
        "benchmark.png",
    ]
    rows = list(csv.DictReader((tmp_path / "benchmark.csv").open()))
    assert [row["k"] for row in rows] == ["8", "3"]
    assert "| paper | 3 | 1 | 32 |" in (tmp_path / "benchmark.md").read_text()


def test_an_earlier_benchmark_is_not_lost(adadino, tmp_path):
    (tmp_path / "benchmark.csv").write_text("mine")
    arguments = ("benchmark", "--preset", "small", *QUICK, "--k", "3", "--mode", "paper")
    arguments = (*arguments, "--no-reference", "-o", tmp_path)
    code, _, err = adadino(*arguments)
    assert code == 1
    assert "benchmark.csv exists; give another --output, or --overwrite" in err
    assert "turn" not in err  # nothing was measured in vain
    assert (tmp_path / "benchmark.csv").read_text() == "mine"
    assert adadino(*arguments, "--overwrite")[0] == 0
    assert (tmp_path / "benchmark.csv").read_text() != "mine"


def test_an_engine_that_answers_otherwise_is_not_timed(benchmark, monkeypatch):
    """A speed says nothing of a model that has stopped to see."""
    right = Engine.run

    def wrong(self, before, after, chunks, *, k):
        return right(self, before, before.flip(-1), chunks, k=k)

    monkeypatch.setattr(Engine, "run", wrong)
    data = benchmark("--k", "3", "--mode", "paper,fp32,fast", "--no-reference")
    assert [row["mode"] for row in data["rows"]] == ["paper"]
    assert len(data["skipped"]) == 2
    assert all("answers otherwise than the plain model" in reason for reason in data["skipped"])


@pytest.mark.parametrize(
    ("sweep", "limit", "expected"),
    [
        ("batch", 4, [(1, 32), (2, 32), (4, 32)]),
        pytest.param("size", 512, [(1, 256), (1, 512)], marks=pytest.mark.slow),
    ],
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
        (("--mode", "slow"), "--mode has 'slow'; there are paper, fp32, fast, fp8, int8"),
        (("--preset", "vitx"), "unknown preset 'vitx'"),
        (("--mode", ""), "--mode has ''"),
        (("--limit", "4"), "--limit is where a --sweep ends"),
        (("--sweep", "size", "--limit", "100"), "--limit is 100, must be at least 256"),
        (("--sweep", "batch", "--batch", "8"), "leave --batch out"),
        (("--mode", "fp8", "--no-reference"), "nothing was measured. fp8: fp8 needs a GPU"),
        (("--device", "meta"), "there is no device 'meta' here"),
    ],
)
def test_wrong_options_are_named(adadino, arguments, message):
    code, out, err = adadino("benchmark", "--preset", "small", *QUICK, "--k", "8", *arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert "turn" not in err


def test_the_papers_figures_have_columns_of_their_own():
    row = Measurement("paper", 6, 16, 256, 842.99, 34.5, 1.35, 1.35, 5.0, 20.0, 1.0)
    report = Report([row, Measurement("fast", 6, 1, 256, 842.99, 1.0, None, None, 1.0, 2.0, 1.0)])
    first, second = (
        dict(zip(reports.HEADER, cells, strict=True))
        for cells in reports.cells(report, published=True)
    )
    assert first["paper: pairs/s"] == "15.48" == f"{paper.PAIRS_PER_S[6]:.2f}"
    assert first["pairs/s"] == "34.50"
    assert first["paper: speed-up"] == "1.41"
    assert first["paper: FFN ms/pair"] == "17.84"
    assert second["paper: pairs/s"] == ""  # the paper's is of batch 16
    assert second["paper: GFLOPs"] == "842.99"  # of one pair
    assert reports.quoted(report.rows[0]) == {
        "gflops": 842.99,
        "ffn_ms": 17.84,
        "pairs_per_s": 15.48,
        "speedup": 1.41,
    }
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
        protocol=Timing(1, 2),
        reference=False,
        say=said.append,
    )
    assert [row.batch for row in result.rows] == [2]
    assert result.rows[0].speedup == 1
    assert len(said) == 3
    assert result.reference == []

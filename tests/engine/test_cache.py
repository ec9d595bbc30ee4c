"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from adadino.benchmark.cost import exact_fp32
from adadino.benchmark.modes import arithmetic
from adadino.engine.cache import cache_folder, keep_compiled

NAMES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@pytest.fixture(autouse=True)
def _without(monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what is set is undone
        monkeypatch.delenv(name)


def test_in_a_folder_of_our_own(monkeypatch, tmp_path):
    monkeypatch.setenv("ADADINO_CACHE", str(tmp_path / "kept"))
    keep_compiled()
    assert [os.environ[name] for name in NAMES] == [
        str(cache_folder() / "inductor"),
        str(cache_folder() / "triton"),
    ]
    assert (tmp_path / "kept" / "triton").is_dir()


def test_others_choices_stay(monkeypatch, tmp_path):
    monkeypatch.setenv("ADADINO_CACHE", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    keep_compiled()
    assert os.environ["TRITON_CACHE_DIR"] == "/elsewhere"


def test_where_nothing_can_be_written_nothing_is_kept(monkeypatch, tmp_path):
    taken = tmp_path / "a file"
    taken.write_text("")
    monkeypatch.setenv("ADADINO_CACHE", str(taken))
    keep_compiled()
    assert not any(name in os.environ for name in NAMES)


def test_an_engine_that_is_not_compiled_does_not_import_the_compiler():
    """It takes seconds, and `predict` and `serve` compile nothing."""
    code = (
        "import sys, adadino.engine.cache as c; import adadino.engine; c.keep_compiled();"
        "print([m for m in sys.modules if m.startswith(('torch._inductor', 'torch._dynamo.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_benchmark_compiles_under_the_key_that_others_look_up():
    """PyTorch's key holds `fp32_precision`, which `allow_tf32 = False` changes from its default."""
    backends = torch.backends
    before = backends.cuda.matmul.fp32_precision, backends.cudnn.allow_tf32
    with exact_fp32():
        assert not backends.cuda.matmul.allow_tf32
        assert not backends.cudnn.allow_tf32
        assert backends.cuda.matmul.fp32_precision == "ieee"
    assert (backends.cuda.matmul.fp32_precision, backends.cudnn.allow_tf32) == before
    with arithmetic("fast"):
        assert backends.cuda.matmul.fp32_precision == before[0]
    with arithmetic("paper"):
        assert backends.cuda.matmul.fp32_precision == "ieee"

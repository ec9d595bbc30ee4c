"""Where compiled kernels are kept."""

from __future__ import annotations

import os

import pytest

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

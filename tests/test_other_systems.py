"""What only POSIX has is taken away: locks, fork, sysconf, affinity. The package still works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adadino import files
from adadino.errors import AdaDINOError
from tests.windows_like import Msvcrt


@pytest.fixture
def windows(monkeypatch):
    """No fcntl; msvcrt instead."""
    msvcrt = Msvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    return msvcrt


def test_a_folder_is_locked_without_fcntl(windows, tmp_path):
    with files.locked(tmp_path / "run", "training run"):
        assert windows.held
        with (
            pytest.raises(AdaDINOError, match="another process holds the training run"),
            files.locked(tmp_path / "run", "training run"),
        ):
            pass


def test_a_sole_writer_leaves_nothing_behind_without_fcntl(windows, tmp_path):
    with files.sole_writer(tmp_path / "m.onnx", "export"):
        files.write_atomic(tmp_path / "m.onnx", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_file_is_flushed_through_a_handle_that_may_write(monkeypatch, tmp_path):
    """Windows refuses to flush a file that was opened to be read."""
    fsync = os.fsync

    def strict(descriptor: int) -> None:
        os.write(descriptor, b"")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", strict)
    files.write_atomic(tmp_path / "a.txt", "text")
    assert (tmp_path / "a.txt").read_text() == "text"


def test_the_doctor_answers_without_sysconf_and_affinity(monkeypatch):
    from adadino.cli.doctor import machine

    monkeypatch.delattr(os, "sysconf")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert machine.check_memory().state in ("ok", "note")
    assert int(machine.check_processors().found) >= 1


def test_workers_are_started_where_there_is_no_fork(monkeypatch):
    from adadino.web.jobs.sandbox import can_fork

    monkeypatch.setattr(sys, "platform", "win32")
    assert not can_fork()


def test_no_module_imports_what_windows_lacks(monkeypatch):
    """Whatever is imported at the top of a module must be there on every system."""
    import ast

    import adadino

    posix = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"}
    for path in Path(adadino.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom):
                names = {node.module or ""}
            assert not names & posix, f"{path} imports {names & posix} at its top"


PLACE = Path(__file__).parent / "windows_like.py"


def run_elsewhere(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PLACE), *map(str, words)], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_scene_is_predicted_and_judged_without_what_only_posix_has(tmp_path):
    """Files, replaced once more, a report, a review, a long path; nothing is left behind."""
    from adadino.checkpoint import save
    from adadino.data.synthetic import write_geotiff_pair
    from adadino.model.adadino import AdaDINO
    from tests.conftest import SMALL

    folder = tmp_path.joinpath(*["a long name of a folder"] * 12)
    folder.mkdir(parents=True)
    before, after, _ = write_geotiff_pair(folder, 3, 64)
    model = save(AdaDINO(SMALL), folder / "model", with_backbone=True)
    outputs = {
        "-o": "m.tif", "--probability": "p.tif", "--vector": "v.gpkg", "--report": "r.html",
        "--overview": "o.png", "--stac": "s.json",
    }  # fmt: skip
    words = [word for option, name in outputs.items() for word in (option, folder / name)]
    for more in ([], ["--overwrite", "--min-area", "9"]):
        done = run_elsewhere("predict", before, after, "--model", model, *words, *more)
        assert done.returncode == 0, done.stderr
    names = {path.name for path in folder.iterdir()} - {"model"}
    styles = {"m.qml", "p.qml", "v.qml"}
    assert names == {before.name, after.name, "truth.tif", *outputs.values(), *styles}
    review = folder / "review"
    done = run_elsewhere("judge", "start", folder / "truth.tif", "-o", review)
    assert done.returncode == 0, done.stderr
    for verdict in ("right", "wrong"):
        done = run_elsewhere("judge", "verdict", review, "1", verdict)
        assert done.returncode == 0, done.stderr

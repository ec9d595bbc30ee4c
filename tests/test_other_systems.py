"""What only POSIX has is taken away: locks, fork, sysconf, affinity. The package still works."""

from __future__ import annotations

import os
import sys
import types

import pytest

from adadino import files
from adadino.errors import AdaDINOError


class Msvcrt(types.ModuleType):
    """Windows' locks: of bytes, mandatory, and gone when the file is closed."""

    LK_NBLCK, LK_LOCK = 2, 1

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[int, int] = {}

    def locking(self, descriptor: int, mode: int, size: int) -> None:
        assert size == 1
        file = os.fstat(descriptor).st_ino
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert place > os.fstat(descriptor).st_size  # nobody reads there
        if self.held.get(file, descriptor) != descriptor:
            raise OSError(13, "Permission denied")
        self.held[file] = descriptor


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
    from pathlib import Path

    import adadino

    posix = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog"}
    for path in Path(adadino.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom):
                names = {node.module or ""}
            assert not names & posix, f"{path} imports {names & posix} at its top"

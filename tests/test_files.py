"""Files appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from adadino.errors import AdaDINOError
from adadino.files import atomic, locked, write_atomic


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_text_and_writers(tmp_path):
    write_atomic(tmp_path / "b", b"\x00\xff")
    write_atomic(str(tmp_path / "t"), "Zürich\n")
    write_atomic(tmp_path / "w", lambda part: part.write_text("by hand"))
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"
    assert (tmp_path / "t").read_bytes() == "Zürich\n".encode()
    assert (tmp_path / "w").read_text() == "by hand"
    assert listing(tmp_path) == ["b", "t", "w"]


def test_folders_are_made_and_files_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "c.txt"
    write_atomic(path, "old")
    write_atomic(path, "new")
    assert path.read_text() == "new"
    assert listing(path.parent) == ["c.txt"]


def test_the_target_is_untouched_until_the_end(tmp_path):
    path = tmp_path / "map.tif"
    path.write_text("old")
    with atomic(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
        assert part.parent == path.parent  # a rename within one file system
        assert part.suffix == ".tif"  # Pillow and GDAL go by it
        assert part.name.startswith(".")
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "c.json"
    path.write_text("old")

    def write(part: Path) -> None:
        part.write_text("half")
        raise error

    with pytest.raises(type(error)) as caught:
        write_atomic(path, write)
    assert caught.value is error
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["c.json"]


def test_a_full_disk_is_one_sentence(tmp_path):
    def write(part: Path) -> None:
        part.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(
        AdaDINOError, match=r"cannot write .*c\.json: No space left on device\. Make room"
    ):
        write_atomic(tmp_path / "c.json", write)
    assert listing(tmp_path) == []


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "runs").write_text("I am a file")
    with pytest.raises(AdaDINOError, match=r"cannot write .*runs/c\.json"):
        write_atomic(tmp_path / "runs" / "c.json", "x")
    assert (tmp_path / "runs").read_text() == "I am a file"


def test_a_folder_where_the_file_should_be(tmp_path):
    (tmp_path / "c.json").mkdir()
    with pytest.raises(AdaDINOError, match=r"cannot write .*c\.json: Is a directory"):
        write_atomic(tmp_path / "c.json", "x")
    assert listing(tmp_path) == ["c.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(AdaDINOError, match=r"cannot write .*c\.json: Permission denied"):
            write_atomic(tmp_path / "c.json", "x")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "c.json", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == mode


def test_one_process_at_a_time_holds_a_folder(tmp_path):
    folder = tmp_path / "run"
    with (
        locked(folder, "training run"),
        pytest.raises(AdaDINOError, match=r"another process holds the training run in .*run"),
        locked(folder, "training run"),
    ):
        pass
    with locked(folder, "training run"):
        pass  # free again


def test_a_folder_that_cannot_be_locked_is_named(tmp_path):
    (tmp_path / "run").write_text("I am a file")
    with (
        pytest.raises(AdaDINOError, match=r"cannot write to .*run: File exists"),
        locked(tmp_path / "run", "training run"),
    ):
        pass

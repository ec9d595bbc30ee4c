"""Disks that are full or closed, to root as well: small file systems in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

resource = pytest.importorskip("resource", reason="limits of a process are POSIX")


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as on a disk that has run full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python does not notice that it wrote half of a module's cache, and fails to read it later.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "dont_write_bytecode", True)
        patched.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A folder that is a disk of so many bytes; the test is skipped where that needs a right."""
    folder.mkdir()
    if _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)) != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def closed_folder(folder: Path) -> Iterator[Path]:
    """A folder in which nothing can be made: by its mode, or for root by how it is mounted."""
    if os.geteuid() == 0:
        with small_disk(folder, 2**20):
            if _mount("-o", "remount,ro", str(folder)) != 0:
                pytest.skip("needs the right to mount a file system")
            yield folder
        return
    folder.mkdir(mode=0o500)
    try:
        yield folder
    finally:
        folder.chmod(0o700)


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Write one file until only so many bytes of a disk are free."""
    free = os.statvfs(folder)
    with (folder / "ballast").open("ab") as ballast:
        ballast.write(bytes(max(0, free.f_bavail * free.f_frsize - leave)))
    return folder / "ballast"


def _mount(*arguments: str) -> int:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode
    except OSError:
        return 1

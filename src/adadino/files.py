"""Files that appear whole or not at all: write beside the target, flush to disk, then rename."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import register_after_fork
from pathlib import Path
from typing import IO, Any, TextIO

from adadino.errors import AdaDINOError, WeightsError, WriteError

WAY_OUT = "Make room, or choose another place."
"""What every error about writing ends with."""


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path in the target's folder; rename it to the target on success.

    On any exception the temporary file is removed and the target is untouched. The temporary
    name starts with a dot and ends with the target's suffix, so that writers that look at the
    suffix (Pillow, GDAL) still work and listings of finished files never show it.

    Args:
        path: The final name.

    Yields:
        The path to write to.
    """
    path = Path(path)
    part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL and not mkstemp: the file keeps the permissions the user's umask gives.
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}. {WAY_OUT}") from error
    try:
        yield part
        with part.open("r+b") as written:  # Windows flushes only what may be written
            os.fsync(written.fileno())
        part.replace(path)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}. {WAY_OUT}") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a hidden folder beside a file, from which a rename is one step; it is removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            prefix=f".{path.stem}.", suffix=".part", dir=path.parent
        )
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}. {WAY_OUT}") from error
    with folder as name:
        yield Path(name)


def write_atomic(path: Path | str, write: bytes | str | Callable[[Path], None]) -> None:
    """Write bytes, text, or whatever `write(temporary_path)` produces, whole or not at all."""
    with atomic(path) as part:
        if callable(write):
            write(part)
        else:
            part.write_bytes(write.encode() if isinstance(write, str) else write)


def sweep(path: Path | str) -> None:
    """Remove what killed processes left of a file that they were writing.

    These are the temporary files of `atomic`, and hidden folders beside the target that are named
    `.NAME.xxxxxxxx.part`. Call it only while you hold the target: others may be writing it.
    """
    path = Path(path)
    left = re.compile(rf"\.{re.escape(path.stem)}\.[a-z0-9_]{{8}}\.part({re.escape(path.suffix)})?")
    if not path.parent.is_dir():
        return
    for entry in [entry for entry in path.parent.iterdir() if left.fullmatch(entry.name)]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def work_folder(output: Path) -> Path:
    """The hidden folder beside an output that belongs to the run that makes it."""
    return output.with_name(f".{output.name}.work")


@contextmanager
def sole_writer(path: Path | str, what: str) -> Iterator[None]:
    """Let one process at a time write a file, and remove what killed processes left of it.

    Args:
        path: The file.
        what: What is going on, for the message: "export".
    """
    folder = work_folder(Path(path))
    with locked(folder, what):
        try:
            sweep(path)
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if os.name == "nt":  # where the open lock file could not be removed
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path | str, what: str) -> Iterator[None]:
    """Lock a folder for this process; a second process gets an error at once.

    The lock is the operating system's, so a killed process leaves none behind.

    Args:
        folder: Made if it is not there.
        what: What is going on there, for the message: "training run".
    """
    folder = Path(folder)
    with _lock_file(folder) as handle:
        try:
            lock(handle)
        except OSError as error:
            raise AdaDINOError(
                f"another process holds the {what} in {folder}; wait for it, or choose another "
                "folder."
            ) from error
        if not _is_there(handle, folder / ".lock"):
            # The process that held it has just removed the folder, and our lock file with it.
            raise AdaDINOError(
                f"another process has just ended the {what} in {folder}; run this again."
            )
        # A forked reading process would inherit the lock and outlive its killed parent.
        register_after_fork(handle, lambda inherited: inherited.close())
        yield


def lock(handle: IO[Any], *, wait: bool = False) -> None:
    """Lock an open file until it is closed, by the operating system's own means.

    Args:
        handle: The file.
        wait: Wait for whoever holds it, instead of raising an error.

    Raises:
        OSError: Another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        # A byte that no file has: on Windows nobody else could read one that is locked.
        handle.seek(2**31 - 2)
        # LK_LOCK gives up after ten seconds; LK_NBLCK at once.
        mode = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK  # type: ignore[attr-defined]
        msvcrt.locking(handle.fileno(), mode, 1)  # type: ignore[attr-defined]
        return
    fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_file(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("w")
    except OSError as error:
        raise WriteError(f"cannot write to {folder}: {error.strerror}. {WAY_OUT}") from error


def _is_there(handle: TextIO, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except OSError:
        return False


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that came with weights."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not valid JSON: {error}. Download it again.") from error
    if not isinstance(data, dict):
        raise WeightsError(f"{path} must hold a JSON object; download it again.")
    return data

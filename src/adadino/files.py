"""Files that appear whole or not at all: write beside the target, flush to disk, then rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.util import register_after_fork
from pathlib import Path

from adadino.errors import AdaDINOError, WriteError


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
        raise WriteError(f"cannot write {path}: {error.strerror}.") from error
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


def write_atomic(path: Path | str, write: bytes | str | Callable[[Path], None]) -> None:
    """Write bytes, text, or whatever `write(temporary_path)` produces, whole or not at all."""
    with atomic(path) as part:
        if callable(write):
            write(part)
        else:
            part.write_bytes(write.encode() if isinstance(write, str) else write)


@contextmanager
def locked(folder: Path | str, what: str) -> Iterator[None]:
    """Hold a folder for this process; a second one is told so at once.

    The lock is the operating system's, so a killed process leaves none behind.

    Args:
        folder: Made if it is not there.
        what: What is going on there, for the message: "training run".
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("w")
    except OSError as error:
        raise WriteError(f"cannot write to {folder}: {error.strerror}.") from error
    with handle:
        try:
            import fcntl
        except ImportError:  # Windows: no advisory locks; the folder's files are still atomic
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AdaDINOError(
                f"another process holds the {what} in {folder}; wait for it, or choose another "
                "folder."
            ) from error
        # A forked reading process would inherit the lock and outlive its killed parent.
        register_after_fork(handle, lambda inherited: inherited.close())
        yield

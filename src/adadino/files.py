"""Files that appear whole or not at all: write beside the target, flush to disk, then rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adadino.errors import AdaDINOError


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}.", suffix=f".part{path.suffix}"
        )
    except OSError as error:
        raise AdaDINOError(f"cannot write {path}: {error.strerror}. Choose another place.") from error
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise AdaDINOError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


def write_atomic(path: Path | str, write: bytes | str | Callable[[Path], None]) -> None:
    """Write bytes, text, or whatever `write(temporary_path)` produces, whole or not at all."""
    with atomic(path) as part:
        if callable(write):
            write(part)
        else:
            part.write_bytes(write.encode() if isinstance(write, str) else write)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

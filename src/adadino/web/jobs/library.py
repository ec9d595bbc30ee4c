"""The images of the server's own data folder: nothing outside it, whatever links say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from adadino.errors import InputError
from adadino.web.jobs.rasters import SUFFIXES

MOST = 2000
"""Files in the list; a longer one helps nobody."""
_DEPTH = 6


def list_images(root: Path) -> list[str]:
    """The images under a folder, as paths relative to it, in order."""
    found: list[str] = []
    for path in _walk(root.resolve()):
        found.append(path)
        if len(found) == MOST:
            break
    return sorted(found)


def _walk(root: Path) -> Iterator[str]:
    for folder, below, files in os.walk(root):  # does not follow links
        here = Path(folder)
        deep = len(here.relative_to(root).parts) >= _DEPTH
        below[:] = [] if deep else sorted(name for name in below if not name.startswith("."))
        for name in sorted(files):
            path = here / name
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                continue
            if name.isprintable():
                yield path.relative_to(root).as_posix()


def find_image(root: Path, name: str) -> Path:
    """The image of a name in the list.

    Raises:
        InputError: It is not there, or not inside the folder.
    """
    root = root.resolve()
    problem = InputError(f"there is no image {name[:200]!r} in the server's data folder.")
    if not name or not name.isprintable() or len(name) > 1000:
        raise problem
    try:
        path = (root / name).resolve(strict=True)  # follows links, so that they are judged too
    except (OSError, ValueError, RuntimeError):
        raise problem from None
    hidden = any(part.startswith(".") for part in Path(name).parts)
    if not path.is_relative_to(root) or hidden or not path.is_file():
        raise problem
    if path.suffix.lower() not in SUFFIXES:
        raise problem
    return path

"""How a set gets to its place: written into `DEST/.partial`, then moved out of it, split by split.

What a killed run left there never looks like a finished set, and a run with equal settings goes on
with it. Nothing heavy is imported: the synthetic world, which needs no torch, is written this way
as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Container
from pathlib import Path

from adadino.errors import DataError
from adadino.files import write_atomic

SPLITS = ("train", "val", "test")
MANIFEST = "manifest.json"
TABLE = "classes.json"
"""What names the classes of a set, beside its splits, if it has any."""
STAGING = ".partial"
SETTINGS = "settings.json"


def settings_left(dest: Path) -> str | None:
    """The settings that an interrupted run left; None if there are none."""
    try:
        return (dest / STAGING / SETTINGS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"unreadable ({error})"


def stage(dest: Path, settings: str, *, anew: bool = False) -> Path:
    """The folder to work in: the one an interrupted run left, if it was the same work.

    Args:
        dest: Where the set will be.
        settings: All that decides its content, as text.
        anew: Whether to begin anew, whatever was left.

    Raises:
        DataError: If what was left belongs to other settings.
    """
    staging = dest / STAGING
    found = settings_left(dest)
    if anew or found is None:  # without settings nobody knows what was begun
        remove(staging)
    if not staging.exists():
        write_atomic(staging / SETTINGS, settings)
    elif found != settings:
        raise DataError(
            f"{staging} was left by a run with other settings: {' '.join(str(found).split())}. "
            "Repeat that run, or start anew with overwrite=True (--overwrite)."
        )
    for half_written in staging.rglob(".*.part.*"):
        half_written.unlink()
    return staging


def publish(staging: Path, dest: Path, splits: Container[str]) -> None:
    """Move the splits to their place, a manifest last; safe to repeat at any point.

    Raises:
        DataError: If the file system refuses.
    """
    try:
        remove(dest / MANIFEST)
        for split in SPLITS:
            if split not in splits:
                remove(dest / split)
            elif (staging / split).exists():  # else a run that was stopped here has moved it
                remove(dest / split)
                (staging / split).rename(dest / split)
        if (staging / MANIFEST).exists():
            remove(dest / TABLE)
            if (staging / TABLE).exists():  # copied, so that a run that is stopped can repeat it
                write_atomic(dest / TABLE, (staging / TABLE).read_text(encoding="utf-8"))
            (staging / MANIFEST).rename(dest / MANIFEST)
        remove(staging)
    except OSError as error:
        raise DataError(f"cannot move the finished set to {dest}: {error}. Run again.") from error


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)

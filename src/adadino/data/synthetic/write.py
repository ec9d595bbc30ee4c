"""The synthetic world as a set on disk: made beside its place, gone on with after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from adadino.data.staging import MANIFEST, SPLITS, STAGING, begun, publish, remove, stage
from adadino.data.synthetic.world import World, check_splits, require_rasterio, write_dataset
from adadino.errors import DataError, WriteError
from adadino.files import WAY_OUT, sole_writer, work_folder, write_atomic


def synthesize(
    dest: Path | str,
    splits: Mapping[str, int],
    *,
    seed: int = 0,
    size: int = 256,
    world: World | None = None,
    geotiff: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> bool:
    """Write a set as `write_dataset` does, but whole or not at all.

    Called again with the same settings, it goes on where an interrupted run stopped, and leaves a
    finished set as it is.

    Args:
        dest: Where the split folders go; new, empty or the same set, unless `overwrite`.
        splits: As for `write_dataset`.
        seed: As for `write_dataset`.
        size: As for `make_pair`.
        world: As for `make_pair`.
        geotiff: As for `write_dataset`.
        overwrite: Whether to remove the splits and the manifest that are there first.
        progress: As for `write_dataset`.

    Returns:
        Whether it was made: False where the same set was there already.

    Raises:
        InputError: If there is no such split, or no pair is asked for.
        DataError: If `dest` is not as it must be, was begun with other settings, or has lost files.
    """
    check_splits(splits)
    if geotiff:
        require_rasterio()
    dest, world = Path(dest), world or World()
    splits = {split: count for split, count in splits.items() if count}
    made_of = {"splits": splits, "seed": seed, "size": size, "geotiff": geotiff}
    settings = json.dumps({"world": asdict(world), **made_of}, indent=2) + "\n"
    if not overwrite and _is_there(dest, settings, splits):
        return False
    _check_place(dest, overwrite=overwrite)
    with sole_writer(dest / MANIFEST, "synthesis"):
        # Once more: another process may have finished a set while this one waited for its turn.
        if not overwrite and _is_there(dest, settings, splits):
            return False
        _check_place(dest, overwrite=overwrite)
        if overwrite and begun(dest) != settings:
            _clear(dest)
        staging = stage(dest, settings)
        write_dataset(
            staging, splits, seed=seed, size=size, world=world, geotiff=geotiff, resume=True,
            progress=progress,
        )  # fmt: skip
        write_atomic(staging / MANIFEST, settings)
        publish(staging, dest, splits)
    return True


def _is_there(dest: Path, settings: str, splits: Mapping[str, int]) -> bool:
    """Whether a set of these settings was finished here; it must still have its files."""
    try:
        if (dest / MANIFEST).read_text(encoding="utf-8") != settings:
            return False
    except (OSError, ValueError):
        return False
    for split, count in splits.items():
        for folder in (dest / split / role for role in ("A", "B", "label")):
            found = sum(1 for _ in folder.glob("[!.]*"))
            if found != count:
                raise DataError(
                    f"{folder} holds {found} files of a finished set, not {count}. Restore them, "
                    "or make the set again with overwrite=True (--overwrite)."
                )
    return True


def _check_place(dest: Path, *, overwrite: bool) -> None:
    ours = {STAGING, work_folder(dest / MANIFEST).name}
    try:
        found = {path.name for path in dest.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(
            f"cannot look into {dest}: {error.strerror}. Choose a folder, or a name that is free."
        ) from error
    # Beside a folder of ours there may be splits: it was stopped while it moved them.
    if not overwrite and found - ours - (set(SPLITS) if STAGING in found else set()):
        raise DataError(f"{dest} is not empty; choose another folder, or --overwrite.")


def _clear(dest: Path) -> None:
    """Remove an older set, the manifest first: without it none is taken for finished."""
    try:
        for name in (MANIFEST, *SPLITS, STAGING):
            remove(dest / name)
    except OSError as error:
        raise WriteError(f"cannot clear {dest}: {error.strerror}. {WAY_OUT}") from error

"""The synthetic world on disk: single pairs, GeoTIFFs, and whole datasets.

`synthesize` makes a dataset beside its place and moves it there when it is whole; after a kill the
same call goes on. rasterio is imported only where a GeoTIFF is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adadino.data.classes import as_image, table_text
from adadino.data.staging import (
    MANIFEST,
    SPLITS,
    STAGING,
    TABLE,
    publish,
    remove,
    settings_left,
    stage,
)
from adadino.data.synthetic.cover import CLASSES
from adadino.data.synthetic.world import World, make_classes, make_pair
from adadino.errors import AdaDINOError, DataError, InputError, WriteError
from adadino.files import WAY_OUT, atomic, sole_writer, work_folder, write_atomic

CRS = "EPSG:32633"
ORIGIN = (500_000.0, 5_800_000.0)
"""Where GeoTIFFs lie: x and y of the upper left corner, in metres."""


def write_pair(
    directory: Path | str,
    seed: int,
    size: int | tuple[int, int] = 256,
    world: World | None = None,
    *,
    name: str | None = None,
    geotiff: bool = False,
    classes: bool = False,
) -> tuple[Path, Path, Path]:
    """Write a pair as A/NAME.png, B/NAME.png and label/NAME.png, the mask as 0 and 255.

    Args:
        directory: The folder that holds A, B and label.
        seed: As for `make_pair`.
        size: As for `make_pair`.
        world: As for `make_pair`.
        name: The file name without suffix; the seed in eight digits if left out.
        geotiff: Write .tif files with a CRS instead, in the place of `write_geotiff_pair`.
        classes: Write the classes of both dates to label1/NAME.png and label2/NAME.png as well.
    """
    if classes:
        pair, covers = make_classes(seed, size, world)
    else:
        pair, covers = make_pair(seed, size, world), None
    file = (f"{seed:08d}" if name is None else name) + (".tif" if geotiff else ".png")
    before, after, label = (Path(directory) / sub / file for sub in ("A", "B", "label"))
    arrays = pair.before, pair.after, pair.mask.astype(np.uint8) * 255
    for role, values in zip(("label1", "label2"), covers or (), strict=False):
        with atomic((Path(directory) / role / file).with_suffix(".png")) as part:
            as_image(values, CLASSES).save(part)
    for path, array in zip((before, after, label), arrays, strict=True):
        if geotiff:
            write_geotiff(path, array, (world or World()).gsd, CRS, ORIGIN)
        else:
            with atomic(path) as part:
                Image.fromarray(array).save(part)
    return before, after, label


def write_dataset(
    directory: Path | str,
    splits: Mapping[str, int],
    *,
    seed: int = 0,
    size: int | tuple[int, int] = 256,
    world: World | None = None,
    geotiff: bool = False,
    classes: bool = False,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write DIR/SPLIT/{A,B,label}/NAME.png; no two pairs share a seed.

    Pair i of split s (train 0, val 1, test 2) has the seed (100 * seed + s) * 1,000,000 + i, which
    is also its name. So a split stays the same whatever becomes of the others, and `make_pair`
    repeats any pair by its name.

    Args:
        directory: The dataset's folder.
        splits: The number of pairs of each split, for example {"train": 64, "val": 16}.
        seed: Different seeds give different datasets.
        size: As for `make_pair`.
        world: As for `make_pair`.
        geotiff: As for `write_pair`.
        classes: As for `write_pair`; a `classes.json` beside the splits names them.
        resume: Keep the pairs that are there; the caller must know that the settings are the same.
        progress: Called with (pairs done, pairs in all) after every pair.

    Returns:
        The label files, in order.

    Raises:
        InputError: If there is no such split, or no pair is asked for.
    """
    check_splits(splits)
    labels: list[Path] = []
    total = sum(splits.values())
    if classes:
        write_atomic(Path(directory) / TABLE, table_text(CLASSES))
    for split, count in splits.items():
        folder = Path(directory) / split
        for pair_seed in split_seeds(seed, split, count):
            label = folder / "label" / f"{pair_seed:08d}{'.tif' if geotiff else '.png'}"
            if not (resume and label.exists()):  # the label is written last
                write_pair(folder, pair_seed, size, world, geotiff=geotiff, classes=classes)
            labels.append(label)
            if progress is not None:
                progress(len(labels), total)
    return labels


def split_seeds(seed: int, split: str, count: int) -> range:
    """The seeds of the pairs that `write_dataset` gives to a split."""
    first = (100 * seed + SPLITS.index(split)) * 1_000_000
    return range(first, first + count)


def check_splits(splits: Mapping[str, int]) -> None:
    """Refuse splits that do not exist, and numbers of pairs that cannot be.

    Raises:
        InputError: If there are any, or no pair is asked for.
    """
    possible = all(split in SPLITS and 0 <= n <= 1_000_000 for split, n in splits.items())
    if not possible or not any(splits.values()):
        raise InputError(
            f"splits is {dict(splits)}; give each of {', '.join(SPLITS)} 0 to 1,000,000 pairs, "
            "and at least one of them some."
        )


def write_geotiff_pair(
    directory: Path | str,
    seed: int,
    size: int | tuple[int, int] = 1024,
    world: World | None = None,
    *,
    crs: str = CRS,
    origin: tuple[float, float] = ORIGIN,
) -> tuple[Path, Path, Path]:
    """Write before.tif, after.tif and truth.tif (0 and 1), north up, with a CRS.

    Args:
        directory: The folder to write to.
        seed: As for `make_pair`.
        size: As for `make_pair`.
        world: As for `make_pair`; `gsd` is the pixel size in the CRS' units.
        crs: A projected CRS whose unit is the metre.
        origin: The coordinates (x, y) of the upper left corner.
    """
    require_rasterio()
    world = world or World()
    pair = make_pair(seed, size, world)
    before, after, truth = (
        Path(directory) / f"{name}.tif" for name in ("before", "after", "truth")
    )
    arrays = pair.before, pair.after, pair.mask.astype(np.uint8)
    for path, array in zip((before, after, truth), arrays, strict=True):
        write_geotiff(path, array, world.gsd, crs, origin)
    return before, after, truth


def require_rasterio() -> None:
    """Say what to install, before any work is done.

    Raises:
        AdaDINOError: If rasterio is not installed.
    """
    try:
        import rasterio  # noqa: F401
    except ImportError as error:
        raise AdaDINOError(
            "GeoTIFFs need rasterio, which is not installed: pip install adadino[geo]"
        ) from error


def write_geotiff(
    path: Path, array: NDArray[np.uint8], gsd: float, crs: str, origin: tuple[float, float]
) -> None:
    """Write (H, W) or (H, W, 3) as a GeoTIFF, north up."""
    import rasterio
    from rasterio.errors import CRSError
    from rasterio.transform import from_origin

    try:
        place = rasterio.CRS.from_user_input(crs)
    except CRSError as error:
        raise InputError(f"crs is {crs!r}, which is unknown; give one like EPSG:32633.") from error
    bands = np.moveaxis(np.atleast_3d(array), 2, 0)  # (H, W[, C]) -> (C, H, W)
    count, height, width = bands.shape
    profile = {
        "driver": "GTiff", "dtype": "uint8", "height": height, "width": width, "count": count,
        "crs": place, "transform": from_origin(*origin, gsd, gsd),
        "photometric": "RGB" if count == 3 else "MINISBLACK", "compress": "deflate",
        "tiled": True, "blockxsize": 256, "blockysize": 256,
    }  # fmt: skip
    with atomic(path) as part, rasterio.open(part, "w", **profile) as raster:
        raster.write(bands)


def synthesize(
    dest: Path | str,
    splits: Mapping[str, int],
    *,
    seed: int = 0,
    size: int = 256,
    world: World | None = None,
    geotiff: bool = False,
    classes: bool = False,
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
        classes: As for `write_dataset`.
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
    if classes:  # left out without: sets of 0.1.0 do not name it
        made_of["classes"] = True
    settings = json.dumps({"world": asdict(world), **made_of}, indent=2) + "\n"
    if not overwrite and _is_there(dest, settings, splits):
        return False
    _check_place(dest, overwrite=overwrite)
    with sole_writer(dest / MANIFEST, "synthesis"):
        # Once more: another process may have finished a set while this one waited for its turn.
        if not overwrite and _is_there(dest, settings, splits):
            return False
        _check_place(dest, overwrite=overwrite)
        if overwrite and settings_left(dest) != settings:
            _clear(dest)
        staging = stage(dest, settings)
        write_dataset(
            staging, splits, seed=seed, size=size, world=world, geotiff=geotiff, classes=classes,
            resume=True, progress=progress,
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
    roles = (
        ("A", "B", "label", "label1", "label2") if (dest / TABLE).exists() else ("A", "B", "label")
    )
    for split, count in splits.items():
        for folder in (dest / split / role for role in roles):
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
    if not overwrite and found - ours - ({*SPLITS, TABLE} if STAGING in found else set()):
        raise DataError(f"{dest} is not empty; choose another folder, or --overwrite.")


def _clear(dest: Path) -> None:
    """Remove an older set, the manifest first: without it none is taken for finished."""
    try:
        for name in (MANIFEST, TABLE, *SPLITS, STAGING):
            remove(dest / name)
    except OSError as error:
        raise WriteError(f"cannot clear {dest}: {error.strerror}. {WAY_OUT}") from error

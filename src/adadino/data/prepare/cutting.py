"""Scenes cut into tiles: first the plan, from headers alone, then the PNG files.

Images are decoded one at a time, so that a scene of 5e8 pixels needs the memory of one image (2 GB:
Pillow keeps four bytes a pixel) and not of three. PNG compression, the slow part, runs in threads;
the caller's thread writes the files in the plan's order, so that every run does the same.
"""

from __future__ import annotations

import io
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from PIL import Image

from adadino.data.classes import Codes, as_image, open_classes
from adadino.data.folder import CLASS_ROLES, tile_name
from adadino.data.images import open_mask, open_rgb, open_size, open_values, readable
from adadino.data.prepare.archives import Member
from adadino.data.prepare.layouts import SceneFiles
from adadino.errors import DataError
from adadino.files import write_atomic

Progress = Callable[[int, int, str], None]


class Tile(NamedTuple):
    """A square of a scene, and where it goes."""

    name: str
    split: str | None
    row: int
    column: int


class SceneTiles(NamedTuple):
    """A scene, its size, and the tiles to cut from it."""

    scene: SceneFiles
    height: int
    width: int
    tiles: list[Tile]


def plan_tiles(scenes: Iterable[SceneFiles], tile: int, *, padded: bool) -> list[SceneTiles]:
    """Decide which tiles every scene gives, from the header of its first image.

    Args:
        scenes: The scenes.
        tile: The side of a tile.
        padded: Whether the edges are filled up to whole tiles, or dropped.

    Raises:
        DataError: If a scene is smaller than a tile, or two tiles would have one name.
    """
    plans: list[SceneTiles] = []
    seen: dict[tuple[str | None, str], str] = {}
    for scene in scenes:
        with readable(scene.before.origin), scene.before.open() as file:
            height, width = open_size(file, scene.before.origin)
        rows, columns = height // tile, width // tile
        if padded:
            rows, columns = -(-height // tile), -(-width // tile)
        if not rows or not columns:
            raise DataError(
                f"{scene.before.origin} is {width} x {height}, smaller than a tile of {tile}. "
                "Choose a smaller tile, or remove the scene."
            )
        tiles = [
            Tile(tile_name(scene.name, row, column, (rows, columns)), scene.split, row, column)
            for row in range(rows)
            for column in range(columns)
        ]
        for one in tiles:
            other = seen.setdefault((one.split, one.name), scene.name)
            if other != scene.name:
                raise DataError(
                    f"scenes {other} and {scene.name} both give a tile called {one.name}. Rename "
                    "one of them."
                )
        plans.append(SceneTiles(scene, height, width, tiles))
    return plans


def size_notes(plans: Sequence[SceneTiles], tile: int, *, padded: bool) -> list[str]:
    """Notes on what became of edges that do not fill a tile."""
    ragged = [plan for plan in plans if plan.height % tile or plan.width % tile]
    if not ragged:
        return []
    what = (
        "edges were padded with black, unchanged pixels up to whole tiles"
        if padded
        else "edges that do not fill a tile were dropped"
    )
    (height, width), count = Counter((plan.height, plan.width) for plan in ragged).most_common(1)[0]
    return [f"{what} (scenes: {len(ragged)}, of which {width} x {height}: {count})"]


def cut(
    plans: Sequence[SceneTiles],
    dest: Path,
    tile: int,
    progress: Progress | None,
    *,
    codes: Codes | None = None,
) -> None:
    """Write every planned tile as `dest/{split}/{A,B,label}/{name}.png`; skip those that exist.

    With codes, `label1` and `label2` come beside them: the classes of both dates.

    Args:
        plans: The scenes and their tiles, each with its split.
        dest: The folder to write into.
        tile: The side of a tile.
        progress: Called with the files done, the total and the name of the last tile.
        codes: The classes of the source; None if its labels are change alone.

    Raises:
        DataError: If an image cannot be read, or the sizes of a scene's images differ.
    """
    total = (3 if codes is None else 5) * sum(len(plan.tiles) for plan in plans)
    workers = os.cpu_count() or 1
    waiting: deque[tuple[Path, Future[bytes]]] = deque()
    done = 0

    def write_first() -> None:
        nonlocal done
        path, encoded = waiting.popleft()
        write_atomic(path, encoded.result())
        done += 1
        if progress:
            progress(done, total, path.stem)

    with ThreadPoolExecutor(workers) as pool:
        for plan in plans:
            for role, members in plan.scene.by_role(classes=codes is not None).items():
                paths = _paths(plan, dest, role)
                missing = {path: t for path, t in paths.items() if not path.exists()}
                done += len(paths) - len(missing)
                for path, square in _squares(plan, role, members, missing, tile, codes):
                    waiting.append((path, pool.submit(_encode, square)))
                    # Bounded, or a scene's tiles would all wait in memory beside it.
                    if len(waiting) > 4 * workers:
                        write_first()
        while waiting:
            write_first()


def tile_paths(plan: SceneTiles, dest: Path, *, classes: bool = False) -> list[Path]:
    """All files that a scene's tiles are written to."""
    roles = plan.scene.by_role(classes=classes)
    return [path for role in roles for path in _paths(plan, dest, role)]


def _paths(plan: SceneTiles, dest: Path, role: str) -> dict[Path, Tile]:
    return {dest / str(one.split) / role / f"{one.name}.png": one for one in plan.tiles}


def _squares(
    plan: SceneTiles,
    role: str,
    members: tuple[Member, ...],
    wanted: dict[Path, Tile],
    tile: int,
    codes: Codes | None,
) -> Iterator[tuple[Path, Image.Image]]:
    if not wanted:
        return
    if codes is not None and role in ("label", *CLASS_ROLES):
        image = _of_classes(plan, role, members, codes)
    else:
        image = _decoded(plan, members[0], open_mask if role == "label" else open_rgb)
    for path, one in wanted.items():
        left, top = one.column * tile, one.row * tile
        # Beyond the image's edge, crop() gives zeros: black, unchanged.
        yield path, image.crop((left, top, left + tile, top + tile))


def _of_classes(
    plan: SceneTiles, role: str, members: tuple[Member, ...], codes: Codes
) -> Image.Image:
    """The change, or the classes of one date, of a scene's labels."""
    if len(members) == 1:
        values = np.asarray(_decoded(plan, members[0], _open_codes))
        before, after = codes.split(values, members[0].origin)
    else:
        before, after = (
            np.asarray(_decoded(plan, member, partial(_open_classes, codes=codes)))
            for member in members
        )
    if role == "label":
        return Image.fromarray(((before > 0) | (after > 0)).astype(np.uint8) * 255)
    return as_image(before if role == CLASS_ROLES[0] else after, codes.classes)


def _open_classes(file: IO[bytes], name: str, *, codes: Codes) -> Image.Image:
    return Image.fromarray(open_classes(file, name, codes.classes))


def _open_codes(file: IO[bytes], name: str) -> Image.Image:
    values = open_values(file, name)
    if values.ndim == 3:
        raise DataError(f"{name} is coloured; write from-to codes as numbers in a grey image.")
    return Image.fromarray(values)


def _decoded(
    plan: SceneTiles, member: Member, decode: Callable[[IO[bytes], str], Image.Image]
) -> Image.Image:
    with readable(member.origin), member.open() as file:
        image = decode(file, member.origin)
    if (image.height, image.width) != (plan.height, plan.width):
        raise DataError(
            f"{member.origin} is {image.width} x {image.height}, but {plan.scene.before.origin} "
            f"is {plan.width} x {plan.height}. The images of a scene show one place: resample or "
            "replace one of them."
        )
    return image


def _encode(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Level 1 takes a third of the default's time for files that are 7 % larger.
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()

"""The labelled tiles of an adaptation: read, checked, and divided into folds.

- A fold is whole scenes, where there are enough of them, and else blocks of neighbouring tiles:
  tiles that share pixels are never on both sides, or the score would be of something known.
- A folder may hold masks of what is known (`known/`, white is known), as `review` writes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adadino.data.folder import PairFiles, PairFolder, find_pairs
from adadino.data.images import read_mask
from adadino.errors import DataError

TILE = 256
LEAST = 4
"""Tiles below which nothing can be held out."""
_PLACE = re.compile(r"(.+)_(r?)(\d+)_c?(\d+)")
"""The name of a tile: `scene_3_5` counts tiles, `scene_r768_c1280` pixels."""


@dataclass(frozen=True, eq=False)
class Tile:
    """One labelled pair."""

    name: str
    scene: str
    place: tuple[int, int]
    """Row and column of its upper left corner in the scene, in pixels."""
    before: Tensor
    """(3, H, W) uint8, and so is `after`."""
    after: Tensor
    label: Tensor
    """(H, W) bool."""
    known: Tensor
    """(H, W) bool: where the label counts."""


def pairs_of(root: Path) -> list[PairFiles]:
    """The files of a folder with A, B and label, or with a split train that has them."""
    return find_pairs(root, _split(root))


def _split(root: Path) -> str | None:
    return "train" if (root / "train").is_dir() else None


def read_tiles(root: Path) -> list[Tile]:
    """The tiles of a folder with A, B and label, or with a split train that has them.

    Raises:
        DataError: There are too few, they are of one class, of different sizes, or contradict
            each other.
    """
    split = _split(root)
    folder = PairFolder(root, split)
    tile = TILE if all(h % TILE == 0 and w % TILE == 0 for h, w in folder.sizes) else None
    folder = PairFolder(root, split, tile=tile, cache=True)
    if len(set(folder.sizes)) > 1:
        raise DataError(
            f"the tiles of {root} have different sizes, {_sizes(folder.sizes)}; cut them to one "
            "size: adadino prepare folder."
        )
    where = root if split is None else root / split
    masks = {pair.name: _known(where, pair.name) for pair in folder.pairs}
    tiles = []
    for index, name in enumerate(folder.names):
        before, after, label, _ = folder[index]
        scene, place = _place(name, (label.shape[0], label.shape[1]))
        known = torch.ones_like(label, dtype=torch.bool)
        if (mask := masks.get(name)) is not None:
            known = torch.from_numpy(mask)
        tiles.append(Tile(name, scene, place, before, after, label.bool(), known))
    check_tiles(tiles, str(root))
    return tiles


def check_tiles(tiles: Sequence[Tile], root: str) -> None:
    """Refuse tiles from which nothing can be learned.

    Raises:
        DataError: There are too few, they are of one class, or they contradict each other.
    """
    if len(tiles) < LEAST:
        raise DataError(
            f"{root} has {len(tiles)} tiles; at least {LEAST} are needed, so that some can be held "
            "out. Judge more polygons, in other places."
        )
    changed = sum(int((tile.label & tile.known).sum()) for tile in tiles)
    whole = sum(int(tile.known.sum()) for tile in tiles)
    if changed in (0, whole):
        only = "change" if changed else "no change"
        raise DataError(
            f"the tiles of {root} hold one class only, {only}; a model cannot learn from that what "
            "the other looks like. Judge polygons that are right and places where nothing changed."
        )
    seen: dict[str, Tile] = {}
    for tile in tiles:
        pixels = tile.before.numpy().tobytes() + tile.after.numpy().tobytes()
        digest = hashlib.sha256(pixels).hexdigest()
        other = seen.setdefault(digest, tile)
        both = other.known & tile.known
        if other is not tile and not torch.equal(other.label & both, tile.label & both):
            raise DataError(
                f"{other.name} and {tile.name} of {root} show the same two images with different "
                "labels; remove one of them."
            )


def divide(tiles: Sequence[Tile], folds: int) -> list[list[int]]:
    """The numbers of the tiles of each fold, at most so many folds.

    Raises:
        DataError: All tiles overlap, so that none can be held out.
    """
    units = _units(tiles)
    if len(units) < 2:
        raise DataError(
            f"all {len(tiles)} tiles overlap each other; none can be held out to see whether the "
            "new model is better. Judge polygons in other places."
        )
    scenes = sorted({tiles[unit[0]].scene for unit in units})
    count = min(folds, len(units))
    parts: list[list[int]] = [[] for _ in range(count)]
    if len(scenes) >= count:
        # The largest scenes first, each to the smallest fold.
        by_scene = {s: [n for u in units for n in u if tiles[n].scene == s] for s in scenes}
        for scene in sorted(scenes, key=lambda s: (-len(by_scene[s]), s)):
            min(parts, key=len).extend(by_scene[scene])
    else:
        # Blocks: neighbours in reading order stay together.
        for index, unit in enumerate(units):
            parts[index * count // len(units)].extend(unit)
    return [sorted(part) for part in parts if part]


def _units(tiles: Sequence[Tile]) -> list[list[int]]:
    """Tiles that share pixels, together; in reading order, scene by scene."""
    order = sorted(range(len(tiles)), key=lambda n: (tiles[n].scene, tiles[n].place))
    units: list[list[int]] = []
    for number in order:
        touching = [u for u in units if any(_overlap(tiles[n], tiles[number]) for n in u)]
        joined = [number, *(n for unit in touching for n in unit)]
        units = [unit for unit in units if unit not in touching] + [sorted(joined)]
    return units


def _overlap(one: Tile, other: Tile) -> bool:
    if one.scene != other.scene:
        return False
    height, width = one.label.shape
    down, right = (abs(a - b) for a, b in zip(one.place, other.place, strict=True))
    return down < height and right < width


def _place(name: str, size: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """The scene and the place that a tile's name tells; a tile without a place is a scene."""
    found = _PLACE.fullmatch(name)
    if found is None:
        return name, (0, 0)
    scale = (1, 1) if found[2] else size
    return found[1], (int(found[3]) * scale[0], int(found[4]) * scale[1])


def _known(folder: Path, name: str) -> NDArray[np.bool_] | None:
    path = folder / "known" / f"{name}.png"
    return read_mask(path) if path.is_file() else None


def _sizes(sizes: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{w} x {h}" for h, w in sorted(set(sizes)))

"""A prepared split as a dataset: `ROOT/{train,val,test}/{A,B,label}`, or `ROOT/{A,B,label}`.

- Files are paired by stem, never by their place in a sorted list: one missing file would shift
  every pair after it and still train.
- Sizes are compared when the dataset is made, from headers, so that a run fails before its first
  step and not in the middle of its first epoch.
- Scoring whole images or tiles of them gives different figures; `tile` makes that choice explicit.
"""

from __future__ import annotations

import copy
import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from adadino.bands import BandsConfig
from adadino.config import ClassesConfig
from adadino.data.bands import band_size, is_array, read_bands
from adadino.data.classes import Values, read_classes, read_table, translation
from adadino.data.images import is_image, read_image, read_mask, read_size
from adadino.data.staging import SPLITS, TABLE
from adadino.errors import DataError, LeakageWarning

__all__ = [
    "SPLITS",
    "PairFiles",
    "PairFolder",
    "Place",
    "find_pairs",
    "fingerprint",
    "read_image",
    "read_mask",
    "tile_name",
    "warn_of_leakage",
]


class ClassFiles(NamedTuple):
    """Where the classes of a pair lie."""

    before: Path
    after: Path
    table: Path
    """The `classes.json` that names them."""


class PairFiles(NamedTuple):
    """The files of one pair."""

    name: str
    before: Path
    after: Path
    label: Path
    classes: ClassFiles | None = None
    """The classes of both dates, in a set with a `classes.json`."""


CLASS_ROLES = ("label1", "label2")
"""Folders of the classes of the first and of the second date."""

Place = int | tuple[int, float, float]
"""An item, or an item whose tile is moved by shares of its side, down and right."""


class _Tile(NamedTuple):
    pair: int
    top: int
    left: int


def find_pairs(root: Path | str, split: str | None = None) -> list[PairFiles]:
    """List the pairs of a prepared folder, matched by stem and sorted by name.

    A set with a `classes.json` has the classes of both dates in `label1` and `label2`, too.

    Args:
        root: The folder that holds `A`, `B` and `label`, or split folders that hold them.
        split: `train`, `val` or `test`; None if `root` has no split folders.

    Raises:
        DataError: If a folder is missing or empty, a file has no partner, or two share a stem.
    """
    folder = Path(root) if split is None else Path(root) / split
    table = find_table(root)
    if not any((folder / role).exists() for role in CLASS_ROLES):
        table = None  # somebody else's file of that name
    wanted = ("A", "B", "label") if table is None else ("A", "B", "label", *CLASS_ROLES)
    roles = {role: _by_stem(folder / role, root) for role in wanted}
    names = sorted(set().union(*roles.values()))
    if not names:
        raise DataError(
            f"{folder} holds no image pairs. Put PNG, JPEG or TIFF files into its A, B and label "
            "folders, or make them with `adadino prepare`."
        )
    for name in names:
        present = next(files[name] for files in roles.values() if name in files)
        for role, files in roles.items():
            if name not in files:
                raise DataError(
                    f"{present} has no partner: {folder / role} holds no image called {name}. "
                    "Add it, or remove the files that it belongs to."
                )
    found = []
    for name in names:
        before, after, label, *classes = (files[name] for files in roles.values())
        of_classes = None if table is None else ClassFiles(classes[0], classes[1], table)
        found.append(PairFiles(name, before, after, label, of_classes))
    return found


def find_table(root: Path | str) -> Path | None:
    """The `classes.json` of a prepared folder, or of the set whose split it is; None without."""
    root = Path(root)
    homes = (root, root.parent) if root.name in SPLITS else (root,)
    return next((home / TABLE for home in homes if (home / TABLE).exists()), None)


def fingerprint(pairs: Iterable[PairFiles]) -> str:
    """Say in 16 digits which data a figure was computed on.

    The digest covers the names and the bytes of the files, in the order of the names. It depends
    neither on where the folder is nor on its files' suffixes or dates.

    Args:
        pairs: What `find_pairs` returned, in any order.

    Returns:
        "sha256:" and 16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for pair in sorted(pairs, key=lambda pair: pair.name):
        digest.update(hashlib.sha256(pair.name.encode()).digest())
        classes = () if pair.classes is None else pair.classes
        for path in (pair.before, pair.after, pair.label, *classes):
            digest.update(_file_digest(path))
    return f"sha256:{digest.hexdigest()[:16]}"


def warn_of_leakage(splits: Mapping[str, Sequence[PairFiles]]) -> None:
    """Warn if two splits are the same pairs: a score on one is no score on unseen pairs.

    Args:
        splits: The pairs of each split. Files are read only where all names are equal.
    """
    for (one, pairs), (two, others) in combinations(splits.items(), 2):
        same_names = {pair.name for pair in pairs} == {pair.name for pair in others}
        if same_names and fingerprint(pairs) == fingerprint(others):
            warnings.warn(
                f"{one} and {two} hold the same {len(pairs)} pairs ({fingerprint(pairs)}): a model "
                "that was trained or chosen on one has seen the other. Replace one of them.",
                LeakageWarning,
                stacklevel=2,
            )


def tile_name(scene: str, row: int, column: int, grid: tuple[int, int]) -> str:
    """Name a tile after its scene and place; a scene that is one tile keeps its name."""
    return scene if grid == (1, 1) else f"{scene}_{row}_{column}"


class PairFolder(Dataset[tuple[Tensor, Tensor, Tensor, int]]):
    """Labelled pairs as tensors, in the order of their names.

    An item is `(before, after, mask, index)`: uint8 (3, H, W) twice, uint8 (H, W) of 0 and 1, and
    the item's own index, with which `names[index]` tells what it was. With bands, images are
    float32 (N, H, W) in 0..1, and tiles at the edges are filled up with zeros that did not change.
    With classes the mask is (3, H, W): change, and the class of each date as the model counts
    them, 0 where unlabelled.

    Args:
        root: The folder that holds the split folders, or `A`, `B` and `label` themselves; several
            folders are one dataset, whose names begin with the folder's.
        split: `train`, `val` or `test`; None if `root` has no split folders.
        tile: Cut every image into non-overlapping squares of this side; None keeps it whole.
        cache: Decode everything now and keep it in memory, seven bytes a pixel. Forked workers
            share it. Without it, each tile decodes the image that it is cut from.
        bands: The bands of a model that takes others than red, green and blue.
        classes: Read the classes of both dates as well, numbered as in this list.

    Raises:
        DataError: As `find_pairs`, and if sizes differ within a pair, `tile` does not divide
            them, or a file cannot be read; with classes, if there are none or they are others.
    """

    def __init__(
        self,
        root: Path | str | Sequence[Path | str],
        split: str | None = None,
        *,
        tile: int | None = None,
        cache: bool = False,
        bands: BandsConfig | None = None,
        classes: ClassesConfig | None = None,
    ) -> None:
        if tile is not None and tile < 1:
            raise DataError(f"tile = {tile} is not a size. Use a positive number, or None.")
        self.pairs = _find_all([root] if isinstance(root, Path | str) else root, split)
        self.tile = tile
        self.bands = bands if bands is not None and bands.names else None
        self._tables = None if classes is None else _tables(self.pairs, classes)
        self.names: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        """Height and width of every item."""
        self._tiles: list[_Tile] = []
        for index, pair in enumerate(self.pairs):
            self._add_tiles(index, pair)
        self._cache: list[tuple[Tensor, Tensor, Tensor]] | None = None
        if cache:
            with ThreadPoolExecutor() as pool:  # Pillow decodes outside the interpreter's lock
                self._cache = list(pool.map(self._read, self.pairs))

    def __len__(self) -> int:
        return len(self._tiles)

    def __getitem__(self, place: Place) -> tuple[Tensor, Tensor, Tensor, int]:
        index, down, right = place if isinstance(place, tuple) else (place, 0.0, 0.0)
        pair, top, left = self._tiles[index]
        images = self._cache[pair] if self._cache is not None else self._read(self.pairs[pair])
        if self.tile is not None:
            height, width = images[2].shape[-2:]
            if isinstance(place, tuple):
                top = max(min(top + round(down * self.tile), height - self.tile), 0)
                left = max(min(left + round(right * self.tile), width - self.tile), 0)
            rows, columns = slice(top, top + self.tile), slice(left, left + self.tile)
            # (..., H, W) -> (..., tile, tile)
            before, after, mask = (image[..., rows, columns] for image in images)
            if mask.shape[-2:] != (self.tile, self.tile):  # at an edge, and with bands alone
                edges = (0, self.tile - mask.shape[-1], 0, self.tile - mask.shape[-2])
                before, after, mask = (F.pad(image, edges) for image in (before, after, mask))
        else:
            before, after, mask = images
        # Cloned, so that an augmentation in place cannot reach the cache.
        return before.clone(), after.clone(), mask.clone(), index

    def keep(self, items: Sequence[int]) -> PairFolder:
        """The dataset with some of its items only, in their order; decoded pairs are shared."""
        some = copy.copy(self)
        used = sorted({self._tiles[item].pair for item in items})
        place = {pair: new for new, pair in enumerate(used)}
        some.pairs = [self.pairs[pair] for pair in used]
        some.names = [self.names[item] for item in items]
        some.sizes = [self.sizes[item] for item in items]
        tiles = (self._tiles[item] for item in items)
        some._tiles = [tile._replace(pair=place[tile.pair]) for tile in tiles]
        if self._cache is not None:
            some._cache = [self._cache[pair] for pair in used]
        return some

    def _add_tiles(self, index: int, pair: PairFiles) -> None:
        height, width = self._common_size(pair)
        tile = self.tile
        if tile is None:
            self.names.append(pair.name)
            self.sizes.append((height, width))
            self._tiles.append(_Tile(index, 0, 0))
            return
        if self.bands is None and (height % tile or width % tile):
            raise DataError(
                f"{pair.before} is {width} x {height}, which tiles of {tile} do not fill. Cut it "
                "with `adadino prepare`, choose a size that divides it, or leave it whole "
                "(tile=None)."
            )
        grid = -(-height // tile), -(-width // tile)
        for row in range(grid[0]):
            for column in range(grid[1]):
                self.names.append(tile_name(pair.name, row, column, grid))
                self.sizes.append((tile, tile))
                self._tiles.append(_Tile(index, row * tile, column * tile))

    def _common_size(self, pair: PairFiles) -> tuple[int, int]:
        """Height and width of a pair's files, which must be the same."""
        height, width = self._size(pair.before)
        labels = (pair.label, *(() if pair.classes is None else pair.classes[:2]))
        for path, other in (
            (pair.after, self._size(pair.after)),
            *((path, read_size(path)) for path in labels),
        ):
            if other != (height, width):
                raise DataError(
                    f"{path} is {other[1]} x {other[0]}, but {pair.before} is {width} x {height}. "
                    "The files of a pair show one place: resample or replace one of them."
                )
        return height, width

    def _size(self, path: Path) -> tuple[int, int]:
        return read_size(path) if self.bands is None else band_size(path, self.bands)

    def _read(self, pair: PairFiles) -> tuple[Tensor, Tensor, Tensor]:
        """Decode a pair: (N, H, W) twice and the mask (H, W), or (3, H, W) with classes."""
        before, after = (self._read_image(path) for path in (pair.before, pair.after))
        mask = torch.from_numpy(read_mask(pair.label).astype(np.uint8))
        if self._tables is None:
            return before, after, mask
        assert pair.classes is not None, "`_tables` has refused pairs without classes"
        own, number = self._tables[pair.classes.table]
        dates = [number[read_classes(path, own)] for path in pair.classes[:2]]
        return before, after, torch.stack([mask, *map(torch.from_numpy, dates)])

    def _read_image(self, path: Path) -> Tensor:
        if self.bands is not None:
            return torch.from_numpy(read_bands(path, self.bands))
        return torch.from_numpy(read_image(path)).permute(2, 0, 1).contiguous()  # (H, W, 3)


def _find_all(roots: Sequence[Path | str], split: str | None) -> list[PairFiles]:
    if len(roots) == 1:
        return find_pairs(roots[0], split)
    return [
        pair._replace(name=f"{Path(root).name}/{pair.name}")
        for root in roots
        for pair in find_pairs(root, split)
    ]


def change_of(masks: Tensor) -> Tensor:
    """The change (B, H, W) of a batch of masks, with classes (B, 3, H, W) or without."""
    return masks[:, 0] if masks.ndim == 4 else masks


def _tables(
    pairs: Sequence[PairFiles], classes: ClassesConfig
) -> dict[Path, tuple[ClassesConfig, Values]]:
    """For each `classes.json`, its own classes and their numbers among those wanted."""
    found: dict[Path, tuple[ClassesConfig, Values]] = {}
    for pair in pairs:
        if pair.classes is None:
            raise DataError(
                f"{pair.label} is a mask of change alone, and the model also learns what stood "
                f"there ({', '.join(classes.names)}); give a set with label1, label2 and {TABLE}."
            )
        table = pair.classes.table
        if table not in found:
            own = read_table(table).classes
            found[table] = own, translation(own, classes, table)
    return found


def _by_stem(folder: Path, root: Path | str) -> dict[str, Path]:
    if not os.path.isdir(folder):  # noqa: PTH112, pathlib raises for names that are too long
        raise DataError(
            f"there is no folder {folder}. A prepared set has {root}/SPLIT/{{A,B,label}} or "
            f"{root}/{{A,B,label}}; `adadino prepare` makes one."
        )
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        # Names that start with a dot are half-written files and what file managers leave behind.
        if path.name.startswith(".") or not (is_image(path.name) or is_array(path.name)):
            continue
        if path.stem in found:
            raise DataError(
                f"{found[path.stem]} and {path} have the same stem, so that pairing by name is "
                "ambiguous. Remove one of them."
            )
        found[path.stem] = path
    return found


def _file_digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}. Restore the file.") from error

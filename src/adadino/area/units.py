"""What there is to do: the scenes of a region, cut into units on one lattice.

A unit is a rectangle of a scene, small enough to be done again when its worker dies, large enough
that the tiles which cross its borders, and are predicted on both sides, are few. A scene's tiles,
chunks, stretch and shift are the scene's own: cutting moves no pixel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from adadino.area.gdal import teach_gdal
from adadino.area.store import without_secrets
from adadino.errors import AdaDINOError, ConfigError, InputError
from adadino.geo.grid import Grid, match
from adadino.geo.read.raster import resampled_grid
from adadino.geo.read.source import describe
from adadino.geo.write.cog import BLOCK
from adadino.scene.options import SceneOptions

OPENERS = 16
"""Threads that open headers: most of the time they wait for a server."""


@dataclass(frozen=True)
class Dates:
    """A pair and its name, which is a folder's name, too."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class PlacedDates:
    """A pair, and the grid of its result."""

    dates: Dates
    grid: Grid


@dataclass(frozen=True)
class Unit:
    """A rectangle of a scene."""

    dates: Dates
    row: int
    col: int
    height: int
    width: int

    @property
    def name(self) -> str:
        """Its first row and column: sorted by name, units lie from top to bottom."""
        return f"{self.row:07d}-{self.col:07d}"

    @property
    def label(self) -> str:
        """What people are told: the pair, rows and columns."""
        return (
            f"{self.dates.name}, rows {self.row} to {self.row + self.height}, columns {self.col} "
            f"to {self.col + self.width}"
        )

    @property
    def part(self) -> tuple[slice, slice]:
        """Its rows and columns of the scene."""
        return slice(self.row, self.row + self.height), slice(self.col, self.col + self.width)


def open_scenes(
    pairs: Sequence[Dates], options: SceneOptions
) -> tuple[list[PlacedDates], dict[str, str]]:
    """Learn the grids of all pairs from their headers.

    Returns:
        The scenes, and for each pair that cannot be opened what is wrong with it.
    """

    def grid_of(dates: Dates) -> Grid | AdaDINOError:
        try:
            before, _ = describe(dates.before, "before", options.bands)
            after, _ = describe(dates.after, "after", options.bands)
            return resampled_grid(match(before, after).grid, options.gsd)
        except AdaDINOError as error:
            return error

    teach_gdal()
    with ThreadPoolExecutor(OPENERS) as threads:
        found = list(zip(pairs, threads.map(grid_of, pairs), strict=True))
    scenes = [PlacedDates(dates, grid) for dates, grid in found if isinstance(grid, Grid)]
    broken = {
        dates.name: without_secrets(str(error))
        for dates, error in found
        if isinstance(error, AdaDINOError)
    }
    return scenes, broken


def cut(scene: PlacedDates, side: int) -> Iterator[Unit]:
    """Cut a scene into units, row by row.

    Raises:
        ConfigError: The side is no multiple of the blocks that rasters are stored in.
    """
    if side < BLOCK or side % BLOCK:
        raise ConfigError(f"unit is {side}, must be a multiple of {BLOCK} pixels.")
    height, width = scene.grid.height, scene.grid.width
    for row in range(0, height, side):
        for col in range(0, width, side):
            size = min(side, height - row), min(side, width - col)
            yield Unit(scene.dates, row, col, *size)


def image_name(name: str, base: Path, source: Path) -> str:
    """A name as GDAL opens it from anywhere."""
    if "\0" in name:
        raise InputError(f"{source} names a file with a zero byte in it, {name!r}; correct it.")
    if name.startswith(("/vsi", "/")) or "://" in name:
        return re.sub(r"^https?://", lambda scheme: f"/vsicurl/{scheme[0]}", name)
    return str((base / name).resolve())


def folder_name(name: str) -> str:
    """A name that a folder can have: plain characters, and not too long."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:60] or "pair"

"""Whether a scene is one that the model can judge: its size, its resolution, its look."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
from rasterio.windows import Window

from adadino.domain import TILE, Domain, Fit, judge, look_of, strange_looks
from adadino.errors import DomainWarning, InputError
from adadino.geo.polygons.measure import ground_resolution
from adadino.geo.read.reader import PairReader, PairWindow
from adadino.geo.read.stretch import all_windows
from adadino.runtime.protocol import Runner
from adadino.scene.options import SceneOptions
from adadino.scene.pair import OpenDates

SIDE = 4
"""Tiles that are looked at, along each side of the scene."""


def check_scene(pair: OpenDates, forward: Runner, options: SceneOptions) -> Fit:
    """Compare an open pair with what the model takes and knows, and warn where it is strange.

    Raises:
        InputError: The scene is too small, or its resolution is far from what the model knows.
    """
    reader = pair.reader
    _check_size(reader, forward.stride)
    fit = resolution_fit(reader, forward.domain, any_too=options.any_resolution)
    tiles = list(_readable(reader, _spread(reader)))
    sentences = [*fit.sentences, *_constant(pair, tiles)]
    if fit.domain is not None:
        seen = [tile for tile in tiles if tile.valid.mean() >= 0.5]
        for name, images in _dates(pair, seen):
            looks = [look_of(image, tile.valid) for image, tile in zip(images, seen, strict=True)]
            sentences += strange_looks(fit.domain, name, looks)
    for text in sentences:
        warnings.warn(text, DomainWarning, stacklevel=2)
    return dataclasses.replace(fit, sentences=tuple(sentences))


def resolution_fit(reader: PairReader, domain: Domain | None, *, any_too: bool) -> Fit:
    """Compare the pixels on the ground with those the model knows; see `domain.judge`."""
    own = max(filter(None, map(ground_resolution, reader.own_grids)), default=None)
    return judge(domain, ground_resolution(reader.grid), own=own, any_too=any_too)


def _check_size(reader: PairReader, least: int) -> None:
    grid = reader.grid
    if min(grid.height, grid.width) < least:
        raise InputError(
            f"the dates have {grid.width} x {grid.height} pixels in common; the model needs "
            f"{least} x {least} to see anything. Give larger images."
        )


def _spread(reader: PairReader) -> Iterator[Window]:
    """Windows spread evenly over the scene: all of it if it is small."""
    height, width = reader.grid.shape
    down, across = (min(SIDE, -(-length // TILE)) for length in (height, width))
    rows, cols = min(TILE, height), min(TILE, width)
    for i in range(down):
        for j in range(across):
            row = (height - rows) * i // max(down - 1, 1)
            col = (width - cols) * j // max(across - 1, 1)
            yield Window(col, row, cols, rows)


def _dates(
    pair: OpenDates, windows: Iterable[PairWindow]
) -> Iterator[tuple[str, list[np.ndarray]]]:
    windows = list(windows)
    for name, role in zip(pair.names, ("before", "after"), strict=True):
        yield f"{role} ({name})", [getattr(window, role) for window in windows]


def _constant(pair: OpenDates, tiles: list[PairWindow]) -> Iterator[str]:
    """A sentence for each date of which every valid pixel has one colour."""
    if _is_constant(tiles, "before") or _is_constant(tiles, "after"):
        for role, name in zip(("before", "after"), pair.names, strict=True):
            if _is_constant(_everything(pair.reader), role):
                yield (
                    f"{role} ({name}) is constant: every valid pixel has the same colour, so it "
                    "shows nothing to compare; check the file, --bands and --scale."
                )


def _everything(reader: PairReader) -> Iterator[PairWindow]:
    yield from _readable(reader, all_windows(reader.grid.width, reader.grid.height))


def _readable(reader: PairReader, windows: Iterable[Window]) -> Iterator[PairWindow]:
    """Windows of the pair; what is damaged is reported when it is predicted."""
    for window in windows:
        with suppress(InputError):
            yield reader.read_visible(window)


def _is_constant(windows: Iterable[PairWindow], role: str) -> bool:
    first = None
    for window in windows:
        pixels = getattr(window, role)[:, window.valid]  # (3, n)
        if first is None and pixels.size:
            first = pixels[:, :1]
        if first is not None and (pixels != first).any():
            return False
    return True

"""Judged tiles as a folder that `train`, `evaluate` and `adapt` take: `A`, `B` and `label`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.data.staging import MANIFEST
from adadino.errors import InputError, WriteError
from adadino.files import write_atomic
from adadino.geo.polygons.measure import ground_resolution
from adadino.review.folder import Review
from adadino.review.labels import NODATA, Corrections, Truth

if TYPE_CHECKING:
    from rasterio.windows import Window

    from adadino.geo.grid import Grid
    from adadino.geo.read.source import OpenFile

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Tiles:
    """The tiles that were written."""

    names: tuple[str, ...]
    left_out: int
    """Tiles in which somebody judged something, but not all."""
    change: float
    """The share of changed pixels."""
    warnings: tuple[str, ...] = field(default=())


def write_tiles(
    review: Review,
    folder: Path | str,
    before: Path | str,
    after: Path | str,
    *,
    tile: int = 256,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
    partial: bool = False,
    open_file: OpenFile | None = None,
    report: Report | None = None,
) -> Tiles:
    """Write judged tiles as `A/B/label` folders that train, evaluate and adapt take.

    A tile is written if somebody said something in it and all of its pixels with data are known.

    Args:
        review: The review.
        folder: Where to; it must not hold tiles.
        before: The first date of the map, on whose grid the map lies.
        after: The second date.
        tile: Side of a tile in pixels.
        bands: Red, green and blue, as the map was predicted with.
        scale: Raw values that are black and white, as the map was predicted with.
        partial: Write tiles of which only a part is known too, with a folder `known` that says
            which: white is known. Only adapt reads it.
        open_file: How the dates are opened.
        report: Called with tiles done and all tiles.

    Raises:
        InputError: The dates do not lie on the map's grid, or nothing was judged.
        WriteError: The folder holds tiles, or cannot be written.
    """
    from adadino.geo.read.raster import open_pair
    from adadino.geo.read.source import open_dataset

    source = _Source(Corrections.of(review), review.grid, review.mask, review.facts.name)
    if source.corrections.empty:
        raise InputError(f"nothing is judged in {review.folder}; there are no tiles to write.")
    opens = open_file or open_dataset
    with open_pair(before, after, bands=bands, scale=scale, open_file=opens) as pair:
        if not pair.grid.is_close(review.grid):
            raise InputError(
                f"{before} and {after} lie on another grid than the map; give the dates from which "
                "it was predicted."
            )
        source = source._replace(open_file=opens)
        return _write_all(Path(folder), source, pair, tile, partial=partial, report=report)


def write_layer_tiles(
    layer: Path | str,
    folder: Path | str,
    before: Path | str,
    after: Path | str,
    *,
    tile: int = 256,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
) -> Tiles:
    """Write the tiles of a layer of polygons, whose map is not at hand, with folders `known`.

    Polygons that are right or missed are change, and so are all of a layer without verdicts. Where
    a polygon is unsure, or has no verdict, nothing is known. Everywhere else nothing changed.

    Raises:
        InputError: The layer cannot be read, or no polygon of it lies in the scene.
        WriteError: The folder holds tiles, or cannot be written.
    """
    from adadino.geo.read.raster import open_pair
    from adadino.review.intake import layer_outlines

    with open_pair(before, after, bands=bands, scale=scale) as pair:
        kinds = layer_outlines(Path(layer), pair.grid)
        source = _Source(Corrections(**kinds), pair.grid, None, Path(layer).stem)
        if source.corrections.empty:
            raise InputError(f"no polygon of {layer} is judged; there are no tiles to write.")
        return _write_all(Path(folder), source, pair, tile, partial=True, report=None)


class _Source(NamedTuple):
    """Where labels come from."""

    corrections: Corrections
    grid: Grid
    mask: Path | None
    """The map; None is a map without change."""
    name: str
    open_file: OpenFile | None = None
    """How the map is opened."""


def _write_all(
    folder: Path,
    source: _Source,
    pair: Any,
    tile: int,
    *,
    partial: bool,
    report: Report | None,
) -> Tiles:
    if any((folder / role).exists() for role in ("A", "B", "label")):
        raise WriteError(f"{folder} holds tiles already; choose another folder.")
    names: list[str] = []
    left_out = changed = pixels = 0
    for window, truth in _judged(source, tile, report):
        if not (partial or truth.known[truth.mask != NODATA].all()):
            left_out += 1
            continue
        if partial:
            beside = source.corrections.edges(
                truth.mask.shape, int(window.row_off), int(window.col_off)
            )
            truth = truth._replace(known=truth.known & ~beside)
        names.append(f"{source.name}_r{int(window.row_off)}_c{int(window.col_off)}")
        images = pair.read(window)
        truth = truth._replace(known=truth.known & images.valid)
        _write_tile(folder, names[-1], images, truth, partial=partial)
        changed += int((truth.mask == 1).sum())
        pixels += truth.mask.size
    metres = ground_resolution(pair.grid)
    known = None if metres is None else round(metres, 4)
    write_atomic(folder / MANIFEST, json.dumps({"resolution_m": known}) + "\n")
    share = changed / max(pixels, 1)
    return Tiles(tuple(names), left_out, share, tuple(_remarks(names, left_out, share)))


def _judged(source: _Source, tile: int, report: Report | None) -> Iterator[tuple[Window, Truth]]:
    """The windows in which somebody said something."""
    from adadino.geo.read.source import open_dataset

    windows = list(_windows(source.grid.shape, tile))
    opens = source.open_file or open_dataset
    with opens(source.mask) if source.mask is not None else nullcontext() as mask:
        for done, window in enumerate(windows, start=1):
            row, col = int(window.row_off), int(window.col_off)
            empty = np.zeros((int(window.height), int(window.width)), np.uint8)
            base = empty if mask is None else mask.read(1, window=window)
            truth = source.corrections.apply(base, row, col)
            if truth.said.any():
                yield window, truth
            if report is not None:
                report(done, len(windows))


def _remarks(names: Sequence[str], left_out: int, share: float) -> Iterator[str]:
    if left_out:
        yield (
            f"{left_out} tiles are left out: some of their polygons are not judged, or are unsure. "
            "Judge them, or adapt from the review itself, which takes parts of tiles."
        )
    if names and share in (0.0, 1.0):
        kind = "unchanged" if share == 0 else "changed"
        yield f"every pixel of the tiles is {kind}: a model cannot learn the other class from them."


def _windows(size: tuple[int, int], tile: int) -> Iterator[Window]:
    """Squares side by side; the last of a row or column is moved in, over its neighbour."""
    from rasterio.windows import Window

    height, width = size
    for row in _starts(height, tile):
        for col in _starts(width, tile):
            yield Window(col, row, min(tile, width), min(tile, height))


def _starts(length: int, tile: int) -> list[int]:
    return [min(start, max(length - tile, 0)) for start in range(0, length, tile)]


def _write_tile(folder: Path, name: str, pair: Any, truth: Truth, *, partial: bool) -> None:
    images = {
        "A": _bytes(pair.before),
        "B": _bytes(pair.after),
        "label": ((truth.mask == 1) & truth.known) * np.uint8(255),
    }
    if partial:
        images["known"] = truth.known * np.uint8(255)
    for role, image in images.items():
        write_atomic(folder / role / f"{name}.png", _png(image))


def _bytes(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    # (3, h, w) in 0..1 -> (h, w, 3) in 0..255
    return np.rint(image.transpose(1, 2, 0) * 255).astype(np.uint8)


def _png(image: NDArray[np.uint8]) -> Callable[[Path], None]:
    from PIL import Image

    return lambda path: Image.fromarray(image).save(path)

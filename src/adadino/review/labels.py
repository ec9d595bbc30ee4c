"""What is known after judging: the corrected mask, and tiles with labels to learn from.

- A polygon that is wrong goes, a reshaped one has its new outline, a missed one comes. Where
  nothing was said the map stays.
- In an area where nothing changed, every polygon goes that nobody called right. A verdict on one
  polygon counts more than an area around it.
- Known is every pixel but those of polygons that were not judged, or judged unsure, and those
  without data. A pixel both of a change and of an area where nothing changed is not known either.
- Pixels belong to an outline by their centres.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from adadino.errors import InputError, WriteError
from adadino.files import write_atomic
from adadino.review.folder import MASK, Review

if TYPE_CHECKING:
    from rasterio.windows import Window

    from adadino.geo.grid import Grid
    from adadino.geo.read.source import OpenFile

NODATA = 255
Report = Callable[[int, int], None]


class Truth(NamedTuple):
    """A window of what is known."""

    mask: NDArray[np.uint8]
    """0 no change, 1 change, 255 nodata."""
    known: NDArray[np.bool_]
    said: NDArray[np.bool_]
    """Where a person said something."""


@dataclass(frozen=True)
class Tiles:
    """The tiles that were written."""

    names: tuple[str, ...]
    left_out: int
    """Tiles in which somebody judged something, but not all."""
    change: float
    """The share of changed pixels."""
    warnings: tuple[str, ...] = field(default=())


class Corrections:
    """Outlines in pixels by what they do to a map, ready to be drawn into windows."""

    def __init__(
        self,
        *,
        gone: Sequence[Any] = (),
        clear: Sequence[Any] = (),
        unknown: Sequence[Any] = (),
        change: Sequence[Any] = (),
    ) -> None:
        kinds = {"gone": gone, "clear": clear, "unknown": unknown, "change": change}
        self._kinds = {name: _Drawn(outlines) for name, outlines in kinds.items()}

    @classmethod
    def of(cls, review: Review) -> Corrections:
        """What a review says."""
        state = review.state()
        gone, unknown, change = [], [], []
        for shape, polygon in review.polygons.items():
            judged, drawn = state.verdicts.get(shape), state.reshaped.get(shape)
            if judged is not None and judged.verdict == "wrong":
                gone.append(polygon.outline)
            elif drawn is not None:
                gone.append(polygon.outline)
                change.append(drawn.geometry)
            elif judged is None or judged.verdict == "unsure":
                unknown.append(polygon.outline)
            else:
                change.append(polygon.outline)
        change += [drawing.geometry for drawing in state.missed.values()]
        clear = [drawing.geometry for drawing in state.unchanged.values()]
        return cls(gone=gone, clear=clear, unknown=unknown, change=change)

    @property
    def empty(self) -> bool:
        """Whether nobody has said anything."""
        return not any(self._kinds[kind].outlines for kind in ("gone", "clear", "change"))

    def apply(self, mask: NDArray[np.uint8], row: int, col: int) -> Truth:
        """Correct a window of the map's mask that begins at a row and a column."""
        drawn = {name: kind.draw(mask.shape, row, col) for name, kind in self._kinds.items()}
        said = drawn["gone"] | drawn["clear"] | drawn["change"]
        corrected = np.where(drawn["gone"] | drawn["clear"], 0, mask)
        corrected = np.where(drawn["change"], 1, corrected).astype(np.uint8)
        corrected[mask == NODATA] = NODATA
        known = (mask != NODATA) & ~(drawn["unknown"] & ~drawn["clear"] & ~drawn["change"])
        return Truth(corrected, known & ~(drawn["clear"] & drawn["change"]), said)


class _Drawn:
    """Outlines in pixels that can be drawn into a window."""

    def __init__(self, outlines: Sequence[Any]) -> None:
        self.outlines = [outline for outline in outlines if not outline.is_empty]
        self._tree = shapely.STRtree(self.outlines)

    def draw(self, shape: tuple[int, int], row: int, col: int) -> NDArray[np.bool_]:
        from affine import Affine
        from rasterio.features import rasterize

        height, width = shape
        hits = self._tree.query(shapely.box(col, row, col + width, row + height))
        if not len(hits):
            return np.zeros(shape, dtype=bool)
        outlines = [self.outlines[index] for index in hits]
        place = Affine.translation(col, row)
        drawn = rasterize(outlines, shape, transform=place, dtype="uint8")
        return np.asarray(drawn == 1)


def write_mask(review: Review, path: Path | str, *, overwrite: bool = False) -> float:
    """Write the corrected mask as a COG on the map's grid; returns the share that changed."""
    from rasterio.windows import Window

    from adadino.geo.read.source import open_dataset
    from adadino.geo.write.cog import BLOCK, raster_writer
    from adadino.geo.write.cog import MASK as LAYER

    corrections, changed, valid = Corrections.of(review), 0, 0
    tags = {"ADADINO_REVIEW": review.facts.map, "ADADINO_JUDGED": review.summary()["judged"]}
    with (
        open_dataset(review.folder / MASK) as source,
        raster_writer(path, review.grid, LAYER, tags=tags, overwrite=overwrite) as out,
    ):
        for row in range(0, source.height, BLOCK):
            rows = min(BLOCK, source.height - row)
            band = source.read(1, window=Window(0, row, source.width, rows))
            mask = corrections.apply(band, row, 0).mask
            out.write(row, mask)
            changed += int((mask == 1).sum())
            valid += int((mask != NODATA).sum())
    return changed / max(valid, 1)


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

    source = _Source(Corrections.of(review), review.grid, review.folder / MASK, review.facts.name)
    if source.corrections.empty:
        raise InputError(f"nothing is judged in {review.folder}; there are no tiles to write.")
    opens = open_file or open_dataset
    with open_pair(before, after, bands=bands, scale=scale, open_file=opens) as pair:
        if not pair.grid.is_close(review.grid):
            raise InputError(
                f"{before} and {after} lie on another grid than the map; give the dates from which "
                "it was predicted."
            )
        return _write_all(Path(folder), source, pair, tile, partial=partial, report=report)


def write_layer_tiles(
    layer: Path | str, folder: Path | str, before: Path | str, after: Path | str, *, tile: int = 256
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

    with open_pair(before, after) as pair:
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
        names.append(f"{source.name}_r{int(window.row_off)}_c{int(window.col_off)}")
        images = pair.read(window)
        truth = truth._replace(known=truth.known & images.valid)
        _write_tile(folder, names[-1], images, truth, partial=partial)
        changed += int((truth.mask == 1).sum())
        pixels += truth.mask.size
    share = changed / max(pixels, 1)
    return Tiles(tuple(names), left_out, share, tuple(_remarks(names, left_out, share)))


def _judged(source: _Source, tile: int, report: Report | None) -> Iterator[tuple[Window, Truth]]:
    """The windows in which somebody said something."""
    from adadino.geo.read.source import open_dataset

    windows = list(_windows(source.grid.shape, tile))
    with open_dataset(source.mask) if source.mask is not None else nullcontext() as mask:
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

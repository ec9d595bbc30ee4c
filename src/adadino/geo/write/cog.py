"""Rasters out: rows in, a cloud-optimised GeoTIFF (or PNG, in pixel mode) at the end.

- The change map is uint8: 0 no change, 1 change, 255 nodata; with a colour table, so that it is
  readable in any viewer, and overviews by mode, so that zooming out invents no classes.
- The probability is float32 with NaN as nodata. Eight bits would be a quarter of the size, but
  another threshold would then give other polygons than the run would have given.
- Rows go to a temporary tiled GeoTIFF in a hidden folder beside the target, so that memory is
  one row of blocks; GDAL's COG driver makes the final layout of it. The target appears whole, by
  renaming, or not at all.
- Nothing in the file depends on the clock, on names of temporary files or on thread timing: the
  same rows give the same bytes.
- PNG has no float: the probability is uint16, p * 65534, and 65535 is nodata.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from rasterio._err import CPLE_BaseError  # rasterio.shutil raises it as it is
from rasterio.enums import ColorInterp
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window

from adadino.errors import WriteError
from adadino.files import atomic, beside
from adadino.geo.grid import Grid
from adadino.geo.read.source import is_same_file

BLOCK = 512
"""Side of a COG's inner tiles; scenes larger than this have overviews."""

Pixels = NDArray[np.uint8] | NDArray[np.float32]
"""Rows of a mask, or of a probability."""


@dataclass(frozen=True)
class Layer:
    """What the pixels of an output mean, and how they are stored."""

    description: str
    dtype: Literal["uint8", "float32"]
    nodata: float
    predictor: Literal["STANDARD", "FLOATING_POINT"]
    overviews: Literal["MODE", "AVERAGE"]
    colours: Mapping[int, tuple[int, int, int, int]] = field(default_factory=dict)


CHANGE_COLOUR = (230, 60, 30)
"""A strong orange red, which neither vegetation nor soil nor water has."""
TRANSLUCENT = 160
"""How much of 255 the colour of change covers what lies below."""

MASK = Layer(
    description="change: 0 no, 1 yes, 255 nodata",
    dtype="uint8",
    nodata=255,
    predictor="STANDARD",
    overviews="MODE",
    # GeoTIFF keeps no transparency of colours; PNG and VRT do, and QGIS has it from the style.
    colours={0: (0, 0, 0, 0), 1: (*CHANGE_COLOUR, TRANSLUCENT), 255: (0, 0, 0, 0)},
)
PROBABILITY = Layer(
    description="probability of change, 0 to 1",
    dtype="float32",
    nodata=float("nan"),
    predictor="FLOATING_POINT",
    overviews="AVERAGE",
)

PNG = {"driver": "PNG", "write_metadata_as_text": "YES"}


class RowWriter:
    """Takes the rows of a raster from top to bottom, in blocks of any height."""

    def __init__(self, path: Path, dataset: Any, layer: Layer) -> None:
        self._path = path
        self._dataset = dataset
        self._dtype = np.dtype(dataset.dtypes[0])
        self._shape = (dataset.height, dataset.width)
        self._scaled = layer.dtype == "float32" and self._dtype == np.uint16
        # Rows wait here until they fill a row of blocks: each block is compressed once.
        self._band = np.empty((min(BLOCK, dataset.height), dataset.width), self._dtype)
        self.rows = 0
        """Rows taken so far."""
        self.checksums: list[int] = []
        """One for each row of blocks."""

    def write(self, row: int, block: Pixels) -> None:
        """Take the next rows.

        Args:
            row: The row of the raster where the block starts: the first one not yet written.
            block: (h, width), uint8 for a mask, float32 with NaN for a probability.

        Raises:
            ValueError: Rows are missing, come twice, or do not fit.
        """
        height, width = self._shape
        if row != self.rows or block.shape[1:] != (width,) or row + len(block) > height:
            raise ValueError(
                f"a block {block.shape} at row {row} does not continue a raster of {height} x "
                f"{width} pixels at row {self.rows}"
            )
        while len(block):
            start = self.rows % BLOCK
            count = min(len(self._band) - start, len(block), height - self.rows)
            self._band[start : start + count] = self._stored(block[:count])
            self.rows += count
            if self.rows % BLOCK == 0 or self.rows == height:
                rows = start + count
                window = Window(0, self.rows - rows, width, rows)
                with _gdal(self._path):
                    self._dataset.write(self._band[:rows], 1, window=window)
                self.checksums.append(zlib.crc32(self._band[:rows].data))
            block = block[count:]

    def close(self) -> None:
        """Flush what GDAL still holds."""
        with _gdal(self._path):
            self._dataset.close()

    def _stored(self, block: Pixels) -> Pixels | NDArray[np.uint16]:
        if not self._scaled:
            return block
        scaled = np.where(np.isnan(block), 65535, np.rint(block * np.float32(65534)))
        return scaled.astype(np.uint16)


@contextmanager
def raster_writer(
    path: Path | str,
    grid: Grid,
    layer: Layer,
    *,
    tags: Mapping[str, object] | None = None,
    overwrite: bool = False,
) -> Iterator[RowWriter]:
    """Write a raster row by row; it appears when the block ends without an error.

    Args:
        path: `.tif` or `.tiff` for a COG; `.png` where the grid has no coordinate system.
        grid: Where the pixels lie.
        layer: `MASK` or `PROBABILITY`.
        tags: Model, version, threshold, settings: whatever says how the raster came about.
            Values that are not text are written as JSON.
        overwrite: Whether an existing file may be replaced.

    Yields:
        The writer; it wants every row.

    Raises:
        WriteError: The target exists, cannot hold the raster, or cannot be written.
    """
    path = Path(path)
    check_target(path, overwrite=overwrite)
    check_raster(path, grid)
    png = path.suffix.lower() == ".png"
    with beside(path) as scratch:
        rows, made = scratch / "rows.tif", scratch / f"made{path.suffix}"
        with _gdal(path):
            dataset = rasterio.open(rows, "w", **_profile(grid, layer, png=png))
            _annotate(dataset, layer, tags or {})
        with closing(RowWriter(path, dataset, layer)) as writer:
            yield writer
        if writer.rows != grid.height:
            raise ValueError(f"{path} got {writer.rows} of {grid.height} rows")
        with _gdal(path):
            rasterio.shutil.copy(rows, made, **(PNG if png else _cog_options(layer)))
            _verify(made, writer.checksums)
        with atomic(path) as part:
            made.replace(part)


def check_raster(path: Path, grid: Grid) -> None:
    """Refuse a name that no raster of this grid can have.

    Raises:
        WriteError: The suffix is not one we write, or a PNG would need coordinates.
    """
    suffix = path.suffix.lower()
    if suffix not in (".tif", ".tiff", ".png"):
        raise WriteError(f"{path} is no raster name; end it in .tif, or in .png for pixels.")
    if suffix == ".png" and grid.crs is not None:
        raise WriteError(f"{path}: a PNG cannot hold coordinates; end the name in .tif.")


def check_target(
    path: Path | str, *, inputs: Iterable[Path | str] = (), overwrite: bool = False
) -> None:
    """Refuse a target before work is spent on it.

    Raises:
        WriteError: The target is an input, is a folder, or exists and may not be replaced.
    """
    path = Path(path)
    for name in inputs:
        if is_same_file(name, path):
            raise WriteError(f"{path} is an input; choose another name for the output.")
    if path.is_dir():
        raise WriteError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not overwrite:
        raise WriteError(
            f"{path} exists; choose another name, or replace it (--overwrite, overwrite=True)."
        )


@contextmanager
def _gdal(path: Path) -> Iterator[None]:
    """Turn GDAL's errors into one sentence; write no sidecar files, warn of no missing place."""
    with warnings.catch_warnings(), rasterio.Env(GDAL_PAM_ENABLED="NO"):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        try:
            yield
        except (RasterioError, CPLE_BaseError) as error:
            reason = str(error.__cause__ or error).rstrip(".")
            raise WriteError(
                f"cannot write {path}; is the disk full? GDAL says: {reason}."
            ) from error


def _verify(made: Path, checksums: list[int]) -> None:
    """Read the result back: GDAL does not report a disk that fills up while a file is closed."""
    with rasterio.open(made, num_threads="ALL_CPUS") as dataset:
        for start, checksum in zip(range(0, dataset.height, BLOCK), checksums, strict=True):
            rows = min(BLOCK, dataset.height - start)
            band = dataset.read(1, window=Window(0, start, dataset.width, rows))
            if zlib.crc32(band) != checksum:
                raise RasterioError(f"rows from {start} on are not as they were written")


def _profile(grid: Grid, layer: Layer, *, png: bool) -> dict[str, object]:
    """The temporary file: blocks like the COG's, compressed quickly."""
    scaled = png and layer.dtype == "float32"
    return {
        "driver": "GTiff",
        "width": grid.width,
        "height": grid.height,
        "count": 1,
        "dtype": "uint16" if scaled else layer.dtype,
        "nodata": 65535 if scaled else layer.nodata,
        "crs": grid.crs,
        "transform": grid.transform,
        "tiled": True,
        "blockxsize": BLOCK,
        "blockysize": BLOCK,
        "compress": "deflate",
        "zlevel": 1,  # no threads: they would report a full disk only at the end of the run
        "bigtiff": "IF_SAFER",
    }


def _annotate(dataset: Any, layer: Layer, tags: Mapping[str, object]) -> None:
    dataset.set_band_description(1, layer.description)
    if layer.colours:
        dataset.colorinterp = [ColorInterp.palette]
        dataset.write_colormap(1, layer.colours)
    texts = {name: _text(value) for name, value in tags.items()}
    dataset.update_tags(**({"TIFFTAG_SOFTWARE": "adadino"} | texts))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _cog_options(layer: Layer) -> dict[str, object]:
    return {
        "driver": "COG",
        "blocksize": BLOCK,
        "compress": "DEFLATE",
        "predictor": layer.predictor,
        "overview_compress": "DEFLATE",
        "overview_predictor": layer.predictor,
        "overview_resampling": layer.overviews,
        "bigtiff": "IF_SAFER",
        "num_threads": "ALL_CPUS",
    }

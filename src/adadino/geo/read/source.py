"""One image as three bands, or a model's, and a valid mask, read by windows of the result's grid.

- The mask is GDAL's dataset mask: an internal mask or `.msk` sidecar, else the alpha band (any
  value above 0), else nodata. With nodata a pixel is invalid only if every band is nodata, so a
  black but real pixel whose green is 0 stays. Beyond GDAL, a pixel with a NaN or infinite value
  in a chosen band is invalid.
- Warped pixels are valid where the nearest source pixel is, and are interpolated from valid
  neighbours alone.
- A window's pixels do not depend on the window. GDAL warps block by block, and would choose the
  filter's width block by block too; it is fixed here.
- A palette is warped by nearest neighbour: a mean of two indexes is a third, unrelated colour.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from numpy.typing import NDArray
from pyproj.exceptions import ProjError
from rasterio._err import CPLE_BaseError
from rasterio.enums import MaskFlags, Resampling
from rasterio.errors import NotGeoreferencedWarning, RasterioError, RasterioIOError
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from adadino.errors import InputError
from adadino.geo.grid import Grid
from adadino.geo.read.bands import Bands, Wanted, choose_bands

ImagePath = str | PathLike[str]
OpenFile = Callable[[ImagePath], Any]
"""Opens an input as a rasterio dataset, or raises `InputError`, as `open_dataset` does."""

BELOW = np.float32(-1e30)
"""Stands for a band that the file does not have: below what any model takes as 0."""

# warnings.catch_warnings changes the process, so that only one thread may open at a time.
_opening = threading.Lock()


@dataclass(frozen=True)
class Warp:
    """How an image comes onto another grid.

    Attributes:
        source: The image's own grid.
        target: The grid to read it on.
        density: Pixels of the source for one of the target, along the source's rows and columns.
        resampling: How to interpolate.
        shift: Rows and columns of the target by which the image is moved down and right.
    """

    source: Grid
    target: Grid
    density: tuple[float, float]
    resampling: Resampling
    shift: tuple[float, float] = (0.0, 0.0)


def open_dataset(path: ImagePath) -> Any:
    """Open whatever GDAL opens; say in one sentence why it cannot.

    Raises:
        InputError: If there is no such file, or it is no image.
    """
    try:
        with _opening, warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)  # pixel mode is welcome
            dataset = rasterio.open(path)
    # ValueError: a name that is no text.
    except (RasterioError, CPLE_BaseError, OSError, ValueError) as error:
        raise InputError(_why_closed(path, error)) from error
    if dataset.count == 0 or dataset.width == 0 or dataset.height == 0:
        dataset.close()
        raise InputError(f"{path} has no pixels of its own; name one of its subdatasets.")
    return dataset


def is_same_file(first: ImagePath, second: ImagePath) -> bool:
    """Whether two names are one file's, which need not be there yet."""
    with suppress(OSError, ValueError):  # names only GDAL knows are no paths
        one, other = Path(first), Path(second)
        same = one.resolve() == other.resolve()
        return same or (one.exists() and other.exists() and one.samefile(other))
    return str(first) == str(second)


def describe(
    path: ImagePath,
    role: str,
    bands: Sequence[int] | None = None,
    *,
    name: str | None = None,
    open_file: OpenFile = open_dataset,
    wanted: Wanted = None,
) -> tuple[Grid, Bands]:
    """Return the grid of an image and the bands to read from it.

    Args:
        path: A file, or any name GDAL knows.
        role: What the image is to the user: before or after.
        bands: Those the user asked for.
        name: What to call the file in messages, if not by its path.
        open_file: How it is opened.
        wanted: The bands of the model, if not red, green and blue.
    """
    shown = name or str(path)
    try:
        with open_file(path) as dataset:
            grid = Grid.of(dataset)
            _ = grid.system  # some names of systems are more than pyproj takes
            return grid, choose_bands(dataset, f"{role} ({shown})", bands, wanted)
    # Tags are read when they are first asked for. UnicodeError: GDAL quotes what is no text.
    except (RasterioError, CPLE_BaseError, ProjError, UnicodeError) as error:
        raise InputError(
            f"cannot understand what {shown} says of itself: {error}; write it again with "
            "gdal_translate."
        ) from error


class Source:
    """An image opened by one thread, for that thread."""

    def __init__(
        self,
        path: ImagePath,
        bands: Bands,
        *,
        offset: Window | None = None,
        warp: Warp | None = None,
        name: str | None = None,
        open_file: OpenFile = open_dataset,
    ) -> None:
        """Open the image.

        Args:
            path: A file, or any name GDAL knows.
            bands: What to read.
            offset: The window of the image that is the result's grid.
            warp: How the image comes onto the result's grid instead.
            name: What to call the image in messages, if not by its path.
            open_file: How it is opened.
        """
        self.name = name or str(path)
        self.bands = bands
        self.origin = (offset.col_off, offset.row_off) if offset else (0, 0)
        self.dataset = open_file(path)
        self.vrt: Any = None
        try:
            self.vrt = _warped(self.dataset, bands, warp) if warp else None
        except Exception as error:  # GDAL's own error types, which rasterio keeps private
            self.dataset.close()
            raise InputError(
                f"cannot warp {self.name} onto the other image's grid: {error}; warp it with "
                "gdalwarp."
            ) from error

    def read(self, window: Window) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return raw values (N, h, w) and the valid mask (h, w).

        Raises:
            InputError: If the file is damaged there.
        """
        try:
            with rasterio.Env():  # GDAL's remarks go to the log instead of the terminal
                read = self._read_warped if self.vrt else self._read_straight
                values, valid = read(window)
        except (RasterioError, CPLE_BaseError, OSError, UnicodeError) as error:
            raise InputError(
                f"cannot read {self.name} at row {window.row_off}, column {window.col_off}: it is "
                "truncated or damaged; copy or download it again."
            ) from error
        if self.bands.palette is not None:
            table = self.bands.palette
            index = np.clip(np.nan_to_num(values[0]), 0, len(table) - 1).astype(np.intp)
            values = np.moveaxis(table[index], -1, 0)  # (h, w, 3) -> (3, h, w)
        valid &= np.isfinite(values).all(axis=0)
        return values, valid

    def close(self) -> None:
        """Close the files."""
        if self.vrt is not None:
            self.vrt.close()
        self.dataset.close()

    def _read_straight(self, window: Window) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        column, row = self.origin
        there = Window(window.col_off + column, window.row_off + row, window.width, window.height)
        values = self._values(self.dataset, there)
        return values, self.dataset.dataset_mask(window=there) > 0

    def _read_warped(self, window: Window) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        # Two reads, not one: asked for all its bands at once, GDAL warps the window instead of
        # its blocks, and neither reuses nor reproduces what it warped for the neighbour.
        values = self._values(self.vrt, window)
        alpha = self.bands.alpha or self.dataset.count + 1
        return values, self.vrt.read(alpha, window=window) > 0

    def _values(self, dataset: Any, window: Window) -> NDArray[np.float32]:
        indexes = self.bands.indexes
        there = sorted({index for index in indexes if index})
        values = np.asarray(dataset.read(there, window=window, out_dtype="float32"))
        if 0 in indexes:
            there.append(0)
            absent = np.full((1, *values.shape[1:]), BELOW, np.float32)
            values = np.concatenate([values, absent])
        return values[[there.index(index) for index in indexes]]


def _warped(dataset: Any, bands: Bands, warp: Warp) -> Any:
    dy, dx = warp.shift
    flags = dataset.mask_flag_enums[0]
    is_float = np.issubdtype(dataset.dtypes[0], np.floating)
    if MaskFlags.nodata in flags:
        nodata = dataset.nodata
    else:  # NaN must not leak into its neighbours; a mask or an alpha band goes before nodata
        nodata = np.nan if is_float and MaskFlags.all_valid in flags else None
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        return WarpedVRT(
            dataset,
            src_crs=warp.source.crs,
            src_transform=warp.source.transform,
            crs=warp.target.crs,
            # Looking from (-dy, -dx) moves the image by (dy, dx), whatever its own CRS.
            transform=warp.target.transform * Affine.translation(-dx, -dy),
            width=warp.target.width,
            height=warp.target.height,
            resampling=Resampling.nearest if bands.palette is not None else warp.resampling,
            src_nodata=nodata,
            add_alpha=bands.alpha is None,
            dtype="float32",  # interpolated bytes keep their fractions
            tolerance=0.001,  # pixels; 0 is broken in rasterio 1.4
            unified_src_nodata="YES",  # as in the dataset mask: nodata only where every band is
            xscale=min(1.0, 1 / warp.density[0]),
            yscale=min(1.0, 1 / warp.density[1]),
        )


def _why_closed(path: ImagePath, error: Exception) -> str:
    with suppress(OSError, ValueError):  # names only GDAL knows are no paths
        file = Path(path)
        if file.is_file() and file.stat().st_size == 0:
            return f"{path} is empty (0 bytes); copy or download it again."
        if file.is_dir():
            return f"{path} is a folder; give an image file."
    reason = str(error).strip().rstrip(".").replace("\n", " ")
    if isinstance(error, RasterioIOError) and "No such file" in reason:
        return f"there is no file {path}; check the name."
    return f"cannot open {path} as an image: {reason}; give a file GDAL reads (gdalinfo FILE)."

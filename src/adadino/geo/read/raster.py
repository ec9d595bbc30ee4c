"""Two rasters as one pair: one grid, three bands, values 0..1 and one valid mask, by windows.

- `before` is read as it is. If the grids differ, or a shift is given, `after` is warped onto
  `before`'s grid on the fly; nothing is written to disk.
- A pixel is valid if it is valid on both dates. Invalid pixels are 0 on both, so that a gap on
  one date never looks like change.
- Bytes are divided by 255. Everything else is stretched once, jointly over both dates (`stretch`).
- One reader serves many threads: each opens the files for itself on its first read, because a
  GDAL dataset must not be shared. `close` closes them all, after the last read.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.windows import Window

from adadino.errors import (
    AdaDINOWarning,
    BandWarning,
    ConfigError,
    GridWarning,
    InputError,
    SameFileWarning,
)
from adadino.geo.grid import Match, match
from adadino.geo.read.bands import Bands
from adadino.geo.read.source import ImagePath, Source, Warp, describe
from adadino.geo.read.stretch import (
    BYTES,
    Stretch,
    all_windows,
    collect,
    fit_stretch,
    sample_windows,
)

Bytes = NDArray[np.uint8]  # (3, h, w)


class PairWindow(NamedTuple):
    """A window of both dates."""

    before: NDArray[np.float32]  # (3, h, w) in 0..1
    after: NDArray[np.float32]  # (3, h, w) in 0..1
    valid: NDArray[np.bool_]  # (h, w): on both dates


class PairReader:
    """An open pair; see `open_pair`.

    Attributes:
        grid: Grid of the result, in whose pixels windows are given.
        match: How the grids of both images meet.
        stretch: What maps raw values to 0..1, the same for both dates.
        warnings: What the user was warned of on opening.
    """

    def __init__(
        self,
        before: tuple[ImagePath, Bands],
        after: tuple[ImagePath, Bands],
        match: Match,
        *,
        warp: Warp | None,
        stretch: Stretch,
        warnings: tuple[AdaDINOWarning, ...] = (),
    ) -> None:
        """Keep what a thread needs to open the pair; nothing is opened yet.

        Args:
            before: Path and bands of the first date.
            after: Path and bands of the second date.
            match: How their grids meet.
            warp: How `after` comes onto the result's grid, or None if it lies there.
            stretch: What maps raw values to 0..1.
            warnings: What the user was warned of.
        """
        self.grid = match.grid
        self.match = match
        self.stretch = stretch
        self.warnings = warnings
        self._before = before
        self._after = after
        self._warp = warp
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: list[Source] = []
        self._closed = False

    def read(self, window: Window) -> PairWindow:
        """Read a window; its pixels are the same whatever was read before, by whichever thread.

        Args:
            window: Whole pixels of `grid`.

        Raises:
            InputError: If a file is damaged there.
            ValueError: If the window leaves the grid, or the reader is closed.
        """
        before, after, valid = self.read_raw(window)
        before, after = self.stretch(before), self.stretch(after)
        _clear(valid, before, after)
        return PairWindow(before, after, valid)

    @property
    def holds_bytes(self) -> bool:
        """Whether `read_bytes` gives all there is to know."""
        return self.stretch is BYTES and self._warp is None

    def read_bytes(self, window: Window) -> tuple[Bytes, Bytes, NDArray[np.bool_]]:
        """Read a window of images that hold bytes: `read` times 255, in a quarter of the memory."""
        first, second, valid = self.read_raw(window)
        before, after = first.astype(np.uint8), second.astype(np.uint8)
        _clear(valid, before, after)
        return before, after, valid

    def read_raw(self, window: Window) -> PairWindow:
        """Read a window without stretching; invalid pixels hold whatever the files hold."""
        if not self.grid.holds(window):
            raise ValueError(
                f"{window} is empty or leaves the grid of {self.grid.width} x {self.grid.height}."
            )
        first, second = self._sources()
        before, valid_before = first.read(window)
        after, valid_after = second.read(window)
        return PairWindow(before, after, valid_before & valid_after)

    def close(self) -> None:
        """Close the files of every thread."""
        with self._lock:
            self._closed = True
            while self._opened:
                self._opened.pop().close()

    def __enter__(self) -> PairReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _sources(self) -> tuple[Source, Source]:
        """Return this thread's own files."""
        if self._closed:
            raise ValueError("the pair is closed; read inside `with open_pair(...)`.")
        if not hasattr(self._local, "pair"):
            before = self._open(Source(*self._before, offset=self.match.window))
            after = self._open(Source(*self._after, warp=self._warp))
            self._local.pair = before, after
        pair: tuple[Source, Source] = self._local.pair
        return pair

    def _open(self, source: Source) -> Source:
        with self._lock:
            self._opened.append(source)
        return source


def open_pair(
    before: ImagePath,
    after: ImagePath,
    *,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
    resampling: str = "bilinear",
    shift: tuple[float, float] = (0.0, 0.0),
    stretch: Stretch | None = None,
) -> PairReader:
    """Open two images of one place as a pair on `before`'s grid.

    Args:
        before: The first date: a file, or any name GDAL opens (`/vsicurl/...`, `s3://...`).
        after: The second date.
        bands: Three band numbers from 1 for red, green and blue, or one to repeat; by colour
            interpretation if None.
        scale: Raw values that become 0 and 1 in every band, instead of the joint stretch.
        resampling: How `after` is interpolated if it must be warped: "nearest", "bilinear",
            "cubic" or another of rasterio's names.
        shift: Rows and columns by which `after` is moved down and right, as registration found.
        stretch: That of a reader which opened this pair before. Nothing is sampled then, so that
            many processes can open a large pair for the price of its headers.

    Returns:
        A reader, to be used in a `with` statement.

    Raises:
        InputError: If an image cannot be read or the two cannot be compared.
        ConfigError: If a setting makes no sense.
    """
    method = _resampling(resampling)
    _check_numbers(scale, shift)
    before_grid, before_bands = describe(before, "before", bands)
    after_grid, after_bands = describe(after, "after", bands)
    if scale is None and before_bands.is_uint8 != after_bands.is_uint8:
        raise InputError(
            f"only one of {before} and {after} holds bytes (uint8), so their values are not on "
            "one scale; convert one of them, or give --scale MIN,MAX for both."
        )
    meeting = match(before_grid, after_grid)
    found = tuple(_warnings(before, after, before_bands, after_bands, meeting, method))
    for warning in found:
        warnings.warn(warning, stacklevel=2)
    warp = None
    if not meeting.equal or shift != (0.0, 0.0):
        warp = Warp(meeting.after, meeting.grid, meeting.density, method, shift)
    known = stretch
    if known is None:
        known = BYTES if scale is None else Stretch((scale[0],) * 3, (scale[1],) * 3)
    reader = PairReader(
        (before, before_bands),
        (after, after_bands),
        meeting,
        warp=warp,
        stretch=known,
        warnings=found,
    )
    if stretch is not None:
        return reader
    try:
        if scale is None and not before_bands.is_uint8:
            reader.stretch = _joint_stretch(reader)
        elif not any(window.valid.any() for window in _everywhere(reader)):
            raise _nothing(reader)
    except BaseException:
        reader.close()
        raise
    return reader


def _clear(valid: NDArray[np.bool_], *images: NDArray[np.generic]) -> None:
    """Set what is not valid to zero."""
    if not valid.all():
        for image in images:
            image[:, ~valid] = 0


def _joint_stretch(reader: PairReader) -> Stretch:
    size = reader.grid.width, reader.grid.height
    before, after = collect(map(reader.read_raw, sample_windows(*size)))
    if before.size == 0:  # the valid pixels may all lie between the sample's windows
        before, after = collect(map(reader.read_raw, all_windows(*size)))
    if before.size == 0:
        raise _nothing(reader)
    return fit_stretch(before, after)


def _everywhere(reader: PairReader) -> Iterator[PairWindow]:
    """Read the sample, where most scenes show a valid pixel at once, and then everything."""
    size = reader.grid.width, reader.grid.height
    yield from map(reader.read_raw, sample_windows(*size))
    yield from map(reader.read_raw, all_windows(*size))


def _nothing(reader: PairReader) -> InputError:
    return InputError(
        f"nothing to compare: none of the {reader.grid.width} x {reader.grid.height} common "
        "pixels is valid on both dates; check nodata, masks and alpha of both images (gdalinfo)."
    )


def _resampling(name: str) -> Resampling:
    # Gauss is for overviews only; sums and extremes are no interpolation of an image.
    names = ("nearest", "bilinear", "cubic", "cubic_spline", "lanczos", "average", "mode")
    if name not in names:
        raise ConfigError(f"there is no resampling {name!r}; choose one of {', '.join(names)}.")
    return Resampling[name]


def _check_numbers(scale: tuple[float, float] | None, shift: tuple[float, float]) -> None:
    if scale is not None and not (all(map(math.isfinite, scale)) and scale[0] < scale[1]):
        raise ConfigError(f"scale {scale} must be a smaller and a larger number: --scale 0,3000.")
    if not all(map(math.isfinite, shift)):
        raise ConfigError(f"shift {shift} must be two finite numbers of pixels.")


def _warnings(
    before: ImagePath,
    after: ImagePath,
    before_bands: Bands,
    after_bands: Bands,
    meeting: Match,
    method: Resampling,
) -> Iterator[AdaDINOWarning]:
    same = before == after
    with suppress(OSError, ValueError):  # names only GDAL knows are no paths
        same = same or Path(before).samefile(after)
    if same:
        yield SameFileWarning(f"before and after are the same file, {before}: no change there.")
    single = [
        name for name, chosen in ((before, before_bands), (after, after_bands)) if chosen.repeated
    ]
    if single:
        yield BandWarning(
            f"{' and '.join(map(str, single))}: one band stands in for red, green and blue; the "
            "model was made for colour."
        )
    if not meeting.equal:
        yield GridWarning(
            f"the grids differ: {'; '.join(meeting.differences)}. after is warped onto before's "
            f"grid ({method.name}); both on one grid from the start would be sharper."
        )

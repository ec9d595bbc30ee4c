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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

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
from adadino.geo.read.source import (
    ImagePath,
    OpenFile,
    Source,
    Warp,
    describe,
    is_same_file,
    open_dataset,
)
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
        before: Callable[[], Source],
        after: Callable[[], Source],
        match: Match,
        *,
        warped: bool,
        stretch: Stretch,
        warnings: tuple[AdaDINOWarning, ...] = (),
    ) -> None:
        """Keep what a thread needs to open the pair; nothing is opened yet.

        Args:
            before: Opens the first date.
            after: Opens the second date.
            match: How their grids meet.
            warped: Whether `after` is brought onto the result's grid.
            stretch: What maps raw values to 0..1.
            warnings: What the user was warned of.
        """
        self.grid = match.grid
        self.match = match
        self.stretch = stretch
        self.warnings = warnings
        self._openers = before, after
        self._warped = warped
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
        """Whether `read_bytes` loses nothing."""
        return self.stretch is BYTES and not self._warped

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
            before, after = self._openers
            self._local.pair = self._open(before), self._open(after)
        pair: tuple[Source, Source] = self._local.pair
        return pair

    def _open(self, opener: Callable[[], Source]) -> Source:
        source = opener()
        with self._lock:
            self._opened.append(source)
        return source


def open_pair(
    before: ImagePath,
    after: ImagePath,
    *,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
    stretch: Stretch | None = None,
    names: tuple[str, str] | None = None,
    open_file: OpenFile = open_dataset,
) -> PairReader:
    """Open two images of one place as a pair on `before`'s grid.

    Args:
        before: The first date: a file, or any name GDAL opens (`/vsicurl/...`, `s3://...`).
        after: The second date.
        bands: Three band numbers from 1 for red, green and blue, or one to repeat; by colour
            interpretation if None.
        scale: Raw values that become 0 and 1 in every band, instead of the joint stretch.
        shift: Rows and columns by which `after` is moved down and right, as registration found.
        stretch: That of a reader which opened this pair before. Nothing is sampled then, so that
            many processes can open a large pair for the price of its headers.
        names: What to call the images in messages, if not by their paths.
        open_file: How every thread opens an image.

    Returns:
        A reader, to be used in a `with` statement.

    Raises:
        InputError: If an image cannot be read or the two cannot be compared.
        ConfigError: If a setting makes no sense.
    """
    _check_numbers(scale, shift)
    names = names or (str(before), str(after))
    how: list[dict[str, Any]] = [{"name": name, "open_file": open_file} for name in names]
    before_grid, before_bands = describe(before, "before", bands, **how[0])
    after_grid, after_bands = describe(after, "after", bands, **how[1])
    if scale is None and before_bands.is_uint8 != after_bands.is_uint8:
        raise InputError(
            f"only one of {names[0]} and {names[1]} holds bytes (uint8), so their values are not "
            "on one scale; convert one of them, or give --scale MIN,MAX for both."
        )
    meeting = match(before_grid, after_grid)
    found = tuple(
        _warnings(names, (before_bands, after_bands), meeting, same=is_same_file(before, after))
    )
    for warning in found:
        warnings.warn(warning, stacklevel=2)
    warp = None
    if not meeting.equal or shift != (0.0, 0.0):
        warp = Warp(meeting.after, meeting.grid, meeting.density, Resampling.bilinear, shift)
    reader = PairReader(
        partial(Source, before, before_bands, offset=meeting.window, **how[0]),
        partial(Source, after, after_bands, warp=warp, **how[1]),
        meeting,
        warped=warp is not None,
        stretch=stretch or (BYTES if scale is None else Stretch.between(*scale)),
        warnings=found,
    )
    if stretch is None:
        _look(reader, fit=scale is None and not before_bands.is_uint8)
    return reader


def _look(reader: PairReader, *, fit: bool) -> None:
    """Read samples: to fit the joint stretch, or only to see that something is valid."""
    try:
        if fit:
            reader.stretch = _joint_stretch(reader)
        elif not any(window.valid.any() for window in _everywhere(reader)):
            raise _nothing(reader)
    except BaseException:
        reader.close()
        raise


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


def _check_numbers(scale: tuple[float, float] | None, shift: tuple[float, float]) -> None:
    if scale is not None and not (all(map(math.isfinite, scale)) and scale[0] < scale[1]):
        raise ConfigError(f"scale {scale} must be a smaller and a larger number: --scale 0,3000.")
    if not all(map(math.isfinite, shift)):
        raise ConfigError(f"shift {shift} must be two finite numbers of pixels.")


def _warnings(
    names: tuple[str, str], bands: tuple[Bands, Bands], meeting: Match, *, same: bool
) -> Iterator[AdaDINOWarning]:
    if same:
        yield SameFileWarning(f"before and after are the same file, {names[0]}: no change there.")
    single = [name for name, chosen in zip(names, bands, strict=True) if chosen.repeated]
    if single:
        yield BandWarning(
            f"{' and '.join(single)}: one band stands in for red, green and blue; the model was "
            "made for colour."
        )
    if not meeting.equal:
        yield GridWarning(
            f"the grids differ: {'; '.join(meeting.differences)}. after is warped onto before's "
            "grid (bilinear); both on one grid from the start would be sharper."
        )

"""An open pair of images, read by windows of the result's grid.

- A pixel is valid if it is valid on both dates and no mask of clouds leaves it out. Invalid pixels
  are 0 on both, so that a gap on one date never looks like change.
- Bytes are divided by 255. Everything else is stretched once, jointly over both dates (`stretch`).
- One reader serves many threads: each opens the files for itself on its first read, because a
  GDAL dataset must not be shared. `close` closes them all, after the last read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.errors import AdaDINOWarning
from adadino.geo.grid import Grid
from adadino.geo.read.bands import Bands
from adadino.geo.read.clouds import CloudMask
from adadino.geo.read.interest import Interest
from adadino.geo.read.source import Source
from adadino.geo.read.stretch import BYTES, Stretch

Bytes = NDArray[np.uint8]  # (3, h, w)


class PairWindow(NamedTuple):
    """A window of both dates."""

    before: NDArray[np.float32]  # (N, h, w) in 0..1: red, green, blue, or the model's bands
    after: NDArray[np.float32]  # the same
    valid: NDArray[np.bool_]  # (h, w): on both dates


class PairReader:
    """An open pair; see `open_pair`.

    Attributes:
        grid: Grid of the result, in whose pixels windows are given.
        own_grids: The grids of the two images themselves.
        bands: What is read of each image.
        stretch: What maps raw values to 0..1, the same for both dates.
        interest: The part that is wanted; None for all of it.
        masks: What leaves out clouds and shadows.
        warnings: What the user was warned of on opening.
    """

    def __init__(
        self,
        openers: tuple[Callable[[], Source], Callable[[], Source]],
        grid: Grid,
        *,
        own_grids: tuple[Grid, Grid],
        bands: tuple[Bands, Bands],
        warped: bool,
        stretch: Stretch,
        interest: Interest | None,
        masks: tuple[CloudMask, ...],
        warnings: tuple[AdaDINOWarning, ...],
    ) -> None:
        """Keep what a thread needs to open the pair; nothing is opened yet.

        Args:
            openers: Open the first and the second date.
            grid: See the class, as for all that follow.
            own_grids: See the class.
            bands: See the class.
            warped: Whether a date is brought onto another grid.
            stretch: See the class.
            interest: See the class.
            masks: See the class.
            warnings: See the class.
        """
        self.grid, self.own_grids, self.bands = grid, own_grids, bands
        self.stretch = stretch
        self.interest, self.masks = interest, masks
        self.warnings = warnings
        self._openers = openers
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

    def read_visible(self, window: Window) -> PairWindow:
        """Read a window as `read` does, red, green and blue alone."""
        if len(self.bands[0].indexes) == 3 and self.bands[0].rgb == (0, 1, 2):
            return self.read(window)
        return self._read_some(window, [bands.rgb for bands in self.bands])

    def read_false(self, window: Window) -> PairWindow:
        """Read a window in false colour: near infrared, red, green. Both dates must have them."""
        places = []
        for bands in self.bands:
            assert bands.nir is not None
            places.append((bands.indexes.index(bands.nir), *bands.rgb[:2]))
        return self._read_some(window, places)

    def _read_some(self, window: Window, places: Sequence[tuple[int, ...]]) -> PairWindow:
        """A window with some bands of each date."""
        seen = self.read(window)
        first, second = (
            image[list(chosen)]
            for image, chosen in zip((seen.before, seen.after), places, strict=True)
        )
        return PairWindow(first, second, seen.valid)

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
        valid = valid_before & valid_after
        for mask in self.masks:
            valid &= ~mask.excluded(window)
        return PairWindow(before, after, valid)

    def wanted(self, window: Window, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the valid pixels (h, w) of a window lie in the area of interest."""
        return valid if self.interest is None else valid & self.interest.inside(window)

    def close(self) -> None:
        """Close the files of every thread."""
        with self._lock:
            self._closed = True
            while self._opened:
                self._opened.pop().close()
        for mask in self.masks:
            mask.close()

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


def _clear(valid: NDArray[np.bool_], *images: NDArray[np.generic]) -> None:
    """Set what is not valid to zero."""
    if not valid.all():
        for image in images:
            image[:, ~valid] = 0

"""The two dates of a scene, checked, opened on one grid and registered."""

from __future__ import annotations

import filecmp
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import rasterio
from rasterio.windows import Window

from adadino.errors import (
    AdaDINOWarning,
    DatesWarning,
    GridWarning,
    InputError,
    RegistrationWarning,
)
from adadino.geo.read.bands import Wanted
from adadino.geo.read.dates import Moment, both_taken
from adadino.geo.read.raster import open_pair
from adadino.geo.read.reader import PairReader
from adadino.geo.read.register import Shift, estimate_shift
from adadino.geo.read.source import ImagePath, OpenFile, is_same_file, open_dataset
from adadino.geo.read.stretch import BYTES, Stretch
from adadino.scene.extent import Extent
from adadino.scene.options import SceneOptions

CACHE = 192 * 2**20
"""What GDAL may keep of decoded blocks: a band of two 16-bit scenes of 20,000 columns."""


class OpenDates(NamedTuple):
    """Two open dates and what is known of how they lie."""

    before: str
    after: str
    names: tuple[str, str]
    """What the user calls them."""
    reader: PairReader
    shift: Shift
    registered: bool
    warnings: tuple[str, ...]
    moments: tuple[Moment, Moment] | None
    """When they were taken; None if neither the user nor the files say."""
    infrared: Callable[[], PairReader] | None = None
    """Opens the dates' near-infrared band, if both say that they have one."""
    extent: Extent = Extent()
    open_file: OpenFile = open_dataset


@contextmanager
def open_dates(
    before: ImagePath,
    after: ImagePath,
    options: SceneOptions,
    *,
    extent: Extent | None = None,
    names: tuple[str, str] | None = None,
    open_file: OpenFile = open_dataset,
    wanted: Wanted = None,
) -> Iterator[OpenDates]:
    """Open the dates on one grid, registered if that was asked for and can be trusted.

    Args:
        before: The first date.
        after: The second date.
        options: Bands, scale, resolution, and whether to register.
        extent: Where and when; everywhere if None.
        names: What the user calls the dates, if not by their paths.
        open_file: How the files are opened.
        wanted: What the model takes; see `Runner.wanted`.
    """
    paths = str(before), str(after)
    extent = extent or Extent()
    kinds: dict[str, Any] = {"bands": options.bands, "scale": options.scale, "gsd": options.gsd}
    kinds |= {"interest": extent.interest, "masks": extent.mask}
    kinds |= {"names": names, "open_file": open_file, "wanted": wanted}
    with ExitStack() as stack:
        # In bytes. GDAL's own default, a share of the machine's memory, would be most of what is
        # used here; much less, and it would decode blocks again for every tile.
        stack.enter_context(rasterio.Env(GDAL_CACHEMAX=CACHE))
        reader = stack.enter_context(open_pair(*paths, **kinds))
        moments = extent.given_dates() or both_taken(*paths, open_file)
        notes = [str(warning) for warning in reader.warnings]
        notes += _said(_remarks(reader, moments))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shift = estimate_shift(
                lambda row, col, height, width: reader.read_visible(
                    Window(col, row, width, height)
                ),
                reader.grid,
            )
        registered = options.register and shift.reliable
        found = [] if registered else [str(warning.message) for warning in caught]
        if options.register and not registered:
            found.append(f"the shift between the dates is not applied: {shift.problem}.")
        for text in found:
            warnings.warn(text, RegistrationWarning, stacklevel=2)
        if registered:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AdaDINOWarning)  # said when it was first opened
                moved = open_pair(*paths, **kinds, shift=(shift.dy, shift.dx))
            reader = stack.enter_context(moved)
        kinds["shift"] = (shift.dy, shift.dx) if registered else (0.0, 0.0)
        yield OpenDates(
            *paths, names or paths, reader, shift, registered, (*notes, *found), moments,
            _infrared(reader, partial(open_pair, *paths, **kinds)),
            extent, open_file,
        )  # fmt: skip


@contextmanager
def reopen_dates(
    before: ImagePath,
    after: ImagePath,
    options: SceneOptions,
    *,
    stretch: Stretch,
    shift: Shift,
    registered: bool,
    wanted: Wanted = None,
) -> Iterator[OpenDates]:
    """Open dates of which stretch and shift are known, as `open_dates` left them; say nothing."""
    paths = str(before), str(after)
    moved = (shift.dy, shift.dx) if registered else (0.0, 0.0)
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(GDAL_CACHEMAX=CACHE))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdaDINOWarning)  # said when it was first opened
            reader = open_pair(
                *paths, bands=options.bands, scale=options.scale, shift=moved, stretch=stretch,
                gsd=options.gsd, wanted=wanted,
            )  # fmt: skip
        moments = both_taken(*paths)
        yield OpenDates(*paths, paths, stack.enter_context(reader), shift, registered, (), moments)


def _infrared(
    reader: PairReader, opener: Callable[..., PairReader]
) -> Callable[[], PairReader] | None:
    first, second = (bands.nir for bands in reader.bands)
    if first is None or first != second:
        return None
    return partial(opener, bands=(first,), scale=None, stretch=BYTES, wanted=None)


def _remarks(reader: PairReader, moments: tuple[Moment, Moment] | None) -> Iterator[AdaDINOWarning]:
    if moments is not None and moments[1].time < moments[0].time:
        yield DatesWarning(
            f"by what the files say ({moments[0].source}) before was taken on {moments[0].day} and "
            f"after on {moments[1].day}, which is earlier; exchange them, or give --dates."
        )
    for mask in reader.masks:
        if mask.covered < 1:
            yield GridWarning(
                f"the mask {mask.text} covers {mask.covered:.1%} of the scene; the rest is left "
                "out."
            )


def _said(remarks: Iterable[AdaDINOWarning]) -> Iterator[str]:
    for remark in remarks:
        warnings.warn(remark, stacklevel=3)
        yield str(remark)


def check_different(
    before: ImagePath, after: ImagePath, names: tuple[str, str] | None = None
) -> None:
    """Refuse a pair that is one image twice: by name, by link or by content.

    Raises:
        InputError: It is.
    """
    same = is_same_file(before, after)
    with suppress(OSError, ValueError):  # names only GDAL knows are no paths
        # Files of different sizes are told apart without being read.
        same = same or filecmp.cmp(before, after, shallow=False)
    if same:
        first, second = names or (before, after)
        raise InputError(
            f"before and after are the same image, {first} and {second}; give two dates."
        )

"""Two rasters opened as one pair: one grid, three bands, one stretch and one valid mask.

- `before` is read as it is. If the grids differ, or a shift is given, `after` is warped onto
  `before`'s grid on the fly; nothing is written to disk. With a ground resolution of the user's
  both dates are.
- Only the area of interest is read, if there is one.
- The stretch is fitted once, on a sample of both dates.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from affine import Affine
from rasterio.enums import Resampling
from rasterio.windows import Window

from adadino.bands import BandsConfig
from adadino.errors import (
    AdaDINOWarning,
    BandWarning,
    ConfigError,
    GridWarning,
    InputError,
    NothingError,
    SameFileWarning,
)
from adadino.geo.grid import Grid, Match, match
from adadino.geo.polygons.measure import to_metres
from adadino.geo.read.bands import Bands, Wanted
from adadino.geo.read.clouds import CloudMask, read_rule
from adadino.geo.read.interest import Interest
from adadino.geo.read.reader import PairReader, PairWindow
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
    PERCENTILES,
    Pixels,
    Stretch,
    all_windows,
    collect,
    fit_stretch,
    sample_windows,
)

MUCH_COARSER = 10
"""How many times coarser one date may be before that is said."""
MOST_FINER = 64
"""How many times finer than the images `--gsd` may be, along each side."""


def open_pair(
    before: ImagePath,
    after: ImagePath,
    *,
    bands: Sequence[int] | None = None,
    scale: tuple[float, float] | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
    stretch: Stretch | None = None,
    gsd: float | None = None,
    interest: Callable[[Grid], Interest] | None = None,
    masks: Sequence[str] = (),
    names: tuple[str, str] | None = None,
    open_file: OpenFile = open_dataset,
    wanted: Wanted = None,
) -> PairReader:
    """Open two images of one place as a pair on `before`'s grid; use it in a `with` statement.

    Args:
        before: The first date: a file, or any name GDAL opens (`/vsicurl/...`, `s3://...`).
        after: The second date.
        bands: Three band numbers from 1 for red, green and blue, or one to repeat; as the files
            say if None.
        scale: Raw values that become 0 and 1 in every band, instead of the joint stretch.
        shift: Rows and columns by which `after` is moved down and right, as registration found.
        stretch: That of a reader which opened this pair before. Nothing is sampled then, so that
            many processes can open a large pair for the price of its headers.
        gsd: Metres on the ground to resample both images to, instead of `before`'s own pixels.
        interest: Finds the wanted part on the scene's grid; only that is read.
        masks: Rasters of clouds and shadows of either date, as `clouds.read_rule` takes them.
        names: What to call the images in messages, if not by their paths.
        open_file: How every thread opens an image.
        wanted: The bands of the model, and what becomes 0 and 1 in them, if it does not take red,
            green and blue.

    Raises:
        InputError: If an image cannot be read or the two cannot be compared.
        ConfigError: If a setting makes no sense.
    """
    _check_numbers(scale, shift)
    known = stretch
    names = names or (str(before), str(after))
    how: list[dict[str, Any]] = [{"name": name, "open_file": open_file} for name in names]
    before_grid, before_bands = describe(before, "before", bands, wanted=wanted, **how[0])
    after_grid, after_bands = describe(after, "after", bands, wanted=wanted, **how[1])
    _check_same(names, before_bands, after_bands)
    if (
        scale is None
        and not isinstance(wanted, BandsConfig)
        and before_bands.is_uint8 != after_bands.is_uint8
    ):
        raise InputError(
            f"only one of {names[0]} and {names[1]} holds bytes (uint8), so their values are not "
            "on one scale; convert one of them, or give --scale MIN,MAX for both."
        )
    meeting = match(before_grid, after_grid)
    chosen = before_bands, after_bands
    same = is_same_file(before, after)
    found = tuple(_warnings(names, chosen, meeting, same=same))
    for warning in found:
        warnings.warn(warning, stacklevel=2)
    scene = resampled_grid(meeting.grid, gsd)
    area = None if interest is None else interest(scene)
    part = Window(0, 0, scene.width, scene.height) if area is None else area.window
    first, second = _places(before_grid, meeting, scene, part, shift, gsd=gsd)
    clouds = tuple(CloudMask(*read_rule(mask), scene, part, open_file=open_file) for mask in masks)
    count = len(before_bands.indexes)
    if scale is not None:
        stretch = stretch or Stretch.between(*scale, count)
    elif isinstance(wanted, BandsConfig):
        stretch = stretch or Stretch(*wanted.limits)
    fit = stretch is None and not (wanted is None and before_bands.is_uint8)
    reader = PairReader(
        (
            partial(Source, before, before_bands, **first, **how[0]),
            partial(Source, after, after_bands, **second, **how[1]),
        ),
        scene.part(part),
        own_grids=(before_grid, after_grid),
        bands=chosen,
        warped="warp" in first or "warp" in second,
        stretch=stretch or BYTES,
        interest=area,
        masks=clouds,
        warnings=found,
    )
    if known is None:
        _look(reader, fit=fit, clip=wanted is None)
    return reader


def resampled_grid(grid: Grid, gsd: float | None) -> Grid:
    """The grid of the same place with pixels of `gsd` metres; the grid itself if that is None.

    Raises:
        InputError: The grid has no coordinate system, or would grow beyond measure.
    """
    if gsd is None:
        return grid
    if grid.crs is None:
        raise InputError(
            f"--gsd {gsd:g} needs the size of the pixels on the ground, and the images have no "
            "coordinate system; georeference them, or resample them yourself."
        )
    metres = to_metres(grid)
    across, down = math.hypot(metres.a, metres.d) / gsd, math.hypot(metres.b, metres.e) / gsd
    if max(across, down) > MOST_FINER:
        raise InputError(
            f"--gsd {gsd:g} is {max(across, down):.0f} times finer than the images; give at most "
            f"{MOST_FINER} times finer pixels."
        )
    width, height = (
        max(1, math.floor(length * step + 1e-6))
        for length, step in ((grid.width, across), (grid.height, down))
    )
    return Grid(grid.crs, grid.transform * Affine.scale(1 / across, 1 / down), width, height)


def _places(
    before: Grid,
    meeting: Match,
    scene: Grid,
    part: Window,
    shift: tuple[float, float],
    *,
    gsd: float | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """How each source reads the part of the scene: straight from an offset, or warped."""
    target = scene.part(part)
    across, down = meeting.grid.width / scene.width, meeting.grid.height / scene.height
    first: dict[str, Any] = {"offset": _moved(part, meeting.window)}
    if gsd is not None:
        first = {"warp": Warp(before, target, (across, down), Resampling.bilinear)}
    second: dict[str, Any] = {"offset": part}
    if not meeting.equal or shift != (0.0, 0.0) or gsd is not None:
        density = meeting.density[0] * across, meeting.density[1] * down
        second = {"warp": Warp(meeting.after, target, density, Resampling.bilinear, shift)}
    return first, second


def _moved(window: Window, by: Window) -> Window:
    column, row = window.col_off + by.col_off, window.row_off + by.row_off
    return Window(column, row, window.width, window.height)


def _look(reader: PairReader, *, fit: bool, clip: bool) -> None:
    """Read samples: to fit the joint stretch, or only to see that something is valid."""
    try:
        if fit:
            reader.stretch = _joint_stretch(reader, clip=clip)
        elif not any(window.valid.any() for window in _everywhere(reader)):
            raise _nothing(reader)
    except BaseException:
        reader.close()
        raise


def _joint_stretch(reader: PairReader, *, clip: bool) -> Stretch:
    size = reader.grid.width, reader.grid.height
    count = len(reader.bands[0].indexes)
    before, after = collect(_wanted(reader, sample_windows(*size)), count)
    if before.size == 0:  # the valid pixels may all lie between the sample's windows
        before, after = collect(_wanted(reader, all_windows(*size)), count)
    if before.size == 0:
        raise _nothing(reader)
    # Statistics of a whole scene need its brightest pixels, too.
    return fit_stretch(before, after, PERCENTILES if clip else (0.0, 100.0))


def valid_pixels(reader: PairReader) -> tuple[Pixels, Pixels]:
    """A sample of the wanted pixels (N, n) of both dates in 0..1, all of a small scene."""
    size = reader.grid.width, reader.grid.height
    before, after = collect(_wanted(reader, sample_windows(*size)), len(reader.bands[0].indexes))
    low, high = (
        np.array(each, np.float32)[:, None] for each in (reader.stretch.low, reader.stretch.high)
    )
    first, second = (np.clip((date - low) / (high - low), 0, 1) for date in (before, after))
    return first, second


def _everywhere(reader: PairReader) -> Iterator[PairWindow]:
    """Read the sample, where most scenes show a valid pixel at once, and then everything."""
    size = reader.grid.width, reader.grid.height
    yield from _wanted(reader, sample_windows(*size))
    yield from _wanted(reader, all_windows(*size))


def _wanted(reader: PairReader, windows: Iterator[Window]) -> Iterator[PairWindow]:
    """Raw windows whose valid pixels are those that are wanted, too."""
    for window in windows:
        before, after, valid = reader.read_raw(window)
        yield PairWindow(before, after, reader.wanted(window, valid))


def _nothing(reader: PairReader) -> NothingError:
    where = "" if reader.interest is None else " in the area of interest"
    clouds = "".join(f"; the mask {mask.text} leaves out {mask.share:.1%}" for mask in reader.masks)
    return NothingError(
        f"nothing to compare: none of the {reader.grid.width} x {reader.grid.height} common "
        f"pixels{where} is valid on both dates{clouds}; check nodata, masks and alpha of both "
        "images (gdalinfo)."
    )


def _check_numbers(scale: tuple[float, float] | None, shift: tuple[float, float]) -> None:
    if scale is not None and not (all(map(math.isfinite, scale)) and scale[0] < scale[1]):
        raise ConfigError(f"scale {scale} must be a smaller and a larger number: --scale 0,3000.")
    if not all(map(math.isfinite, shift)):
        raise ConfigError(f"shift {shift} must be two finite numbers of pixels.")


def _check_same(names: tuple[str, str], before: Bands, after: Bands) -> None:
    """Refuse dates of which all bands are compared and which have different ones."""
    if len(before.indexes) != len(after.indexes):
        raise InputError(
            f"{names[0]} has {len(before.indexes)} bands and {names[1]} {len(after.indexes)}, so "
            "they cannot be compared band by band; name those that both have with --bands."
        )


def _warnings(
    names: tuple[str, str], bands: tuple[Bands, Bands], meeting: Match, *, same: bool
) -> Iterator[AdaDINOWarning]:
    if same:
        yield SameFileWarning(f"before and after are the same file, {names[0]}: no change there.")
    by_choice: dict[str, list[str]] = {}
    for name, chosen in zip(names, bands, strict=True):
        by_choice.setdefault(chosen.chosen, []).append(name)
    if single := by_choice.get("one band for all"):
        yield BandWarning(
            f"{' and '.join(single)}: one band stands in for red, green and blue; the model was "
            "made for colour."
        )
    if placed := by_choice.get("by place"):
        yield BandWarning(
            f"{' and '.join(placed)}: nothing in the file says which bands it has, so they are "
            f"taken as {', '.join(bands[0].names)}, in this order; name them with --bands."
        )
    if guessed := by_choice.get("guessed"):
        taken = next(each for each in bands if each.chosen == "guessed").indexes
        yield BandWarning(
            f"{' and '.join(guessed)}: nothing in the file says for certain which bands are red, "
            f"green and blue, so {','.join(map(str, taken))} are taken; name them with --bands."
        )
    if not meeting.equal:
        coarser = 1 / math.sqrt(meeting.density[0] * meeting.density[1])
        if max(coarser, 1 / coarser) >= MUCH_COARSER:
            one, other = (names[1], names[0]) if coarser > 1 else names
            yield GridWarning(
                f"{one} is {max(coarser, 1 / coarser):.0f} times coarser than {other}: it cannot "
                "show what the other shows, so much of what is found may be a difference of "
                "sharpness; give images of similar resolution."
            )
        yield GridWarning(
            f"the grids differ: {'; '.join(meeting.differences)}. after is warped onto before's "
            "grid (bilinear); both on one grid from the start would be sharper."
        )

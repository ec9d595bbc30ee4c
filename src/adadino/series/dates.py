"""The images of a series in the order of their dates.

Images are files, folders of files, or STAC documents. When each was taken is said by the user, by
its STAC item, by its tags, or by its name, in this order. Only TIFFTAG_DATETIME comes after the
name: it is often the day on which a program wrote the file.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import NamedTuple

from rasterio.windows import Window

from adadino.errors import ConfigError, InputError
from adadino.geo.grid import Grid, match
from adadino.geo.read.clouds import read_rule
from adadino.geo.read.dates import GIVEN, Moment, given_time, named, taken
from adadino.geo.read.raster import resampled_grid
from adadino.geo.read.source import ImagePath, describe
from adadino.scene.extent import Place
from adadino.scene.pair import check_different
from adadino.series.options import MOST_DATES, SeriesOptions, Which

SUFFIXES = (".tif", ".tiff", ".vrt", ".jp2", ".png", ".jpg", ".jpeg")
"""Files of a folder that are taken for images."""
WAY_OUT = "give --dates with a date for each image, in the images' order"


class Shot(NamedTuple):
    """One image of a series."""

    path: str
    moment: Moment
    label: str
    """Its day; with the time where another image has the same day."""
    grid: Grid


class Scene(NamedTuple):
    """Where the maps of a series lie: on the first date's grid."""

    scene: Grid
    """All of it, in the resolution asked for."""
    part: Window
    """The area of interest."""

    @property
    def grid(self) -> Grid:
        """The grid of the maps."""
        return self.scene.part(self.part)

    def moved(self, window: Window) -> Window:
        """A window of the maps in pixels of the whole scene."""
        col, row = window.col_off + self.part.col_off, window.row_off + self.part.row_off
        return Window(col, row, window.width, window.height)


def place_of(first: Shot, place: Place, gsd: float | None) -> Scene:
    """Where the maps of a series with this first date lie."""
    scene = resampled_grid(first.grid, gsd)
    wanted = None if place.interest is None else place.interest(scene)
    whole = Window(0, 0, scene.width, scene.height)
    return Scene(scene, whole if wanted is None else wanted.window)


def read_series(
    images: Sequence[ImagePath],
    dates: Sequence[str] | None,
    bands: tuple[int, ...] | None = None,
    *,
    pairs: Which = "first",
) -> list[Shot]:
    """Find the images, order them by date, and check that they can be compared.

    Args:
        images: Files, folders or STAC documents (.json, .geojson).
        dates: A date for each image, in their order; None to ask the images.
        bands: Those the user asked for.
        pairs: Which of them are compared.

    Raises:
        InputError: There are too few or too many images, one does not tell its date or cannot be
            read, two have the same date, or they do not lie on each other.
        ConfigError: The dates given are no dates, too few, or not in order.
    """
    found = [one for name in images for one in _expand(name)]
    if not 2 <= len(found) <= MOST_DATES:
        what = f"only {found[0][0]}" if len(found) == 1 else f"{len(found)} images"
        raise InputError(f"a series needs 2 to {MOST_DATES} dates, and there is {what}; give more.")
    if dates is not None:
        moments = _given(dates, [path for path, _ in found])
    else:
        moments = [moment or _moment(path) for path, moment in found]
    dated = sorted(
        ((path, moment) for (path, _), moment in zip(found, moments, strict=True)),
        key=lambda one: one[1].time,
    )
    for (first, moment), (second, other) in itertools.pairwise(dated):
        if moment.time == other.time:
            raise InputError(
                f"{first} and {second} have the same date, {moment.day} ({moment.source}, "
                f"{other.source}); leave one out, or {WAY_OUT}."
            )
        check_different(first, second, (first, second))
    shots = _placed(dated, bands)
    for before, after in SeriesOptions(pairs=pairs).compared(len(shots)):
        _check_grids(shots[before], shots[after])
    return shots


def _placed(dated: list[tuple[str, Moment]], bands: tuple[int, ...] | None) -> list[Shot]:
    """Learn the grids."""
    days = [moment.day for _, moment in dated]
    shots: list[Shot] = []
    for path, moment in dated:
        grid, _ = describe(path, moment.day, bands)
        twice = days.count(moment.day) > 1
        label = f"{moment.time.astimezone(UTC):%Y-%m-%dT%H%M%S}" if twice else moment.day
        shots.append(Shot(path, moment, label, grid))
    return shots


def _check_grids(before: Shot, after: Shot) -> None:
    try:
        match(before.grid, after.grid)
    except InputError as error:
        raise InputError(
            f"{after.path} (after) does not lie on {before.path} (before): {error} Leave one of "
            "them out."
        ) from error


def _expand(name: ImagePath) -> Iterator[tuple[str, Moment | None]]:
    """The images behind a name; with their dates where a STAC item says them."""
    text = os.fspath(name)
    if text.lower().endswith((".json", ".geojson")):
        from adadino.area.search import shots_of_stac

        for shot in shots_of_stac(Path(text)):
            yield shot.href, Moment(shot.when, "STAC")
    elif os.path.isdir(text):  # noqa: PTH112, names may be too long
        files = [
            path
            for path in sorted(Path(text).iterdir())
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        ]
        if not files:
            raise InputError(
                f"the folder {text} holds no image ({', '.join(SUFFIXES)}); give the files by name."
            )
        yield from ((str(path), None) for path in files)
    else:
        yield text, None


def _given(texts: Sequence[str], paths: list[str]) -> list[Moment]:
    if len(texts) != len(paths):
        raise ConfigError(
            f"--dates has {len(texts)} dates for {len(paths)} images; give one for each, as in "
            "--dates 2019-06-01,2020-06-03,2021-05-28."
        )
    moments: list[Moment] = []
    for text in texts:
        try:
            moments.append(Moment(given_time(text), GIVEN))
        except ValueError as error:
            raise ConfigError(
                f"--dates: {text!r} is no date; write it as 2019-06-01 or 2019-06-01T10:15:00Z."
            ) from error
    for number in range(1, len(moments)):
        if moments[number].time < moments[number - 1].time:
            raise ConfigError(
                f"--dates: {texts[number]} ({paths[number]}) comes before {texts[number - 1]} "
                f"({paths[number - 1]}); give images and dates from the oldest to the newest."
            )
    return moments


def _moment(path: str) -> Moment:
    """When an image was taken, by its own account."""
    said, name = taken(path), named(Path(path).name)
    if said is not None and (name is None or said.source != "TIFFTAG_DATETIME"):
        return said
    if name is None:
        describe(path, "image")  # one that cannot be read is told as that
        raise InputError(
            f"nothing says when {path} was taken: neither its tags nor one date in its name, such "
            f"as 2019-06-01; {WAY_OUT}."
        )
    return name


def masks_by_date(masks: Sequence[str], shots: Sequence[Shot]) -> dict[str, tuple[str, ...]]:
    """The masks of clouds of each image, by its label.

    A mask belongs to the image whose day is in the mask's name, or before it as in
    `2019-06-01=clouds.tif=scl`. One without a date belongs to every image.

    Raises:
        ConfigError: No image has the date of a mask.
    """
    found: dict[str, tuple[str, ...]] = {shot.label: () for shot in shots}
    for text in masks:
        said = re.match(r"(\d{4}-\d\d-\d\d)=(.+)", text)
        mask = said[2] if said else text
        moment = named(said[1] if said else Path(read_rule(mask)[0]).name)
        labels = [s.label for s in shots if moment is None or s.moment.day == moment.day]
        if not labels:
            day = "" if moment is None else moment.day
            raise ConfigError(
                f"--mask {text} is of {day}, when no image was taken; name the date of its image, "
                f"as in --mask {shots[0].moment.day}={mask}."
            )
        for label in labels:
            found[label] = (*found[label], mask)
    return found

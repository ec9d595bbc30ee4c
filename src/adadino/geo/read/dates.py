"""When an image was taken: what the user says, else what the file says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import rasterio

from adadino.errors import AdaDINOError, ConfigError
from adadino.geo.read.source import ImagePath, OpenFile, open_dataset

TAGS = (
    ("IMAGERY", "ACQUISITIONDATETIME"),
    (None, "ACQUISITIONDATETIME"),
    (None, "SENSING_TIME"),
    (None, "PRODUCT_START_TIME"),
    (None, "DATE_ACQUIRED"),
    (None, "TIFFTAG_DATETIME"),
)
"""Where files keep the time, the surest first: domains and names of GDAL's metadata."""
GIVEN, MODIFIED, NAMED = "given", "file modification time", "name"
_DAY = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_.]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")


class Moment(NamedTuple):
    """When an image was taken, and who says so."""

    time: datetime
    source: str
    """`GIVEN`, the name of a tag, `NAMED`, or `MODIFIED`, which says when a file was copied."""

    @property
    def day(self) -> str:
        """The date: 2009-06-01."""
        return self.time.date().isoformat()


def read_dates(texts: Sequence[str]) -> tuple[Moment, Moment]:
    """Two dates as people write them: 2009-06-01, or with a time 2009-06-01T10:15:00Z.

    Raises:
        ConfigError: One is no date, or the second is before the first.
    """
    try:
        first, second = map(given_time, texts)
    except ValueError as error:
        raise ConfigError(
            f"--dates {','.join(texts)}: give two dates, as in --dates 2009-06-01,2018-07-15."
        ) from error
    if second <= first:
        raise ConfigError(
            f"--dates {','.join(texts)}: the second is not after the first; give the date of "
            "before, then that of after, or exchange the images."
        )
    return Moment(first, GIVEN), Moment(second, GIVEN)


def given_time(text: str) -> datetime:
    """A date as people write it; a time without a zone is read as UTC."""
    time = datetime.fromisoformat(text.strip())
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def named(name: str) -> Moment | None:
    """The date in a file's name: 2019-06-01, 20190601 or 2019, of which 1 January is taken."""
    days = {(year, month, day) for year, _, month, day in _DAY.findall(name)}
    if not days:
        days = {(year, "01", "01") for year in _YEAR.findall(name)}
    if len(days) != 1:  # none, or two of which nobody knows which is meant
        return None
    with suppress(ValueError):  # 31 February
        return Moment(datetime.fromisoformat("-".join(days.pop())).replace(tzinfo=UTC), NAMED)
    return None


def taken(path: ImagePath, open_file: OpenFile = open_dataset) -> Moment | None:
    """When an image was taken, by its own account; a time without a zone is read as UTC."""
    try:
        with rasterio.Env(), open_file(path) as dataset:
            said = [(name, dataset.tags(ns=domain).get(name)) for domain, name in TAGS]
    except AdaDINOError:
        return None
    for name, text in said:
        time = None if text is None else _parsed(str(text))
        if time is not None:
            return Moment(time, name)
    return None


def both_taken(
    before: ImagePath, after: ImagePath, open_file: OpenFile = open_dataset
) -> tuple[Moment, Moment] | None:
    """When two images were taken, if both files tell."""
    first, second = taken(before, open_file), taken(after, open_file)
    return None if first is None or second is None else (first, second)


def modified(path: ImagePath) -> Moment | None:
    """When a file was last written; None for a name that only GDAL knows."""
    with suppress(OSError, ValueError):
        return Moment(datetime.fromtimestamp(int(Path(path).stat().st_mtime), UTC), MODIFIED)
    return None


def _parsed(text: str) -> datetime | None:
    text = re.sub(r"^(\d{4}):(\d\d):(\d\d)", r"\1-\2-\3", text.strip())  # TIFF's own way
    with suppress(ValueError):
        return given_time(text)
    return None

"""Where and when a scene is compared: the area of interest, what clouds hide, the two dates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from adadino.errors import ConfigError

if TYPE_CHECKING:
    from adadino.geo.grid import Grid
    from adadino.geo.read.dates import Moment
    from adadino.geo.read.interest import Interest


@dataclass(frozen=True)
class Place:
    """What of the images is compared; an annotated field is an option of the command line."""

    aoi: Annotated[str | None, "Polygons to stay within: any format, any CRS."] = None
    bbox: Annotated[
        tuple[float, float, float, float] | None, "The same as a box, in before's coordinates."
    ] = None
    mask: Annotated[
        tuple[str, ...],
        "Clouds of either date: FILE, FILE=scl, =qa60, =qa_pixel or =3,8,9. May be repeated.",
    ] = ()

    def __post_init__(self) -> None:
        if self.aoi is not None and self.bbox is not None:
            raise ConfigError("both --aoi and --bbox are given; leave one of them out.")

    @property
    def interest(self) -> Callable[[Grid], Interest] | None:
        """Finds the area of interest on a scene's grid; None if all of it is wanted."""
        from adadino.geo.read.interest import box_interest, read_interest

        if self.aoi is not None:
            return partial(read_interest, self.aoi)
        return None if self.bbox is None else partial(box_interest, self.bbox)


@dataclass(frozen=True)
class Extent(Place):
    """What of two images is compared, and when they were taken."""

    dates: Annotated[
        tuple[str, ...] | None, "When the images were taken, if the files do not tell."
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.given_dates()

    def given_dates(self) -> tuple[Moment, Moment] | None:
        """What the user says of the dates.

        Raises:
            ConfigError: It is no two dates, or they are in the wrong order.
        """
        if self.dates is None:
            return None
        from adadino.geo.read.dates import read_dates

        return read_dates(self.dates)

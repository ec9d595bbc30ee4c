"""The settings of a series: names, types, defaults and help, for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from adadino.errors import ConfigError
from adadino.schema import Bounds

Which = Literal["consecutive", "first", "both"]
MOST_DATES = 250
"""The dates of a series are numbered in a byte; 255 is nodata."""


@dataclass(frozen=True)
class SeriesOptions:
    """How a series is compared; an annotated field is an option of the command line, with its help.

    - The default compares the first date with each: it sees past clouds, and each later date
      confirms a change. `consecutive` costs as much and also works where the first date has a gap,
      but one wrong pair stays wrong to the end. `both` costs twice as much.
    """

    dates: Annotated[
        tuple[str, ...] | None, "When the images were taken, in their order, if they do not tell."
    ] = None
    pairs: Annotated[Which, "Which dates are compared: neighbours, the first with each."] = "first"
    stays: Annotated[int, "Dates in a row that must show a change.", Bounds(1, MOST_DATES)] = 2
    timelines: Annotated[int, "Polygons to draw at every date, the largest.", Bounds(0, 1000)] = 10
    gif: Annotated[bool, "Write series.gif: every date, with what has changed."] = False

    def __post_init__(self) -> None:
        if self.pairs not in ("consecutive", "first", "both"):
            raise ConfigError(f"pairs is {self.pairs!r}; choose consecutive, first or both.")
        if not 1 <= self.stays <= MOST_DATES:
            raise ConfigError(f"stays is {self.stays}; choose from 1 to {MOST_DATES}.")
        if not 0 <= self.timelines <= 1000:
            raise ConfigError(f"timelines is {self.timelines}; choose from 0 to 1000.")

    def compared(self, dates: int) -> list[tuple[int, int]]:
        """The pairs of a series of so many dates, by their numbers from 0."""
        steps = [(number - 1, number) for number in range(1, dates)]
        direct = [(0, number) for number in range(1, dates)]
        chosen = {"consecutive": steps, "first": direct, "both": [*direct, *steps[1:]]}
        return chosen[self.pairs]

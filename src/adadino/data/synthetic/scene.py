"""The synthetic world's map: what stands where, and at which date. Geometry only.

Coordinates are metres from the image's upper left corner, x to the right and y down. A change only
edits `when`, the dates at which an object exists: images and mask both follow from the map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Points = NDArray[np.float64]  # (n, 2), or (2,) for one point

BEFORE, AFTER, BOTH = 1, 2, 3  # a bit for each date
CELL = 4.0  # metres between the samples of the water's depth


class Box(NamedTuple):
    """A rectangular body: a building or its wing, a car, a ventilator on a roof.

    Plain floats, because thousands of four-cornered shapes are faster without arrays.
    """

    x: float
    y: float
    ux: float
    uy: float
    """(ux, uy) is the unit vector along the first side; a gable's ridge follows it."""
    half_length: float
    half_width: float
    height: float
    roof: str
    tone: float
    """A number in [0, 1) that picks the colour."""

    def at(self, along: float, across: float) -> Point:
        """The point so many metres from the centre along the box's own axes."""
        return (
            self.x + along * self.ux - across * self.uy,
            self.y + along * self.uy + across * self.ux,
        )

    def corners(self, grow: float = 0.0) -> list[Point]:
        """The footprint's four corners in order, moved outwards by `grow` metres."""
        a, b = self.half_length + grow, self.half_width + grow
        return [self.at(-a, -b), self.at(a, -b), self.at(a, b), self.at(-a, b)]


@dataclass
class Building:
    """Boxes that are built and demolished together."""

    boxes: list[Box]
    when: int = BOTH
    pad: bool = False
    """Whether the footprint is bare soil at the date without the building."""


class Tree(NamedTuple):
    """A tree."""

    x: float
    y: float
    radius: float
    tone: float
    wood: int
    """The index of the wood it belongs to, or -1."""
    lobes: tuple[tuple[float, float, float], ...]
    """The discs (x, y, radius) that make the crown."""


@dataclass
class Wood:
    """A stand of trees that is cleared as a whole."""

    outline: Points
    when: int = BOTH


class Road(NamedTuple):
    """A way for cars or people."""

    points: Points
    width: float
    kind: str
    """street, track, path or drive."""

    @property
    def span(self) -> float:
        """The width with the pavements."""
        return self.width + (2.8 if self.kind == "street" else 0.0)


class Parcel(NamedTuple):
    """A piece of ground with one cover; furrows run across `axis`."""

    outline: Points
    cover: str
    tone: float
    axis: Points


class Water(NamedTuple):
    """A river or lake, on a grid with a sample every `CELL` metres."""

    shore: NDArray[np.float32]
    """The distance from the shore in metres, negative in the water."""
    plain: NDArray[np.float32]
    """How far a flood spreads here, relative to the mean."""
    rise: float
    """How many metres beyond the shore the later date's flood reaches; 0 is no flood."""


@dataclass
class Scene:
    """Everything that stands on the ground, at both dates."""

    height: float
    width: float
    yard: str
    parcels: list[Parcel] = field(default_factory=list)
    roads: list[Road] = field(default_factory=list)
    marks: list[tuple[Point, Point]] = field(default_factory=list)
    cars: list[Box] = field(default_factory=list)
    """Places where a car may stand or drive."""
    woods: list[Wood] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    buildings: list[Building] = field(default_factory=list)
    water: Water | None = None

    def sees(self, x: float, y: float, margin: float = 0.0) -> bool:
        """Whether a point is in the image, grown by `margin` metres."""
        return -margin < x < self.width + margin and -margin < y < self.height + margin

    def tree_when(self, tree: Tree) -> int:
        """The dates at which a tree stands."""
        return BOTH if tree.wood < 0 else self.woods[tree.wood].when

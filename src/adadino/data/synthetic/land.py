"""The synthetic world's map: what stands where, at which date, and what changes in between.

Geometry only. Coordinates are metres from the image's upper left corner, x to the right and y down.
A change only edits `when`, the dates at which an object exists: images and mask both follow from
the map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from adadino.data.synthetic.palette import fractal

Point = tuple[float, float]
Points = NDArray[np.float64]  # (n, 2), or (2,) for one point

BEFORE, AFTER, BOTH = 1, 2, 3  # a bit for each date
CHANGES = ("built", "demolished", "cleared", "flooded")
MARGIN = 30.0  # metres around the image that are also laid out: their shadows reach into it
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
class Land:
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

    def by_height(self) -> list[tuple[Building, Box]]:
        """The boxes of all buildings, lowest first: the order in which they hide each other."""
        pairs = [(building, box) for building in self.buildings for box in building.boxes]
        return sorted(pairs, key=lambda pair: pair[1].height)


def draw_water(
    rng: np.random.Generator, height: float, width: float
) -> tuple[Water, NDArray[np.bool_]]:
    """Draw a river through the image or a lake in it, with an irregular shore.

    Returns:
        The water, and which of its samples lie in it or less than 4 m from it.
    """
    extent = max(width, height)
    y, x = np.mgrid[0 : height + 2 * CELL : CELL, 0 : width + 2 * CELL : CELL]
    angle = rng.uniform(0, np.pi)
    x = x - width * rng.uniform(0.2, 0.8)
    y = y - height * rng.uniform(0.2, 0.8)
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    wobble = np.zeros_like(along)
    for wavelength, size in ((260.0, 22.0), (110.0, 7.0), (37.0, 2.0)):
        kx, ky = rng.normal(0, 2 * np.pi / wavelength, 2)
        phase = rng.uniform(0, 2 * np.pi)
        # No wobble at the middle of the water, which therefore stays in the image.
        wobble += size * (np.sin(along * kx + across * ky + phase) - np.sin(phase))
    if rng.random() < 0.6:
        shore = np.abs(across + wobble) - rng.uniform(5, 8 + 0.04 * extent)
    else:
        shore = np.hypot(along, across * 1.5) + wobble - rng.uniform(0.08, 0.2) * extent
    plain = np.exp(0.6 * fractal(rng, shore.shape, 40 / CELL, 2))
    return Water(shore.astype(np.float32), plain, 0.0), shore < 4


class Taken:
    """Where something stands already, on a grid of one metre."""

    def __init__(self, land: Land) -> None:
        size = int(land.width + 2 * MARGIN) + 1, int(land.height + 2 * MARGIN) + 1
        self._image = Image.new("L", size)
        self._draw = ImageDraw.Draw(self._image)

    def polygon(self, points: Iterable[Point]) -> None:
        """Mark a polygon as taken."""
        self._draw.polygon([(x + MARGIN, y + MARGIN) for x, y in points], fill=1)

    def line(self, points: Points, width: float) -> None:
        """Mark a band around a line as taken."""
        flat = (points + MARGIN).ravel().tolist()
        self._draw.line(flat, fill=1, width=round(width), joint="curve")

    def free(self, points: Iterable[Point]) -> bool:
        """Whether all of the points are on the grid and free."""
        width, height = self._image.size
        for x, y in points:
            column, row = int(x + MARGIN), int(y + MARGIN)
            if not (0 <= column < width and 0 <= row < height):
                return False
            if self._image.getpixel((column, row)):
                return False
        return True


def change(rng: np.random.Generator, land: Land, kinds: tuple[str, ...], rate: float) -> None:
    """Edit the dates at which things exist.

    Args:
        rng: The stream to draw from.
        land: Edited in place.
        kinds: What happens, from CHANGES.
        rate: The mean share of the buildings, and of the woods, that each kind touches.
    """
    if "built" in kinds or "demolished" in kinds:
        _change_buildings(rng, land, kinds, rate)
    stands = [wood for wood in land.woods if any(land.sees(x, y) for x, y in wood.outline.tolist())]
    if "cleared" in kinds and stands:
        for i in rng.permutation(len(stands))[: _count(rng, rate, len(stands))]:
            stands[i].when = BEFORE
    if "flooded" in kinds and land.water is not None:
        rise = rng.uniform(0.03, 0.12) * min(land.width, land.height)
        land.water = land.water._replace(rise=max(3.0, rise))


def _change_buildings(
    rng: np.random.Generator, land: Land, kinds: tuple[str, ...], rate: float
) -> None:
    inside = [b for b in land.buildings if land.sees(b.boxes[0].x, b.boxes[0].y)]
    order = rng.permutation(len(inside))
    if rng.random() < 0.5:  # a whole quarter rather than single houses
        x, y = rng.uniform(0, 1, 2) * (land.width, land.height)
        order = np.argsort([math.hypot(b.boxes[0].x - x, b.boxes[0].y - y) for b in inside])
    todo = [inside[i] for i in order]
    for kind, when in (("built", AFTER), ("demolished", BEFORE)):
        if kind in kinds:
            count = _count(rng, rate, len(inside))
            for building in todo[:count]:
                building.when, building.pad = when, bool(rng.random() < 0.6)
            todo = todo[count:][::-1]  # the other kind starts at the far end


def _count(rng: np.random.Generator, rate: float, among: int) -> int:
    return max(1, round(rng.uniform(0.3, 1.7) * rate * among))

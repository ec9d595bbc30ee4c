"""The synthetic world's plan: how land is divided into roads, blocks, lots and fields.

A flat plan is split, rectangle by rectangle, until the pieces are blocks or fields; the cuts become
roads. `Frame` then turns and bends the plan into the image, so one splitter draws a street grid,
winding suburbs and farmland. `Rings` rolls it up into a town of rings and spokes around a square.
Lengths are in metres.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from adadino.data.synthetic.land import Points

Rect = tuple[float, float, float, float]  # x0, y0, x1, y1 in the plan

SQUARE = (18.0, 26.0)  # metres from the middle of the square to the street around it


@dataclass(frozen=True)
class Settlement:
    """How a kind of settlement is laid out. Lengths are in metres, pairs are ranges."""

    block: float
    """Pieces with a longer side than this are split again."""
    street: float
    """Cuts through pieces longer than this are streets; the others are boundaries of fields."""
    avenue: float
    """Cuts through pieces longer than this are main roads."""
    bend: float
    """How far the plan is bent."""
    lot: tuple[float, float]
    """The frontage of a building lot."""
    fill: tuple[float, float]
    """The share of a lot's sides that its building takes."""
    side: float
    """The longest side of a building."""
    height: tuple[float, float]
    """The height of a building."""
    roofs: tuple[float, float, float]
    """How often each of ROOFS occurs."""
    uses: dict[str, float]
    """How often a piece is built, park, wood, parking or field."""
    yard: str
    """What the ground of a lot is."""
    rings: bool = False
    """Whether streets are rings and spokes around a square, and not cuts through rectangles."""


PLANS = {
    "grid": Settlement(
        block=110, street=0, avenue=170, bend=0, lot=(18, 40), fill=(0.62, 0.88), side=38,
        height=(7, 26), roofs=(0.75, 0.1, 0.15), yard="paved",
        uses={"built": 0.76, "park": 0.1, "wood": 0.02, "parking": 0.12},
    ),
    "organic": Settlement(
        block=95, street=0, avenue=260, bend=16, lot=(17, 25), fill=(0.5, 0.75), side=17,
        height=(4.5, 8.5), roofs=(0.1, 0.55, 0.35), yard="lawn",
        uses={"built": 0.82, "park": 0.08, "wood": 0.1},
    ),
    "rural": Settlement(
        block=105, street=170, avenue=420, bend=9, lot=(26, 45), fill=(0.4, 0.75), side=34,
        height=(4.5, 9), roofs=(0.15, 0.7, 0.15), yard="grass",
        uses={"built": 0.22, "wood": 0.2, "field": 0.58},
    ),
    "radial": Settlement(
        block=72, street=0, avenue=170, bend=0, lot=(15, 26), fill=(0.55, 0.8), side=22,
        height=(6, 13), roofs=(0.3, 0.45, 0.25), yard="lawn", rings=True,
        uses={"built": 0.84, "park": 0.08, "wood": 0.08},
    ),
}  # fmt: skip
DRAWN = ("grid", "organic", "rural")
"""The plans that seeds choose from. The others must be asked for by name, so that a model that was
trained on the default world has never seen them."""


class Frame:
    """Turns, shifts and bends the plan into the image."""

    def __init__(self, rng: np.random.Generator, centre: Points, plan: Settlement) -> None:
        angle = rng.uniform(0, np.pi)
        self._turn = np.array(((np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle))))
        self._centre = centre + rng.uniform(-plan.block, plan.block, 2)
        # Three waves with wavelengths of 150 to 400 m: curves a car could drive.
        direction = rng.uniform(0, 2 * np.pi, 3)
        number = 2 * np.pi / rng.uniform(150, 400, 3)
        self._wave = np.stack((np.cos(direction), np.sin(direction))) * number  # (2, 3)
        self._phase = rng.uniform(0, 2 * np.pi, 3)
        self._push = rng.normal(0, plan.bend / 2, (3, 2))

    def __call__(self, points: Points) -> Points:
        """Plan to image, (n, 2) -> (n, 2)."""
        bent = points + np.sin(points @ self._wave + self._phase) @ self._push
        moved: Points = bent @ self._turn + self._centre
        return moved

    def direction(self, point: Points, along: Points) -> Points:
        """The unit vector in the image of the plan's direction `along` at `point`."""
        ends = self(np.stack((point - along, point + along)))
        step = ends[1] - ends[0]
        return np.asarray(step / np.hypot(*step))

    def path(self, start: Sequence[float], end: Sequence[float]) -> Points:
        """A straight line of the plan, with a point at least every 10 m."""
        a, b = np.asarray(start, float), np.asarray(end, float)
        steps = np.linspace(0, 1, 2 + int(np.hypot(*(b - a)) / 10))[:, None]
        return self(a + (b - a) * steps)

    def outline(self, rect: Rect) -> Points:
        """A rectangle of the plan."""
        x0, y0, x1, y1 = rect
        sides = 1 + int(max(x1 - x0, y1 - y0) / 12)
        there = np.arange(sides)[:, None] / sides
        corners = np.array(((x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)))
        points = [a + (b - a) * there for a, b in pairwise(corners)]
        return self(np.concatenate(points))

    def split(
        self, rng: np.random.Generator, plan: Settlement, reach: float
    ) -> tuple[list[Rect], list[tuple[Rect, float]]]:
        """Split a square of the plan into pieces.

        Returns:
            The pieces, and the cuts as (x0, y0, x1, y1) with the length of the piece they went
            through, longest first.
        """
        todo: list[Rect] = [(-reach, -reach, reach, reach)]
        pieces: list[Rect] = []
        cuts: list[tuple[Rect, float]] = []
        while todo:
            x0, y0, x1, y1 = rect = todo.pop()
            long = max(x1 - x0, y1 - y0)
            if long < plan.block * rng.uniform(0.8, 1.2):
                pieces.append(rect)
                continue
            at = rng.uniform(0.38, 0.62)
            if x1 - x0 >= y1 - y0:
                x = x0 + at * (x1 - x0)
                cuts.append(((x, y0, x, y1), long))
                todo += [(x0, y0, x, y1), (x, y0, x1, y1)]
            else:
                y = y0 + at * (y1 - y0)
                cuts.append(((x0, y, x1, y), long))
                todo += [(x0, y0, x1, y), (x0, y, x1, y1)]
        return pieces, sorted(cuts, key=lambda cut: -cut[1])


class Rings(Frame):
    """Rolls the plan up into rings.

    Ring k is a strip of the plan along y = k `strip`, as long as the ring is around its middle. So
    blocks and lots stay rectangles of the plan, and metres are metres in the middle of a ring.
    """

    def __init__(
        self, rng: np.random.Generator, centre: Points, plan: Settlement, reach: float
    ) -> None:
        self._centre = centre + rng.uniform(-plan.block / 2, plan.block / 2, 2)
        self._start = rng.uniform(0, 2 * np.pi)
        edges = [rng.uniform(*SQUARE)]
        while edges[-1] < reach:
            edges.append(edges[-1] + plan.block * rng.uniform(0.75, 1.1))
        self._widths = np.diff(edges)
        self._middles = np.array(edges[:-1]) + self._widths / 2
        self._strip = 4 * plan.block  # wider than any ring with what leans out of it

    def __call__(self, points: Points) -> Points:
        """Plan to image, (n, 2) -> (n, 2)."""
        x, y = points.T
        ring = np.clip(np.rint(y / self._strip), 0, len(self._middles) - 1).astype(int)
        middle = self._middles[ring]
        angle, radius = self._start + x / middle, middle + y - ring * self._strip
        rolled = np.stack((np.cos(angle), np.sin(angle)), axis=1) * radius[:, None]
        placed: Points = rolled + self._centre
        return placed

    def split(
        self, rng: np.random.Generator, plan: Settlement, reach: float
    ) -> tuple[list[Rect], list[tuple[Rect, float]]]:
        """Split the rings into blocks; spokes double where blocks would become too long.

        Returns:
            As `Frame.split`; the spokes that begin at the square are the main roads.
        """
        pieces: list[Rect] = []
        cuts: list[tuple[Rect, float]] = []
        main = spokes = int(rng.integers(5, 8))
        for ring, (middle, width) in enumerate(zip(self._middles, self._widths, strict=True)):
            around = 2 * np.pi * middle
            while around / spokes > 1.3 * plan.block:
                spokes *= 2
            y0, y1 = ring * self._strip - width / 2, ring * self._strip + width / 2
            x = np.linspace(0, around, spokes + 1).tolist()
            cuts.append(((0.0, y0, around, y0), plan.block))
            for k in range(spokes):
                starts_at_square = k % (spokes // main) == 0
                cuts.append(((x[k], y0, x[k], y1), reach if starts_at_square else plan.block))
                pieces.append((x[k], y0, x[k + 1], y1))
        return pieces, sorted(cuts, key=lambda cut: -cut[1])


def lots(rng: np.random.Generator, plan: Settlement, rect: Rect) -> Iterator[tuple[Rect, Points]]:
    """Two rows of lots, back to back along the longer side, each with its street's direction."""
    x0, y0, x1, y1 = rect
    tall = y1 - y0 > x1 - x0
    a0, a1, b0, b1 = (y0, y1, x0, x1) if tall else (x0, x1, y0, y1)
    middle = (b0 + b1) / 2
    for low, high, side in ((b0, middle, -1.0), (middle, b1, 1.0)):
        at = a0
        while a1 - at > plan.lot[0] * 0.7:
            end = min(at + rng.uniform(*plan.lot), a1)
            lot = (low, at, high, end) if tall else (at, low, end, high)
            yield lot, np.array((side, 0.0) if tall else (0.0, side))
            at = end


def stations(
    rng: np.random.Generator, points: Points, spacing: float
) -> list[tuple[float, float, float, float]]:
    """Positions and directions (x, y, ux, uy) along a line of the image, every `spacing` metres."""
    steps = np.diff(points, axis=0)
    lengths = np.hypot(*steps.T)
    ends = np.cumsum(lengths)
    at = np.arange(rng.uniform(0, spacing), ends[-1], spacing)
    i = np.searchsorted(ends, at)
    axes = steps[i] / lengths[i, None]
    spots = points[i + 1] - axes * (ends[i] - at)[:, None]
    return [(x, y, ux, uy) for (x, y), (ux, uy) in zip(spots.tolist(), axes.tolist(), strict=True)]

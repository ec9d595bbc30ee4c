"""Fill the synthetic world's plan: water, roads, then each block or field by its use."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adadino.data.synthetic.land import (
    CELL,
    MARGIN,
    Box,
    Building,
    Land,
    Parcel,
    Points,
    Road,
    Taken,
    Tree,
    Wood,
    draw_water,
)
from adadino.data.synthetic.plan import Frame, Rect, Rings, Settlement, lots, stations

VERGE = 7.0  # metres from the middle of a road to where lots and woods begin
CAR = (2.2, 0.95, 1.5)  # half of the length, half of the width, height
CROPS = ("wheat", "maize", "rape", "plough", "meadow")
ROOFS = ("flat", "gable", "hip")


@dataclass(frozen=True)
class Wishes:
    """What a map should hold beyond its plan."""

    buildings: float
    """The share of the lots that are built, relative to the plan's."""
    trees: float
    """The density of single trees, relative to the plan's."""
    cars: float
    """The density of cars, relative to the plan's."""
    water: bool
    """Whether there must be water."""
    wood: bool
    """Whether there must be a wood."""
    building: bool
    """Whether there must be a building."""


class Layout:
    """Lays one map out; `build` is the method to call."""

    def __init__(
        self, rng: np.random.Generator, land: Land, plan: Settlement, wishes: Wishes
    ) -> None:
        self.rng = rng
        self.land = land
        self.plan = plan
        self.wishes = wishes
        centre = np.array((land.width, land.height)) / 2
        half = math.hypot(land.width, land.height) / 2
        self.reach = half + MARGIN + 1.5 * plan.block + plan.bend
        self.frame = (
            Rings(rng, centre, plan, self.reach) if plan.rings else Frame(rng, centre, plan)
        )
        self.taken = Taken(land)

    def build(self) -> Land:
        """Fill the map and return it."""
        land, rng, plan = self.land, self.rng, self.plan
        if rng.random() < 0.2 or self.wishes.water:
            self.water()
        pieces, cuts = self.frame.split(rng, plan, self.reach)
        for line, length in cuts:
            self.cut(line, length)
        for road in land.roads:
            if road.kind == "street":
                self.street(road)
        middles = self.frame(np.array([((a + c) / 2, (b + d) / 2) for a, b, c, d in pieces]))
        near = [i for i, (x, y) in enumerate(middles) if land.sees(x, y, 0.6 * plan.block)]
        uses = rng.choice(list(plan.uses), len(near), p=list(plan.uses.values()))
        if self.wishes.wood and near:
            centre = land.width / 2, land.height / 2
            uses[np.argmin(np.hypot(*(middles[near] - centre).T))] = "wood"
        for i, use in zip(near, uses, strict=True):
            self.piece(pieces[i], str(use))
        if self.wishes.building:
            self.add_building()
        return land

    def add_building(self) -> None:
        """Put a building somewhere if the image has none, as may happen in the fields."""
        land = self.land
        for _ in range(20):
            if any(land.sees(b.boxes[0].x, b.boxes[0].y) for b in land.buildings):
                return
            x, y = self.rng.uniform(0.2, 0.8, 2) * (land.width, land.height)
            axis = self.frame.direction(np.zeros(2), np.array((1.0, 0.0)))
            self.building(x, y, axis, self.rng.uniform(7, 16, 2))

    def water(self) -> None:
        """A river or a lake, where nothing else may stand."""
        self.land.water, wet = draw_water(self.rng, self.land.height, self.land.width)
        for row, column in np.argwhere(wet).tolist():
            x0, y0 = (column - 0.5) * CELL, (row - 0.5) * CELL
            x1, y1 = x0 + CELL, y0 + CELL
            self.taken.polygon(((x0, y0), (x1, y0), (x1, y1), (x0, y1)))

    def cut(self, line: Rect, length: float) -> None:
        """What a cut of the plan becomes: a street, a track or a hedge."""
        plan, rng = self.plan, self.rng
        points = self.frame.path(line[:2], line[2:])
        near = np.flatnonzero(
            (points > -MARGIN).all(1)
            & (points < (self.land.width + MARGIN, self.land.height + MARGIN)).all(1)
        )
        if not near.size:
            return
        points = points[max(near[0] - 1, 0) : near[-1] + 2]
        if length < plan.street:
            if rng.random() < 0.45:
                self.row(points, 0.0, 4.5, 0.8)
            return
        avenue = length > plan.avenue
        kind = "track" if plan.street and not avenue else "street"
        width = 10.0 if avenue else {"track": 3.5, "street": 6.5}[kind]
        self.land.roads.append(Road(points, width, kind))
        self.taken.line(points, width + 3)

    def street(self, road: Road) -> None:
        """Trees on both sides, and places for cars on both lanes and at both kerbs."""
        for side in (-1, 1):
            self.row(road.points, side * (road.width / 2 + 2.4), 9.0, 0.4)
        for x, y, ux, uy in stations(self.rng, road.points, 7.0):
            for lane, share in ((-0.42, 0.3), (-0.2, 0.12), (0.2, 0.12), (0.42, 0.3)):
                if self.rng.random() < share * self.wishes.cars:
                    self.car(x - lane * road.width * uy, y + lane * road.width * ux, ux, uy)

    def row(self, points: Points, offset: float, spacing: float, share: float) -> None:
        """Trees at a fixed distance from a line, but none in water or on a road."""
        for x, y, ux, uy in stations(self.rng, points, spacing):
            if self.rng.random() < share * self.wishes.trees:
                dx, dy = self.rng.normal(0, 0.4, 2)
                spot = x - offset * uy + dx, y + offset * ux + dy
                if self.taken.free((spot,)):
                    self.tree(*spot, self.rng.uniform(1.4, 2.8))

    def car(self, x: float, y: float, ux: float, uy: float) -> None:
        """A place for a car."""
        if self.land.sees(x, y, 4.0):
            self.land.cars.append(Box(x, y, ux, uy, *CAR, "car", self.rng.random()))

    def tree(self, x: float, y: float, radius: float, wood: int = -1) -> None:
        """A tree whose crown is a disc with three lobes."""
        if not self.land.sees(x, y, 10.0):
            return
        tone = self.rng.random()
        lobes = [(x, y, 0.8 * radius)]
        for k in range(3):
            angle = 2 * math.pi * (7 * tone + k / 3)
            dx, dy = 0.45 * radius * math.cos(angle), 0.45 * radius * math.sin(angle)
            lobes.append((x + dx, y + dy, 0.52 * radius))
        self.land.trees.append(Tree(x, y, radius, tone, wood, tuple(lobes)))

    def piece(self, rect: Rect, use: str) -> None:
        """Fill one block or field."""
        rng, land = self.rng, self.land
        x0, y0, x1, y1 = rect
        inner = (x0 + VERGE, y0 + VERGE, x1 - VERGE, y1 - VERGE)
        axis = self.frame.direction(np.array((x0 + x1, y0 + y1)) / 2, np.array((1.0, 0.0)))
        if use == "built":
            self.ground(rect, self.plan.yard, axis)
            for lot, street in lots(rng, self.plan, inner):
                self.lot(lot, street)
        elif use == "wood":
            self.ground(rect, "grass", axis)
            self.wood(inner)
        elif use == "parking":
            self.ground(rect, "asphalt", axis)
            self.parking(inner, axis)
        elif use == "park":
            outline = self.ground(rect, "grass", axis)
            ends = rng.choice(len(outline), 2, replace=False)
            land.roads.append(Road(outline[ends], 2.0, "path"))
            self.scatter(rect, 0.006, 4.5)
        else:
            along = axis if rng.random() < 0.5 else np.array((-axis[1], axis[0]))
            self.ground(rect, str(rng.choice(CROPS)), along)
            self.scatter(rect, 0.0002, 5.0)

    def ground(self, rect: Rect, cover: str, axis: Points) -> Points:
        """Give a rectangle of the plan one cover; returns its outline in the image."""
        outline = self.frame.outline(rect)
        self.land.parcels.append(Parcel(outline, cover, self.rng.random(), axis))
        return outline

    def scatter(self, rect: Rect, density: float, largest: float) -> None:
        """Single trees, `density` for each square metre."""
        x0, y0, x1, y1 = rect
        area = (x1 - x0) * (y1 - y0)
        count = self.rng.poisson(density * self.wishes.trees * area)
        for spot in self.frame(self.rng.uniform((x0, y0), (x1, y1), (count, 2))).tolist():
            if self.taken.free((spot,)):
                self.tree(spot[0], spot[1], self.rng.uniform(1.5, largest))

    def wood(self, rect: Rect) -> None:
        """Two stands of trees that fill a piece."""
        x0, y0, x1, y1 = rect
        at = self.rng.uniform(0.35, 0.65)
        x, y = x0 + at * (x1 - x0), y0 + at * (y1 - y0)
        if x1 - x0 > y1 - y0:
            halves = ((x0, y0, x, y1), (x, y0, x1, y1))
        else:
            halves = ((x0, y0, x1, y), (x0, y, x1, y1))
        for half in halves:
            stand = len(self.land.woods)
            outline = self.frame.outline(half)
            self.land.woods.append(Wood(outline + self.rng.normal(0, 1.2, outline.shape)))
            step = self.rng.uniform(4.2, 5.4)
            grid = np.mgrid[half[0] : half[2] : step, half[1] : half[3] : step].reshape(2, -1).T
            grid = grid + self.rng.uniform(-0.4 * step, 0.4 * step, grid.shape)
            for spot in self.frame(grid).tolist():
                if self.taken.free((spot,)):
                    self.tree(spot[0], spot[1], self.rng.uniform(1.8, 3.9), stand)

    def parking(self, rect: Rect, axis: Points) -> None:
        """Rows of stalls with markings, two cars nose to nose."""
        x0, y0, x1, y1 = rect
        ux, uy = axis.tolist()
        for row in np.arange(y0 + 6, y1 - 5, 16.0):
            line = [(x, row) for x in np.arange(x0, x1, 2.7)]
            for x, y in self.frame(np.array(line)).tolist() if line else ():
                if self.land.sees(x, y, 6.0) and self.taken.free(((x, y),)):
                    self.land.marks.append(((x + 5 * uy, y - 5 * ux), (x - 5 * uy, y + 5 * ux)))
                    for side in (-2.5, 2.5):
                        if self.rng.random() < 0.6 * self.wishes.cars:
                            cx, cy = x + 1.35 * ux - side * uy, y + 1.35 * uy + side * ux
                            self.car(cx, cy, -uy, ux)
        self.taken.polygon(self.frame.outline(rect).tolist())

    def lot(self, lot: Rect, street: Points) -> None:
        """A building of one or two boxes near the street, a drive and a garden."""
        rng, plan = self.rng, self.plan
        x0, y0, x1, y1 = lot
        garden = plan.yard == "lawn"
        centre = np.array((x0 + x1, y0 + y1)) / 2
        x, y = self.frame(centre[None])[0]
        size = np.array((x1 - x0, y1 - y0))
        if size.min() < 6 or not self.land.sees(x, y, size.max() + MARGIN / 2):
            return
        axis = self.frame.direction(centre, np.array((1.0, 0.0)))
        if garden or rng.random() < 0.3:
            cover = str(rng.choice(("lawn", "grass", "paved"), p=(0.75, 0.2, 0.05)))
            self.ground(lot, cover, axis)
        if rng.random() < 0.95 * self.wishes.buildings:
            sides = np.minimum(
                size * rng.uniform(*plan.fill, 2), plan.side * rng.uniform(0.75, 1, 2)
            )
            # Suburban houses stand at the street with the garden behind; others anywhere.
            shift = street * 0.5 if garden else rng.uniform(-0.6, 0.6, 2)
            spot = centre + (size - sides) / 2 * shift
            x, y = self.frame(spot[None])[0].tolist()
            if self.building(x, y, axis, sides) and garden:
                drive = np.stack((spot, spot + street * (size + 2 * VERGE) / 2))
                drive += np.abs(street[::-1]) * sides * rng.uniform(-0.3, 0.3)
                self.land.roads.append(Road(self.frame(drive), 2.8, "drive"))
        self.scatter(lot, 0.007 if garden else 0.002, 3.4)

    def building(self, x: float, y: float, axis: Points, sides: Points) -> bool:
        """A building with `sides` along and across `axis`, if there is room; says whether."""
        rng, plan = self.rng, self.plan
        a, b = (sides / 2).tolist()
        ux, uy = axis.tolist()
        if b > a:  # ridges follow the longer side
            a, b, ux, uy = b, a, -uy, ux
        roof = str(rng.choice(ROOFS, p=plan.roofs))
        height, tone = rng.uniform(*plan.height), rng.random()
        main = Box(x, y, ux, uy, a, b, height, roof, tone)
        boxes = [main]
        if rng.random() < 0.4 and b > 3:
            end, side = rng.choice((-1, 1), 2).tolist()
            length, width = b * rng.uniform(0.4, 0.6), a * rng.uniform(0.25, 0.45)
            wx, wy = main.at(end * (a - width), side * b)
            level = height * rng.uniform(0.65, 0.95)
            boxes.append(Box(wx, wy, -uy, ux, length, width, level, roof, tone))
        ends = (-1, 0, 1)
        if not self.taken.free(
            box.at(s * box.half_length, t * box.half_width)
            for box in boxes
            for s in ends
            for t in ends
        ):
            return False
        self.land.buildings.append(Building(boxes))
        for box in boxes:
            self.taken.polygon(box.corners(0.8))
        return True

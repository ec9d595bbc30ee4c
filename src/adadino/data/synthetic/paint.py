"""Paint one date of the synthetic world: colours below, shadows apart.

`Canvas` draws in metres, and the mask is drawn on one too; `Painter` knows what things look like.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import numpy as np
from PIL import Image, ImageDraw

from adadino.data.synthetic import palette
from adadino.data.synthetic.land import Box, Land, Point, Points, Road, Tree
from adadino.data.synthetic.palette import ROUGH, Colour, cover_colour, fade, pick, seasonal
from adadino.data.synthetic.view import View

FINE = 2  # dots on a pixel's side
AMBIENT = 0.45  # the sky's share of the light on a flat roof
PITCH = 0.6  # radians: a roof of tiles
VARIANTS = 24
SURFACES = {"track": ("soil", 0.95), "path": ("bank", 1.15), "drive": ("paved", 1.0)}

Ink = tuple[int, int, int, int]


class Canvas:
    """A Pillow image that is drawn on in metres."""

    def __init__(self, image: Image.Image, gsd: float) -> None:
        self.image = image
        self.draw = ImageDraw.Draw(image)
        self.scale = FINE / gsd

    def polygon(self, points: Iterable[Point], ink: Ink | int) -> None:
        """Fill a polygon."""
        s = self.scale
        self.draw.polygon([(x * s, y * s) for x, y in points], fill=ink)

    def band(self, points: Points, width: float, ink: Ink | int) -> None:
        """Fill a curved band around a line; one polygon, many times faster than round joints."""
        step = np.gradient(points, axis=0)
        step /= np.hypot(step[:, :1], step[:, 1:])
        side = step[:, ::-1] * (-width / 2, width / 2)
        self.polygon(np.concatenate((points + side, (points - side)[::-1])).tolist(), ink)

    def line(self, start: Point, end: Point, width: float, ink: Ink | int) -> None:
        """Draw a straight line."""
        s = self.scale
        flat = (start[0] * s, start[1] * s, end[0] * s, end[1] * s)
        self.draw.line(flat, fill=ink, width=max(1, round(width * s)))

    def disc(self, x: float, y: float, radius: float, ink: Ink | int) -> None:
        """Fill a circle."""
        s = self.scale
        box = ((x - radius) * s, (y - radius) * s, (x + radius) * s, (y + radius) * s)
        self.draw.ellipse(box, fill=ink)

    def body(self, box: Box, lean: Point, ink: Ink | int) -> None:
        """Fill all that a box hides when its roof appears `lean` metres aside for each metre up."""
        dx, dy = lean[0] * box.height, lean[1] * box.height
        foot = box.corners()
        # Foot and roof are parts of the sweep, but Pillow rounds corners: draw them as well.
        for outline in (sweep(foot, dx, dy), foot, [(x + dx, y + dy) for x, y in foot]):
            self.polygon(outline, ink)


def sweep(corners: list[Point], dx: float, dy: float) -> list[Point]:
    """The outline of what a convex polygon covers while it moves: a shadow, or a leaning body."""
    sides = zip(corners, corners[1:] + corners[:1], strict=True)
    leads = [(y1 - y0) * dx > (x1 - x0) * dy for (x0, y0), (x1, y1) in sides]
    outline = []
    for i, (x, y) in enumerate(corners):
        # A corner between a leading and a trailing side belongs to the outline at both ends.
        ends = [(x + dx, y + dy) if lead else (x, y) for lead in (leads[i - 1], leads[i])]
        outline += ends if leads[i - 1] != leads[i] else ends[:1]
    return outline


class Painter:
    """Paints what exists at one date, under that date's season and sun."""

    def __init__(self, land: Land, when: int, view: View, gsd: float, lean: Point) -> None:
        self.land = land
        self.when = when
        self.view = view
        self.gsd = gsd
        self.lean = lean
        self.sun: tuple[float, float, float] = tuple(view.sun.tolist())
        east, south, up = self.sun
        self.cast = -east / up, -south / up  # where the shadow of a point one metre up falls
        self.boxes = [box for building, box in land.by_height() if building.when & when]
        self.trees = [tree for tree in land.trees if land.tree_when(tree) & when]
        self.cars = [car for car, there in zip(land.cars, view.cars, strict=True) if there]
        # Trees turn at their own time and have their own green; a few variants are enough.
        self.leaves = [self.leaf(tone) for tone in np.arange(VARIANTS) / VARIANTS]

    def cover(self, name: str, surface: str = "ground", shade: float = 1.0) -> Ink:
        """The ink of a ground cover in this season."""
        return ink(cover_colour(name, self.view.season, self.view.drought), surface, shade)

    def paint(
        self, ground: Image.Image, water: Image.Image | None, flood: Image.Image | None
    ) -> Image.Image:
        """Paint all objects over the ground.

        Args:
            ground: RGBX; X is the roughness.
            water: The dots that are always water.
            flood: The dots that are newly water at this date.
        """
        canvas = Canvas(ground, self.gsd)
        for wood in self.land.woods:
            there = wood.when & self.when
            canvas.polygon(wood.outline.tolist(), self.cover("floor" if there else "soil", "soil"))
        if water is not None:
            ground.paste(self.cover("water", "water"), mask=water)
        self.roads(canvas)
        for building in self.land.buildings:
            if building.pad and not building.when & self.when:
                for box in building.boxes:
                    canvas.polygon(box.corners(), self.cover("soil", "soil"))
        for car in self.cars:
            self.car(canvas, car)
        if flood is not None:
            ground.paste(self.cover("water", "water"), mask=flood)
        for tree in self.trees:
            self.tree(canvas, tree)
        for box in self.boxes:
            self.box(canvas, box)
        return ground

    def shadows(self, size: tuple[int, int], flood: Image.Image | None) -> Image.Image:
        """The dots in shadow as 255: lower things first, so that a tall one darkens them."""
        canvas = Canvas(Image.new("L", size), self.gsd)
        dx, dy = self.cast
        for car in self.cars:
            canvas.polygon(sweep(car.corners(), dx * car.height, dy * car.height), 255)
            canvas.polygon(car.corners(), 0)
        if flood is not None:
            canvas.image.paste(0, mask=flood)
        tall: list[tuple[float, Tree | Box]] = [(2 * tree.radius, tree) for tree in self.trees]
        tall += [(box.height, box) for box in self.boxes]
        for height, thing in sorted(tall, key=lambda item: item[0]):
            x, y = dx * height, dy * height
            if isinstance(thing, Tree):
                canvas.disc(thing.x + 0.75 * x, thing.y + 0.75 * y, 0.95 * thing.radius, 255)
                canvas.disc(thing.x, thing.y, 0.9 * thing.radius, 0)
            else:
                canvas.polygon(sweep(thing.corners(), x, y), 255)
                canvas.body(thing, self.lean, 0)
        return canvas.image

    def roads(self, canvas: Canvas) -> None:
        """Roads from the humblest to the widest, so that crossings are clean."""
        streets = [road for road in self.land.roads if road.kind == "street"]
        for road in self.land.roads:
            if road.kind != "street":
                cover, shade = SURFACES[road.kind]
                canvas.band(road.points, road.width, self.cover(cover, "road", shade))
        for road in streets:
            canvas.band(road.points, road.span, self.cover("paved", "road", 1.04))
        for road in streets:
            canvas.band(road.points, road.width, self.cover("asphalt", "road", 0.92))
        if self.gsd > 1:  # paint is narrower than a pixel's tenth
            return
        white = ink((206, 206, 200), "paint")
        for start, end in self.land.marks:
            canvas.line(start, end, 0.2, white)
        for road in streets:
            dashes(canvas, road, white)

    def car(self, canvas: Canvas, car: Box) -> None:
        """A body, its windows, and the roof between them."""
        colour = pick(palette.CARS, car.tone)
        x, y = car.at(-0.25, 0.0)
        cabin = car._replace(x=x, y=y, half_length=1.25, half_width=0.8)
        canvas.polygon(car.corners(), ink(colour, "paint"))
        canvas.polygon(cabin.corners(), ink(colour, "paint", 0.45))
        canvas.polygon(cabin._replace(half_length=0.7).corners(), ink(colour, "paint", 1.05))

    def leaf(self, tone: float) -> tuple[Ink, Ink, Ink]:
        """The dark, middle and bright ink of a crown."""
        kind = palette.CONIFER if tone < 0.25 else palette.BROADLEAF
        colour = seasonal(kind, self.view.season + 0.1 * (tone * 5 % 1 - 0.5))
        if self.view.drought and kind is palette.BROADLEAF:
            colour = fade(colour, palette.PARCHED_LEAF, self.view.drought)
        own = 0.8 + 0.4 * (tone * 11 % 1)
        dark, middle, bright = (ink(colour, "leaf", own * s) for s in (0.78, 1.04, 1.28))
        return dark, middle, bright

    def tree(self, canvas: Canvas, tree: Tree) -> None:
        """A crown, lighter towards the sun; the highlights stay inside the lobes."""
        dark, middle, bright = self.leaves[int(tree.tone * VARIANTS)]
        east, south = self.sun[0] * tree.radius, self.sun[1] * tree.radius
        for x, y, radius in tree.lobes:
            canvas.disc(x, y, radius, dark)
        if tree.radius < 3 * self.gsd:
            return  # a highlight that Pillow rounds could leave so small a crown, and the mask
        x, y = tree.x, tree.y
        canvas.disc(x + 0.2 * east, y + 0.2 * south, 0.45 * tree.radius, middle)
        canvas.disc(x + 0.35 * east, y + 0.35 * south, 0.25 * tree.radius, bright)

    def box(self, canvas: Canvas, box: Box) -> None:
        """Walls, which show because the sensor looks a little from the side, and the roof."""
        canvas.body(box, self.lean, WALL)
        dx, dy = self.lean[0] * box.height, self.lean[1] * box.height
        roof = box._replace(x=box.x + dx, y=box.y + dy)
        colour = pick(palette.ROOFS[box.roof], box.tone)
        if box.roof == "flat":
            self.flat_roof(canvas, roof, colour)
        else:
            self.pitched_roof(canvas, roof, colour)

    def pitched_roof(self, canvas: Canvas, box: Box, colour: Colour) -> None:
        """Two slopes at the long sides; a hip roof has two more at the ends."""
        a, b, c, d = corners = box.corners()
        # A gable's ridge ends a pixel early: Pillow rounds, and no dot may leave the footprint.
        inset = max(box.half_width if box.roof == "hip" else 0.0, self.gsd)
        ridge = max(box.half_length - inset, 0.0)
        start, end = box.at(-ridge, 0.0), box.at(ridge, 0.0)
        canvas.polygon(corners, ink(colour, "roof", self.shade(box.uy, -box.ux)))
        canvas.polygon((c, d, start, end), ink(colour, "roof", self.shade(-box.uy, box.ux)))
        if box.roof == "hip":
            canvas.polygon((b, c, end), ink(colour, "roof", self.shade(box.ux, box.uy)))
            canvas.polygon((d, a, start), ink(colour, "roof", self.shade(-box.ux, -box.uy)))
        canvas.line(start, end, 0.3, ink(colour, "roof", 1.12))

    def flat_roof(self, canvas: Canvas, box: Box, colour: Colour) -> None:
        """A parapet around the roof, and plant with its own small shadows."""
        canvas.polygon(box.corners(), ink(colour, "roof", 1.12))
        if self.gsd >= 1:  # the rest is about a pixel
            return
        canvas.polygon(box.corners(-0.6), ink(colour, "roof", 0.96))
        room = box.half_length - 2.5, box.half_width - 2.5
        if min(room) < 1:
            return
        rng = random.Random(box.tone)  # the same plant at both dates
        for _ in range(rng.randint(1, 2 + int(room[0] * room[1] / 40))):
            x, y = box.at(rng.uniform(-room[0], room[0]), rng.uniform(-room[1], room[1]))
            size = rng.uniform(0.6, 1.4), rng.uniform(0.6, 1.4)
            unit = box._replace(x=x, y=y, half_length=size[0], half_width=size[1]).corners()
            dx, dy = 0.25 * self.cast[0], 0.25 * self.cast[1]
            canvas.polygon(sweep(unit, dx, dy), ink(colour, "roof", 0.55))
            canvas.polygon(unit, ink(colour, "roof", rng.uniform(0.85, 1.25)))

    def shade(self, dx: float, dy: float) -> float:
        """The light on a slope that falls towards (dx, dy), relative to flat ground."""
        east, south, up = self.sun
        facing = math.sin(PITCH) * (dx * east + dy * south) + math.cos(PITCH) * up
        return min(max(AMBIENT + (1 - AMBIENT) * facing / up, 0.5), 1.3)


def dashes(canvas: Canvas, road: Road, white: Ink) -> None:
    """The dashed line in the middle of a street, 3 m every 9 m."""
    along = np.concatenate(((0.0,), np.cumsum(np.hypot(*np.diff(road.points, axis=0).T))))
    starts = np.arange(4.0, along[-1] - 7.0, 9.0)
    ends = np.stack((starts, starts + 3.0), axis=1)  # (n, 2)
    x, y = (np.interp(ends, along, road.points[:, k]).tolist() for k in (0, 1))
    for (x0, x1), (y0, y1) in zip(x, y, strict=True):
        canvas.line((x0, y0), (x1, y1), 0.25, white)


def ink(colour: Colour, surface: str, shade: float = 1.0) -> Ink:
    """Four plain channels: red, green, blue and how rough the surface is."""
    r, g, b = (min(int(value * shade), 255) for value in colour)
    return r, g, b, ROUGH[surface]


WALL = ink((150, 142, 132), "roof", 0.8)

"""The canvas the synthetic world is drawn on, and the outlines that images and mask share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PIL import Image, ImageDraw

from adadino.data.synthetic.scene import Box, Building, Point, Points, Scene

Ink = int | tuple[int, int, int, int]

FINE = 2  # dots on a pixel's side


class Canvas:
    """A Pillow image that is drawn on in metres."""

    def __init__(self, image: Image.Image, gsd: float) -> None:
        self.image = image
        self.draw = ImageDraw.Draw(image)
        self.scale = FINE / gsd

    def polygon(self, points: Iterable[Point], ink: Ink) -> None:
        """Fill a polygon."""
        s = self.scale
        self.draw.polygon([(x * s, y * s) for x, y in points], fill=ink)

    def band(self, points: Points, width: float, ink: Ink) -> None:
        """Fill a curved band around a line; one polygon, many times faster than round joints."""
        step = np.gradient(points, axis=0)
        step /= np.hypot(step[:, :1], step[:, 1:])
        side = step[:, ::-1] * (-width / 2, width / 2)
        self.polygon(np.concatenate((points + side, (points - side)[::-1])).tolist(), ink)

    def line(self, start: Point, end: Point, width: float, ink: Ink) -> None:
        """Draw a straight line."""
        s = self.scale
        flat = (start[0] * s, start[1] * s, end[0] * s, end[1] * s)
        self.draw.line(flat, fill=ink, width=max(1, round(width * s)))

    def disc(self, x: float, y: float, radius: float, ink: Ink) -> None:
        """Fill a circle."""
        s = self.scale
        box = ((x - radius) * s, (y - radius) * s, (x + radius) * s, (y + radius) * s)
        self.draw.ellipse(box, fill=ink)

    def body(self, box: Box, lean: Point, ink: Ink) -> None:
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


def by_height(scene: Scene) -> list[tuple[Building, Box]]:
    """The boxes of all buildings, lowest first: the order in which they hide each other."""
    pairs = [(building, box) for building in scene.buildings for box in building.boxes]
    return sorted(pairs, key=lambda pair: pair[1].height)

"""Where there is still room in a synthetic scene."""

from __future__ import annotations

from collections.abc import Iterable

from PIL import Image, ImageDraw

from adadino.data.synthetic.scene import Point, Points, Scene

MARGIN = 30.0  # metres around the image that are also laid out: their shadows reach into it


class Taken:
    """Where something stands already, on a grid of one metre."""

    def __init__(self, scene: Scene) -> None:
        size = int(scene.width + 2 * MARGIN) + 1, int(scene.height + 2 * MARGIN) + 1
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

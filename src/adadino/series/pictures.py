"""Pictures of a series: the time line of a polygon, all dates, and their animation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import shapely
from PIL import Image, ImageDraw
from rasterio.windows import Window

from adadino.geo.grid import Grid
from adadino.geo.polygons.measure import move
from adadino.geo.read.small import Picture, read_pair
from adadino.geo.write.cog import CHANGE_COLOUR
from adadino.geo.write.overview import INK, PAPER, SOFT, sized_font
from adadino.scene.options import SceneOptions
from adadino.series.dates import Scene, Shot

if TYPE_CHECKING:
    import geopandas as gpd

CHIP, GAP, CAPTION, ACROSS = 200, 10, 26, 8
"""Pixels of a chip's side, between chips and for a date; chips in a row."""
FRAME, FRAME_MS = 640, 900
"""The longest side of the dates on the page and in the animation, and how long a frame stays."""


def write_timelines(
    folder: Path,
    frame: gpd.GeoDataFrame,
    shots: Sequence[Shot],
    place: Scene,
    options: SceneOptions,
    *,
    count: int,
) -> list[Path]:
    """Draw the largest polygons at every date: ID.png each."""
    grid = place.grid
    written = []
    for polygon in frame.head(count).itertuples():
        outline = move(np.array([polygon.geometry], object), ~grid.transform)[0]
        window = _around(outline, grid)
        scale = CHIP / max(window.width, window.height)
        shape = max(1, round(window.height * scale)), max(1, round(window.width * scale))
        chips = list(_dates(shots, place, shape, options, window))
        lines = _lines(outline, window.col_off, window.row_off, scale)
        title = (
            f"{polygon.id}: {polygon.first_seen} to {polygon.last_seen}, {polygon.persistence}, "
            f"confidence {polygon.confidence:.2f}"
        )
        path = folder / f"{polygon.id:04d}.png"
        _sheet(chips, shots, lines, title, str(polygon.first_seen)).save(path, optimize=True)
        written.append(path)
    return written


class Frames(NamedTuple):
    """All dates in few pixels, and the polygons on them."""

    pictures: list[Picture]
    rings: list[list[list[tuple[float, float]]]]
    """For each polygon its rings in pixels of the pictures."""


def draw_frames(
    frame: gpd.GeoDataFrame, shots: Sequence[Shot], place: Scene, options: SceneOptions
) -> Frames:
    """Read each date for the page and the animation."""
    grid = place.grid
    scale = min(1.0, FRAME / max(grid.shape))
    shape = max(1, round(grid.height * scale)), max(1, round(grid.width * scale))
    outlines = move(frame.geometry.to_numpy(), ~grid.transform)
    rings = [_lines(outline, 0, 0, scale) for outline in outlines]
    return Frames(list(_dates(shots, place, shape, options)), rings)


def write_gif(path: Path, frames: Frames, frame: gpd.GeoDataFrame, shots: Sequence[Shot]) -> None:
    """Animate the dates; a polygon is outlined from the date that first shows it."""
    images = []
    for shot, picture in zip(shots, frames.pictures, strict=True):
        height, width = picture.shape[:2]
        image = Image.new("RGB", (width, height + CAPTION), PAPER)
        image.paste(Image.fromarray(picture), (0, CAPTION))
        draw = ImageDraw.Draw(image)
        draw.text((6, 4), shot.label, fill=INK, font=sized_font(16))
        for rings, seen in zip(frames.rings, frame["first_seen"], strict=True):
            if seen <= shot.label:
                for line in rings:
                    draw.line([(x, y + CAPTION) for x, y in line], fill=CHANGE_COLOUR, width=2)
        images.append(image.quantize(128, Image.Quantize.MEDIANCUT))
    images[0].save(path, save_all=True, append_images=images[1:], duration=FRAME_MS, loop=0)


def _around(outline: Any, grid: Grid) -> Window:
    """A square of whole pixels around a polygon, with as much of its surroundings."""
    left, top, right, bottom = outline.bounds
    half = max(16, math.ceil(0.75 * max(right - left, bottom - top)))
    middle = (left + right) / 2, (top + bottom) / 2
    col, row = (max(0, math.floor(at - half)) for at in middle)
    width = min(grid.width, math.ceil(middle[0] + half)) - col
    height = min(grid.height, math.ceil(middle[1] + half)) - row
    return Window(col, row, width, height)


def _dates(
    shots: Sequence[Shot],
    place: Scene,
    shape: tuple[int, int],
    options: SceneOptions,
    window: Window | None = None,
) -> Iterator[Picture]:
    """Each date in few pixels; black where it has no data."""
    how: dict[str, Any] = {"bands": options.bands, "scale": options.scale}
    part = place.part if window is None else place.moved(window)
    for number, shot in enumerate(shots):
        other = shots[max(number, 1)]
        # Always beside the first date: all are then stretched alike, and lie on its grid.
        pair = read_pair(shots[0].path, other.path, place.scene, shape, window=part, **how)
        yield pair[0] if shot is shots[0] else pair[1]


def _lines(outline: Any, left: float, top: float, scale: float) -> list[list[tuple[float, float]]]:
    """The rings of a polygon in pixels of a picture."""
    rings = [ring for part in shapely.get_parts(outline) for ring in shapely.get_rings(part)]
    corners = (shapely.get_coordinates(ring) for ring in rings)
    return [[((x - left) * scale, (y - top) * scale) for x, y in ring] for ring in corners]


def _sheet(
    chips: Sequence[Picture],
    shots: Sequence[Shot],
    lines: list[list[tuple[float, float]]],
    title: str,
    first_seen: str,
) -> Image.Image:
    """Chips with their dates, in rows; from the date that shows the change they are framed."""
    height, width = chips[0].shape[:2]
    across = min(ACROSS, len(chips))
    down = math.ceil(len(chips) / across)
    step, pitch = CHIP + GAP, height + CAPTION + GAP
    sheet = Image.new("RGB", (across * step + GAP, CAPTION + GAP + down * pitch), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, 8), title, fill=INK, font=sized_font(17))
    for number, (chip, shot) in enumerate(zip(chips, shots, strict=True)):
        x = GAP + number % across * step
        y = CAPTION + GAP + number // across * pitch
        changed = shot.label >= first_seen
        colour = CHANGE_COLOUR if changed else SOFT
        draw.text((x, y + 4), shot.label, fill=colour, font=sized_font(15))
        sheet.paste(Image.fromarray(chip), (x, y + CAPTION))
        for line in lines if changed else ():
            corners = [(x + right, y + CAPTION + below) for right, below in line]
            draw.line(corners, fill=CHANGE_COLOUR, width=2)
        box = (x - 1, y + CAPTION - 1, x + width, y + CAPTION + height)
        draw.rectangle(box, outline=colour, width=2 if changed else 1)
    return sheet

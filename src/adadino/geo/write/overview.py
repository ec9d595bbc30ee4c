"""A picture of the result for a mail or a report: before, after and the change, with a scale.

- It is drawn from decimated arrays (`geo.read.small`), so a scene of any size costs the same; it
  has no date in it, so the same scene gives the same picture.
- Nodata is hatched: a plain grey could be a roof, above all in the grey panel of the change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyproj
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.write.cog import CHANGE_COLOUR

Picture = NDArray[np.uint8]
Unit = Literal["m", "px"]

SIDE = 1600
"""The longest side of the picture."""
MARGIN, GAP = 36, 16
HEADER, CAPTION, FOOTER = 66, 32, 62
LEAST_WIDTH, LEAST_PANEL = 760, 12
LEAST_PITCH = (LEAST_WIDTH - 2 * MARGIN + GAP) // 3
"""From one panel's left edge to the next: narrow ones spread over the picture."""
LONGEST_BAR = 200
"""Pixels of the scale bar; the legend needs the rest of the narrowest picture."""

PAPER, INK, SOFT = (252, 252, 250), (32, 34, 38), (110, 114, 120)
NODATA = ((236, 237, 240), (190, 193, 199))
"""The two tones of the hatching."""


def decimated_shape(height: int, width: int, *, side: int = SIDE) -> tuple[int, int]:
    """The size to read a scene in for the picture: that of a panel, or the scene's if smaller."""
    panel_height, panel_width = _panel(height, width, side)
    return min(panel_height, height), min(panel_width, width)


def ground_span(grid: Grid) -> tuple[float, Unit]:
    """How far it is across a scene, through its middle: in metres, or in pixels without a CRS.

    Measured on the ground and not on the map: Mercator's metres are twice too long in Oslo.
    """
    crs = grid.system
    if crs is None:
        return float(grid.width), "px"
    half = max(0.5, grid.width / 200)  # a short way: the long one may lead around the Earth
    middle, row = grid.width / 2, grid.height / 2
    ends = [grid.transform * (middle + step, row) for step in (-half, half)]
    if grid.is_local:
        return _planar(crs, ends) * grid.width / (2 * half), "m"
    degrees = pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    try:
        (x1, y1), (x2, y2) = (degrees.transform(*end, errcheck=True) for end in ends)
        length = pyproj.Geod(ellps="WGS84").inv(x1, y1, x2, y2)[2]
    except pyproj.exceptions.ProjError:  # a place outside what the projection can express
        length = _planar(crs, ends)
    return float(length * grid.width / (2 * half)), "m"


def _planar(crs: pyproj.CRS, ends: list[tuple[float, float]]) -> float:
    """Metres between two points of a plane, whatever its unit."""
    unit = crs.axis_info[0].unit_conversion_factor if crs.axis_info else 1.0
    return float(math.dist(*ends) * unit)


def write_overview(path: Path | str, picture: Image.Image) -> None:
    """Write what `draw_overview` has drawn as a PNG."""
    write_atomic(path, lambda part: picture.save(part, format="PNG", optimize=True))


def draw_overview(
    before: Picture,
    after: Picture,
    change: Picture,
    *,
    title: str,
    span: float,
    unit: Unit,
    share: float | None = None,
    side: int = SIDE,
    dates: Sequence[str] | None = None,
    remark: str | None = None,
    used: str | None = None,
) -> Image.Image:
    """Draw the three panels, the legend and the scale bar.

    Args:
        before: (h, w, 3), stretched for display; best in `decimated_shape`.
        after: (h, w, 3), stretched alike.
        change: (h, w), 0 no, 1 yes, 255 nodata.
        title: One line; a long one is cut.
        span: How far it is across the scene, from the left edge to the right, in `unit`.
        unit: Metres on the ground, or pixels where there are no coordinates.
        share: How much of the valid area changed, 0 to 1, as counted on the whole scene; if left
            out, it is counted here.
        side: The longest side of the picture; no less than `LEAST_WIDTH`.
        dates: When the two images were taken, for their captions.
        remark: What must be said of the change, below the title.
        used: What was used, below the legend; a long line is cut.

    Returns:
        The picture, at most `side` wide and high.
    """
    rows, columns = change.shape
    size = _panel(rows, columns, side)
    days = ("", "") if dates is None else [f", {day}" for day in dates]
    panels = {
        f"Before{days[0]}": _shown(before, change, size),
        f"After{days[1]}": _shown(after, change, size),
        "Change": _shown(highlighted(after, change), change, size),
    }
    spots, (width, height) = _layout(*size, stacked=_is_stacked(rows, columns))
    canvas = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(canvas)
    left = spots[0][0]
    _write_line(draw, title, left, width - MARGIN, y=MARGIN + 18 - 10 * (remark is not None))
    for (x, y), (name, panel) in zip(spots, panels.items(), strict=True):
        draw.text((x, y - 8), name, fill=SOFT, font=sized_font(19), anchor="ls")
        canvas.paste(panel, (x, y))
        draw.rectangle((x - 1, y - 1, x + panel.width, y + panel.height), outline=SOFT)
    if remark is not None:
        _write_line(draw, remark, left, width - MARGIN, y=HEADER - 4, size=16, fill=CHANGE_COLOUR)
    baseline = height - FOOTER // 2 - 4
    if used is not None:
        _write_line(draw, used, left, width - MARGIN, y=height - 10, size=14, fill=SOFT)
    _draw_legend(canvas, change, share, left, baseline)
    _draw_scale(draw, span / size[1], unit, max(size), width - MARGIN, baseline)
    return canvas


def _is_stacked(height: int, width: int) -> bool:
    """Wide scenes lie above each other, others side by side: what gives larger panels."""
    return width > 2 * height


def _panel(height: int, width: int, side: int) -> tuple[int, int]:
    """Height and width of a panel; small scenes are enlarged."""
    room_width, room_height = side - 2 * MARGIN, side - HEADER - FOOTER
    if _is_stacked(height, width):
        room_height = (room_height - 2 * GAP) // 3 - CAPTION
    else:
        room_width, room_height = (room_width - 2 * GAP) // 3, room_height - CAPTION
    scale = min(room_height / height, room_width / width)
    return max(LEAST_PANEL, int(height * scale)), max(LEAST_PANEL, int(width * scale))


def _layout(
    height: int, width: int, *, stacked: bool
) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """The panels' top left corners and the size of the picture, both as (x, y)."""
    across, down = (1, 3) if stacked else (3, 1)
    pitch = max(width + GAP, LEAST_PITCH)
    panels = (across - 1) * pitch + width
    full = max(LEAST_WIDTH, panels + 2 * MARGIN)
    spots = [
        (MARGIN + i % across * pitch, HEADER + CAPTION + i // across * (height + CAPTION))
        for i in range(3)
    ]
    return spots, (full, HEADER + down * (CAPTION + height) + FOOTER)


def _shown(image: Picture, change: Picture, size: tuple[int, int]) -> Image.Image:
    """An image in the panel's size, with nodata hatched."""
    height, width = size
    # Enlarged pixels stay square: a small scene must not look like a blurred large one.
    enlarged = width >= image.shape[1]
    filter_ = Image.Resampling.NEAREST if enlarged else Image.Resampling.BOX
    shown = Image.fromarray(image).resize((width, height), filter_)
    hidden = Image.fromarray(change == 255).resize((width, height), Image.Resampling.NEAREST)
    shown.paste(_hatching(height, width), mask=hidden)
    return shown


def _hatching(height: int, width: int) -> Image.Image:
    """Diagonal stripes in the two tones of nodata."""
    rows, columns = np.mgrid[:height, :width]
    return Image.fromarray(np.array(NODATA, np.uint8)[(rows + columns) // 3 % 4 // 3])


def highlighted(after: Picture, change: Picture) -> Picture:
    """Change in colour over the image in pale grey."""
    grey = pale(after)
    coloured = 0.15 * grey + 0.85 * np.array(CHANGE_COLOUR)
    mixed: Picture = np.where((change == 1)[..., None], coloured, grey).astype(np.uint8)
    return mixed


def pale(image: Picture) -> NDArray[np.floating]:
    """An image (h, w, 3) as pale grey (h, w, 1), where no colour competes with that of change."""
    grey: NDArray[np.floating] = image.mean(axis=2, keepdims=True) * 0.55 + 255 * 0.35
    return grey


def _write_line(
    draw: ImageDraw.ImageDraw,
    text: str,
    left: int,
    right: int,
    *,
    y: int,
    size: int = 27,
    fill: tuple[int, int, int] = INK,
) -> None:
    """Write a line that ends in an ellipsis where it would not fit."""
    font = sized_font(size)
    text = text[:250]  # more than fits, whatever the letters
    if draw.textlength(text, font) > right - left:
        while text and draw.textlength(text + "…", font) > right - left:
            text = text[:-1]
        text = text.rstrip() + "…"
    draw.text((left, y), text, fill=fill, font=font, anchor="ls")


def _draw_legend(canvas: Image.Image, change: Picture, share: float | None, x: int, y: int) -> None:
    draw = ImageDraw.Draw(canvas)
    nodata = int((change == 255).sum())
    if share is None:
        share = int((change == 1).sum()) / max(change.size - nodata, 1)
    found = f"change, {_percent(share)} of the area" if share > 0 else "change: none found"
    entries = [(Image.new("RGB", (27, 19), CHANGE_COLOUR), found)]
    if nodata:
        entries.append((_hatching(19, 27), "no data"))
    for swatch, text in entries:
        canvas.paste(swatch, (x, y - 9))
        draw.rectangle((x, y - 9, x + 26, y + 9), outline=SOFT)
        draw.text((x + 36, y), text, fill=INK, font=sized_font(19), anchor="lm")
        x += 36 + int(draw.textlength(text, sized_font(19))) + 32


def _percent(share: float) -> str:
    """A share as people write it; a little is never shown as none."""
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %"


def _draw_scale(
    draw: ImageDraw.ImageDraw, step: float, unit: Unit, panel: int, right: int, y: int
) -> None:
    """A bar of a round length, at most half a panel or what the footer has room for."""
    length = round_length(step * min(max(panel * 0.5, 60), LONGEST_BAR))
    bar = round(length / step)
    left = right - bar
    draw.line((left, y + 8, right, y + 8), fill=INK, width=3)
    for x in (left, right):
        draw.line((x, y + 1, x, y + 9), fill=INK, width=3)
    text = length_text(length, unit)
    draw.text(((left + right) / 2, y - 1), text, fill=INK, font=sized_font(19), anchor="ms")


def round_length(longest: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not longer."""
    power: float = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest or step == 1)


def length_text(length: float, unit: Unit) -> str:
    """A length with its unit: 500 m, 2 km, 200 px."""
    if unit == "m" and length >= 1000:
        return f"{length / 1000:g} km"
    return f"{length:g} {unit}"


def sized_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The lettering of pictures."""
    return ImageFont.load_default(size)

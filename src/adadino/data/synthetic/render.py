"""Draw the synthetic world: one image for each date, and the mask by the same strokes.

Pillow paints the shapes on a canvas with `FINE` x `FINE` dots for each pixel, which antialiases
them; texture, light and sensor are numpy on whole pixels. The mask repeats the painter's order,
marking what exists at one date only and erasing where something else hides it. So a pixel is in the
mask exactly if one of its dots shows something that was built, demolished, cleared or flooded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from adadino.data.synthetic.land import AFTER, BOTH, CELL, Land, Point
from adadino.data.synthetic.paint import FINE, Canvas, Painter
from adadino.data.synthetic.palette import (
    COVERS,
    ROUGH,
    FloatImage,
    cover_colour,
    enlarge,
    fractal,
    smooth,
)
from adadino.data.synthetic.view import View

SHADE = np.array((0.40, 0.44, 0.53), np.float32)  # the light left in a shadow: the blue sky's
HILLS = 0.35  # how much the light varies with the slope
FURROWS = {"wheat": 0.05, "maize": 0.09, "rape": 0.04, "plough": 0.1}


class Ground(NamedTuple):
    """What both dates share below the objects."""

    parcels: NDArray[np.int32]
    """(H, W), the index of the parcel plus 1."""
    relief: FloatImage
    """(3, H, W), brightness of soil and growth around 1."""
    hills: FloatImage
    """(2, h, w), the slope to the right and down on a coarse grid."""
    hill_cell: float
    grain: FloatImage
    """(H, W), fine texture with mean 0."""
    water: Image.Image | None
    flood: Image.Image | None
    """Dots under water at both dates, and at the later date only."""


def lay_ground(rng: np.random.Generator, land: Land, shape: tuple[int, int], gsd: float) -> Ground:
    """Draw everything about the ground that does not depend on the date."""
    parcels = _parcel_map(land, shape, gsd)
    patches = fractal(rng, shape, 24 / gsd, 4)
    furrows = 1 + _furrows(land, parcels, gsd)
    relief = furrows + np.array([[[0.075]], [[0.06]], [[0.06]]], np.float32) * patches
    hill_cell = max(max(shape) / 24, 1.0)
    height = fractal(rng, (27, 27), 9, 2)
    rows, columns = (int(np.ceil(size / hill_cell)) + 1 for size in shape)
    down, right = np.gradient(height)
    slope = np.stack([right, down])[:, :rows, :columns].astype(np.float32)
    grain = 0.6 * smooth(rng, shape, max(1.0, 1.2 / gsd))
    grain += 0.6 * rng.standard_normal(shape, np.float32)
    water = flood = None
    if land.water is not None:
        cell = CELL / gsd * FINE
        fine = (shape[0] * FINE, shape[1] * FINE)
        shore = enlarge(land.water.shore, fine, cell)
        water = Image.fromarray((shore < 0).astype(np.uint8) * 255)
        if land.water.rise:
            reach = enlarge(land.water.plain, fine, cell) * np.float32(land.water.rise)
            wet = (shore >= 0) & (shore < reach)
            flood = Image.fromarray(wet.astype(np.uint8) * 255)
    return Ground(parcels, relief, slope, hill_cell, grain, water, flood)


def _parcel_map(land: Land, shape: tuple[int, int], gsd: float) -> NDArray[np.int32]:
    image = Image.new("I", shape[::-1])
    draw = ImageDraw.Draw(image)
    for index, parcel in enumerate(land.parcels, 1):
        draw.polygon((parcel.outline / gsd).ravel().tolist(), fill=index)
    return np.asarray(image)


def _furrows(land: Land, parcels: NDArray[np.int32], gsd: float) -> FloatImage:
    """Rows of the crops and the tracks of the tractor, (H, W) around 0."""
    rows = [(0.0, 0.0, 0.0)]
    for parcel in land.parcels:
        number = 2 * np.pi / max(1.8 + 2.4 * parcel.tone, 4 * gsd) * gsd
        rows.append((*(parcel.axis * number), FURROWS.get(parcel.cover, 0.0)))
    kx, ky, size = np.array(rows, np.float32).T
    if not size.any():
        return np.zeros(parcels.shape, np.float32)
    y, x = np.ogrid[: parcels.shape[0], : parcels.shape[1]]
    phase = kx[parcels] * x.astype(np.float32) + ky[parcels] * y.astype(np.float32)
    tracks = 0.9 * (np.sin(phase / 8) > 0.94)
    furrows: FloatImage = size[parcels] * (np.sin(phase) + tracks.astype(np.float32))
    return furrows


def render(
    land: Land, ground: Ground, when: int, view: View, *, gsd: float, lean: Point, shadows: bool
) -> NDArray[np.uint8]:
    """The light that leaves the ground at one date, (H, W, 3)."""
    painter = Painter(land, when, view, gsd, lean)
    earth = _earth(land, ground, view)
    flood = ground.flood if when == AFTER else None
    dots = np.asarray(painter.paint(earth, ground.water, flood).reduce(FINE))  # (H, W, 4)
    texture = 1 + ground.grain * dots[..., 3] * np.float32(0.2 / 255)
    if shadows:
        dark = np.asarray(painter.shadows(earth.size, flood).reduce(FINE)) * np.float32(1 / 255)
    image = np.empty((*texture.shape, 3), np.uint8)
    for k in range(3):  # plane by plane: numpy is slow along an axis of three
        light = dots[..., k] * texture
        if shadows:
            light *= 1 - dark * (1 - SHADE[k])
        image[..., k] = np.clip(light, 0, 255, out=light)
    return image


def _earth(land: Land, ground: Ground, view: View) -> Image.Image:
    """The bare parcels in their season and the hills in the sun, as RGBX dots."""
    tones = np.array([0.5] + [parcel.tone for parcel in land.parcels], np.float32)
    covers = [land.yard] + [parcel.cover for parcel in land.parcels]
    season = {name: cover_colour(name, view.season, view.drought) for name in COVERS}
    colours = np.array([season[cover] for cover in covers], np.float32)
    colours = colours * (0.88 + 0.24 * tones)[:, None]
    shape = ground.parcels.shape
    # Light relative to flat ground: positive where the slope falls towards the sun.
    lit = -(ground.hills[0] * view.sun[0] + ground.hills[1] * view.sun[1]) * HILLS
    hills = 1 + enlarge(lit.astype(np.float32), shape, ground.hill_cell)
    pixels = np.full((*shape, 4), ROUGH["ground"], np.uint8)
    for k in range(3):
        light = colours[:, k][ground.parcels] * ground.relief[k] * hills
        pixels[..., k] = np.clip(light, 0, 255, out=light)
    small = Image.frombytes("RGBX", shape[::-1], pixels.tobytes())
    return small.resize((shape[1] * FINE, shape[0] * FINE), Image.Resampling.NEAREST)


def paint_mask(
    land: Land, ground: Ground, shape: tuple[int, int], *, gsd: float, lean: Point
) -> NDArray[np.bool_]:
    """What differs between the dates, (H, W)."""
    dots = paint_changes(land, ground, shape, gsd=gsd, lean=lean)
    return np.asarray(dots.reduce(FINE)) > 0  # one dot of 255 is enough


def paint_changes(
    land: Land, ground: Ground, shape: tuple[int, int], *, gsd: float, lean: Point
) -> Image.Image:
    """The dots that differ between the dates as 255, in the same order as `Painter.paint`."""
    canvas = Canvas(Image.new("L", (shape[1] * FINE, shape[0] * FINE)), gsd)
    for wood in land.woods:
        canvas.polygon(wood.outline.tolist(), _changed(wood.when))
    if ground.water is not None:
        canvas.image.paste(0, mask=ground.water)
    for road in land.roads:
        canvas.band(road.points, road.span, 0)
    if ground.flood is not None:
        canvas.image.paste(255, mask=ground.flood)
    if ground.flood is not None or any(wood.when != BOTH for wood in land.woods):
        for tree in land.trees:  # otherwise there is nothing for them to hide
            for lobe in tree.lobes:
                canvas.disc(*lobe, _changed(land.tree_when(tree)))
    for building, box in land.by_height():
        canvas.body(box, lean, _changed(building.when))
    return canvas.image


def _changed(when: int) -> int:
    return 0 if when == BOTH else 255

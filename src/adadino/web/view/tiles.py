"""Tiles of 256 x 256 pixels as PNG: before, after, probability."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import rasterio
from numpy.typing import NDArray
from PIL import Image
from rasterio.enums import Resampling
from rasterio.windows import Window

from adadino.web.door import open_foreign
from adadino.web.view.display import TILE, Display
from adadino.web.view.views import view_path

Layer = Literal["before", "after", "probability"]
Seen = Literal["before", "after", "before-false", "after-false", "probability"]
"""What the page shows: the dates also in false colour, where they have near infrared."""
PROBABILITY = "probability.tif"

_STOPS = (
    (0.0, (255, 236, 160)),
    (0.35, (252, 160, 60)),
    (0.65, (226, 60, 70)),
    (1.0, (110, 10, 90)),
)
"""Colours of the probability: pale to dark, so that it reads without telling red from green."""


def layer_name(layer: Seen) -> str:
    """The raster behind a layer, in a job's folder."""
    return PROBABILITY if layer == "probability" else view_path(Path(), layer).name


def draw_tile(path: Path, layer: Seen, display: Display, z: int, x: int, y: int) -> bytes | None:
    """One tile; None outside the scene.

    Raises:
        InputError: The raster is gone.
    """
    place = display.window(z, x, y)
    if place is None:
        return None
    column, row, wide, high = place
    columns, rows = min(wide, display.width - column), min(high, display.height - row)
    shape = max(1, round(rows / high * TILE)), max(1, round(columns / wide * TILE))
    window = Window(column, row, columns, rows)
    with rasterio.Env(), open_foreign(path) as dataset:
        part = draw_part(dataset, layer, window, shape, shrinks=wide > TILE)
    picture = np.zeros((TILE, TILE, 4), np.uint8)
    picture[: shape[0], : shape[1]] = part
    return encoded(picture)


def draw_part(
    dataset: Any, layer: Seen, window: Window, shape: tuple[int, int], *, shrinks: bool
) -> NDArray[np.uint8]:
    """A part of a layer in colours (rows, columns, 4), at another resolution."""
    draw = _draw_probability if layer == "probability" else _draw_date
    return draw(dataset, window, shape, shrinks=shrinks)


def _draw_date(
    dataset: Any, window: Window, shape: tuple[int, int], *, shrinks: bool
) -> NDArray[np.uint8]:
    how = Resampling.average if shrinks else Resampling.nearest
    colours = dataset.read((1, 2, 3), window=window, out_shape=(3, *shape), resampling=how)
    valid = dataset.dataset_mask(window=window, out_shape=shape)
    return np.dstack([*colours, np.where(valid > 0, 255, 0).astype(np.uint8)])


def _draw_probability(
    dataset: Any, window: Window, shape: tuple[int, int], *, shrinks: bool
) -> NDArray[np.uint8]:
    how = Resampling.average if shrinks else Resampling.nearest
    values = dataset.read(1, window=window, out_shape=shape, resampling=how)
    index = np.rint(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8)
    part: NDArray[np.uint8] = _ramp()[index]
    part[np.isnan(values)] = 0
    return part


@functools.cache
def _ramp() -> NDArray[np.uint8]:
    """256 colours with alpha: what is surely no change is not painted over."""
    at = np.linspace(0, 1, 256)
    stops = [stop for stop, _ in _STOPS]
    channels = [np.interp(at, stops, [colour[i] for _, colour in _STOPS]) for i in range(3)]
    alpha = 255 * np.clip(at / 0.5, 0, 1) ** 0.8
    return np.rint(np.stack([*channels, alpha], axis=-1)).astype(np.uint8)


def encoded(picture: NDArray[np.uint8]) -> bytes:
    """A picture (rows, columns, 4) as PNG."""
    file = io.BytesIO()
    image = Image.fromarray(picture)
    if picture[..., 3].min() == 255:
        image = image.convert("RGB")
    image.save(file, format="PNG", compress_level=1)  # photographs hardly shrink further
    return file.getvalue()

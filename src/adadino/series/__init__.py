"""One place at many dates: which date shows each change first, and whether it lasts.

In reading order:

- `run` tells the story; `options` holds its settings and their defaults.
- `dates` finds the images and orders them by date.
- `pairs` compares them with `adadino.scene`, pair by pair, and keeps what is finished.
- `fuse` is the rule that makes dates of the pairs' probabilities; `maps` applies it to rasters,
  window by window.
- `polygons` outlines what changed; `pictures` draws the dates of a polygon, and the animation;
  `page` is the series with a slider.

Names are imported when first used, so that the command line reads the settings without rasterio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adadino.series.options import SeriesOptions
    from adadino.series.run import SeriesResult, predict_series

__all__ = ["SeriesOptions", "SeriesResult", "predict_series"]

_HOMES = {"SeriesOptions": "options", "SeriesResult": "run", "predict_series": "run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adadino.series' has no attribute {name!r}")
    return getattr(import_module(f"adadino.series.{_HOMES[name]}"), name)

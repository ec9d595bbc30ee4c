"""One scene: two rasters in, a map of what changed out, streaming from top to bottom.

In reading order:

- `predict` tells the story; `options` holds its settings and their defaults.
- `extent` says where and when; `pair` checks the two dates, opens them on one grid and registers
  them; `fit` compares them with what the model knows.
- `tiles` reads ahead in threads; `stream` sends tiles through the model (`adadino.runtime`) and
  blends the answers into rows; `pace` reports how far it is.
- `journal` keeps finished rows on disk, so that a killed run goes on; `facts` says what they depend
  on, and what the rasters say of themselves.
- `outputs` makes files of the rows, `polygons` outlines and describes the changes; `result` is what
  the caller gets.

What flows: windows of both dates, tiles, probabilities, rows, files. Names are imported when first
used, so that the command line reads the settings without rasterio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adadino.scene.options import SceneOptions
    from adadino.scene.predict import predict_scene
    from adadino.scene.result import SceneResult

__all__ = ["SceneOptions", "SceneResult", "predict_scene"]

_HOMES = {"SceneOptions": "options", "SceneResult": "result", "predict_scene": "predict"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'adadino.scene' has no attribute {name!r}")
    return getattr(import_module(f"adadino.scene.{_HOMES[name]}"), name)

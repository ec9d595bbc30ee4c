"""Whole regions: many pairs, or mosaics of any size, cut into units that many workers predict.

`run` tells the story. `pairs` reads what is to be compared (`search` from STAC,
`mosaic` as two images); `units` cuts it; `ledger` knows what
is finished, and `store` where its files lie: a folder or a bucket. `worker` predicts a unit with
what `scene` is made of; `pool` runs workers, in this process or on Ray. `join` joins polygons in
pieces and `polygons` makes files of them; `merge` ties the rasters together, and `overviews`,
`catalog` (STAC) and `webmap` (PMTiles) help others to open them. `cost` says beforehand what it
will take.

What flows: pairs of files, units, a record for each finished unit, one result. Names are imported
when first used, so that the command line starts without rasterio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adadino.area.run import AreaResult, predict_area

__all__ = ["UNIT", "AreaResult", "predict_area"]

UNIT = 4096
"""Side of a unit in pixels. Tiles of 256 that overlap by 64 cost 10 % more this way than in one
piece; 8192 makes it 5 %, with four times the memory."""


def __getattr__(name: str) -> Any:
    if name not in ("AreaResult", "predict_area"):
        raise AttributeError(f"module 'adadino.area' has no attribute {name!r}")
    return getattr(import_module("adadino.area.run"), name)

"""Polygons as GeoParquet 1.1: each row has its bounding box, and neighbours lie side by side.

Readers that look for a place skip what is elsewhere: rows are sorted along a Hilbert curve, and the
boxes of a group of rows are in the file's statistics (the `covering` of GeoParquet 1.1). geopandas,
GDAL (3.9 and newer, with Parquet) and DuckDB read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import geopandas as gpd
import numpy as np

from adadino.files import write_atomic

GROUP = 8192
"""Rows of a group, which is read or skipped as a whole."""


def write_parquet(path: Path, frame: gpd.GeoDataFrame, bounds: Sequence[float]) -> None:
    """Write polygons, whole or not at all; equal frames give equal bytes.

    Args:
        path: The `.parquet`.
        frame: Polygons with the `row` and `col` of their first pixels.
        bounds: West, south, east and north of the region, between which the curve runs.
    """
    if len(frame):
        along = frame.geometry.hilbert_distance(total_bounds=bounds)
        frame = frame.iloc[np.lexsort((frame["col"], frame["row"], along))]
    write_atomic(
        path,
        lambda part: frame.to_parquet(
            part,
            index=False,
            compression="zstd",
            schema_version="1.1.0",
            write_covering_bbox=True,
            row_group_size=GROUP,
        ),
    )

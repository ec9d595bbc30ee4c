"""Outlines that people draw: read, checked, mended where that is sure, refused where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely
from shapely.geometry import mapping
from shapely.geometry import shape as from_json
from shapely.geometry.base import BaseGeometry

from adadino.errors import InputError, say
from adadino.review.state import MOST_CROSSINGS, crossings, polygonal

MOST_POINTS = 20_000
"""Corners of one outline; a freehand line that is longer was drawn by a program."""


def check_outline(geometry: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """An outline that can be kept: valid, and inside the scene.

    A line that crosses itself is mended: what it encloses counts. What reaches out of the scene is
    cut off.

    Args:
        geometry: A Polygon or MultiPolygon of GeoJSON, in pixels.
        size: Height and width of the scene.

    Raises:
        InputError: It is no polygon, has no area, or lies outside the scene.
    """
    return dict(mapping(mended(_read(geometry), size)))


def mended(outline: BaseGeometry, size: tuple[int, int]) -> BaseGeometry:
    """The valid part of an outline that lies in a scene; see `check_outline`."""
    height, width = size
    if not np.isfinite(shapely.get_coordinates(outline)).all():
        raise InputError("the outline has corners that are no numbers; draw it again.")
    if not outline.is_valid:
        beside = 3 * int(shapely.get_num_coordinates(outline))  # each edge, and its neighbours
        if crossings(outline, outline) > MOST_CROSSINGS + beside:
            raise InputError("the outline crosses itself too often; draw a simpler one.")
    whole = polygonal(shapely.make_valid(outline))
    if whole.is_empty or whole.area <= 0:
        raise InputError("the outline encloses no area; draw around the place.")
    inside = polygonal(shapely.intersection(whole, shapely.box(0, 0, width, height)))
    if inside.is_empty or inside.area <= 0:
        at = ", ".join(f"{value:.6g}" for value in shapely.bounds(outline))
        raise InputError(
            f"the outline lies outside the scene: it covers columns and rows {at}, and the scene "
            f"has {width} columns and {height} rows. Does it belong to another map?"
        )
    return inside


def _read(geometry: dict[str, Any]) -> BaseGeometry:
    kind = geometry.get("type")
    if kind not in ("Polygon", "MultiPolygon"):
        raise InputError(f"the outline is a {say(kind)}; draw a polygon.")
    try:
        with np.errstate(invalid="ignore"):  # NaN is refused below, without a remark of numpy's
            outline: BaseGeometry = shapely.force_2d(from_json(geometry))
    except Exception as error:  # shapely's, numpy's and Python's own, for whatever was sent
        raise InputError(f"the outline is no polygon: {error}. Draw it again.") from error
    points = int(shapely.get_num_coordinates(outline))
    if points > MOST_POINTS:
        raise InputError(f"the outline has {points} corners; simplify it to at most {MOST_POINTS}.")
    return outline

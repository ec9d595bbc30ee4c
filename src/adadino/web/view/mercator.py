"""The way between a scene's coordinates and Web Mercator, as a polynomial the page can compute.

A basemap lies in Web Mercator. Over one scene every projection is so smooth that a cubic in both
directions is right to a fraction of a pixel, and the page needs no library of projections.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyproj
from numpy.typing import NDArray

DEGREE = 3
_POINTS = 9
_AROUND = 0.75
"""How far beyond the scene the fit reaches, in scenes: the map shows what lies around it."""

Extent = tuple[float, float, float, float]


def fit_mercator(wkt: str, extent: Extent, tolerance: float) -> dict[str, Any] | None:
    """Coefficients both ways; None where a cubic is not exact enough.

    Args:
        wkt: The scene's coordinate system.
        extent: Left, bottom, right, top.
        tolerance: How far off the way there and back may be, in the scene's units.
    """
    left, bottom, right, top = extent
    across, up = _AROUND * (right - left), _AROUND * (top - bottom)
    x, y = np.meshgrid(
        np.linspace(left - across, right + across, _POINTS),
        np.linspace(bottom - up, top + up, _POINTS),
    )
    here = np.stack([x.ravel(), y.ravel()], axis=1)
    way = pyproj.Transformer.from_crs(pyproj.CRS.from_wkt(wkt), "EPSG:3857", always_xy=True)
    there = np.stack(way.transform(here[:, 0], here[:, 1]), axis=1)
    if not np.isfinite(there).all():
        return None
    forward, inverse = _fit(here, there), _fit(there, here)
    off = np.abs(evaluate(inverse, evaluate(forward, here)) - here).max()
    return {"forward": forward, "inverse": inverse} if off <= tolerance else None


def evaluate(fit: dict[str, Any], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply a fit to points (n, 2), as the page does."""
    u, v = ((points - fit["centre"]) / fit["scale"]).T
    return np.stack(
        [np.polynomial.polynomial.polyval2d(u, v, np.array(fit[axis])) for axis in "xy"], axis=1
    )


def _fit(points: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, Any]:
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    scale = (points.max(axis=0) - points.min(axis=0)) / 2
    u, v = ((points - centre) / scale).T
    terms = np.polynomial.polynomial.polyvander2d(u, v, [DEGREE, DEGREE])
    solved = np.linalg.lstsq(terms, values, rcond=None)[0]  # (16, 2)
    tables = solved.T.reshape(2, DEGREE + 1, DEGREE + 1)
    return {
        "centre": centre.tolist(),
        "scale": scale.tolist(),
        "x": tables[0].tolist(),
        "y": tables[1].tolist(),
    }

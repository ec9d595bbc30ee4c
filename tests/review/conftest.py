from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adadino.review import Review, start_review
from tests.geo.rasters import write

H, W = 48, 64


def change_map() -> np.ndarray:
    """Five changes of different sizes, nodata at the right edge."""
    mask = np.zeros((H, W), np.uint8)
    mask[2:12, 2:12] = 1  # id 1: 100 pixels
    mask[20:28, 4:12] = 1  # id 2: 64
    mask[22:24, 6:8] = 0  # a hole: 60
    mask[4:10, 30:38] = 1  # id 3: 48
    mask[30:34, 40:46] = 1  # id 4: 24
    mask[40:42, 10:14] = 1  # id 5: 8
    mask[:, 60:] = 255
    return mask


def chances() -> np.ndarray:
    levels = {1: 0.9, 2: 0.6, 3: 0.8, 4: 0.7, 5: 0.55}
    chance = np.full((H, W), 0.1, np.float32)
    boxes = [(2, 12, 2, 12), (20, 28, 4, 12), (4, 10, 30, 38), (30, 34, 40, 46), (40, 42, 10, 14)]
    for (top, bottom, left, right), level in zip(boxes, levels.values(), strict=True):
        chance[top:bottom, left:right] = level
    chance[22:24, 6:8] = 0.1
    chance[:, 60:] = np.nan
    return chance


@pytest.fixture
def mask(tmp_path) -> Path:
    return write(tmp_path / "change.tif", change_map()[None], nodata=255)


@pytest.fixture
def probability(tmp_path) -> Path:
    return write(tmp_path / "p.tif", chances()[None], nodata=float("nan"))


@pytest.fixture
def review(tmp_path, mask, probability) -> Review:
    return start_review(tmp_path / "review", mask=mask, probability=probability, sample=3)


def square(left: float, top: float, right: float, bottom: float) -> dict:
    """A GeoJSON polygon in pixels."""
    ring = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    return {"type": "Polygon", "coordinates": [ring]}

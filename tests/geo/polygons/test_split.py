"""Changes that touch are cut apart where the probability is low between them."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from affine import Affine
from rasterio.crs import CRS

from adadino.geo.grid import Grid
from adadino.geo.polygons.split import split_frame
from adadino.geo.polygons.vector import polygons

GRID = Grid(CRS.from_epsg(32633), Affine(0.5, 0, 4e5, 0, -0.5, 5e6), 40, 20)


def test_two_houses_with_a_bridge_are_two_and_a_single_one_stays():
    chance = np.zeros((20, 40), np.float32)
    chance[2:10, 2:10] = chance[2:10, 14:22] = chance[12:18, 30:38] = 0.99
    chance[5:7, 10:14] = 0.6
    mask = (chance >= 0.5).astype(np.uint8)
    frame = polygons(mask, chance, GRID).assign(prob_min=0.0)
    assert len(frame) == 2
    cut = split_frame(frame, lambda first, last: chance[first:last], GRID, core=0.95)
    assert len(cut) == 3
    assert cut["area_m2"].sum() == pytest.approx(mask.sum() * 0.25)
    assert cut["area_m2"].is_monotonic_decreasing
    assert shapely.is_valid(cut.geometry.to_numpy()).all()
    assert cut.geometry.union_all().equals(frame.geometry.union_all())
    assert sorted(cut["prob_min"].round(2)) == [0.0, 0.6, 0.6]
    assert cut.geometry.area.tolist() == pytest.approx(cut["area_m2"].tolist())


def test_without_a_second_core_nothing_changes():
    chance = np.full((20, 40), 0.7, np.float32)
    frame = polygons(np.ones((20, 40), np.uint8), chance, GRID).assign(prob_min=0.7)
    assert split_frame(frame, lambda a, b: chance[a:b], GRID, core=0.95) is frame

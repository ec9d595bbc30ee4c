"""Outlines simplified by squares: valid, apart, and as in one piece where nothing is cut."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from affine import Affine

from adadino.geo.polygons import simplify
from adadino.geo.polygons.vector import trace

SIDE = 40
TO_METRES = Affine(0.5, 0.1, 7.0, -0.05, -0.5, 3.0)


@pytest.fixture
def _small_squares(monkeypatch):
    monkeypatch.setattr(simplify, "SQUARE", SIDE)


def outlines(seed: int, share: float) -> np.ndarray:
    mask = (np.random.default_rng(seed).random((100, 130)) < share).astype(np.uint8)
    mask[20:90, 33:37] = mask[50:60, 10:120] = 1
    return trace(mask, mask.astype(np.float32)).outlines


@pytest.mark.usefixtures("_small_squares")
@pytest.mark.parametrize(("share", "tolerance"), [(0.1, 0.6), (0.1, 2.0), (0.3, 0.6), (0.7, 0.6)])
def test_what_is_cut_stays_whole_valid_and_apart(share, tolerance):
    found = outlines(int(share * 10), share)
    simple = simplify.simplified(found, TO_METRES, tolerance)
    assert len(simple) == len(found)
    assert (shapely.get_type_id(simple) == 3).all()  # polygons, not in parts
    assert shapely.is_valid(simple).all()
    assert shapely.area(simple).sum() == pytest.approx(shapely.area(shapely.union_all(simple)))
    corners = shapely.get_coordinates(simple)
    assert len(corners) < 0.8 * len(shapely.get_coordinates(found))
    known = {tuple(corner) for corner in shapely.get_coordinates(found)}
    for x, y in corners:  # corners are chosen, or lie where a line cuts an outline
        assert (x, y) in known or x % SIDE == 0 or y % SIDE == 0


@pytest.mark.usefixtures("_small_squares")
def test_a_square_needs_nothing_of_its_neighbours():
    found = outlines(3, 0.4)
    left, _, right, _ = shapely.bounds(found).T
    near = left < SIDE  # all that reach into the first squares
    whole, part = (simplify.simplified(each, TO_METRES, 1.0) for each in (found, found[near]))
    inside = right <= SIDE
    assert [g.wkb for g in whole[inside]] == [g.wkb for g in part[right[near] <= SIDE]]


def test_a_scene_of_one_square_is_one_coverage():
    found = outlines(4, 0.4)
    expected = shapely.coverage_simplify(simplify.move(found, TO_METRES), 1.0)
    expected = shapely.transform(simplify.move(expected, ~TO_METRES), np.rint)
    ours = simplify.simplified(found, TO_METRES, 1.0)
    assert [g.wkb for g in ours] == [g.wkb for g in expected]

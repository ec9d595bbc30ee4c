"""Right-angled outlines: true to known shapes, valid, apart, and never forced on a polygon."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from affine import Affine
from rasterio.crs import CRS
from rasterio.features import rasterize
from scipy import ndimage
from shapely.affinity import rotate, translate

from adadino.errors import ConfigError
from adadino.geo.grid import Grid
from adadino.geo.polygons.regularise import LEAST_IOU, regularise_frame
from adadino.geo.polygons.vector import polygons
from adadino.scene.options import SceneOptions

SIDE = 120
GRID = Grid(CRS.from_epsg(32633), Affine(0.5, 0, 4e5, 0, -0.5, 5e6), SIDE, SIDE)
PIXELS = Grid(None, Affine.identity(), SIDE, SIDE)
SHAPES = {
    4: shapely.box(-20, -12, 20, 12),
    6: shapely.Polygon([(-22, -18), (22, -18), (22, -2), (2, -2), (2, 18), (-22, 18)]),
}


def overlap(one, other):
    return one.intersection(other).area / one.union(other).area


def drawn(truth, seed):
    """The mask of a shape whose edge is blurred and noisy, as predicted ones are."""
    fine = rasterize([shapely.transform(truth, lambda xy: 4 * xy)], (4 * SIDE, 4 * SIDE))
    soft = ndimage.gaussian_filter(fine.reshape(SIDE, 4, SIDE, 4).mean((1, 3)), 1)
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=soft.shape), 1)
    mask = soft + noise * (0.15 / noise.std()) > 0.5
    labels, _ = ndimage.label(mask)
    return (labels == np.argmax(np.bincount(labels.ravel())[1:]) + 1).astype(np.uint8)


def outlines(mask, grid=PIXELS):
    return polygons(mask, mask.astype(np.float32), grid)


@pytest.mark.parametrize("corners", SHAPES)
@pytest.mark.parametrize("angle", range(0, 90, 10))
def test_a_turned_shape_gets_its_own_corners_back(corners, angle):
    truth = translate(rotate(SHAPES[corners], angle, origin=(0, 0)), 60.3, 59.6)
    raw = outlines(drawn(truth, angle))
    (found,) = regularise_frame(raw, PIXELS).geometry
    ring = shapely.get_coordinates(found.exterior)
    assert len(ring) - 1 == corners
    assert overlap(found, truth) > 0.9
    nearest = shapely.distance(shapely.points(ring), shapely.MultiPoint(truth.exterior.coords))
    assert nearest.max() < 2.5  # pixels
    sides = np.diff(ring, axis=0) @ np.array([1, 1j])
    turns = np.degrees(np.angle(np.roll(sides, -1) / sides))
    assert np.allclose(np.abs(turns), 90, atol=1e-6)


def test_angles_are_right_on_the_ground_where_coordinates_are_degrees():
    grid = Grid(CRS.from_epsg(4326), Affine(5e-6, 0, 13.0, 0, -5e-6, 60.0), SIDE, SIDE)
    mask = drawn(translate(rotate(SHAPES[4], 30, origin=(0, 0)), 60, 60), 1)
    frame = regularise_frame(outlines(mask, grid), grid)
    metres = frame.to_crs(32633).geometry.iloc[0].exterior
    sides = np.diff(shapely.get_coordinates(metres), axis=0) @ np.array([1, 1j])
    turns = np.degrees(np.angle(np.roll(sides, -1) / sides))
    assert np.allclose(np.abs(turns), 90, atol=0.05)


def test_the_figures_stay_those_of_the_pixels():
    raw = outlines(drawn(translate(SHAPES[6], 60, 60), 3), GRID)
    found = regularise_frame(raw, GRID)
    assert found["regularised"].tolist() == [True]
    assert found.drop(columns=["geometry", "regularised"]).equals(raw.drop(columns="geometry"))
    assert found.crs == raw.crs


def test_what_is_no_building_keeps_its_outline():
    row, col = np.mgrid[:SIDE, :SIDE]
    far = np.hypot(row - 60, col - 60)
    ring = ((far < 40) & (far > 36)).astype(np.uint8)
    raw = outlines(ring)
    found = regularise_frame(raw, PIXELS)
    assert found["regularised"].tolist() == [False]
    assert found.geometry.iloc[0].equals_exact(raw.geometry.iloc[0])


@pytest.mark.parametrize("seed", range(6))
def test_outlines_are_valid_like_their_pixels_and_apart(seed):
    chance = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(SIDE, SIDE)), 3)
    raw = outlines((chance > 0.03).astype(np.uint8))
    assert len(raw) > 5
    found = regularise_frame(raw, PIXELS)
    new, old = found.geometry.to_numpy(), raw.geometry.to_numpy()
    assert found["regularised"].any()
    assert shapely.is_valid(new).all()
    for one, other in zip(new, old, strict=True):
        assert overlap(one, other) >= LEAST_IOU - 1e-9
    assert shapely.union_all(new).area == pytest.approx(shapely.area(new).sum())
    again = regularise_frame(raw, PIXELS)
    assert again.geometry.to_wkb().equals(found.geometry.to_wkb())


def test_neighbours_that_would_overlap_do_not_both_change():
    """Two slanted shapes that share a jagged border: right-angled, both would cross it."""
    one = drawn(translate(rotate(SHAPES[4], 20, origin=(0, 0)), 60, 60), 2)
    mask = np.where(one & (np.arange(SIDE) > 60), 1, 0).astype(np.uint8)
    left, right = outlines(one - mask), outlines(mask)
    frame = left.iloc[[0, 0]].reset_index(drop=True)
    frame.loc[1, "geometry"] = right.geometry.iloc[0]
    new = regularise_frame(frame, PIXELS).geometry
    assert new.iloc[0].intersection(new.iloc[1]).area == pytest.approx(0, abs=1e-9)


def test_an_empty_layer_has_the_column():
    found = regularise_frame(outlines(np.zeros((SIDE, SIDE), np.uint8), GRID), GRID)
    assert len(found) == 0
    assert found["regularised"].dtype == bool


def test_simplifying_as_well_is_refused():
    with pytest.raises(ConfigError, match="regularise or simplify"):
        SceneOptions(regularise=True, simplify=1.0)

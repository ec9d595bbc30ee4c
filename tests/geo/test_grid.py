from __future__ import annotations

import math

import numpy as np
import pytest
from affine import Affine
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from rasterio.warp import transform as reproject
from rasterio.windows import Window

from adadino.errors import InputError
from adadino.geo.grid import Grid, crs_name, match
from tests.geo.rasters import NORTH_UP, UTM

UTM_CRS = CRS.from_user_input(UTM)
DEGREES = CRS.from_epsg(4326)
FEET = CRS.from_epsg(2263)  # New York Long Island, US survey feet


def grid(
    transform: Affine = NORTH_UP, width: int = 100, height: int = 80, crs: CRS | None = UTM_CRS
) -> Grid:
    return Grid(crs, transform, width, height)


def centres_in(result: Grid, other: Grid) -> np.ndarray:
    """Whether each pixel centre of one grid lies inside another of the same CRS: (h, w)."""
    rows, columns = np.mgrid[: result.height, : result.width] + 0.5
    t = tuple(~other.transform * result.transform)[:6]
    x, y = t[0] * columns + t[1] * rows + t[2], t[3] * columns + t[4] * rows + t[5]
    return (x >= 0) & (x <= other.width) & (y >= 0) & (y <= other.height)


def covered(before: Grid, after: Grid) -> np.ndarray:
    """Whether each whole pixel of `before` lies inside `after`: (h, w)."""
    # The corners of pixels are the centres of a grid that lies half a pixel off.
    half_off = before.transform * Affine.translation(-0.5, -0.5)
    corners = centres_in(grid(half_off, before.width + 1, before.height + 1), after)
    return corners[1:, 1:] & corners[:-1, 1:] & corners[1:, :-1] & corners[:-1, :-1]


class TestGrid:
    def test_bounds_and_resolution_of_a_turned_grid(self) -> None:
        turned = grid(Affine.rotation(90) * Affine.scale(3, 2), width=10, height=20)
        assert turned.bounds == pytest.approx((-40, 0, 0, 30))
        assert turned.resolution == pytest.approx((3, 2))

    def test_part_keeps_the_pixels(self) -> None:
        part = grid().part(Window(3, 5, 10, 20))
        assert (part.width, part.height) == (10, 20)
        assert part.transform * (0, 0) == grid().transform * (3, 5)

    @pytest.mark.parametrize(
        ("window", "held"),
        [
            (Window(0, 0, 100, 80), True),
            (Window(90, 70, 10, 10), True),
            (Window(91, 70, 10, 10), False),
            (Window(-1, 0, 10, 10), False),
            (Window(0, 0, 0, 10), False),
        ],
    )
    def test_holds(self, window: Window, held: bool) -> None:
        assert grid().holds(window) is held

    def test_close_means_a_millionth_of_a_pixel_at_the_far_corner(self) -> None:
        wider = NORTH_UP * Affine.scale(1 + 1e-9)
        assert grid().is_close(grid(wider))
        assert not grid(width=5000).is_close(grid(wider, width=5000))


class TestEqual:
    @pytest.mark.parametrize(
        "transform",
        [NORTH_UP, Affine(2, 0, 5e5, 0, 2, 4e6), NORTH_UP * Affine.rotation(30)],
        ids=["north-up", "south-up", "rotated"],
    )
    def test_equal_grids_pass_straight_through(self, transform: Affine) -> None:
        found = match(grid(transform), grid(transform))
        assert found.equal
        assert found.grid == grid(transform)
        assert found.window == Window(0, 0, 100, 80)
        assert found.differences == ()

    def test_two_ways_to_write_one_crs_are_equal(self) -> None:
        assert match(grid(), grid(crs=CRS.from_wkt(UTM_CRS.to_wkt()))).equal

    def test_pixel_mode_ignores_transforms(self) -> None:
        found = match(grid(crs=None), grid(Affine.identity(), crs=None))
        assert found.equal
        assert found.after == found.grid == grid(crs=None)


class TestDifferent:
    def test_numbers_of_a_sub_pixel_offset(self) -> None:
        found = match(grid(), grid(NORTH_UP * Affine.translation(0.4, -0.2)))
        assert not found.equal
        assert found.window == Window(1, 0, 99, 79)
        assert "after starts +0.40 columns and -0.20 rows" in found.differences[0]
        assert "the overlap 99 x 79 (97.8 % of before)" in found.differences[-1]

    def test_whole_pixel_offset_is_only_a_smaller_overlap(self) -> None:
        found = match(grid(), grid(NORTH_UP * Affine.translation(10, -20)))
        assert found.window == Window(10, 0, 90, 60)
        assert len(found.differences) == 1

    def test_resolution_ratio(self) -> None:
        found = match(grid(), grid(NORTH_UP * Affine.scale(2.5), 40, 32))
        assert found.window == Window(0, 0, 100, 80)
        assert found.density == pytest.approx((0.4, 0.4))
        assert found.differences[0] == "after's pixels are 2.5 times before's"

    def test_density_is_along_the_axes_of_after(self) -> None:
        turned = NORTH_UP * Affine.translation(50, 0) * Affine.rotation(90) * Affine.scale(0.5, 1)
        assert match(grid(), grid(turned)).density == pytest.approx((2, 1))

    def test_south_up_after_on_north_up_before(self) -> None:
        flipped = NORTH_UP * Affine.translation(0, 80) * Affine.scale(1, -1)
        found = match(grid(), grid(flipped))
        assert found.window == Window(0, 0, 100, 80)
        assert found.density == pytest.approx((1, 1))

    def test_rotated_after_inside_before_loses_nothing(self) -> None:
        turned = grid(NORTH_UP * Affine.translation(50, 20) * Affine.rotation(45), 20, 20)
        found = match(grid(), turned)
        half = 20 * math.sqrt(0.5)
        assert found.window.col_off == math.ceil(50 - half)
        assert found.window.width == math.floor(50 + half) - math.ceil(50 - half)

    def test_other_crs(self) -> None:
        (x,), (y,) = reproject(UTM, "EPSG:4326", [500_000], [4_000_000])
        degrees = grid(Affine(1e-5, 0, x - 1e-4, 0, -1e-5, y + 1e-4), 500, 500, DEGREES)
        found = match(grid(), degrees)
        assert found.grid == grid()
        assert found.differences[0] == "CRS EPSG:32631 and EPSG:4326"
        assert "times before's" in found.differences[1]

    def test_after_beyond_what_the_projection_can_express(self) -> None:
        world = grid(Affine(0.1, 0, -180, 0, -0.1, 90), 3600, 1800, DEGREES)
        assert match(grid(), world).window == Window(0, 0, 100, 80)


class TestErrors:
    def test_no_overlap_prints_both_bounds(self) -> None:
        with pytest.raises(InputError) as error:
            match(grid(), grid(NORTH_UP * Affine.translation(100, 0)))
        assert "(500000, 3999840, 500200, 4000000)" in str(error.value)
        assert "(500200, 3999840, 500400, 4000000)" in str(error.value)

    def test_no_overlap_is_said_in_the_crs_of_before(self) -> None:
        far = grid(Affine(1e-5, 0, 4.0, 0, -1e-5, 36.0), crs=DEGREES)
        with pytest.raises(InputError, match=r"after \(590\d+.*top in EPSG:32631\)"):
            match(grid(), far)

    def test_antimeridian_is_said_clearly(self) -> None:
        east = grid(Affine(0.01, 0, 179.5, 0, -0.01, 0), crs=DEGREES)
        west = grid(Affine(0.01, 0, -180.5, 0, -0.01, 0), crs=DEGREES)
        with pytest.raises(InputError, match="360 degrees"):
            match(east, west)

    @pytest.mark.parametrize("missing", ["before", "after"])
    def test_one_crs_missing(self, missing: str) -> None:
        pair = {"before": grid(), "after": grid()} | {missing: grid(crs=None)}
        with pytest.raises(InputError, match=f"assign a coordinate system to {missing}"):
            match(**pair)

    def test_no_crs_and_other_sizes(self) -> None:
        with pytest.raises(InputError, match="100 x 80 pixels and after is 101 x 80"):
            match(grid(crs=None), grid(width=101, crs=None))

    @pytest.mark.parametrize(
        "transform",
        [
            Affine(0, 0, 5e5, 0, -2, 4e6),
            Affine(math.nan, 0, 5e5, 0, -2, 4e6),
            Affine(2, 0, math.inf, 0, -2, 4e6),
            Affine(2, 4, 5e5, 1, 2, 4e6),
        ],
        ids=["zero", "nan", "infinite", "flat"],
    )
    def test_absurd_transforms(self, transform: Affine) -> None:
        with pytest.raises(InputError, match=r"after has pixels of .* places nothing"):
            match(grid(), grid(transform))


def test_crs_without_a_code_has_the_name_it_gives_itself() -> None:
    wkt = CRS.from_proj4("+proj=laea +lat_0=12.5 +lon_0=3").to_wkt()
    assert crs_name(CRS.from_wkt(wkt.replace("unknown", "Our own zone", 1))) == "Our own zone"


parts = st.integers(1, 40)
offsets = st.floats(-50, 50)
scales = st.sampled_from([-2.5, -1.0, 0.3, 0.999, 1.0, 1.7, 4.0])


@settings(max_examples=200)
@given(parts, parts, parts, parts, offsets, offsets, scales, scales, st.sampled_from([0, 15, 90]))
def test_parallel_grids_meet_where_both_have_pixels(
    width: int,
    height: int,
    after_width: int,
    after_height: int,
    column: float,
    row: float,
    x_scale: float,
    y_scale: float,
    turn: int,
) -> None:
    transform = NORTH_UP * Affine.rotation(turn)
    before = grid(transform, width, height)
    moved = transform * Affine.translation(column, row) * Affine.scale(x_scale, y_scale)
    after = grid(moved, after_width, after_height)
    try:
        found = match(before, after)
    except InputError:
        assert not covered(before, after).any()
        return
    assert before.holds(found.window)
    assert centres_in(found.grid, before).all()
    assert centres_in(found.grid, after).all()


@settings(max_examples=100)
@given(offsets, offsets, st.floats(0, 360), st.floats(0.2, 3))
def test_turned_grids_lose_no_pixel_that_after_covers(
    column: float, row: float, turn: float, scale: float
) -> None:
    before = grid(width=40, height=40)
    moved = NORTH_UP * Affine.translation(column, row) * Affine.rotation(turn)
    after = grid(moved * Affine.scale(scale), 30, 20)
    lost = covered(before, after)
    assume(lost.any())
    window = match(before, after).window
    lost[window.row_off : window.row_off + window.height][
        :, window.col_off : window.col_off + window.width
    ] = False
    assert not lost.any()


def test_without_a_crs_two_places_are_not_compared_pixel_by_pixel() -> None:
    here, there = grid(crs=None), grid(NORTH_UP * Affine.translation(128, 0), crs=None)
    with pytest.raises(InputError, match="they lie in different places"):
        match(here, there)
    flat = grid(Affine.identity(), crs=None)  # a PNG beside a TIFF: pixels are all there is
    assert match(here, here).equal
    assert match(here, flat).equal

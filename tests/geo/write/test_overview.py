"""The overview picture: it fits, shows change in colour, and its bar has the right length."""

from __future__ import annotations

import numpy as np
import pytest
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rasterio.crs import CRS

from adadino.data.synthetic import make_pair
from adadino.geo.grid import Grid
from adadino.geo.read import small
from adadino.geo.read.small import coarse_grid, read_pair
from adadino.geo.write.cog import CHANGE_COLOUR
from adadino.geo.write.overview import (
    HEADER,
    LEAST_WIDTH,
    NODATA,
    PAPER,
    SIDE,
    decimated_shape,
    draw_overview,
    ground_span,
    length_text,
    round_length,
    write_overview,
)
from tests.geo.rasters import NORTH_UP, UTM, write

sides = st.one_of(st.integers(1, 40), st.integers(1, 100_000))


@given(height=sides, width=sides)
@settings(max_examples=25)
def test_any_scene_fits_the_picture(height, width):
    shape = decimated_shape(height, width)
    assert 1 <= shape[0] <= height
    assert 1 <= shape[1] <= width
    image, change = np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.uint8)
    for side in (SIDE, LEAST_WIDTH):
        picture = draw_overview(image, image, change, title="t", span=width, unit="px", side=side)
        assert max(picture.size) <= side


def test_it_shows_both_dates_and_the_change(tmp_path):
    pair = make_pair(3, (160, 200))
    change = (pair.mask > 0).astype(np.uint8)
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path in paths:
        picture = draw_overview(pair.before, pair.after, change, title="t", span=100, unit="m")
        write_overview(path, picture)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with Image.open(paths[0]) as picture:
        shown = np.asarray(picture).astype(int)
    third = shown.shape[1] // 3
    reddish = abs(shown - CHANGE_COLOUR).max(axis=2) < 40
    assert reddish[100:-62, 2 * third :].mean() == pytest.approx(change.mean(), rel=0.3)
    # The two dates are there in their own colours.
    panels = shown[98 : 98 + 390]
    for left, image in ((36, pair.before), (36 + 498 + 16, pair.after)):
        panel = panels[:, left : left + 490]
        np.testing.assert_allclose(panel.mean(axis=(0, 1)), image.mean(axis=(0, 1)), atol=3)


def test_nodata_is_neither_image_nor_change():
    image = np.zeros((50, 50, 3), np.uint8)
    picture = draw_overview(
        image, image, np.full((50, 50), 255, np.uint8), title="t", span=50, unit="px"
    )
    middle = picture.height // 2
    colours = {picture.getpixel((x, middle)) for x in range(60, picture.width - 60)}
    assert colours <= {*NODATA, PAPER, (110, 114, 120)}
    # Two tones: one grey alone could be a roof.
    assert set(NODATA) <= colours


def test_a_long_title_and_one_that_is_empty_do_not_change_the_size():
    image, change = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40), np.uint8)
    sizes = {
        draw_overview(image, image, change, title=title, span=40, unit="px").size
        for title in ("", "name " * 200)
    }
    assert len(sizes) == 1


@given(longest=st.floats(1e-3, 1e7))
def test_bars_have_round_lengths(longest):
    length = round_length(longest)
    assert longest / 2.5 * 0.999 <= length <= longest * 1.001
    assert f"{length:e}"[0] in "125"


@pytest.mark.parametrize(
    ("length", "unit", "text"),
    [(500, "m", "500 m"), (2000, "m", "2 km"), (0.5, "m", "0.5 m"), (2000, "px", "2000 px")],
)
def test_lengths_are_written_in_the_unit_people_use(length, unit, text):
    assert length_text(length, unit) == text


def test_captions_of_narrow_panels_stand_apart():
    image, change = np.zeros((900, 5, 3), np.uint8), np.zeros((900, 5), np.uint8)
    picture = draw_overview(image, image, change, title="", span=5, unit="m")
    captions = np.asarray(picture)[HEADER : HEADER + 26]
    inked = (captions != PAPER).any(axis=(0, 2))
    gaps = np.diff(np.flatnonzero(np.concatenate([[True], inked, [True]])))
    assert (gaps > 40).sum() >= 2  # between three words; between letters it is a pixel or two


def test_no_change_is_said_and_a_little_is_not_called_none():
    image, change = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40), np.uint8)
    shown = [
        draw_overview(image, image, change, title="t", span=40, unit="px", share=share).tobytes()
        for share in (0.0, 1e-6, 0.0004, 0.3)
    ]
    assert shown[0] != shown[1]
    assert shown[1] == shown[2] != shown[3]  # "less than 0.1 %"


# --- reading ---------------------------------------------------------------------------------


def test_scenes_are_read_small_in_their_place(tmp_path):
    rows, columns = np.mgrid[:400, :600]
    ramp = np.stack([columns / 3, rows / 2, 250 - columns / 3]).astype(np.uint8)
    before = write(tmp_path / "a.tif", ramp)
    # The same ground on a grid that starts 100 columns and 60 rows earlier.
    wider = np.pad(ramp, ((0, 0), (60, 0), (100, 0)))
    earlier = NORTH_UP * Affine.translation(-100, -60)
    after = write(tmp_path / "b.tif", wider, transform=earlier)
    grid = Grid(CRS.from_user_input(UTM), NORTH_UP, 600, 400)
    small = read_pair(before, after, grid, (100, 150))
    expected = np.moveaxis(ramp.reshape(3, 100, 4, 150, 4).mean(axis=(2, 4)), 0, -1)
    for image in small:
        assert image.shape == (100, 150, 3)
        np.testing.assert_allclose(image[2:-2, 2:-2], expected[2:-2, 2:-2], atol=1.5)
    _, moved = read_pair(before, after, grid, (100, 150), shift=(0.0, 40.0))
    np.testing.assert_allclose(moved[2:-2, 13:-2], expected[2:-2, 3:-12], atol=1.5)


@pytest.mark.parametrize("shape", [(100, 150), (200, 300), (400, 600)])
def test_strips_do_not_show(tmp_path, shape, monkeypatch):
    values = np.random.default_rng(0).integers(0, 255, (3, 400, 600)).astype(np.uint8)
    holed = np.ones((400, 600), np.uint8) * 255
    holed[100:180, 200:300] = 0
    path = write(tmp_path / "a.tif", values, mask=holed, internal_mask=True)
    shifted = NORTH_UP * Affine.translation(0.3, 0.4)
    other = write(tmp_path / "b.tif", values, transform=shifted)
    grid = Grid(CRS.from_user_input(UTM), NORTH_UP, 600, 400)
    whole = read_pair(path, other, grid, shape)
    monkeypatch.setattr(small, "STRIP_PIXELS", 7 * 600)
    strips = read_pair(path, other, grid, shape)
    for one, another in zip(whole, strips, strict=True):
        np.testing.assert_array_equal(one, another)
    size = 400 // shape[0]
    hole = whole[0][100 // size + 1 : 180 // size - 1, 200 // size + 1 : 300 // size - 1]
    assert (hole == 0).all()


def test_a_coarse_grid_covers_the_same_ground():
    grid = Grid(CRS.from_epsg(32633), Affine(0.4, -0.3, 4e5, -0.3, -0.4, 5e6), 700, 300)
    coarse = coarse_grid(grid, (31, 70))
    assert (coarse.height, coarse.width) == (31, 70)
    assert coarse.bounds == pytest.approx(grid.bounds)


@pytest.mark.parametrize(
    ("epsg", "transform", "metres"),
    [
        (32633, Affine(0.5, 0, 5e5, 0, -0.5, 5.8e6), 500),
        (32633, Affine(0.4, -0.3, 5e5, -0.3, -0.4, 5.8e6), 500),
        (2263, Affine(3, 0, 1e6, 0, -3, 2e5), 914.4),  # feet
        (4326, Affine(1e-3, 0, 10, 0, -1e-3, 60), 56_640),  # a degree at 59.5 north
        (3857, Affine(10, 0, 1.2e6, 0, -10, 8.4e6), 4_990),  # at 60 degrees half of the map's
        (4326, Affine(0.36, 0, -180, 0, -0.18, 90), 40_075_017),  # all around
    ],
    ids=["utm", "turned", "feet", "degrees", "mercator", "world"],
)
def test_spans_are_metres_on_the_ground(epsg, transform, metres):
    span, unit = ground_span(Grid(CRS.from_epsg(epsg), transform, 1000, 1000))
    assert unit == "m"
    assert span == pytest.approx(metres, rel=6e-3)


def test_without_coordinates_spans_are_pixels():
    assert ground_span(Grid(None, Affine.scale(7), 1000, 50)) == (1000.0, "px")

"""The tile plan: every pixel once or more, equal tiles, mirrors beyond the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adadino.errors import ConfigError
from adadino.geo.tile.fill import fill_invalid
from adadino.geo.tile.tiles import Tile, TilePlan, pad_reflect

sizes = st.integers(1, 50)


@st.composite
def choices(draw: st.DrawFn) -> dict[str, object]:
    tile = draw(st.integers(1, 24))
    return {"tile": tile, "overlap": draw(st.integers(0, tile - 1))}


@given(height=sizes, width=sizes, chosen=choices())
def test_every_pixel_is_covered_and_no_tile_is_outside(height, width, chosen):
    covered = np.zeros((height, width), int)
    for tile in TilePlan(height, width, **chosen):
        window = covered[tile.window]
        assert window.size > 0
        window += 1
    assert covered.min() >= 1


@given(height=sizes, width=sizes, chosen=choices())
def test_tiles_have_one_size_and_are_numbered_row_by_row(height, width, chosen):
    tiles = list(TilePlan(height, width, **chosen))
    scene = np.arange(height * width).reshape(height, width)
    for tile in tiles:
        padded = pad_reflect(scene[tile.window], tile.padding)
        assert padded.shape == (chosen["tile"], chosen["tile"])
        np.testing.assert_array_equal(padded[tile.inside], scene[tile.window])
    assert [tile.index for tile in tiles] == list(range(len(tiles)))
    assert tiles == sorted(tiles, key=lambda tile: (tile.row, tile.col))


def test_a_scene_of_exactly_one_tile_is_one_tile_without_padding():
    (tile,) = TilePlan(512, 512, tile=512, overlap=128)
    assert tile == Tile(0, 0, 0, 512, (512, 512))
    assert tile.padding == ((0, 0), (0, 0))


def test_neighbours_share_the_overlap_and_both_edges_the_excess():
    tiles = TilePlan(100, 1000, tile=100, overlap=20)
    starts = [tile.col for tile in tiles]
    assert set(np.diff(starts)) == {80}
    assert abs(-starts[0] - (starts[-1] + 100 - 1000)) <= 1


@pytest.mark.parametrize(("tile", "overlap"), [(0, 0), (64, 64), (64, -1)])
def test_settings_without_a_step_are_refused_with_the_value(tile, overlap):
    with pytest.raises(ConfigError, match="choose"):
        TilePlan(100, 100, tile=tile, overlap=overlap)


@given(
    height=st.integers(2, 6),
    width=st.integers(2, 6),
    pads=st.tuples(*[st.integers(0, 20)] * 4),
)
def test_padding_is_numpys_reflection(height, width, pads):
    array = np.arange(height * width * 3).reshape(height, width, 3)
    padding = (pads[:2], pads[2:])
    np.testing.assert_array_equal(
        pad_reflect(array, padding), np.pad(array, (*padding, (0, 0)), mode="reflect")
    )


def test_a_single_pixel_is_repeated():
    assert (pad_reflect(np.full((1, 1), 7), ((3, 4), (5, 6))) == 7).all()


@given(shape=st.tuples(st.integers(1, 12), st.integers(1, 12)), seed=st.integers(0, 999))
def test_holes_are_filled_from_valid_pixels_only(shape, seed):
    rng = np.random.default_rng(seed)
    valid = rng.random(shape) < rng.random()
    image = rng.integers(1, 200, (*shape, 3)).astype(np.float32)
    image[~valid] = np.nan
    filled = fill_invalid(image, valid)
    np.testing.assert_array_equal(filled[valid], image[valid])
    if valid.any():
        known = {tuple(pixel) for pixel in image[valid]}
        assert all(tuple(pixel) in known for pixel in filled.reshape(-1, 3))
    else:
        assert (filled == 0).all()


def test_a_hole_mirrors_what_lies_beside_it():
    image = np.tile(np.array([10, 20, 30, 40, 0, 0, 0]), (3, 1))
    filled = fill_invalid(image, image > 0)
    np.testing.assert_array_equal(filled[1], [10, 20, 30, 40, 30, 20, 10])
    np.testing.assert_array_equal(fill_invalid(image.T, image.T > 0), filled.T)


def test_the_nearer_side_fills_a_hole():
    image = np.array([[10, 0, 0, 0, 0, 50]])
    np.testing.assert_array_equal(fill_invalid(image, image > 0), [[10, 10, 10, 50, 50, 50]])


@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(2, 70), st.data(),
)  # fmt: skip
def test_the_tiles_of_a_rectangle_are_those_of_the_plan_that_reach_into_it(
    height, width, tile, data
):
    overlap = data.draw(st.integers(0, tile - 1))
    row, col = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    rows = slice(row, data.draw(st.integers(row + 1, height)))
    cols = slice(col, data.draw(st.integers(col + 1, width)))
    tiles = TilePlan(height, width, tile=tile, overlap=overlap)
    expected = [
        one
        for one in TilePlan(height, width, tile=tile, overlap=overlap)
        if one.row < rows.stop and one.row + tile > rows.start
        and one.col < cols.stop and one.col + tile > cols.start
    ]  # fmt: skip
    assert tiles.meeting(rows, cols) == expected
    assert tiles.number_meeting(rows, cols) == len(expected)
    assert expected

"""Blending: no seams, the same bytes in any order, and no more memory than a band."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adadino.data.synthetic import make_pair
from adadino.geo.tile.blend import Blender, blend_weight
from adadino.geo.tile.tiles import TilePlan, pad_reflect
from tests.geo.rasters import MovedPlan


def blend(height, width, tiles, answers, weight, *, order=None, drain_every=1, start=0):
    """The whole map, after checking that rows come once and in order."""
    blender = Blender(height, width, tiles, weight, start=start)
    blocks, expected = [], start
    order = range(len(tiles)) if order is None else order
    for count, i in enumerate(order):
        blender.add(tiles[i], answers[tiles[i].index])
        if count % drain_every == 0:
            blocks += blender.finished()
    blocks += blender.finished()
    for row, block in blocks:
        assert row == expected
        assert 0 < len(block) <= len(weight)
        assert block.dtype == np.float32
        expected += len(block)
    assert expected == height
    return np.concatenate([block for _, block in blocks])


@st.composite
def scenes(draw):
    height, width = draw(st.integers(1, 50)), draw(st.integers(1, 50))
    tile = draw(st.integers(1, 24))
    overlap = draw(st.integers(0, tile - 1))
    offset = (draw(st.integers(-30, 30)), draw(st.integers(-30, 30)))
    tiles = list(MovedPlan(height, width, tile=tile, overlap=overlap, offset=offset))
    return height, width, tiles, tile, overlap


def random_answers(tiles, size, seed=0):
    return np.random.default_rng(seed).random((len(tiles), size, size), np.float32)


@given(tile=st.integers(1, 80), data=st.data())
def test_weights_are_positive_symmetric_and_smooth(tile, data):
    overlap = data.draw(st.integers(0, tile - 1))
    weight = blend_weight(tile, overlap)
    assert weight.min() > 0
    assert weight.max() <= 1
    np.testing.assert_array_equal(weight, weight.T)
    np.testing.assert_array_equal(weight, weight[::-1, ::-1])
    if 0 < overlap <= tile // 2:  # two neighbours share a pixel's weight of one
        ramp = weight[tile // 2] / np.sqrt(weight[tile // 2, tile // 2])
        np.testing.assert_allclose(ramp[:overlap] + ramp[-overlap:], 1, rtol=1e-5)
    if overlap:
        assert abs(np.diff(weight, axis=1)).max() <= np.pi / 2 / overlap + 1e-6


@given(scene=scenes(), value=st.floats(0, 1, width=32))
def test_a_constant_stays_constant(scene, value):
    height, width, tiles, size, overlap = scene
    answers = np.full((len(tiles), size, size), value, np.float32)
    result = blend(height, width, tiles, answers, blend_weight(size, overlap))
    np.testing.assert_allclose(result, np.float32(value), rtol=2e-6, atol=1e-30)
    assert result.max() <= 1


@given(scene=scenes())
def test_equal_weights_are_plain_averaging(scene):
    height, width, tiles, size, _ = scene
    answers = random_answers(tiles, size)
    result = blend(height, width, tiles, answers, blend_weight(size, 0))
    total, count = np.zeros((2, height, width))
    for tile in tiles:
        total[tile.window] += answers[tile.index][tile.inside]
        count[tile.window] += 1
    np.testing.assert_allclose(result, total / count, rtol=1e-6)


@given(scene=scenes(), data=st.data())
def test_any_order_and_batch_size_gives_the_same_bytes(scene, data):
    height, width, tiles, size, overlap = scene
    answers = random_answers(tiles, size)
    weight = blend_weight(size, overlap)
    expected = blend(height, width, tiles, answers, weight)
    order = data.draw(st.permutations(range(len(tiles))))
    batch = data.draw(st.integers(1, 9))
    result = blend(height, width, tiles, answers, weight, order=order, drain_every=batch)
    assert result.tobytes() == expected.tobytes()


@given(scene=scenes(), data=st.data())
def test_a_resumed_map_continues_with_the_same_bytes(scene, data):
    height, width, tiles, size, overlap = scene
    answers = random_answers(tiles, size)
    weight = blend_weight(size, overlap)
    start = data.draw(st.integers(0, height - 1))
    expected = blend(height, width, tiles, answers, weight)[start:]
    rest = [tile for tile in tiles if tile.row + size > start]
    result = blend(height, width, rest, answers, weight, start=start)
    assert result.tobytes() == expected.tobytes()


@given(scene=scenes(), seed=st.integers(0, 99))
def test_pixels_without_a_tile_are_nan_and_all_rows_still_come(scene, seed):
    height, width, tiles, size, overlap = scene
    run = np.random.default_rng(seed).random(len(tiles)) < 0.3
    chosen = [tile for tile in tiles if run[tile.index]]
    covered = np.zeros((height, width), bool)
    for tile in chosen:
        covered[tile.window] = True
    answers = random_answers(tiles, size)
    result = blend(height, width, chosen, answers, blend_weight(size, overlap))
    np.testing.assert_array_equal(np.isnan(result), ~covered)


def test_the_callers_batch_may_be_reused():
    tiles = list(TilePlan(8, 24, tile=8, overlap=0))
    blender = Blender(8, 24, tiles, blend_weight(8, 0))
    buffer = np.empty((8, 8), np.float32)
    for tile in reversed(tiles):
        buffer[:] = tile.index / 4
        blender.add(tile, buffer)
    ((_, block),) = blender.finished()
    np.testing.assert_array_equal(block[0, ::8], [0, 0.25, 0.5])


def test_a_tile_twice_or_of_another_size_is_refused():
    tiles = list(TilePlan(16, 16, tile=16, overlap=0))
    blender = Blender(16, 16, tiles, blend_weight(16, 0))
    with pytest.raises(ValueError, match="is \\(16, 16\\)"):
        blender.add(tiles[0], np.zeros((8, 8), np.float32))
    blender.add(tiles[0], np.zeros((16, 16), np.float32))
    with pytest.raises(ValueError, match="added before"):
        blender.add(tiles[0], np.zeros((16, 16), np.float32))


@pytest.mark.parametrize("chosen", ["all", "none"])
def test_memory_is_a_few_bands_whatever_the_height(chosen):
    height, width, size = 8192, 1024, 64
    tiles = list(TilePlan(height, width, tile=size, overlap=16)) if chosen == "all" else []
    answer = np.full((size, size), 0.5, np.float32)
    tracemalloc.start()
    blender = Blender(height, width, tiles, blend_weight(size, 16))
    rows = sum(len(block) for _, block in blender.finished())
    for tile in tiles:
        blender.add(tile, answer)
        rows += sum(len(block) for _, block in blender.finished())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == height
    band = size * width * 4
    assert peak < 6 * band  # the scene has 128 bands


def blurred(image, radius=12):
    """A stub with a field of view: the mean around a pixel, blind beyond the tile's edge."""
    for axis in (0, 1):
        moved = np.moveaxis(image, axis, 0)
        padded = np.pad(moved, ((radius + 1, radius), (0, 0)))
        sums = np.cumsum(padded, axis=0)
        moved = (sums[2 * radius + 1 :] - sums[: -2 * radius - 1]) / (2 * radius + 1)
        image = np.moveaxis(moved, 0, axis)
    return image.astype(np.float32)


def stub_map(scene, size, overlap, offset):
    tiles = list(MovedPlan(*scene.shape, tile=size, overlap=overlap, offset=offset))
    answers = [blurred(pad_reflect(scene[tile.window], tile.padding)) for tile in tiles]
    return blend(*scene.shape, tiles, answers, blend_weight(size, overlap))


@pytest.fixture(scope="module")
def scene():
    """What changed in a synthetic scene, such that the stub's answers run from 0 to 1."""
    pair = make_pair(3, (200, 260))
    difference = abs(pair.before.astype(np.float32) - pair.after).mean(axis=2)
    return difference / blurred(difference).max()


def movement(scene, overlap, offset):
    """How far probabilities move with the tile grid, where the stub sees all around a pixel."""
    plain, moved = (stub_map(scene, 128, overlap, where) for where in ((0, 0), offset))
    return abs(moved - plain)[12:-12, 12:-12].max()


@settings(max_examples=10)
@given(offset=st.tuples(st.integers(0, 63), st.integers(0, 63)))
def test_moving_the_tile_grid_moves_no_probability_by_three_percent(scene, offset):
    assert movement(scene, 64, offset) < 0.03


def test_without_an_overlap_the_same_scene_has_seams(scene):
    """The stub is one that makes seams: the test above would notice them."""
    assert movement(scene, 0, (57, 15)) > 0.5

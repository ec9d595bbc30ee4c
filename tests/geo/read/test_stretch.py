from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adadino.geo.read.stretch import (
    BYTES,
    SAMPLE_PIXELS,
    Stretch,
    all_windows,
    collect,
    fit_stretch,
    sample_windows,
)


def pixels(*bands: np.ndarray) -> np.ndarray:
    return np.stack(bands).astype(np.float32)


def test_percentiles_are_of_both_dates_together_and_of_each_band_alone() -> None:
    rng = np.random.default_rng(0)
    before = pixels(*(rng.normal(mean, 10, 1000) for mean in (100, 1000, 5000)))
    after = pixels(*(rng.normal(mean, 30, 500) for mean in (200, 900, 5000)))
    stretch = fit_stretch(before, after)
    for band in range(3):
        both = np.concatenate([before[band], after[band]])
        assert stretch.low[band] == pytest.approx(np.percentile(both, 2))
        assert stretch.high[band] == pytest.approx(np.percentile(both, 98))


def test_the_order_of_the_dates_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.random((2, 3, 777), dtype=np.float32)
    assert fit_stretch(before, after) == fit_stretch(after, before)


def test_bytes_are_divided_by_255() -> None:
    values = np.arange(256, dtype=np.float32).reshape(1, 16, 16).repeat(3, axis=0)
    np.testing.assert_array_equal(BYTES(values), values / 255)


def test_values_outside_are_clipped() -> None:
    values = np.array([-5, 0, 5, 10, 50], dtype=np.float32).reshape(1, 1, 5).repeat(3, axis=0)
    out = Stretch((0, 0, 0), (10, 10, 10))(values)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out[0, 0], [0, 0, 0.5, 1, 1])


@pytest.mark.parametrize("value", [0.0, -7.0, 65535.0, 1e9, 3e38])
def test_one_single_value_becomes_0(value: float) -> None:
    flat = np.full((3, 10), value, dtype=np.float32)
    out = fit_stretch(flat, flat)(flat.reshape(3, 2, 5))
    np.testing.assert_array_equal(out, 0)


def test_few_bright_pixels_on_a_flat_ground_stay_visible() -> None:
    band = np.zeros(1000, dtype=np.float32)
    band[:5] = 400
    flat = pixels(band, band, band)
    out = fit_stretch(flat, flat)(flat[:, None])
    assert out.min() == 0
    assert out.max() == 1


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_a_small_scene_is_sampled_whole_and_once(width: int, height: int) -> None:
    for windows in (sample_windows(width, height), all_windows(width, height, side=300)):
        seen = np.zeros((height, width), dtype=np.uint8)
        for window in windows:
            seen[window.toslices()] += 1
        assert (seen == 1).all()


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (1_000_000, 50), (20, 500_000), (3001, 1999)]
)
def test_a_large_scene_gives_a_bounded_sample_from_everywhere(width: int, height: int) -> None:
    windows = list(sample_windows(width, height))
    count = sum(window.width * window.height for window in windows)
    assert 0.8 * SAMPLE_PIXELS < count <= SAMPLE_PIXELS
    assert len(windows) == 256
    assert min(window.col_off for window in windows) < width / 16
    assert max(window.row_off for window in windows) > height * 15 / 16


def test_only_valid_pixels_are_collected() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    valid = np.array([[True, False], [False, True]])
    before, after = collect([(values, values + 1, valid), (values, values, ~valid)])
    np.testing.assert_array_equal(before[0], [0, 3, 1, 2])
    np.testing.assert_array_equal(after[0], [1, 4, 1, 2])
    assert collect([])[0].shape == (3, 0)

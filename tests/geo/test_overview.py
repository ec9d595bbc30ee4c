"""The overview picture: it fits, shows change in colour, and its bar has the right length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from adadino.data.synthetic import make_pair
from adadino.geo.cog import CHANGE_COLOUR
from adadino.geo.overview import (
    SIDE,
    decimated_shape,
    draw_overview,
    length_text,
    round_length,
    write_overview,
)

sides = st.one_of(st.integers(1, 40), st.integers(1, 100_000))


@given(height=sides, width=sides)
@settings(max_examples=25, deadline=None)
def test_any_scene_fits_the_picture(height, width):
    shape = decimated_shape(height, width)
    assert 1 <= shape[0] <= height
    assert 1 <= shape[1] <= width
    image, change = np.zeros((*shape, 3), np.uint8), np.zeros(shape, np.uint8)
    picture = draw_overview(image, image, change, title="t", span=width, unit="px")
    assert max(picture.size) <= SIDE


def test_it_shows_both_dates_and_the_change(tmp_path):
    pair = make_pair(3, (160, 200))
    change = (pair.mask > 0).astype(np.uint8)
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path in paths:
        write_overview(path, pair.before, pair.after, change, title="t", span=100, unit="m")
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
    colours = {picture.getpixel((x, middle)) for x in range(60, picture.width - 60, 25)}
    assert (0, 0, 0) not in colours
    assert CHANGE_COLOUR not in colours


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

"""Disturbances: each does to a pair what its name says, and leaves the truth as it is."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from adadino.data.disturb import DISTURBANCES, LabelledPair


@pytest.fixture(scope="module")
def pair():
    generator = torch.Generator().manual_seed(3)
    before, after = torch.rand(2, 2, 3, 32, 48, generator=generator)
    mask = torch.zeros(2, 32, 48, dtype=torch.uint8)
    mask[:, 8:16, 16:32] = 1
    return LabelledPair(before, after, mask)


LATER = {"haze", "dry season", "low sun", "shift of 2 pixels"}
SIZES = {
    "pixels half as large": 2,
    "pixels twice as large": 0.5,
    "pixels four times as large": 0.25,
}


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_disturbance_is_fixed_stays_in_range_and_keeps_the_truth(pair, name):
    copies = [part.clone() for part in pair]
    once, again = DISTURBANCES[name](pair), DISTURBANCES[name](pair)
    for part, other, kept, given in zip(once, again, copies, pair, strict=True):
        assert torch.equal(part, other)
        assert torch.equal(kept, given), "the pair that was given is changed"
    assert not torch.equal(once.after, pair.after)
    assert torch.equal(once.before, pair.before) == (name in LATER)
    for image in (once.before, once.after):
        assert image.min() >= 0
        assert image.max() <= 1
    if name not in SIZES:
        assert torch.equal(once.mask, pair.mask)


@pytest.mark.parametrize(("name", "factor"), SIZES.items())
def test_another_resolution_resamples_images_and_mask_alike(pair, name, factor):
    other = DISTURBANCES[name](pair)
    height, width = int(32 * factor), int(48 * factor)
    assert other.before.shape == other.after.shape == (2, 3, height, width)
    assert other.mask.shape == (2, height, width)
    assert other.mask.dtype == pair.mask.dtype
    # The changed rectangle lies on multiples of 8, so every size keeps its share exactly.
    assert other.mask.double().mean() == pair.mask.double().mean()
    assert torch.equal(
        other.mask[:, int(8 * factor) : int(16 * factor)].amax(1)[0].bool(),
        torch.arange(width).ge(16 * factor) & torch.arange(width).lt(32 * factor),
    )


def test_grey_is_itu_601_in_every_band(pair):
    grey = DISTURBANCES["grey"](pair).before.double()
    red, green, blue = pair.before.double().unbind(1)
    expected = 0.299 * red + 0.587 * green + 0.114 * blue
    for band in grey.unbind(1):
        torch.testing.assert_close(band, expected, rtol=0, atol=1e-6)


def test_bands_come_in_the_order_that_the_name_says(pair):
    red, green, blue = pair.after.unbind(1)
    reverse = DISTURBANCES["bands reversed (BGR)"](pair).after
    rotated = DISTURBANCES["bands rotated (GBR)"](pair).after
    assert torch.equal(reverse, torch.stack([blue, green, red], 1))
    assert torch.equal(rotated, torch.stack([green, blue, red], 1))


def test_the_later_date_moves_two_pixels_down_and_right(pair):
    after = DISTURBANCES["shift of 2 pixels"](pair).after
    assert torch.equal(after[..., 2:, 2:], pair.after[..., :-2, :-2])
    assert torch.equal(after[..., 0, 0], pair.after[..., 0, 0])


def test_jpeg_is_what_pillow_makes_of_every_image(pair):
    made = DISTURBANCES["JPEG, quality 30"](pair).after[1]
    pixels = (pair.after[1] * 255).round().byte().permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=30)
    expected = np.asarray(Image.open(file))
    assert np.array_equal((made * 255).round().byte().permute(1, 2, 0).numpy(), expected)


def test_noise_has_its_strength_and_differs_between_the_dates():
    even = torch.full((1, 3, 128, 128), 0.5)
    noisy = DISTURBANCES["noise"](LabelledPair(even, even, torch.zeros(1, 128, 128)))
    assert abs(float((noisy.before - even).std()) - 10 / 255) < 5e-4
    assert not torch.equal(noisy.before, noisy.after)

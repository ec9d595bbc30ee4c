"""Registration: known shifts of the synthetic world, and scenes that say nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from affine import Affine
from numpy.typing import NDArray
from PIL import Image

from adadino.data.synthetic import World, make_pair
from adadino.data.synthetic import world as synthetic
from adadino.errors import RegistrationWarning
from adadino.geo.grid import Grid
from adadino.geo.read.register import Read, Shift, estimate_shift

MARGIN = 16


def scene(
    before: NDArray[np.generic],
    after: NDArray[np.generic],
    valid: NDArray[np.bool_] | None = None,
) -> tuple[Read, Grid]:
    """A reader and a grid of two images (H, W, 3)."""
    height, width = before.shape[:2]
    valid = np.ones((height, width), bool) if valid is None else valid

    def read(
        row: int, col: int, h: int, w: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        at = slice(row, row + h), slice(col, col + w)
        assert valid[at].shape == (h, w), "the window leaves the scene"
        images = (np.moveaxis(image[at], 2, 0).astype(np.float32) for image in (before, after))
        return *images, valid[at]

    return read, Grid(None, Affine.identity(), width, height)


def estimate(*images: NDArray[np.generic], **settings: int) -> Shift:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RegistrationWarning)
        return estimate_shift(*scene(*images), **settings)


def shifted(
    seed: int, dy: float, dx: float, *, size: int = 384, world: World | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A pair cut from a larger canvas, whose `after` must move by (dy, dx) to meet `before`."""
    pair = make_pair(seed, size + 2 * MARGIN, world or World(nuisance=0))
    image = Image.fromarray(pair.after)
    # Pillow's matrix says where a pixel comes from: after[y, x] shows before[y + dy, x + dx].
    matrix = (1, 0, dx, 0, 1, dy)
    moved = image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)
    inner = slice(MARGIN, MARGIN + size)
    return pair.before[inner, inner], np.asarray(moved)[inner, inner]


@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (3, -2), (-1.4, 0.65), (0.3, 0.25), (9.5, -11)])
def test_a_known_shift_is_found_with_its_sign(dy: float, dx: float) -> None:
    before, after = shifted(3, dy, dx)
    shift = estimate(before, after)
    assert (shift.dy, shift.dx) == pytest.approx((dy, dx), abs=0.1)
    assert shift.reliable
    assert shift.confidence > 0.9


def test_moving_after_by_the_shift_lays_it_on_before() -> None:
    before, after = shifted(4, 3, -2)
    shift = estimate(before, after)
    back = np.roll(after, (round(shift.dy), round(shift.dx)), axis=(0, 1))
    inner = slice(8, -8), slice(8, -8)
    apart = np.abs(after[inner].astype(int) - before[inner]).mean()
    assert np.abs(back[inner].astype(int) - before[inner]).mean() < apart / 3


@pytest.mark.slow
def test_half_of_the_estimates_are_within_a_tenth_under_nuisance_and_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views: list[tuple[synthetic.View, synthetic.View]] = []
    draw = synthetic.draw_views
    monkeypatch.setattr(synthetic, "draw_views", lambda *a: views.append(draw(*a)) or views[-1])
    rng, errors = np.random.default_rng(1), []
    for seed in range(16):
        dy, dx = rng.uniform(-4, 4, 2)
        world = World(change_rate=0.4, empty=0)
        found = estimate(*shifted(seed, dy, dx, size=512, world=world))
        # The world moves both dates by a part of a pixel of its own.
        own_dx, own_dy = views[-1][0].shift - views[-1][1].shift
        assert found.reliable
        errors.append(np.hypot(found.dy - dy - own_dy, found.dx - dx - own_dx))
    assert np.median(errors) < 0.1
    assert max(errors) < 0.3


def test_swapping_the_dates_turns_the_shift_around() -> None:
    before, after = shifted(5, 2.3, -1.2)
    there, back = estimate(before, after), estimate(after, before)
    assert (there.dy, there.dx) == pytest.approx((-back.dy, -back.dx), abs=0.05)


def test_gain_offset_and_scale_of_the_values_do_not_matter() -> None:
    before, after = shifted(6, 1.5, 0.75)
    plain = estimate(before, after)
    dark = estimate(before / np.float32(255), after.astype(np.float32) * 40 + 1000)
    assert (dark.dy, dark.dx) == pytest.approx((plain.dy, plain.dx), abs=0.01)


def test_nodata_neither_votes_nor_pulls_towards_zero() -> None:
    before, after = shifted(7, 4, -3, size=512)
    valid = np.ones(before.shape[:2], bool)
    valid[:, :200] = False
    valid[np.random.default_rng(0).random(valid.shape) < 0.005] = False
    before, after = (np.where(valid[..., None], image, 0) for image in (before, after))
    read, grid = scene(before, after, valid)
    with pytest.warns(RegistrationWarning):
        shift = estimate_shift(read, grid, size=96)
    assert (shift.dy, shift.dx) == pytest.approx((4, -3), abs=0.1)
    assert 4 <= shift.tiles_used <= 15


def test_water_does_not_outvote_the_land() -> None:
    before, after = (image.astype(np.float32) for image in shifted(8, 2, 1, size=512))
    rng = np.random.default_rng(0)
    for image in (before, after):
        image[:340] = 40 + rng.normal(0, 1, (340, 512, 3))
    shift = estimate(before, after, size=96)
    assert shift.reliable
    assert (shift.dy, shift.dx) == pytest.approx((2, 1), abs=0.15)


@pytest.mark.parametrize("kind", ["flat", "nodata", "noise", "tiny", "pixel"])
def test_a_scene_that_says_nothing_is_not_reliable_and_says_why(kind: str) -> None:
    rng = np.random.default_rng(0)
    side = {"tiny": 20, "pixel": 1}.get(kind, 400)
    before, after = (rng.normal(100, 10, (side, side, 3)).astype(np.float32) for _ in range(2))
    valid = np.full((side, side), kind != "nodata")
    if kind == "flat":
        before[:] = after[:] = 7
    read, grid = scene(before, after, valid)
    shift = estimate_shift(read, grid)
    assert not shift.reliable
    assert shift.problem is not None
    assert ("agree" if kind == "noise" else "texture") in shift.problem
    assert shift.confidence < 0.5


def test_a_warning_comes_above_one_pixel_only() -> None:
    with pytest.warns(RegistrationWarning, match=r"2\.\d\d pixels apart"):
        estimate_shift(*scene(*shifted(9, 2, -0.5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate_shift(*scene(*shifted(9, 0.6, -0.5)))


def test_tiles_are_few_spread_and_the_same_every_time() -> None:
    rng = np.random.default_rng(0)
    texture = rng.normal(0, 1, (64, 64)).astype(np.float32)
    windows: list[tuple[int, ...]] = []

    def read(
        *window: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        windows.append(window)
        image = np.broadcast_to(texture, (3, 64, 64))
        return image, image, np.ones((64, 64), bool)

    grid = Grid(None, Affine.identity(), 20_000, 10_000)
    first = estimate_shift(read, grid, tiles=24, size=64)
    reads = windows.copy()
    windows.clear()
    assert estimate_shift(read, grid, tiles=24, size=64) == first
    assert windows == reads
    assert 12 <= first.tiles_used <= 24
    rows, cols = np.array(reads)[:, :2].T
    assert rows.min() >= 0
    assert rows.max() <= 10_000 - 64
    assert cols.max() <= 20_000 - 64
    # Every quarter of the scene has its share.
    quarter = (rows > 5_000) * 2 + (cols > 10_000)
    assert np.bincount(quarter).min() >= len(reads) / 6

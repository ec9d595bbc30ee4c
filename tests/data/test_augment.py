"""Augmentation of a batch against each transform done plainly, one sample at a time."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from adadino.data.augment import Augment, AugmentConfig, Draws
from adadino.errors import InputError

Pair = tuple[Tensor, Tensor, Tensor]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(size: int = 6, height: int = 32, width: int = 32) -> Pair:
    rng = generator(1)
    before, after = torch.rand(2, size, 3, height, width, generator=rng)
    mask = (torch.rand(size, height, width, generator=rng) < 0.4).to(torch.uint8)
    return before, after, mask


def nothing(size: int = 6, height: int = 32, width: int = 32) -> Draws:
    """Draws that change nothing: the canvas for one transform at a time."""
    off = torch.zeros(size, dtype=torch.bool)
    return Draws(
        swap=off,
        hflip=off,
        vflip=off,
        turns=torch.zeros(size, dtype=torch.int64),
        factors=torch.ones(size, 3),
        order=torch.arange(3).repeat(size, 1),
        crop=torch.tensor([0, 0, height, width]).repeat(size, 1),
    )


def plain_jitter(image: Tensor, factors: list[float], order: list[int]) -> Tensor:
    """torchvision's adjust_brightness, adjust_contrast and adjust_saturation, written out."""
    for which in order:
        grey = 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]
        other = (torch.zeros(()), grey.mean(), grey)[which]
        image = (factors[which] * image + (1 - factors[which]) * other).clamp(0, 1)
    return image


def plain(draws: Draws, before: Tensor, after: Tensor, mask: Tensor, size: int) -> Pair:
    """The transforms in the stated order, for each sample, with torch's own flips and resize."""
    done: list[Pair] = []
    for i in range(len(mask)):
        images, label = [before[i], after[i]], mask[i]
        if draws.swap[i]:
            images.reverse()
        planes = [*images, label[None]]
        if draws.hflip[i]:
            planes = [plane.flip(-1) for plane in planes]
        if draws.vflip[i]:
            planes = [plane.flip(-2) for plane in planes]
        planes = [plane.rot90(int(draws.turns[i]), (-2, -1)) for plane in planes]
        factors, order = draws.factors[i].tolist(), draws.order[i].tolist()
        planes[:2] = [plain_jitter(plane, factors, order) for plane in planes[:2]]
        top, left, h, w = draws.crop[i].tolist()
        one, two, label = (plane[None, :, top : top + h, left : left + w] for plane in planes)
        one, two = (F.interpolate(x, (size, size), mode="bilinear") for x in (one, two))
        label = F.interpolate(label, (size, size), mode="nearest-exact")
        done.append((one[0], two[0], label[0, 0]))
    first, second, masks = (list(each) for each in zip(*done, strict=True))
    return torch.stack(first), torch.stack(second), torch.stack(masks)


def augment(size: int = 32, p: float = 0.5) -> Augment:
    return Augment(AugmentConfig(size=size, p=p))


def assert_same(actual: Pair, expected: Pair, atol: float) -> None:
    for image, reference in zip(actual[:2], expected[:2], strict=True):
        torch.testing.assert_close(image, reference, rtol=0, atol=atol)
    assert actual[2].dtype == torch.uint8
    assert torch.equal(actual[2], expected[2])


def test_no_draw_is_the_identity() -> None:
    before, after, mask = batch()
    assert_same(augment().apply(nothing(), before, after, mask), (before, after, mask), 0)


SOME = torch.tensor([True, False, True, True, False, True])
TURNS = torch.tensor([0, 1, 2, 3, 1, 3])
FACTORS = torch.tensor(
    [[0.75, 1, 1], [1, 1.25, 1], [1, 1, 0.8], [1.25, 0.75, 1.2], [0.9, 1.1, 0.75], [1, 1, 1]]
)
ORDERS = torch.tensor([[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1]])
CROPS = torch.tensor(
    [
        [0, 0, 32, 32],
        [0, 0, 20, 24],
        [12, 8, 20, 24],
        [5, 3, 17, 13],
        [31, 31, 1, 1],
        [0, 7, 32, 25],
    ]
)


@pytest.mark.parametrize(
    ("change", "atol"),
    [
        pytest.param({"swap": SOME}, 0, id="swap"),
        pytest.param({"hflip": SOME}, 0, id="hflip"),
        pytest.param({"vflip": SOME}, 0, id="vflip"),
        pytest.param({"turns": TURNS}, 0, id="turns"),
        pytest.param({"hflip": SOME, "vflip": ~SOME, "turns": TURNS}, 0, id="flips and turns"),
        pytest.param({"factors": FACTORS, "order": ORDERS}, 1e-5, id="jitter"),
        pytest.param({"crop": CROPS}, 1e-5, id="crop"),
        pytest.param(
            {
                "swap": SOME,
                "hflip": ~SOME,
                "vflip": SOME,
                "turns": TURNS,
                "factors": FACTORS,
                "order": ORDERS,
                "crop": CROPS,
            },
            1e-5,
            id="all in order",
        ),
    ],
)
def test_transform_equals_the_plain_one(change: dict[str, Tensor], atol: float) -> None:
    draws = nothing()._replace(**change)
    pair = batch()
    assert_same(augment().apply(draws, *pair), plain(draws, *pair, size=32), atol)


@pytest.mark.parametrize("side", [21, 30])
def test_sides_that_are_no_power_of_two(side: int) -> None:
    draws = nothing(6, side, side)._replace(hflip=SOME, turns=TURNS)
    pair = batch(6, side, side)
    assert_same(augment(side).apply(draws, *pair), plain(draws, *pair, size=side), 5e-6)


def test_random_draws_equal_the_plain_transforms() -> None:
    pair = batch(64)
    draws = augment().draw(generator(), 64, 32, 32)
    assert_same(augment().apply(draws, *pair), plain(draws, *pair, size=32), 1e-5)


def test_smaller_tiles_are_enlarged_to_the_output() -> None:
    pair = batch(8, 24, 24)
    draws = augment().draw(generator(), 8, 24, 24)
    assert_same(augment(64).apply(draws, *pair), plain(draws, *pair, size=64), 1e-5)


def test_a_tile_that_is_not_square_is_never_turned_by_90_degrees() -> None:
    pair = batch(64, 16, 32)
    draws = augment().draw(generator(), 64, 16, 32)
    assert set(draws.turns.tolist()) == {0, 2}
    assert_same(augment().apply(draws, *pair), plain(draws, *pair, size=32), 1e-5)


def test_the_mask_follows_the_images() -> None:
    # The images are the mask, in blocks: off the blocks' blended edges they must still agree.
    blocks = (torch.rand(32, 4, 4, generator=generator()) < 0.5).to(torch.uint8)
    mask = blocks.repeat_interleave(16, 1).repeat_interleave(16, 2)
    images = mask[:, None].repeat(1, 3, 1, 1).float()
    draws = augment(64).draw(generator(), 32, 64, 64)._replace(factors=torch.ones(32, 3))
    before, after, moved = augment(64).apply(draws, images, images, mask)
    assert torch.equal(before, after)
    inside = (before[:, 0] < 1e-4) | (before[:, 0] > 1 - 1e-4)
    assert inside.float().mean() > 0.8
    assert torch.equal(before[:, 0][inside] > 0.5, moved[inside].bool())
    assert not torch.equal(moved, mask)


def test_jitter_is_one_draw_for_both_dates_and_leaves_the_mask() -> None:
    before, _, mask = batch()
    draws = nothing()._replace(factors=FACTORS, order=ORDERS)
    one, two, same = augment().apply(draws, before, before, mask)
    assert torch.equal(one, two)
    assert not torch.equal(one[:5], before[:5])
    assert torch.equal(one[5], before[5])  # all factors 1
    assert torch.equal(same, mask)


def test_uint8_and_bool_inputs_give_the_same_as_float() -> None:
    before, after, mask = batch()
    eight_bit = [(image * 255).round().to(torch.uint8) for image in (before, after)]
    as_float = [image.float() / 255 for image in eight_bit]
    one = augment()(eight_bit[0], eight_bit[1], mask.bool(), generator())
    two = augment()(as_float[0], as_float[1], mask, generator())
    assert_same(one, two, 1e-6)


def test_outputs_have_the_promised_types_and_values() -> None:
    before, after, mask = batch()
    inputs = [each.clone() for each in (before, after, mask)]
    one, two, label = augment(48)(before, after, mask, generator())
    assert one.shape == two.shape == (6, 3, 48, 48)
    assert one.dtype == two.dtype == torch.float32
    assert min(one.min(), two.min()) >= 0
    assert max(one.max(), two.max()) <= 1
    assert label.shape == (6, 48, 48)
    assert set(label.flatten().tolist()) == {0, 1}
    for given, kept in zip((before, after, mask), inputs, strict=True):
        assert torch.equal(given, kept)  # inputs are left alone


def test_white_stays_white_and_never_exceeds_it() -> None:
    white = torch.full((64, 3, 32, 32), 255, dtype=torch.uint8)
    draws = augment().draw(generator(), 64, 32, 32)._replace(factors=torch.ones(64, 3))
    one, _, _ = augment().apply(draws, white, white, torch.zeros(64, 32, 32, dtype=torch.bool))
    assert one.max() == 1
    torch.testing.assert_close(one, torch.ones_like(one))


def test_each_augmentation_has_probability_one_half_of_its_own() -> None:
    draws = augment().draw(generator(), 4000, 256, 256)
    happened = torch.stack(
        [
            draws.swap,
            draws.hflip,
            draws.vflip,
            draws.turns > 0,
            (draws.factors != 1).any(dim=1),
            (draws.crop != torch.tensor([0, 0, 256, 256])).any(dim=1),
        ]
    ).float()
    assert (happened.mean(dim=1) - 0.5).abs().max() < 0.04  # five standard deviations
    correlation = torch.corrcoef(happened) - torch.eye(6)
    assert correlation.abs().max() < 0.08


def test_probability_zero_does_nothing_and_one_does_everything() -> None:
    before, after, mask = batch()
    assert_same(augment(p=0)(before, after, mask, generator()), (before, after, mask), 0)
    draws = augment(p=1).draw(generator(), 100, 256, 256)
    assert draws.swap.all()
    assert draws.hflip.all()
    assert draws.vflip.all()
    assert (draws.turns > 0).all()


def test_turns_factors_and_orders_cover_the_paper_s_ranges() -> None:
    draws = augment(p=1).draw(generator(), 6000, 256, 256)
    for k in (1, 2, 3):
        assert (draws.turns == k).float().mean().item() == pytest.approx(1 / 3, abs=0.04)
    for factor in draws.factors.T:
        assert 0.75 <= factor.min() < 0.76
        assert 1.24 < factor.max() <= 1.25
        assert factor.mean().item() == pytest.approx(1, abs=0.01)
    assert torch.corrcoef(draws.factors.T).triu(1).abs().max() < 0.07  # independent
    orders = Counter(tuple(order) for order in draws.order.tolist())
    assert sorted(orders) == sorted(itertools.permutations(range(3)))
    assert all(count / 6000 == pytest.approx(1 / 6, abs=0.03) for count in orders.values())


def test_crops_follow_the_paper_s_scale_and_ratio() -> None:
    top, left, h, w = augment(p=1).draw(generator(), 6000, 256, 256).crop.double().unbind(dim=1)
    area, ratio = h * w / 256**2, w / h
    rounding = 2 / 147  # one pixel in the shortest side, sqrt(0.333) * 256
    assert 0.333 * (1 - rounding) < area.min() < 0.35
    assert 0.97 < area.max() <= 1
    assert 0.75 * (1 - rounding) < ratio.min() < 0.77
    assert 1.30 < ratio.max() < 1.333 * (1 + rounding)
    # Log-uniform and symmetric: as many tall crops as wide ones, and not more of either.
    assert ratio.log().mean().abs() < 0.01
    assert min(top.min(), left.min()) == 0
    assert (top + h).max() == 256
    assert (left + w).max() == 256
    # Where there is room, every offset is as likely.
    room = 256 - w
    assert (left[room > 60] / room[room > 60]).mean().item() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(256, 16, (117, 0, 21, 16)), (16, 256, (0, 117, 16, 21)), (64, 64, (0, 0, 64, 64))],
)
def test_a_crop_that_never_fits_falls_back_to_the_centre(
    height: int, width: int, expected: tuple[int, ...]
) -> None:
    # The whole area in another shape never fits, so all ten tries fail.
    config = AugmentConfig(p=1, scale=(1.0, 1.0))
    crop = Augment(config).draw(generator(), 5, height, width).crop
    assert crop.tolist() == [list(expected)] * 5


def test_the_first_try_that_fits_is_taken() -> None:
    # Close to the whole area hardly ever fits on the first try, but nearly always within ten.
    config = AugmentConfig(p=1, scale=(0.9, 0.95))
    crop = Augment(config).draw(generator(), 500, 256, 256).crop
    share = crop[:, 2] * crop[:, 3] / 256**2
    fallback = share == 1
    assert 0 < fallback.float().mean() < 0.1
    assert (share[~fallback] > 0.9 - 0.01).all()
    assert (share[~fallback] < 0.95 + 0.01).all()


def test_one_seed_gives_one_result_and_the_global_generator_is_not_touched() -> None:
    pair = batch()
    state = torch.get_rng_state()
    one, two, other = (augment()(*pair, generator(seed)) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])


def test_a_sample_does_not_depend_on_its_neighbours() -> None:
    pair = batch()
    draws = augment().draw(generator(3), 6, 32, 32)
    together = augment().apply(draws, *pair)
    alone = augment().apply(Draws(*(d[2:3] for d in draws[:-1])), *(each[2:3] for each in pair))
    for whole, single in zip(together, alone, strict=True):
        torch.testing.assert_close(whole[2:3], single, rtol=0, atol=1e-6)


def test_applying_never_waits_for_the_device() -> None:
    # Tensors without data: reading any value back on the host raises.
    before, after, mask = (each.to("meta") for each in batch())
    one, two, label = augment()(before, after, mask, generator())
    assert one.shape == two.shape == (6, 3, 32, 32)
    assert label.shape == (6, 32, 32)


def test_defaults_are_the_paper_s() -> None:
    config = AugmentConfig()
    assert (config.p, config.size) == (0.5, 256)
    assert (1 - config.jitter, 1 + config.jitter) == (0.75, 1.25)
    assert math.isclose(config.scale[0], 0.333)
    assert config.scale[1] == 1
    assert config.ratio == (0.75, 1.333)


def test_inputs_that_do_not_belong_together_are_refused() -> None:
    before, after, mask = batch()
    with pytest.raises(InputError, match="one shape"):
        augment()(before, after[..., :16], mask, generator())
    with pytest.raises(InputError, match="mask"):
        augment()(before, after, mask[:, None], generator())
    with pytest.raises(InputError, match="larger than the output"):
        augment(16)(before, after, mask, generator())


def test_classes_move_with_the_mask_and_change_places_with_the_dates():
    before, after, mask = batch()
    classes = torch.randint(0, 6, (2, *mask.shape), generator=generator(3)).to(torch.uint8)
    labels = torch.stack([mask, *classes], dim=1)  # (B, 3, H, W)
    augment = Augment(AugmentConfig(size=32))
    draws = augment.draw(generator(5), *mask.shape)
    assert draws.swap.any()
    assert not draws.swap.all()
    *_, found = augment.apply(draws, before, after, labels)
    for channel in range(3):
        *_, plain = augment.apply(draws, before, after, labels[:, channel])
        swapped = draws.swap if channel else torch.zeros_like(draws.swap)
        there = found[:, channel]
        if channel:
            there = torch.where(swapped[:, None, None], found[:, 3 - channel], there)
        assert torch.equal(there, plain)

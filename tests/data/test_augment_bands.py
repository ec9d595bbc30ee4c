"""Augmentation of what bands hold, one sample at a time."""

from __future__ import annotations

import torch

from adadino.data.augment import Augment, AugmentConfig
from adadino.data.augment_bands import draw_bands, jitter_bands


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_each_band_of_each_date_has_a_gain_and_an_offset_of_its_own() -> None:
    pair = 0.3 + 0.4 * torch.rand(3, 2, 5, 4, 4, generator=generator(1))
    draws = draw_bands(generator(), torch.tensor([True, False, True]), 5, 0.25, dropout=0.0)
    found = jitter_bands(pair, draws)
    torch.testing.assert_close(found[1], pair[1], rtol=0, atol=0)
    for sample, date, band in ((0, 0, 0), (2, 1, 4)):
        gain, offset = draws.gains[sample, date, band], draws.offsets[sample, date, band]
        assert 0.75 <= gain <= 1.25
        assert abs(offset) <= 0.25 / 4
        torch.testing.assert_close(
            found[sample, date, band], pair[sample, date, band] * gain + offset
        )
    assert draws.gains[0, 0].unique().numel() == 5
    assert not torch.equal(draws.gains[0, 0], draws.gains[0, 1])


def test_a_dropped_band_is_zero_on_both_dates_and_alone() -> None:
    pair = 0.5 * torch.ones(200, 2, 5, 2, 2)
    draws = draw_bands(generator(), torch.zeros(200, dtype=torch.bool), 5, 0.25, dropout=0.5)
    found = jitter_bands(pair, draws)
    lost = (found == 0).all(-1).all(-1)
    assert torch.equal(lost[:, 0], lost[:, 1])
    counts = lost[:, 0].sum(1)
    assert set(counts.tolist()) == {0, 1}
    assert 0.35 < counts.float().mean() < 0.65
    assert lost[:, 0].any(0).all()


def test_a_pixel_without_data_stays_without() -> None:
    pair = torch.rand(1, 2, 4, 3, 3, generator=generator())
    pair[0, 0, :, 1, 1] = 0
    draws = draw_bands(generator(5), torch.tensor([True]), 4, 0.9, dropout=0.0)
    assert not jitter_bands(pair, draws)[0, 0, :, 1, 1].any()


def test_bands_turn_and_move_with_their_mask() -> None:
    mask = (torch.rand(6, 32, 32, generator=generator()) < 0.5).to(torch.uint8)
    image = mask[:, None].float().expand(-1, 5, -1, -1).contiguous()
    config = AugmentConfig(size=32, jitter=0.0, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    one, two, label = Augment(config, bands=5)(image, image, mask, generator(2))
    assert one.shape == (6, 5, 32, 32)
    torch.testing.assert_close(one[:, 3], label.float())
    torch.testing.assert_close(two[:, 0], label.float())
    assert not torch.equal(label, mask)

"""The block loop: what the pyramid gets is the tapped, adapted and normalised output of a block."""

from __future__ import annotations

import torch

from adadino.model.encoder import Encoder
from tests.conftest import randomise, with_cgla

GRID, PREFIX = (2, 3), 3


def images() -> torch.Tensor:
    return torch.randn(4, 3, 32, 48)


def test_without_adapters_the_taps_are_dinov3s_normalised_patch_tokens(small):
    encoder = randomise(Encoder(with_cgla(small, mode="off")), 0.2).eval()
    pixels = images()
    encoding = encoder(pixels, k=8)
    plain = encoder.backbone(pixels)  # the last one is normalised already
    normalised = [*map(encoder.backbone.norm, plain[:-1]), plain[-1]]
    for feature, tokens in zip(encoding.features, normalised, strict=True):  # taps: all four blocks
        for row in range(GRID[0]):
            for column in range(GRID[1]):
                token = tokens[:, PREFIX + row * GRID[1] + column]
                assert torch.allclose(feature[:, :, row, column], token, atol=1e-5)
    assert encoding.responses is None
    assert encoding.scores is None


def test_a_tap_lies_behind_its_adapter(small):
    encoder = randomise(Encoder(small), 0.2).eval()
    pixels = images()
    with torch.no_grad():
        first = encoder(pixels, k=8).features
        encoder.cgla["3"].eta.zero_()  # the last block's adapter: only the last tap sees it
        second = encoder(pixels, k=8).features
    assert all(torch.equal(a, b) for a, b in zip(first[:3], second[:3], strict=True))
    assert not torch.allclose(first[3], second[3], atol=1e-4)


def test_the_policy_reads_what_enters_the_block_and_there_is_one_row_for_each(small):
    encoder = randomise(Encoder(small), 0.2).eval()
    pixels = images()
    scores = encoder(pixels, k=3).scores
    assert scores.shape == (2, 4, 8)
    tokens = encoder.backbone.embed(pixels)[:, PREFIX:]
    expected = encoder.bscs.policies[0](tokens[:2], tokens[2:])
    assert torch.allclose(scores[:, 0], expected, atol=1e-6)

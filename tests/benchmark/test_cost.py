"""GFLOPs: the counter equals torch.profiler's, and the counts are the paper's Table 3."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from adadino import paper
from adadino.benchmark.cost import count_flops, ffn_ms, gflops
from adadino.config import Config, preset
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.peers import scan
from tests.conftest import with_backbone, with_bscs, with_cgla, with_cpgr

VITL = preset("vitl16")
cost = cache(gflops)
"""Each count takes a second, and several tests ask for the same."""

VARIANTS = {
    "paper": lambda c: c,
    "dense": lambda c: with_bscs(c, selection="off"),
    "random": lambda c: with_bscs(c, selection="random", k=5),
    "baseline": lambda c: with_cpgr(with_cgla(c, mode="off"), refiner=False),
    "pair-blind": lambda c: with_cgla(c, mode="blind"),
    "gated": lambda c: with_backbone(c, gated=True),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_count_is_the_profilers(small: Config, variant: str):
    config = VARIANTS[variant](small)
    model = AdaDINO(config).eval()
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiler:
        model(image, image)
    expected = sum(event.flops for event in profiler.key_averages())
    # The profiler also lists one aten::add of two numbers that no dispatch mode sees.
    assert expected - count_flops(lambda: model(image, image)) in (0, 2)
    assert expected / 1e9 == pytest.approx(gflops(config, size=64), rel=1e-6)


def test_the_frozen_encoder_alone():
    with torch.device("meta"):
        backbone = Backbone(VITL.backbone)
        images = torch.empty(2, 3, 512, 512)
        assert backbone.embed(images).shape == (2, 1024 + 1 + 4, 1024)
        assert count_flops(lambda: backbone(images)) / 1e9 == pytest.approx(1246.716, abs=0.05)


def test_the_frozen_baseline():
    baseline = with_bscs(with_cgla(VITL, mode="off"), selection="off")
    assert gflops(baseline) == pytest.approx(1278.66, abs=0.05)


@pytest.mark.parametrize(
    ("k", "published"), [(16, 1360.83), (10, 1050.15), (8, 946.57), (6, 842.99), (4, 739.41)]
)
def test_every_budget_of_table_3(k: int, published: float):
    assert cost(VITL, k=k) == pytest.approx(published, abs=0.05)
    assert paper.GFLOPS[k] == published


def test_one_ffn_chunk():
    assert cost(VITL, k=7) - cost(VITL, k=6) == pytest.approx(51.791, abs=0.001)


def test_the_budget_of_the_configuration_is_the_default():
    assert cost(VITL) == cost(VITL, k=6)
    assert cost(with_bscs(VITL, k=4)) == cost(VITL, k=4)


def test_a_transposed_convolution_costs_what_its_opposite_does():
    narrow, wide = torch.empty(1, 6, 5, 7, device="meta"), torch.empty(1, 4, 10, 14, device="meta")
    weight = torch.empty(6, 4, 2, 2, device="meta")
    up = count_flops(lambda: F.conv_transpose2d(narrow, weight, stride=2))
    down = count_flops(lambda: F.conv2d(wide, weight, stride=2))
    assert up == down == 2 * (6 * 5 * 7) * (4 * 2 * 2)


def test_a_scan_costs_the_same_in_one_part_and_in_many():
    """Real tensors are scanned block by block; on meta tensors, in one."""
    shapes = ((1, 2, 64, 600), (1, 2, 64, 600), (2, 64, 16), (1, 2, 16, 600), (1, 2, 16, 600))
    x, delta, a, b, c = (torch.rand(shape) for shape in shapes)
    assert len(scan._blocks(x, a)) > 1
    there = [t.to("meta") for t in (x, delta, a, b, c)]
    costs = [
        count_flops(lambda given=given: scan.selective_scan(*given))
        for given in ((x, delta, a, b, c), there)
    ]
    assert costs[0] == costs[1] > 0


def test_bigger_images_cost_more_by_their_tokens():
    """Four times the patches: everything but the five prefix tokens of each date quadruples."""
    assert 3.9 < gflops(VITL, size=512) / cost(VITL) < 4


@pytest.mark.parametrize("selection", ["static", "random", "bottom"])
def test_fixed_selections_cost_what_learned_ones_do_less_the_policy(selection):
    small = preset("tiny")
    ranking = tuple(tuple(range(16)) for _ in range(12))
    learned = gflops(small, size=64)
    fixed = gflops(with_bscs(small, selection=selection, ranking=ranking), size=64)
    assert 0 < learned - fixed < 0.02 * learned


def test_ffn_time_is_that_of_the_given_layers_and_leaves_no_hook():
    calls = []

    class Layer(torch.nn.Module):
        def forward(self, x):
            calls.append(x)
            return x

    layers = [Layer(), Layer()]

    def forward():
        for layer in layers:
            layer(1)

    assert 0 < ffn_ms(layers, forward, torch.device("cpu"), times=2) < 1000
    assert len(calls) == 4
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)

"""The lineage's decoder block: its counts, its arithmetic, and the faults that it does not have."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from adadino import paper
from adadino.benchmark.cost import gflops
from adadino.config import PRESETS, Config, CPGRConfig
from adadino.engine import optimize
from adadino.export.portable import PairGraph, portable
from adadino.model.adadino import AdaDINO
from adadino.model.cpgr import CPGR, Stage, attention_block
from adadino.model.lineage import MARGIN, WINDOW, ConvFFN, DifferentialAttention, ScaleNorm
from adadino.model.refiner import Refiner
from tests.conftest import randomise, with_bscs, with_cgla, with_cpgr


def lineage(config: Config, **changes: object) -> Config:
    return with_cpgr(config, block="lineage", **changes)


def count(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def test_parameters_are_those_of_the_lineage_and_of_the_paper():
    with torch.device("meta"):
        decoder, refiner = CPGR(lineage(PRESETS["vitl16"])), Refiner()
    stages = list(decoder.stages)
    blocks = [count(decoder.block), *(count(stage.block) for stage in stages)]
    assert blocks == [1_343_880, 1_343_880, 1_346_824, 1_346_824]
    fusion = [count(stage.route, stage.merge) for stage in stages]
    assert fusion == [721_664] * 3
    heads = count(decoder.head, *(stage.head for stage in stages))
    assert (heads, count(refiner)) == (2_056, 70)
    assert sum(blocks) + sum(fusion) + heads + 70 == 7_548_526
    for stage in stages:
        assert isinstance(stage, Stage)
        guidance = stage.guidance
        assert (count(stage.fuse), count(guidance.f_pred)) == (590_336, 28_880)
        assert count(guidance.w_prior) == 1_536
    assert count(decoder, refiner) == 9_410_788


def test_gflops_are_the_papers_once_two_savings_are_added():
    """The neck reduces channels before it resizes, and a query meets only steps it can take."""
    widths = 1024 * 32 * 2  # of the neck's first projection, two operations each
    places = [(2 * 32) ** 2, 32**2, 16**2, 8**2]
    neck = 2 * widths * (sum(places) - 4 * 32**2)
    reach = WINDOW + 2 * MARGIN
    steps = (2 * reach - 1) - reach  # in each direction, of two queries in four heads of 64
    relative = (64**2 + 32**2) * 2 * 2 * 4 * steps * 64 * 2
    saved = (neck + relative) / 1e9
    assert saved == pytest.approx(0.29, abs=0.01)
    dense = with_bscs(lineage(PRESETS["vitl16"]), k=16)
    frozen = with_cgla(with_cpgr(dense, prior=()), mode="off")
    assert gflops(frozen) + saved == pytest.approx(paper.GFLOPS_BASELINE, abs=0.05)
    assert gflops(dense) + saved == pytest.approx(paper.GFLOPS[16], abs=0.05)


def restated(attention: DifferentialAttention, x: torch.Tensor, layer: int) -> torch.Tensor:
    """One place after the other, in float64."""
    B, C, h, w = x.shape
    heads, dim = attention.heads, C // attention.heads
    maps = [torch.einsum("oc,bchw->bohw", conv.weight.flatten(1), x)
            for conv in (attention.q, attention.k, attention.v)]  # fmt: skip
    q, k, v = (m.unflatten(1, (heads, 2 * dim)) for m in maps)
    start = 0.8 - 0.6 * math.exp(-0.3 * layer)
    products = (attention.lambdas[0] * attention.lambdas[1]).sum(-1).exp()
    share = products[0] - products[1] + start
    out = torch.zeros(B, heads, 2 * dim, h, w, dtype=x.dtype)
    for y in range(h):
        for z in range(w):
            if attention.places is None:
                keys = [(i, j, None, None) for i in range(h) for j in range(w)]
            else:
                top, left = y // WINDOW * WINDOW - MARGIN, z // WINDOW * WINDOW - MARGIN
                reach = range(WINDOW + 2 * MARGIN)
                keys = [
                    (
                        min(max(top + i, 0), h - 1),
                        min(max(left + j, 0), w - 1),
                        i - y % WINDOW + len(reach) - 1,
                        j - z % WINDOW + len(reach) - 1,
                    )
                    for i in reach
                    for j in reach
                ]
            rows, columns = [key[0] for key in keys], [key[1] for key in keys]
            both = []
            for part in (slice(0, dim), slice(dim, 2 * dim)):
                mine = q[:, :, part, y, z]
                scores = torch.einsum("bhd,bhdn->bhn", mine, k[:, :, part][..., rows, columns])
                scores = scores / dim**0.5
                if attention.places is not None:
                    places = attention.places
                    table = places.rows[[key[2] for key in keys]]
                    table = table + places.columns[[key[3] for key in keys]]
                    scores = scores + torch.einsum("bhd,nd->bhn", mine, table)
                both.append(scores.softmax(-1))
            weights = both[0] - share[:, None] * both[1]
            found = torch.einsum("bhn,bhdn->bhd", weights, v[..., rows, columns])
            found = found / (found.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            out[:, :, :, y, z] = found * attention.scale * (1 - start)
    return torch.einsum("oc,bchw->bohw", attention.proj.weight.flatten(1), out.flatten(1, 2))


@pytest.mark.parametrize("windows", [False, True], ids=["global", "windows"])
@torch.no_grad()
def test_differential_attention_is_its_restatement(windows):
    attention = DifferentialAttention(16, heads=2, layer=2, windows=windows)
    attention = randomise(attention).double()
    x = torch.randn(1, 16, 10, 13, dtype=torch.float64)
    expected = restated(attention, x, layer=2)
    assert (attention(x) - expected).abs().max() < 1e-5  # softmax and norm are in float32


@torch.no_grad()
def test_a_place_moves_only_what_can_see_it():
    attention = randomise(DifferentialAttention(16, heads=2, layer=1, windows=True))
    x = torch.randn(1, 16, 40, 40)
    other = x.clone()
    other[..., 20, 20] += 1  # in the window of rows 16 to 23, in the reach of no other
    moved = (attention(x) - attention(other)).abs().amax((0, 1)) > 1e-7
    assert moved[16:24, 16:24].all()
    moved[16:24, 16:24] = False
    assert not moved.any()


@torch.no_grad()
def test_norm_and_ffn():
    x = torch.randn(2, 16, 3, 4) + 5
    norm = randomise(ScaleNorm(16))
    expected = x / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(norm(x), expected * norm.weight[:, None, None], atol=1e-5)
    assert isinstance(ConvFFN(16)[4], torch.nn.ReLU6)


@pytest.mark.parametrize("size", [(37, 50), (8, 8), (64, 96)], ids=str)
@torch.no_grad()
def test_any_size_and_the_engine_agree(small, size):
    model = randomise(AdaDINO(lineage(small)).eval())
    before, after = torch.rand(2, 2, 3, *size)
    expected = model(before, after)
    assert expected.logits.shape == (2, 2, *size)
    exported = PairGraph(portable(model), k=model.bscs.k)(before, after)
    assert (exported - expected.logits.softmax(1)[:, 1]).abs().max() < 1e-5
    got = optimize(model, precision="fp32")(before, after)
    assert (got.logits - expected.logits).abs().max() < 1e-4 * expected.logits.abs().max()


def test_every_parameter_of_a_block_learns():
    for level in (5, 2):
        block = attention_block(CPGRConfig(width=16, block="lineage"), level)
        block(torch.randn(2, 16, 12, 12)).square().sum().backward()
        for name, parameter in block.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_ours_stays_the_default():
    assert dataclasses.replace(Config()).cpgr.block == "gated"

"""The decoder's guidance: starts as nothing, learns, and never reaches back."""

from __future__ import annotations

import pytest
import torch

from adadino.config import PRESETS, CPGRConfig
from adadino.model.adadino import AdaDINO
from adadino.model.cgla import Responses
from adadino.model.cpgr import CPGR, WINDOW, Guidance, Stage, WindowAttention, psi
from adadino.model.refiner import Refiner
from tests.conftest import randomise, with_cpgr

GRID = 4


def pyramid(width: int = 16, requires_grad: bool = False) -> list[torch.Tensor]:
    return [
        torch.randn(1, width, s, s, requires_grad=requires_grad)
        for s in (2 * GRID, GRID, GRID // 2, GRID // 4)
    ]


def responses(requires_grad: bool = False) -> Responses:
    return Responses(*(torch.rand(1, 4, GRID, GRID, requires_grad=requires_grad) for _ in range(3)))


def test_parameters_are_the_papers():
    with torch.device("meta"):
        parts = CPGR(PRESETS["vitl16"]), Refiner()
    total = sum(p.numel() for part in parts for p in part.parameters())
    assert abs(total - 9.41e6) < 0.005e6


def test_at_initialisation_the_prior_changes_nothing(small):
    with_prior = randomise(CPGR(small)).eval()
    without = CPGR(with_cpgr(small, prior=())).eval()
    for stage in with_prior.stages:
        torch.nn.init.zeros_(stage.guidance.w_prior.weight)
        torch.nn.init.zeros_(stage.guidance.w_prior.bias)
    without.load_state_dict(with_prior.state_dict(), strict=False)
    maps = pyramid()
    for a, b in zip(with_prior(maps, responses()), without(maps, None), strict=True):
        assert torch.equal(a, b)


def test_the_prior_starts_at_zero_with_the_papers_scale(small):
    for stage in CPGR(small).stages:
        assert stage.guidance.w_prior.weight.abs().max() == 0
        assert stage.guidance.w_prior.bias.abs().max() == 0
        assert stage.guidance.alpha_prior.item() == pytest.approx(0.05)


@pytest.mark.parametrize("prior", ["spatial", "delta", "local"])
def test_each_prior_is_the_response_it_names(small, prior):
    decoder = randomise(CPGR(with_cpgr(small, prior=(prior,)))).eval()
    maps, seen = pyramid(), responses()
    reference = decoder(maps, seen)[0]
    for name in Responses._fields:
        changed = seen._replace(**{name: seen._asdict()[name] + 1})
        same = torch.equal(decoder(maps, changed)[0], reference)
        assert same == (name != prior)


def test_stage_priors_are_the_means_of_their_groups():
    config = PRESETS["vitl16"]
    with torch.device("meta"):
        decoder = CPGR(config)
    seen = Responses(*(torch.rand(1, 8, 4, 4) for _ in range(3)))
    for level, pair in enumerate(((0, 1), (2, 3), (4, 5), (6, 7))):
        prior = decoder.stage_prior(seen, level)
        for channel, name in enumerate(("spatial", "delta")):
            mean = seen._asdict()[name][:, list(pair)].mean(1)
            assert torch.allclose(prior[:, channel], mean)


def test_each_depth_guides_the_level_the_paper_gives_it_to():
    """App. A: {2,5} -> P2, {8,11} -> P3, {14,17} -> P4, {20,23} -> P5, which is not injected."""
    config = with_cpgr(PRESETS["vitl16"], width=16)
    assert config.depths == (2, 5, 8, 11, 14, 17, 20, 23)
    decoder = randomise(CPGR(config)).eval()
    maps = pyramid()
    seen = Responses(*(torch.rand(1, 8, GRID, GRID) for _ in range(3)))
    reference = decoder(maps, seen)  # P2, P3, P4, P5
    for level, depths in {2: (2, 5), 3: (8, 11), 4: (14, 17), 5: (20, 23)}.items():
        for depth in depths:
            changed = Responses(*(r.clone() for r in seen))
            for r in changed:
                r[:, config.depths.index(depth)] += 1
            moved = [
                not torch.equal(a, b)
                for a, b in zip(decoder(maps, changed), reference, strict=True)
            ]
            # What reaches P_r goes on to the finer ones: decoding is from coarse to fine.
            assert moved == [level < 5 and r <= level for r in (2, 3, 4, 5)], depth


class Given(torch.nn.Module):
    """A guidance of our choice."""

    def __init__(self, guidance: torch.Tensor) -> None:
        super().__init__()
        self.guidance = guidance

    def forward(self, *_: object) -> torch.Tensor:
        return self.guidance


def guided(route: float, fuse: float, width: int = 8) -> Stage:
    """A stage of noise under a guidance that is the same everywhere."""
    halves = [torch.full((1, width, 6, 5), value) for value in (route, fuse)]
    stage = randomise(Stage(CPGRConfig(width=width), 4, priors=0)).eval()
    stage.guidance = Given(torch.cat(halves, dim=1))
    return stage


def test_guidance_opens_and_closes_the_route_of_the_coarser_features():
    d, x, coarser = torch.randn(1, 8, 6, 5), torch.randn(1, 8, 3, 3), torch.randn(1, 2, 3, 3)
    closed, half, open_ = (guided(route, 0) for route in (-1e4, 0, 1e4))
    assert torch.equal(closed(d, x, coarser, None)[1], closed(d, -5 * x, coarser, None)[1])
    assert not torch.allclose(half(d, x, coarser, None)[1], half(d, -5 * x, coarser, None)[1])
    # Open everywhere, the stage sees the plain sum; closed, the difference alone.
    larger = torch.nn.functional.interpolate(x, (6, 5), mode="bilinear", align_corners=False)
    plain = closed(d + larger, x, coarser, None)[1]
    assert torch.allclose(open_(d, x, coarser, None)[1], plain, atol=1e-5)


def test_guidance_scales_what_is_fused():
    d, x, coarser = torch.randn(1, 8, 6, 5), torch.randn(1, 8, 3, 3), torch.randn(1, 2, 3, 3)
    for scale in (-1.0, 0.0, 2.0):
        stage = guided(-1e4, scale)
        stage.block = torch.nn.Identity()
        merged = stage.merge(d)
        expected = merged + stage.fuse(merged * (1 + scale))
        assert torch.allclose(stage(d, x, coarser, None)[0], expected, atol=1e-6)


def test_no_gradient_flows_into_what_produced_the_guidance(small):
    decoder = randomise(CPGR(small))
    seen = responses(requires_grad=True)
    predictions = decoder(pyramid(), seen)
    predictions[0].sum().backward(retain_graph=True)
    assert all(r.grad is None for r in seen)
    # The finest prediction reaches the coarser heads through the detached guidance only.
    assert decoder.head.weight.grad is None
    assert decoder.stages[0].head.weight.grad is None
    assert decoder.stages[0].guidance.w_prior.weight.grad.abs().sum() > 0
    assert decoder.block[0].layer.qkv.weight.grad.abs().sum() > 0


def test_the_prior_of_p5_is_not_used(small):
    decoder = randomise(CPGR(small)).eval()
    maps, seen = pyramid(), responses()
    reference = decoder(maps, seen)
    changed = Responses(*(r.clone() for r in seen))
    for r in changed:
        r[:, 3] += 1  # the deepest group is P5's
    for a, b in zip(decoder(maps, changed), reference, strict=True):
        assert torch.equal(a, b)


def test_psi_is_probability_uncertainty_and_boundary():
    p = torch.rand(1, 1, 5, 6, dtype=torch.float64)
    got = psi(p)[0]
    for y in range(5):
        for x in range(6):
            v = p[0, 0, y, x].item()
            assert got[0, y, x].item() == v
            assert got[1, y, x].item() == pytest.approx(4 * v * (1 - v))
            near = [
                p[0, 0, min(max(y + dy, 0), 4), min(max(x + dx, 0), 5)].item()
                for dy, dx in ((1, 0), (-1, 0), (0, 1), (0, -1))
            ]
            assert got[2, y, x].item() == pytest.approx(abs(sum(near) - 4 * v))


def test_guidance_scales():
    guidance = randomise(Guidance(8, priors=2, alpha_pred=0.05, alpha_prior=0.05))
    coarser, prior = torch.randn(1, 2, 4, 4), torch.rand(1, 2, 4, 4)
    with torch.no_grad():
        guidance.alpha_pred.fill_(1.0)
        guidance.alpha_prior.fill_(0.0)
        only_pred = guidance(coarser, prior, (8, 8))
        guidance.alpha_pred.fill_(0.0)
        guidance.alpha_prior.fill_(1.0)
        only_prior = guidance(coarser, prior, (8, 8))
        guidance.alpha_pred.fill_(0.5)
        guidance.alpha_prior.fill_(2.0)
        both = guidance(coarser, prior, (8, 8))
    assert torch.allclose(both, 0.5 * only_pred + 2 * only_prior, atol=1e-5)


def test_one_pixel_moves_only_its_window():
    """The lineage's fault: windows that are never un-windowed move every output."""
    attention = randomise(WindowAttention(8, heads=2))
    x = torch.randn(1, 8, 2 * WINDOW, 2 * WINDOW + 5)
    y = attention(x)
    changed = x.clone()
    changed[0, :, 3, WINDOW + 2] += 1
    moved = (attention(changed) - y).abs().amax(1)[0] > 1e-7
    assert moved[:WINDOW, WINDOW : 2 * WINDOW].all()
    moved[:WINDOW, WINDOW : 2 * WINDOW] = False
    assert not moved.any()


def test_window_attention_keeps_places():
    """With values that pass straight through, a constant query averages each window in place."""
    attention = WindowAttention(4, heads=1)
    with torch.no_grad():
        attention.qkv.weight.zero_()
        attention.qkv.weight[8:] = torch.eye(4)
        attention.proj.weight.copy_(torch.eye(4))
    x = torch.randn(2, 4, 2 * WINDOW, WINDOW)
    y = attention(x)
    for top in (0, WINDOW):
        mean = x[:, :, top : top + WINDOW].mean((2, 3), keepdim=True)
        assert torch.allclose(
            y[:, :, top : top + WINDOW], mean.expand(2, 4, WINDOW, WINDOW), atol=1e-5
        )


def test_all_stages_learn(small):
    model = randomise(AdaDINO(small), 0.2).train()
    before, after = torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64)
    output = model(before, after)
    (output.logits.square().sum() + sum(p.square().sum() for p in output.pyramid)).backward()
    silent = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert silent == []

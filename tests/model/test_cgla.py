"""CGLA against a naive float64 re-statement of Eq. 2-7, and its free invariants."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from adadino.config import CGLAConfig
from adadino.model.cgla import CGLA
from tests.conftest import randomise

D, H, GRID, PREFIX, B = 16, 8, (3, 5), 3, 2


def make(**settings) -> CGLA:
    return CGLA(dim=D, hidden=H, config=CGLAConfig(groups=4, **settings))


def tokens() -> torch.Tensor:
    return torch.randn(2 * B, PREFIX + GRID[0] * GRID[1], D)


# --- the equations again, in loops over numbers, sharing nothing with the code under test ---


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def conv1x1(maps, weight, bias=None):
    h, w = GRID
    return [
        [
            [
                sum(weight[o][i] * maps[i][y][x] for i in range(len(maps)))
                + (bias[o] if bias else 0)
                for x in range(w)
            ]
            for y in range(h)
        ]
        for o in range(len(weight))
    ]


def depthwise(maps, weight):
    h, w = GRID
    out = []
    for c, m in enumerate(maps):
        rows = []
        for y in range(h):
            row = []
            for x in range(w):
                total = 0.0
                for dy in (-1, 0, 1):
                    for dx in (-1, 0, 1):
                        if 0 <= y + dy < h and 0 <= x + dx < w:
                            total += weight[c][dy + 1][dx + 1] * m[y + dy][x + dx]
                row.append(total)
            rows.append(row)
        out.append(rows)
    return out


def group_norm(maps, weight, bias, groups):
    size = len(maps) // groups
    out = []
    for g in range(groups):
        values = [v for m in maps[g * size : (g + 1) * size] for row in m for v in row]
        mean = sum(values) / len(values)
        var = sum((v - mean) ** 2 for v in values) / len(values)
        for c in range(g * size, (g + 1) * size):
            out.append(
                [
                    [(v - mean) / math.sqrt(var + 1e-5) * weight[c] + bias[c] for v in row]
                    for row in maps[c]
                ]
            )
    return out


def each(f, maps):
    return [[[f(v) for v in row] for row in m] for m in maps]


def naive(module: CGLA, x: torch.Tensor, mode: str, delta: str):
    p = {name: t.detach().double() for name, t in module.named_parameters()}

    def get(name):
        t = p[name]
        if t.ndim == 4:
            t = t[:, :, 0, 0] if t.shape[-1] == 1 else t[:, 0]
        return t.tolist()

    x = x.double()
    h, w = GRID
    out = x.clone()
    spatial, local, deltas = [], [], []

    def features(stream, b):
        maps = [[[0.0] * w for _ in range(h)] for _ in range(D)]
        for y in range(h):
            for xx in range(w):
                token = x[stream * B + b, PREFIX + y * w + xx].tolist()
                mean = sum(token) / D
                var = sum((v - mean) ** 2 for v in token) / D
                for c in range(D):
                    maps[c][y][xx] = (token[c] - mean) / math.sqrt(var + 1e-5)
        return maps

    def zip2(f, a, b):
        return [
            [[f(a[c][y][xx], b[c][y][xx]) for xx in range(w)] for y in range(h)]
            for c in range(len(a))
        ]

    def adapt(first, second):
        z = first + second + zip2(lambda u, v: abs(u - v), first, second)
        z = z + zip2(lambda u, v: u * v, first, second)
        c = conv1x1(z, get("f_rel.0.weight"))
        c = each(silu, group_norm(c, get("f_rel.1.weight"), get("f_rel.1.bias"), 4))
        c = depthwise(c, get("f_ctx.0.weight"))
        c = each(silu, group_norm(c, get("f_ctx.1.weight"), get("f_ctx.1.bias"), 4))
        gs = each(sigmoid, conv1x1(c, get("w_spatial.weight"), get("w_spatial.bias")))[0]
        pooled = [sum(v for row in m for v in row) / (h * w) for m in c]
        weight, bias = get("w_channel.weight"), get("w_channel.bias")
        gc = [
            sigmoid(sum(a * b for a, b in zip(weight[o], pooled, strict=True)) + bias[o])
            for o in range(D)
        ]
        t = conv1x1(c, get("f_delta.0.weight"))
        t = each(silu, group_norm(t, get("f_delta.1.weight"), get("f_delta.1.bias"), 4))
        t = depthwise(t, get("f_delta.3.weight"))
        t = each(silu, group_norm(t, get("f_delta.4.weight"), get("f_delta.4.bias"), 4))
        t = conv1x1(t, get("f_delta.6.weight"), get("f_delta.6.bias"))
        gate = [[[gs[y][xx] * gc[c] for xx in range(w)] for y in range(h)] for c in range(D)]
        return gs, gate, zip2(lambda u, v: u * v, gate, t)

    def mean_abs(maps):
        return [
            [sum(abs(maps[c][y][xx]) for c in range(D)) / D for xx in range(w)] for y in range(h)
        ]

    eta = p["eta"].item()
    for b in range(B):
        f = [features(0, b), features(1, b)]
        if mode == "blind":
            parts = []
            for i in range(2):
                gs, gate, d = adapt(f[i], f[i])
                parts.append((gs, gate, d))
        else:
            parts = [adapt(f[0], f[1])] * 2
        signs = (1, 1) if mode == "blind" or delta == "symmetric" else (1, -1)
        if delta == "none":
            signs = (0, 0)
        for i in range(2):
            gs, gate, d = parts[i]
            u = each(gelu, depthwise(f[i], get("f_loc.0.weight")))
            u = conv1x1(u, get("f_loc.2.weight"), get("f_loc.2.bias"))
            for c in range(D):
                for y in range(h):
                    for xx in range(w):
                        r = gate[c][y][xx] * p["gamma_self"][c].item() * u[c][y][xx]
                        r += signs[i] * p["gamma_delta"][c].item() * d[c][y][xx]
                        out[i * B + b, PREFIX + y * w + xx, c] += eta * r
        n = 2 if mode == "blind" else 1
        both = [torch.tensor([parts[i][0] for i in range(n)]).mean(0)]
        spatial.append(both[0])
        local.append(torch.tensor([mean_abs(parts[i][1]) for i in range(n)]).mean(0))
        deltas.append(torch.tensor([mean_abs(parts[i][2]) for i in range(n)]).mean(0))
    return out, torch.stack(spatial), torch.stack(local), torch.stack(deltas)


@pytest.mark.parametrize("mode", ["pair", "blind"])
@pytest.mark.parametrize("delta", ["antisymmetric", "symmetric", "none"])
def test_equals_the_equations(mode, delta):
    module = randomise(make(mode=mode, delta=delta), 0.5).double()
    x = tokens().double()
    got, responses = module(x, GRID)
    expected = naive(module, x, mode, delta)
    assert torch.allclose(got, expected[0], atol=1e-10)
    for a, b in zip(responses, expected[1:], strict=True):
        assert a.shape == (B, 1, *GRID)
        assert torch.allclose(a[:, 0], b.double(), atol=1e-6)


def test_parameters_are_the_papers():
    with torch.device("meta"):
        module = CGLA(dim=1024, hidden=512, config=CGLAConfig())
    assert sum(p.numel() for p in module.parameters()) == 4_484_610


def test_at_initialisation_the_midpoint_stays_and_the_difference_moves_by_two_eta_delta():
    module = make().double()
    x = tokens().double()
    y, _ = module(x, GRID)
    (x1, x2), (y1, y2) = x.chunk(2), y.chunk(2)
    assert torch.allclose(y1 + y2, x1 + x2, atol=1e-12)
    with torch.no_grad():
        module.eta.zero_()
        assert torch.equal(module(x, GRID)[0], x)
        module.eta.fill_(1.0)
        unit, _ = module(x, GRID)
        delta = (unit - x).chunk(2)[0]  # eta * Delta with eta = 1
    assert torch.allclose((y1 - y2) - (x1 - x2), 2 * 0.05 * delta, atol=1e-12)
    assert delta[:, PREFIX:].abs().max() > 1e-4


def test_prefix_tokens_are_bit_identical():
    module = randomise(make())
    x = tokens()
    y, _ = module(x, GRID)
    assert torch.equal(y[:, :PREFIX], x[:, :PREFIX])
    assert not torch.equal(y[:, PREFIX:], x[:, PREFIX:])


def test_pair_blind_never_sees_the_other_date():
    module = randomise(make(mode="blind"))
    x = tokens()
    y, _ = module(x, GRID)
    x[B:] = torch.randn_like(x[B:])
    z, _ = module(x, GRID)
    assert torch.equal(y[:B], z[:B])
    assert not torch.equal(y[B:], z[B:])


def test_swapping_the_dates_flips_the_delta_when_the_relation_is_symmetric():
    """z lists F1 before F2; f_rel that treats both alike makes the context order-free."""
    module = randomise(make())
    with torch.no_grad():
        weight = module.f_rel[0].weight
        weight[:, D : 2 * D] = weight[:, :D]
        module.gamma_self.zero_()
    x = tokens()
    swapped = torch.cat((x[B:], x[:B]))
    y, z = module(x, GRID)[0] - x, module(swapped, GRID)[0] - swapped
    assert torch.allclose(z[:B], y[:B], atol=1e-6)  # the same delta, again to the first stream
    assert torch.allclose(z[B:], -z[:B], atol=1e-6)
    # so each image received the opposite of what it had received before
    assert torch.allclose(z[:B], -y[B:], atol=1e-6)


def test_the_order_matters_otherwise():
    module = randomise(make())
    x = tokens()
    swapped = torch.cat((x[B:], x[:B]))
    assert not torch.allclose(module(x, GRID)[1].delta, module(swapped, GRID)[1].delta, atol=1e-4)


@torch.no_grad()
def test_a_symmetric_path_from_the_start_moves_the_midpoint(small):
    """gamma_self above zero, beyond the paper; at zero the midpoint stays (above)."""
    x = torch.randn(4, 2 + 12, 32)
    for changes, moves in (({}, False), ({"gamma_self": 0.05}, True), ({"mode": "both"}, True)):
        config = dataclasses.replace(small.cgla, **changes)
        torch.manual_seed(1)
        y, _ = CGLA(dim=32, hidden=16, config=config)(x, (3, 4))
        middle = (y[:2] + y[2:] - x[:2] - x[2:])[:, 2:].abs().max()
        assert (middle > 1e-5) == moves, changes


@torch.no_grad()
def test_both_is_the_sum_of_a_pair_aware_and_a_blind_update(small):
    config = dataclasses.replace(small.cgla, mode="both")
    both = randomise(CGLA(dim=32, hidden=16, config=config))
    pair, blind = (
        CGLA(dim=32, hidden=16, config=dataclasses.replace(config, mode=mode))
        for mode in ("pair", "blind")
    )
    state = both.state_dict()
    mark = "alone."
    blind.load_state_dict({n.removeprefix(mark): t for n, t in state.items() if mark in n})
    pair.load_state_dict({n: t for n, t in state.items() if mark not in n})
    count = [sum(p.numel() for p in module.parameters()) for module in (both, pair, blind)]
    assert count[0] == count[1] + count[2] == 2 * count[1]
    x = torch.randn(4, 2 + 12, 32)
    y, responses = both(x, (3, 4))
    expected, seen = pair(x, (3, 4))
    expected = expected + blind(x, (3, 4))[0] - x
    assert torch.allclose(y, expected, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(responses, seen, strict=True))

"""The selective scan against the recurrence written out in float64, and the orders as lists."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from adadino.peers import scan
from adadino.peers.scan import (
    BIDIRECTIONAL,
    CROSS,
    OMNIDIRECTIONAL,
    merge,
    order,
    selective_scan,
    visit,
)


def inputs(
    length: int, *, batch: int = 2, groups: int = 2, width: int = 3, states: int = 4
) -> list[Tensor]:
    torch.manual_seed(0)
    return [
        torch.randn(batch, groups, width, length),
        torch.rand(batch, groups, width, length) + 0.01,
        -torch.rand(groups, width, states) * 2 - 0.05,
        torch.randn(batch, groups, states, length),
        torch.randn(batch, groups, states, length),
    ]


def naive(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Token by token, for every channel and state, in float64."""
    x, delta, a, b, c = (t.double() for t in (x, delta, a, b, c))
    out = []
    state = torch.zeros(*x.shape[:3], a.shape[-1], dtype=torch.float64)
    for t in range(x.shape[-1]):
        step = delta[..., t, None]
        state = torch.exp(step * a) * state + step * b[:, :, None, :, t] * x[..., t, None]
        out.append((state * c[:, :, None, :, t]).sum(-1))
    return torch.stack(out, dim=-1)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 100, 300])
@pytest.mark.parametrize("block", [2**18, 1000], ids=["one block", "blocks"])
def test_it_is_the_recurrence_and_its_gradient(length, block, monkeypatch):
    monkeypatch.setattr(scan, "BLOCK", block)
    given = [t.requires_grad_() for t in inputs(length)]
    weight = torch.randn(2, 2, 3, length)
    expected = naive(*given)
    wanted = torch.autograd.grad((expected * weight).sum(), given)
    found = selective_scan(*given)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(torch.autograd.grad((found * weight).sum(), given), wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5 * max(1, float(other.abs().max())))


def test_long_memory_and_quick_fading_neither_overflow_nor_vanish():
    """Decays from 1 - 1e-6 to e^-60 in one sequence: products of them underflow."""
    x, delta, a, b, c = inputs(500, batch=1, groups=1)
    delta = torch.where(torch.rand_like(delta) < 0.5, 1e-6, 30.0)
    found = selective_scan(x, delta, a, b, c)
    assert torch.allclose(found.double(), naive(x, delta, a, b, c), rtol=1e-4, atol=1e-4)


def test_bf16_has_float32_states():
    """Rounding the inputs is all that bf16 costs: 300 rounded additions would cost far more."""
    given = inputs(300)
    rounded = [t.bfloat16() for t in given]
    found = selective_scan(*rounded)
    assert found.dtype == torch.bfloat16
    exact = naive(*(t.float() for t in rounded))
    assert torch.allclose(found.double(), exact, rtol=2**-7, atol=2**-7 * float(exact.abs().max()))


def test_what_the_forward_pass_keeps_is_linear_in_the_tokens(monkeypatch):
    """No tensor that is kept for the backward pass has tokens times states."""
    monkeypatch.setattr(scan, "BLOCK", 2**12)
    kept: dict[int, int] = {}
    for length in (512, 1024):
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        given = [t.requires_grad_() for t in inputs(length, width=32, states=16)]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            selective_scan(*given)
        kept[length] = total
    assert kept[1024] < 2.1 * kept[512]
    assert kept[1024] < 2 * 2 * 32 * 1024 * 16 / 2  # half of tokens times states


class Module(torch.nn.Module):
    def forward(self, *tensors: Tensor) -> Tensor:
        return selective_scan(*tensors)


@torch.no_grad()
def test_it_exports():
    given = tuple(inputs(40))
    exported = torch.export.export(Module(), given).module()
    assert torch.allclose(exported(*given), selective_scan(*given), atol=1e-6)


@pytest.mark.slow
def test_it_compiles_with_its_gradient():
    compiled = torch.compile(Module(), backend="aot_eager", fullgraph=True)
    leaves, plain = ([t.clone().requires_grad_() for t in inputs(40)] for _ in range(2))
    again, expected = compiled(*leaves), selective_scan(*plain)
    assert torch.allclose(again, expected, atol=1e-6)
    again.sum().backward()
    expected.sum().backward()
    for one, other in zip(leaves, plain, strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_the_orders_of_a_small_map():
    """0 1 2 / 3 4 5, as each way visits it."""
    listed = {name: order(name, 2, 3).tolist() for name in OMNIDIRECTIONAL}
    assert listed["rows"] == [0, 1, 2, 3, 4, 5]
    assert listed["columns"] == [0, 3, 1, 4, 2, 5]
    assert listed["rows-back"] == [5, 4, 3, 2, 1, 0]
    assert listed["columns-back"] == [5, 2, 4, 1, 3, 0]
    assert listed["diagonals"] == [0, 4, 1, 5, 2, 3]
    assert listed["antidiagonals"] == [0, 5, 1, 3, 2, 4]
    assert listed["diagonals-back"] == listed["diagonals"][::-1]
    assert set(BIDIRECTIONAL) < set(CROSS) < set(OMNIDIRECTIONAL)
    assert all(sorted(places) == list(range(6)) for places in listed.values())


def test_a_map_is_visited_in_every_order_and_added_up_where_it_belongs():
    x = torch.randn(2, 3, 4, 5)
    visited = visit(x, OMNIDIRECTIONAL)
    assert visited.shape == (2, 8, 3, 20)
    for k, name in enumerate(OMNIDIRECTIONAL):
        for position, place in enumerate(order(name, 4, 5).tolist()):
            assert torch.equal(visited[:, k, :, position], x[:, :, place // 5, place % 5])
    weights = torch.arange(1.0, 9.0)[None, :, None, None]
    assert torch.allclose(merge(visited * weights, OMNIDIRECTIONAL, (4, 5)), 36 * x, atol=1e-4)

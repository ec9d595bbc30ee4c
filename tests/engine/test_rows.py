"""Eight-bit rows, and chunks that are gathered as they lie."""

from __future__ import annotations

import pytest
import torch

from adadino.engine.block import FastFFN
from adadino.engine.rows import LIMIT, Rows, product, quantize
from adadino.model.backbone import Block, Selection
from tests.conftest import SMALL, randomise, with_backbone


@pytest.mark.parametrize(("kind", "within"), [("fp8", 2**-4), ("int8", 1 / 254)])
def test_quantised_rows_keep_their_values(kind, within):
    """e4m3 has three bits behind the point: half a step is 2^-4 of the value; int8's is fixed."""
    x = torch.randn(50, 64) * torch.logspace(-6, 6, 50)[:, None]
    x[7] = 0
    values, scale = quantize(x, kind)
    back = values.float() * scale[:, None]
    largest = x.abs().amax(1, keepdim=True)
    bound = x.abs() * within + largest * 2**-17 if kind == "fp8" else largest * within
    assert ((back - x).abs() <= bound * 1.001).all()
    assert values.float().abs().amax(1)[0] == LIMIT[kind]


@pytest.mark.parametrize(("kind", "within"), [("fp8", 0.05), ("int8", 0.02)])
@pytest.mark.parametrize("bias", [False, True])
def test_product_of_quantised_rows(kind, within, bias):
    x, weight = torch.randn(33, 64), torch.randn(48, 64) * torch.logspace(-3, 3, 48)[:, None]
    added = torch.randn(48) if bias else None
    expected = x @ weight.t() + (0 if added is None else added)
    got = product(quantize(x, kind), quantize(weight, kind), added, torch.float32)
    error = (got - expected).norm(dim=0) / expected.norm(dim=0)  # of every output channel
    assert error.max() < within


def test_the_emulation_computes_what_the_operator_does():
    """`torch._scaled_mm` also exists on the CPU: the same numbers by the operator the GPU runs."""
    x, weight = quantize(torch.randn(16, 64), "fp8"), quantize(torch.randn(32, 64), "fp8")
    try:
        expected = torch._scaled_mm(
            x.values,
            weight.values.t(),
            scale_a=x.scale[:, None],
            scale_b=weight.scale[None],
            out_dtype=torch.bfloat16,
        )
    except RuntimeError as error:
        pytest.skip(f"no _scaled_mm on this CPU: {error}")
    got = product(x, weight, None, torch.bfloat16)
    assert torch.allclose(got.float(), expected.float(), rtol=2**-7, atol=0.05)


@pytest.mark.parametrize("gated", [False, True])
def test_gathered_chunks_are_the_models(gated):
    block = randomise(Block(with_backbone(SMALL, gated=gated).backbone))
    ffn = FastFFN(block, chunks=8, dtype=torch.float32, kind=None)
    keep = torch.tensor([1, 4, 6])
    chosen = ffn.choose(keep)
    rows = [r for c in keep for r in range(8 * c, 8 * c + 8)]
    folded = block.ffn.down.weight * block.ls2[:, None]
    assert torch.equal(chosen.down.values, folded[:, rows].t())
    if gated:
        up = chosen.up.values.unflatten(0, (3, 2, 8))
        assert torch.equal(up[:, 0].flatten(0, 1), block.ffn.gate.weight[rows])
        assert torch.equal(up[:, 1].flatten(0, 1), block.ffn.up.weight[rows])
    else:
        assert torch.equal(chosen.up.values, block.ffn.up.weight[rows])
        assert torch.equal(chosen.bias, block.ffn.up.bias[rows])
    x, y = torch.randn(5, 32), torch.randn(5, 32)
    expected = x + (block.ffn(y, Selection(8, keep=keep)) - block.ffn.down.bias) * block.ls2
    assert torch.allclose(ffn(x.clone(), Rows(y), chosen), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["fp8", "int8"])
@pytest.mark.parametrize("gated", [False, True])
def test_eight_bit_chunks_are_quantised_once_and_gathered(kind, gated):
    """The same bytes whichever chunks are asked for: nothing is quantised again by a gather."""
    block = randomise(Block(with_backbone(SMALL, gated=gated).backbone))
    ffn = FastFFN(block, chunks=8, dtype=torch.float32, kind=kind)
    keep = torch.tensor([0, 5])
    some, whole = ffn.choose(keep), ffn.choose(None)
    per = len(whole.bias) // 8
    rows = torch.cat([torch.arange(per * c, per * c + per) for c in keep])
    columns = torch.cat([torch.arange(8 * c, 8 * c + 8) for c in keep])
    as_bytes = [t.view(torch.uint8) for t in (some.up.values, whole.up.values)]
    assert torch.equal(as_bytes[0], as_bytes[1][rows])
    assert torch.equal(some.up.scale, whole.up.scale[rows])
    as_bytes = [t.view(torch.uint8) for t in (some.down.values, whole.down.values)]
    assert torch.equal(as_bytes[0], as_bytes[1][:, columns])
    assert torch.equal(some.down.scale, whole.down.scale)

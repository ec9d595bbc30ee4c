"""Details of the released models that no count of parameters shows, each re-stated naively."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adadino.peers import build_peer
from adadino.peers.ban import BRANCH
from adadino.peers.bit import Layer
from adadino.peers.changeformer import ENCODER, Enlarge
from adadino.peers.mit import MixBlock, MixTransformer
from adadino.peers.tinycd import MBConv, Mixing, Up
from tests.conftest import randomise


def watch(**parts: nn.Module) -> dict[str, tuple[tuple[Tensor, ...], Tensor]]:
    """What goes in and comes out of some parts of a model, once it has run."""
    seen: dict[str, tuple[tuple[Tensor, ...], Tensor]] = {}
    for name, part in parts.items():

        def keep(_: nn.Module, given: tuple[Tensor, ...], out: Tensor, name: str = name) -> None:
            seen[name] = given, out

        part.register_forward_hook(keep)
    return seen


def images(size: int = 32) -> tuple[Tensor, Tensor]:
    return torch.rand(2, 3, size, size), torch.rand(2, 3, size, size)


@pytest.mark.parametrize("head_dim", [8, 64])
@torch.inference_mode()
def test_bit_scales_attention_by_the_token_width(head_dim):
    """Released: `self.scale = dim ** -0.5` with dim = 32, whatever a head has."""
    layer = randomise(Layer(head_dim=head_dim), 0.5).double()
    x, memory = torch.randn(1, 3, 32).double(), torch.randn(1, 4, 32).double()
    q, k, v = (
        layer.query(layer.norm1(x)),
        *(linear(layer.norm1(memory)) for linear in (layer.key, layer.value)),
    )
    read = torch.zeros(1, 3, 8 * head_dim).double()
    for head in range(8):
        cut = slice(head * head_dim, (head + 1) * head_dim)
        for i in range(3):
            dots = [float(q[0, i, cut] @ k[0, j, cut]) / math.sqrt(32) for j in range(4)]
            weights = [math.exp(d - max(dots)) for d in dots]
            for j in range(4):
                read[0, i, cut] += weights[j] / sum(weights) * v[0, j, cut]
    y = x + layer.proj(read)
    assert torch.allclose(layer(x, memory), y + layer.ffn(layer.norm2(y)))


@torch.inference_mode()
def test_snunet_enlarges_the_second_date():
    """Released: `conv0_1(cat([x0_0A, x0_0B, Up1_0(x1_0B)]))`, and so at every level."""
    model = build_peer("snunet").eval()
    seen = watch(**{f"node{i}": model.nodes[f"{i}_1"] for i in range(4)})
    before, after = images()
    model(before, after)

    def levels(image: Tensor) -> list[Tensor]:
        x, maps = model.prepare(image), []
        for unit in model.encoder:
            maps.append(unit(F.max_pool2d(x, 2) if maps else x))
            x = maps[-1]
        return maps

    first, second = levels(before), levels(after)
    for i in range(4):
        up = model.ups[f"{i + 1}_0"](second[i + 1])
        joined = torch.cat((first[i], second[i], up), dim=1)
        assert torch.allclose(seen[f"node{i}"][0][0], joined, atol=1e-4)


@pytest.mark.parametrize("name", ["fc-siam-diff", "fc-siam-conc"])
@torch.inference_mode()
def test_fc_siam_decodes_from_the_second_date(name):
    """Released: `upconv4(x4p)`, where x4p is what the second pass of the encoder left behind."""
    model = build_peer(name).eval()
    seen = watch(decoder=model.decoder)
    before, after = images()
    model(before, after)
    *first, _ = model.encoder(model.prepare(before))
    *second, deepest = model.encoder(model.prepare(after))
    x, skips = seen["decoder"][0]
    assert torch.allclose(x, deepest, atol=1e-5)
    for skip, one, two in zip(skips, first, second, strict=True):
        joined = (one - two).abs() if name == "fc-siam-diff" else torch.cat((one, two), dim=1)
        assert torch.allclose(skip, joined, atol=1e-5)


@torch.inference_mode()
def test_changeformer_enlarges_with_a_tenth_of_the_residual():
    """Released: `conv2(relu(conv1(x))) * 0.1`, added to x."""
    enlarge = randomise(Enlarge(), 0.05)
    x = torch.randn(1, 256, 3, 4)
    up = enlarge.up(x)
    residual = enlarge.conv2(enlarge.conv1(up).clamp_min(0))
    assert residual.abs().mean() > 0.1 * up.abs().mean()  # it is not lost in the comparison
    assert torch.allclose(enlarge(x), up + residual / 10, atol=1e-5)


@torch.inference_mode()
def test_changeformer_adds_the_coarser_comparison():
    """Released: `_c3 = diff_c3(..) + F.interpolate(_c4, scale_factor=2, mode="bilinear")`."""
    model = build_peer("changeformer").eval()
    differences = {f"d{i}": part for i, part in enumerate(model.difference)}
    predictions = {f"p{i}": part for i, part in enumerate(model.prediction)}
    seen = watch(**differences, **predictions)
    before, after = images(64)
    model(before, after)
    total = seen["d3"][1]
    for i in (3, 2, 1, 0):
        if i < 3:
            total = seen[f"d{i}"][1] + F.interpolate(total, scale_factor=2, mode="bilinear")
        ((compared,), _) = seen[f"p{i}"]
        assert torch.allclose(compared, total, atol=1e-5)


@pytest.mark.parametrize(("config", "blocks"), [(ENCODER, 13), (BRANCH, 8)], ids=["v6", "b0"])
def test_the_stochastic_depth_of_a_mix_transformer_rises_evenly_to_a_tenth(config, blocks):
    """Released: `torch.linspace(0, drop_path_rate, sum(depths))`, drop_path_rate = 0.1."""
    with torch.device("meta"):
        model = MixTransformer(config)
    rates = [m.drop_path.rate for m in model.modules() if isinstance(m, MixBlock)]
    assert rates == pytest.approx([0.1 * i / (blocks - 1) for i in range(blocks)])


def test_a_block_leaves_its_branches_out_for_whole_samples():
    block = randomise(MixBlock(8, 2, 1, dropout=0.0, drop_path=0.5)).train()
    with torch.no_grad():
        block.ffn.down.weight.zero_()
        block.ffn.down.bias.zero_()
    x = torch.randn(64, 6, 8)
    branch = block.attention(block.norm1(x), (2, 3))
    moved = block(x, (2, 3)) - x
    kept = moved.abs().amax((1, 2)) > 0
    assert 16 < int(kept.sum()) < 48
    assert torch.allclose(moved[kept], 2 * branch[kept], atol=1e-5)
    assert torch.allclose(block.eval()(x, (2, 3)) - x, branch, atol=1e-5)


@torch.inference_mode()
def test_tinycd_compares_each_channel_with_its_counterpart():
    """Released: `torch.stack((x, y), dim=2)` reshaped, then a convolution with a group each."""
    mixing = randomise(Mixing(5))
    before, after = torch.randn(2, 5, 6, 7), torch.randn(2, 5, 6, 7)
    channels = []
    for c in range(5):
        both = torch.stack((before[:, c], after[:, c]), dim=1)
        weight, bias = mixing.conv.weight[c : c + 1], mixing.conv.bias[c : c + 1]
        channels.append(F.conv2d(both, weight, bias, padding=1))
    y = torch.cat(channels, dim=1)
    y = torch.where(y < 0, y * mixing.act.weight, y)
    deviation = (y.var((2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()
    expected = (y - y.mean((2, 3), keepdim=True)) / deviation
    assert torch.allclose(mixing(torch.cat((before, after))), expected, atol=1e-4)


@torch.inference_mode()
def test_tinycd_enlarges_with_aligned_corners_under_the_mask():
    """Released: `Upsample(scale_factor=2, mode="bilinear", align_corners=True)`, times the mask."""
    up = Up(2, 2)
    up.conv = nn.Identity()
    x, mask = torch.randn(1, 2, 3, 4), torch.rand(1, 1, 6, 8)
    got = up(x, mask)
    for i in range(6):
        for j in range(8):
            y, z = i * 2 / 5, j * 3 / 7  # the first and the last fall on the first and the last
            top, left = min(int(y), 1), min(int(z), 2)
            v, w = y - top, z - left
            upper = (1 - w) * x[0, :, top, left] + w * x[0, :, top, left + 1]
            lower = (1 - w) * x[0, :, top + 1, left] + w * x[0, :, top + 1, left + 1]
            expected = ((1 - v) * upper + v * lower) * mask[0, 0, i, j]
            assert torch.allclose(got[0, :, i, j], expected, atol=1e-5)


def test_the_stochastic_depth_of_tinycd_s_trunk_is_the_whole_network_s():
    """EfficientNet-b4: 0.2 * block / 32, of which the first ten blocks are here."""
    with torch.device("meta"):
        model = build_peer("tinycd")
    rates = [m.drop_path.rate for m in model.modules() if isinstance(m, MBConv)]
    assert rates == pytest.approx([0.2 * i / 32 for i in range(10)])

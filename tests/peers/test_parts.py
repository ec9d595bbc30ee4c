"""MobileSAM's encoder and FAEWNet's parts compute what their authors' code computes.

`parts.json` holds the names and shapes of the authors' tensors, and values that their code gave in
float64 for the weights and inputs below, at widths that keep the file small.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from adadino.model.pair import split_dates
from adadino.peers.faewnet import FourierAdapter, SimplePyramid, TimeGate, real_fourier
from adadino.peers.mobile_sam import MobileSAM, load_mobile_sam, our_name
from adadino.peers.warping import Warping, shift
from tests.conftest import randomise
from tests.peers.formula import formula

FACTS = json.loads((Path(__file__).parent / "parts.json").read_text())


def theirs(part: str) -> dict[str, Tensor]:
    return formula({name: tuple(shape) for name, shape in FACTS[part]["tensors"].items()})


def wave(*shape: int) -> Tensor:
    count = math.prod(shape)
    return torch.sin(0.37 * torch.arange(count, dtype=torch.float64)).reshape(shape)


def points(x: Tensor) -> list[float]:
    flat, n = x.flatten(), x.numel()
    return [float(flat[i]) for i in (0, n // 3, n // 2 + 5, 2 * n // 3 + 7, n - 1)]


def renamed(tensors: dict[str, Tensor], rules: dict[str, str]) -> dict[str, Tensor]:
    ours = {}
    for name, tensor in tensors.items():
        for pattern, new in rules.items():
            name = re.sub(pattern, new, name)
        ours[name] = tensor
    return ours


def check(part: str, model: nn.Module, weights: dict[str, Tensor], *given: Tensor) -> None:
    model = model.double()
    for mode in ("eval", "train"):
        if mode in FACTS[part]:
            model.load_state_dict(weights)
            found = model.train(mode == "train")(*given)
            found = [found] if isinstance(found, Tensor) else found
            for one, other in zip(found, FACTS[part][mode], strict=True):
                assert points(one) == pytest.approx(other, abs=1e-6), (part, mode)


@torch.no_grad()
def test_mobile_sams_encoder():
    """160 pixels: the windows of 7 and of 14 reach beyond maps of 20 and 10."""
    weights = {our_name(name): tensor for name, tensor in theirs("encoder").items()}
    weights = {name: t for name, t in weights.items() if not re.match(r"(norm_)?head\.", name)}
    check("encoder", MobileSAM(), weights, wave(1, 3, 160, 160))


@torch.no_grad()
def test_the_fourier_adapter():
    weights = renamed(
        {name: t for name, t in theirs("adapter").items() if ".5.fc1" not in name},
        {
            r"mbconv\.0\.": "widen.",
            r"mbconv\.2\.DACA\.conv\.": "statistics.mix.",
            r"mbconv\.3\.": "filter.",
            r"mbconv\.5\.fc\.0\.": "excite.",
            r"mbconv\.6\.": "narrow.",
        },
    )
    squeezed = [theirs("adapter")[f"mbconv.5.fc{i}.0.weight"] for i in (1, 2, 3, 4)]
    weights = {name: t for name, t in weights.items() if "mbconv" not in name}
    weights["squeeze.weight"] = torch.cat(squeezed)  # four layers side by side
    check("adapter", FourierAdapter(64), weights, wave(2, 64, 5, 6))


class BothDates(nn.Module):
    """The warping with its widening, one date after the other, as FAEWNet runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.warping = Warping(8)

    def forward(self, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        wide = self.warping.widen(before), self.warping.widen(after)
        return self.warping(before, after, *wide)


@torch.no_grad()
def test_the_warping():
    weights = renamed(
        {name: t for name, t in theirs("warping").items() if not name.startswith("conv.")},
        {
            r"flow_make\.": "warping.flow.",
            r"RFAConv\.cdcm\.conv1\.": "warping.widen.ranges.reduce.",
            r"RFAConv\.cdcm\.conv2_1\.": "warping.widen.ranges.dilated.0.",
            r"RFAConv\.cdcm\.conv2_2\.": "warping.widen.ranges.dilated.1.",
            r"RFAConv\.cdcm\.conv2_3\.": "warping.widen.ranges.dilated.2.",
            r"RFAConv\.cdcm\.conv2_4\.": "warping.widen.ranges.dilated.3.",
            r"RFAConv\.cdcm\.DepthwiseSeparableConv\.depthwise\.": "warping.widen.ranges.filter.0.",
            r"RFAConv\.cdcm\.DepthwiseSeparableConv\.pointwise\.": "warping.widen.ranges.filter.1.",
            r"RFAConv\.get_weights\.": "warping.widen.weigh.",
            r"RFAConv\.conv\.": "warping.widen.join.",
            r"RFAConv\.bn\.": "warping.widen.norm.",
            r"RFAConv\.feature_reuse\.conv\.": "warping.widen.again.",
            r"RFAConv\.ensemble_learning\.models\.": "warping.widen.experts.",
        },
    )
    # Theirs spreads each neighbourhood out and strides over it; ours keeps it as channels.
    join = "warping.widen.join.weight"
    weights[join] = weights[join].flatten(1)[..., None, None]
    dates = wave(2, 8, 9, 7), wave(2, 8, 9, 7).flip(-1) * 0.7
    check("warping", BothDates(), weights, *dates)


@torch.no_grad()
def test_the_pyramid():
    weights = renamed(
        theirs("pyramid"),
        {
            r"fpn1\.": "four.",
            r"fpn2\.0\.": "two.",
            r"lateral_convs\.(\d)\.conv\.": r"levels.\1.0.",
            r"lateral_convs\.(\d)\.bn\.": r"levels.\1.1.",
            r"fpn_convs\.(\d)\.conv\.": r"levels.\1.2.",
            r"fpn_convs\.(\d)\.bn\.": r"levels.\1.3.",
        },
    )
    check("pyramid", SimplePyramid(16, 8), weights, wave(2, 16, 4, 6))


@torch.no_grad()
def test_the_second_date_receives_from_the_changed_first_one():
    """Released: `x0 = x0 + soft_ffn(x1 * map)`, then `x1 = x1 + soft_ffn(x0 * map)`."""
    gate = randomise(TimeGate(6), 0.5)
    pair = torch.randn(4, 6, 3, 5)
    before, after = split_dates(pair)
    seen = torch.sigmoid(gate.gate(torch.cat((before, after), dim=1)))
    first = before + gate.ffn(after * seen)
    second = after + gate.ffn(first * seen)
    assert torch.allclose(gate(pair), torch.cat((first, second)), atol=1e-6)


@pytest.mark.parametrize("size", [(5, 6), (1, 8), (16, 16)], ids=str)
def test_the_real_part_of_the_fourier_transform(size):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    assert torch.allclose(real_fourier(x), torch.fft.fft2(x).real, atol=1e-10)


def test_a_shift_of_a_cell_moves_the_map_by_a_cell():
    """A cell is 2 / (w - 1) of the grid's width, and a flow is divided by w."""
    x = torch.arange(20.0).view(1, 1, 4, 5)
    flow = torch.zeros(1, 2, 4, 5)
    flow[:, 0] = 2 * 5 / (5 - 1)
    assert torch.allclose(shift(x, flow)[..., :-1], x[..., 1:], atol=1e-5)


def test_mobile_sams_file_is_read_by_name(tmp_path):
    weights = theirs("encoder")
    held = {f"image_encoder.{name}": t.float() for name, t in weights.items()}
    held["mask_decoder.mask_tokens.weight"] = torch.zeros(1)
    path = tmp_path / "mobile_sam.pt"
    torch.save(held, path)
    encoder = load_mobile_sam(path)
    found = encoder.stages[1][0].qkv.weight
    assert torch.equal(found, held["image_encoder.layers.1.blocks.0.attn.qkv.weight"])
    assert not encoder.training

